#include <algorithm>
#include <memory>
#include <optional>

#include "bfs/bfs.hpp"
#include "bfs/search.hpp"
#include "workload/cpu_flush.hpp"
#include "workload/inputs.hpp"

namespace bfs {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using workload::Array;
using workload::Backing;
using workload::Mode;
using workload::Settings;
using workload::Size;
using u32 = std::uint32_t;

constexpr const char* kRealInput = "road/NY.gr.xz";
constexpr std::uint32_t kMostSide = 1u << 16;

struct Shape {
  u32 width;
  u32 height;
};

// Of generated graphs. With the source in the middle these take 74, 881 and 5,866 levels.
Shape default_shape(Size size) {
  switch (size) {
    case Size::test:
      return {96, 32};
    case Size::real:
      return {1600, 160};
    case Size::paper:
      break;
  }
  return {9000, 2667};
}

struct Input {
  Graph graph;
  std::string words;
  u32 source;  // by default
};

Input real_input(const std::string& text, const std::string& name, const std::string& words) {
  Input input;
  input.graph = parse_graph(text, name);
  input.words = words;
  input.source = 0;
  return input;
}

Input generated_input(const Settings& settings) {
  const Shape usual = default_shape(settings.size);
  const auto width =
      static_cast<u32>(workload::number_option(settings, "width", usual.width, 1, kMostSide));
  const auto height =
      static_cast<u32>(workload::number_option(settings, "height", usual.height, 1, kMostSide));
  if (std::uint64_t{width} * height > kMostNodes) {
    throw Error(Errc::invalid_argument, concat("options width=", width, " and height=", height,
                                               ": give at most ", kMostNodes, " nodes"));
  }
  Input input;
  input.graph = make_road_grid(width, height, settings.seed);
  const char* const instead = settings.size == Size::paper  ? ", in place of the USA road network"
                              : settings.size == Size::real ? ", in place of New York's roads"
                                                            : "";
  input.words = concat("generated", instead, ": road grid of ", width, " x ", height);
  input.source = height / 2 * width + width / 2;
  return input;
}

Input read_or_make(const Settings& settings) {
  const auto named = workload::read_named_input(
      settings, "graph",
      "a graph in the DIMACS form, such as a road network of the 9th DIMACS challenge "
      "(http://www.diag.uniroma1.it/challenge9)");
  if (named) return real_input(named->text, named->path, named->path);
  if (settings.size == Size::real) {
    const auto text = workload::read_input(settings.data_folder, kRealInput);
    if (text) return real_input(*text, kRealInput, "New York road network");
  }
  return generated_input(settings);
}

class Bfs final : public workload::Workload {
 public:
  explicit Bfs(const Settings& settings) : mode_(settings.mode) {
    Input input = read_or_make(settings);
    graph_ = std::move(input.graph);
    source_ = static_cast<u32>(workload::number_option(settings, "source", input.source + 1, 1,
                                                       graph_.nodes())) -
              1;
    words_ = concat(input.words, ", ", graph_.nodes(), " nodes, ", graph_.targets.size(),
                    " arcs, from node ", source_ + 1);
    levels_per_step_ = workload::number_option(settings, "levels_per_step",
                                               settings.size == Size::test ? 16 : 64, 1, 1u << 20);
    publish_steps_ =
        workload::choice_option<bool>(settings, "publish", {{"level", false}, {"step", true}});
    publish_costs_ = workload::number_option(settings, "publish_costs", 0, 0, 1) != 0;
    // The number of steps has to be known beforehand, so the oracle searches first.
    expected_ = oracle_costs(graph_, source_);
    u32 deepest = 0;
    for (const u32 cost : expected_) {
      if (cost != kUnreached) deepest = std::max(deepest, cost);
    }
    levels_ = deepest + 1;  // the last one finds nothing, which is how a search ends
    steps_ = (levels_ + levels_per_step_ - 1) / levels_per_step_;
    if (settings.steps != 0) steps_ = std::min(steps_, settings.steps);
  }

  std::string input() const override { return words_; }
  std::uint64_t steps() const override { return steps_; }
  std::uint64_t medium_bytes() const override {
    return (2 * std::uint64_t{graph_.nodes()} + levels_ + 1) * sizeof(u32);
  }
  std::uint64_t kernel_bytes() const override {
    const Reached now = reached();
    const std::uint64_t ends = ends_come_later() ? 0 : now.levels - resumed_.levels;
    return (std::uint64_t{now.end - resumed_.end} + ends + costs_stored_) * sizeof(u32);
  }

  // Costs go in the order of nodes.
  std::uint64_t streamed_bytes() const override { return costs_stored_ * sizeof(u32); }

  void prepare(Backing& backing) override {
    backing_ = &backing;
    costs_ = backing.array<u32>("costs", graph_.nodes());
    sequence_ = backing.array<u32>("sequence", graph_.nodes());
    ends_ = backing.array<u32>("ends", levels_ + 1);
    Durable durable{costs_.data, sequence_.data, ends_.data};
    if (mode_ == Mode::cpu) {
      on_cpu_.emplace(graph_, durable, levels_, backing.cpu_threads());
      return;
    }
    if (workload::stores_directly(mode_)) {
      volatile_costs_ = holdfast::DeviceBuffer<u32>(graph_.nodes());
      holdfast::fill_async(backing.stream(), volatile_costs_.data(), 0, volatile_costs_.bytes());
      durable.costs = volatile_costs_.data();
    }
    if (ends_come_later()) {
      volatile_ends_ = holdfast::DeviceBuffer<u32>(levels_ + 1);
      holdfast::copy_async(backing.stream(), volatile_ends_.data(), ends_.data,
                           volatile_ends_.bytes());
      durable.ends = volatile_ends_.data();
    }
    by_kernels_.emplace(backing.stream(), graph_, durable, levels_,
                        !workload::kernel_persists(mode_) ? Persists::never
                        : publish_steps_                  ? Persists::expansions
                                                          : Persists::levels);
    if (gathers_levels()) by_kernels_->set_up_gathering();
  }

  std::uint64_t resume() override {
    resumed_ = on_cpu_ ? on_cpu_->recover(source_) : by_kernels_->recover(source_);
    if (gathers_levels()) forget_ends(resumed_.levels + 1);
    if (resumed_.levels == 0) publish_source();
    if (backing_->progress() == steps_) return steps_;
    // The last step has something to do behind its levels.
    return std::min(resumed_.levels / levels_per_step_, steps_ - 1);
  }

  void step(std::uint64_t number) override {
    const u32 goal = last_level(number + 1);
    const u32 before = reached().levels;
    if (on_cpu_) {
      on_cpu_->expand(goal - std::min(goal, before));
    } else if (workload::kernel_persists(mode_)) {
      by_kernels_->expand(goal - std::min(goal, before));
    } else if (gathers_levels()) {
      for (u32 level = before; level < goal;) {
        const u32 first = reached().end;
        const Gathered found = by_kernels_->expand_gathered(publish_steps_ ? goal - level : 1);
        store_levels(found, first, level + 1);
        level += found.levels;
      }
    } else {
      // The CPU persists each level, as kernels do where they can.
      for (u32 level = before; level < goal; ++level) {
        by_kernels_->expand(1);
        publish(reached().begin, reached().end, level + 1);
      }
    }
    if (number + 1 < steps_) return;
    if (!stores_costs_with_levels()) publish_costs();
    if (on_cpu_) backing_->flush_parallel(costs_.data, costs_.count * sizeof(u32));
    backing_->set_progress(steps_);
  }

  workload::Digest digest() override;
  std::string verify() override;

 private:
  const Reached& reached() const { return on_cpu_ ? on_cpu_->reached() : by_kernels_->reached(); }
  // Levels that are expanded after `steps` steps.
  u32 last_level(std::uint64_t steps) const {
    return static_cast<u32>(std::min<std::uint64_t>(steps * levels_per_step_, levels_));
  }
  // Kernels store to the medium, and do not order what they store.
  bool ends_come_later() const {
    return workload::stores_directly(mode_) && !workload::kernel_persists(mode_);
  }
  // One copy brings what levels add, and CPU threads store it from there.
  bool gathers_levels() const {
    return !on_cpu_ && !workload::stores_directly(mode_) && mode_ != Mode::gpufs;
  }
  // The nodes of a level, and then its end. Costs follow from these (recovery makes them), so the
  // least to transfer is what a level adds to the sequence.
  void publish(u32 begin, u32 end, u32 level);
  void publish_source();
  void publish_costs();
  void store_end(u32 level, u32 end);
  // The same of what levels add, by CPU threads that know the nodes: `first` is their place in the
  // sequence, `level` the first level's. In mode cap_delta the costs, too, before the ends.
  void store_levels(const Gathered& found, u32 first, u32 level);
  void store_costs(const Gathered& found, u32 first, u32 level);
  // A kill may have left some of several ends, and not those before them.
  void forget_ends(u32 from);
  bool stores_costs_with_levels() const {
    return mode_ == Mode::cap_delta || (mode_ == Mode::cap_delta_raw && publish_costs_);
  }
  std::string verify_sequence(u32 levels);

  Mode mode_;
  Graph graph_;
  u32 source_ = 0;
  std::string words_;
  std::uint64_t levels_per_step_ = 0;
  bool publish_steps_ = false;  // where levels are gathered, or kernels persist
  bool publish_costs_ = false;
  std::vector<u32> expected_;
  u32 levels_ = 0;
  std::uint64_t steps_ = 0;

  Backing* backing_ = nullptr;
  Array<u32> costs_;
  Array<u32> sequence_;
  Array<u32> ends_;
  holdfast::DeviceBuffer<u32> volatile_costs_;  // where kernels store to the medium
  holdfast::DeviceBuffer<u32> volatile_ends_;
  std::uint64_t costs_stored_ = 0;  // by kernels, to the medium
  std::optional<Search> by_kernels_;
  std::optional<CpuSearch> on_cpu_;
  Reached resumed_;
};

void Bfs::publish(u32 begin, u32 end, u32 level) {
  backing_->publish(sequence_, begin, end - begin);
  if (publish_costs_) publish_costs();
  store_end(level, end);
}

void Bfs::publish_source() {
  if (workload::kernel_persists(mode_) || on_cpu_) return;
  if (gathers_levels()) {
    const u32 end = 1;
    store_levels({&source_, &end, 1}, 0, 0);
  } else {
    publish(0, 1, 0);
  }
}

void Bfs::publish_costs() {
  if (workload::stores_directly(mode_)) {
    by_kernels_->store_costs(costs_.data);
    costs_stored_ += costs_.count;
  }
  backing_->publish(costs_);
}

// The host knows it: it is not copied from the device.
void Bfs::store_end(u32 level, u32 end) {
  const Backing::Piece piece[] = {{level * sizeof(u32), &end, sizeof(end)}};
  backing_->timed([&] { backing_->store(ends_.id, piece); });
}

void Bfs::store_levels(const Gathered& found, u32 first, u32 level) {
  if (found.levels == 0) return;
  const u32 added = found.ends[found.levels - 1] - first;
  const Backing::Piece nodes[] = {{first * sizeof(u32), found.nodes, added * sizeof(u32)}};
  const Backing::Piece ends[] = {{level * sizeof(u32), found.ends, found.levels * sizeof(u32)}};
  backing_->timed([&] {
    backing_->store(sequence_.id, nodes);
    if (stores_costs_with_levels()) store_costs(found, first, level);
  });
  if (publish_costs_ && !workload::gathers(mode_)) publish_costs();
  backing_->timed([&] { backing_->store(ends_.id, ends); });
}

void Bfs::store_costs(const Gathered& found, u32 first, u32 level) {
  constexpr u32 kPart = 512;  // nodes: fewer are not worth waking a thread for
  auto* const costs = reinterpret_cast<u32*>(backing_->on_medium(costs_.id));
  const u32* const ends_end = found.ends + found.levels;
  const std::uint64_t added = ends_end[-1] - first;
  holdfast::testing::Throttle& medium = backing_->throttle();
  const holdfast::testing::Throttle::Mark begun = medium.mark();
  backing_->team().for_chunks(added, kPart, [&](unsigned, std::uint64_t from, std::uint64_t count) {
    const u32* const nodes = found.nodes + from;
    // The level of the first node, and of those behind it.
    const u32* end = std::upper_bound(found.ends, ends_end, static_cast<u32>(first + from));
    workload::store_scattered(
        count, [&](std::uint64_t i) { return costs + nodes[i]; },
        [&](std::uint64_t i) {
          while (first + from + i >= *end) ++end;
          costs[nodes[i]] = level + static_cast<u32>(end - found.ends) + 1;
        });
  });
  backing_->count_written(added * sizeof(u32));
  medium.write(begun, added * sizeof(u32), holdfast::testing::Access::random);
  medium.wait();
}

void Bfs::forget_ends(u32 from) {
  if (from > levels_) return;
  const std::vector<u32> none(levels_ + 1 - from);
  const Backing::Piece piece[] = {{from * sizeof(u32), none.data(), none.size() * sizeof(u32)}};
  backing_->store(ends_.id, piece);
}

// Costs, where levels end, and which nodes are in each: in a level they are in any order.
workload::Digest Bfs::digest() {
  const std::vector<u32> ends = backing_->durable(ends_);
  const std::vector<u32> sequence = backing_->durable(sequence_);
  workload::PairDigester nodes;
  u32 i = 0;
  for (u32 level = 0; level <= last_level(steps_); ++level) {
    for (; i < ends[level] && i < sequence.size(); ++i) nodes.add(level, sequence[i]);
  }
  const workload::Digest each[] = {
      workload::digest_of(backing_->durable(costs_)),
      workload::digest_of(ends.data(), (last_level(steps_) + 1) * sizeof(u32)), nodes.finish()};
  return workload::digest_of(each, sizeof(each));
}

std::string Bfs::verify() {
  const u32 levels = last_level(steps_);
  const std::vector<u32> costs = backing_->durable(costs_);
  for (std::size_t node = 0; node < costs.size(); ++node) {
    const u32 expected = expected_[node] <= levels ? expected_[node] + 1 : 0;
    if (costs[node] != expected) {
      return concat("node ", node + 1, ": its cost is stored as ", costs[node],
                    ", and should be as ", expected);
    }
  }
  return verify_sequence(levels);
}

// Each node that was reached is there once, in the order of its cost, and the ends are right.
std::string Bfs::verify_sequence(u32 levels) {
  const std::vector<u32> sequence = backing_->durable(sequence_);
  const std::vector<u32> ends = backing_->durable(ends_);
  std::vector<bool> seen(graph_.nodes());
  u32 i = 0;
  for (u32 level = 0; level <= levels; ++level) {
    for (; i < ends[level] && i < sequence.size(); ++i) {
      const u32 node = sequence[i];
      if (node >= graph_.nodes() || seen[node] || expected_[node] != level) {
        return concat("place ", i, " of the search sequence holds ", node,
                      ", which does not belong into level ", level);
      }
      seen[node] = true;
    }
  }
  for (std::size_t node = 0; node < expected_.size(); ++node) {
    if (seen[node] != (expected_[node] <= levels)) {
      return concat("node ", node + 1, " is missing in the search sequence");
    }
  }
  return {};
}

}  // namespace

workload::Info info() {
  return {
      .name = "bfs",
      .summary = "breadth-first search with persistent costs and search sequence",
      .kind = workload::Info::Class::native,
      .table_row = 7,
      .options =
          {{"graph",
            "file in the DIMACS form, .gz and .xz too (default: the New York road network)"},
           {"source",
            "node to start from, counted from 1 (default 1; of a generated graph its middle)"},
           {"levels_per_step", "levels in a step (default 64; size test: 16)"},
           {"publish",
            "level (default) or step: when what levels add is persisted, in the modes cap-*, gpm "
            "and eadr"},
           {"publish_costs",
            "1: where the CPU persists, all costs after each level; 0: once, at the end (default); "
            "cap-delta stores those of the level with it"},
           {"width", "of a generated graph (default 96, 1,600 or 9,000 by size)"},
           {"height", "of a generated graph (default 32, 160 or 2,667 by size)"}},
      .make = [](const Settings& settings) { return std::make_unique<Bfs>(settings); },
      .kernel_access = holdfast::testing::Access::unaligned,  // runs of the sequence
  };
}

std::vector<workload::Info> workloads() { return {info()}; }

}  // namespace bfs
