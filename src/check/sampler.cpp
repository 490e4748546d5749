#include "check/sampler.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>

namespace holdfast::check {

namespace {

// Pairs are kept in memory: beyond this many, some of each kind.
constexpr std::uint64_t kMostPairs = 4'000'000;

}  // namespace

Sampler::Sampler(Explorer& explorer, const Options& options, const std::vector<std::uint32_t>& read,
                 std::function<bool()> out_of_budget)
    : explorer_(explorer),
      order_(explorer.order()),
      options_(options),
      out_of_budget_(std::move(out_of_budget)) {
  for (std::uint32_t cell = 0; cell < order_.cells().size(); ++cell) {
    if (cell >= read.size() || read[cell] == 0) continue;
    const auto& writes = order_.cells()[cell].writes;
    writes_.insert(writes_.end(), writes.begin(), writes.end());
  }
  std::sort(writes_.begin(), writes_.end());
  writes_.erase(std::unique(writes_.begin(), writes_.end()), writes_.end());
}

void Sampler::run() {
  try_pairs();
  if (!out_of_budget_()) try_deviations();
  if (!out_of_budget_()) try_random();
}

bool Sampler::try_state(std::size_t point, const Bitset& durable) {
  if (out_of_budget_()) return false;
  return explorer_.outcome(point, durable).verdict == 0;
}

// All that is executed, but for `write` and what is ordered behind it.
Bitset Sampler::without(std::size_t point, std::uint32_t write) const {
  const std::uint32_t executed = order_.points()[point].executed;
  Bitset state = Bitset::below(executed);
  for (std::uint32_t above = write; above < executed; ++above) {
    if (above == write || order_.ordered(write, above)) state.reset(above);
  }
  return state;
}

bool Sampler::try_pair(const Pair& pair) {
  const auto& points = order_.points();
  std::size_t first = points.size();
  std::size_t last = points.size();
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].executed <= pair.with || points[i].durable.test(pair.without)) continue;
    if (first == points.size()) first = i;
    last = i;
  }
  if (first == points.size()) return true;  // no point allows it
  Bitset smallest = points[first].durable;
  smallest |= order_.down(pair.with);
  smallest.set(pair.with);
  if (!smallest.test(pair.without) && !try_state(first, smallest)) return false;
  Bitset largest = pair.without < points[last].executed ? without(last, pair.without)
                                                        : Bitset::below(points[last].executed);
  if (!largest.test(pair.with) || !largest.contains(points[last].durable)) return true;
  return try_state(last, largest);
}

// Pairs of each kind (two places in the source, in one thread, block, or neither) in turn, so that
// each kind is tried early.
void Sampler::try_pairs() {
  const Trace& trace = order_.trace();
  using Kind = std::tuple<std::uint32_t, std::uint32_t, int>;
  std::map<Kind, std::vector<Pair>> kinds;
  const std::uint64_t n = writes_.size();
  const std::uint64_t step = std::max<std::uint64_t>(1, n * n / kMostPairs);
  std::uint64_t count = 0;
  for (const std::uint32_t without : writes_) {
    for (const std::uint32_t with : writes_) {
      if (without == with || order_.ordered(without, with)) continue;
      ++pairs_;
      if (count++ % step != 0) continue;
      const Write& a = order_.writes()[without];
      const Write& b = order_.writes()[with];
      const TraceThread& at = trace.threads[a.thread];
      const TraceThread& bt = trace.threads[b.thread];
      const int apart = a.thread == b.thread                             ? 0
                        : at.launch == bt.launch && at.block == bt.block ? 1
                                                                         : 2;
      kinds[{trace.ops[a.op].site, trace.ops[b.op].site, apart}].push_back({without, with});
    }
  }
  std::mt19937_64 random(options_.seed);
  for (auto& [kind, list] : kinds)
    std::shuffle(list.begin() + (list.empty() ? 0 : 1), list.end(), random);
  for (std::size_t turn = 0;; ++turn) {
    bool any = false;
    for (auto& [kind, list] : kinds) {
      if (turn >= list.size()) continue;
      any = true;
      if (!try_pair(list[turn])) return;
      ++pairs_tried_;
    }
    if (!any) return;
  }
}

void Sampler::try_deviations() {
  const std::size_t point = order_.points().size() - 1;
  const CrashPoint& where = order_.points()[point];
  std::mt19937_64 random(options_.seed);
  std::vector<std::uint32_t> some = writes_;
  std::shuffle(some.begin(), some.end(), random);
  constexpr std::size_t kTwo = 64;  // for two deviations, pairs among this many
  for (std::size_t i = 0; i < some.size(); ++i) {
    for (std::size_t j = i; j < std::min(i < kTwo ? kTwo : i + 1, some.size()); ++j) {
      Bitset all = without(point, some[i]);
      all &= without(point, some[j]);
      if (all.contains(where.durable) && !try_state(point, all)) return;
      Bitset none = where.durable;
      for (const std::uint32_t write : {some[i], some[j]}) {
        none |= order_.down(write);
        none.set(write);
      }
      if (!try_state(point, none)) return;
    }
  }
}

void Sampler::try_random() {
  std::mt19937_64 random(options_.seed);
  std::uint64_t idle = 0;
  while (!out_of_budget_() && idle < 1'000) {
    const std::size_t point = random() % order_.points().size();
    const CrashPoint& where = order_.points()[point];
    Bitset state = where.durable;
    const std::uint64_t share = random() % 101;
    for (std::uint32_t write = 0; write < where.executed; ++write) {
      if (random() % 100 < share && state.contains(order_.down(write))) state.set(write);
    }
    const std::uint64_t before = explorer_.runs();
    if (!try_state(point, state)) return;
    idle = explorer_.runs() == before ? idle + 1 : 0;
  }
}

}  // namespace holdfast::check
