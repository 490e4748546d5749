// The reduction, one operation: recovery is to run it again.
#include "reduction/reduction.hpp"

#include <memory>

#include "checking/sized_offer.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::check {
namespace {

using reduction::Reduction;

// As many numbers as threads, zeros among them.
std::uint32_t number(std::uint64_t i) { return static_cast<std::uint32_t>(i * 7 % 5); }

// What thread `thread` of a block has when it ends: its number, and what the threads had that it
// was given. The last is itself a tree of the same shape.
std::uint64_t partial_sum(std::uint64_t first, unsigned threads, unsigned thread) {
  unsigned half = 1;
  while (half * 2 < threads) half *= 2;
  std::uint64_t sum = number(first + thread);
  // It takes part while half > thread, and each time adds what the other one had by then.
  for (; half > thread && half > 0; half /= 2) {
    if (thread + half < threads) sum += partial_sum(first, threads, thread + half);
  }
  return sum;
}

struct Expected {
  explicit Expected(const Sizes& sizes) : blocks(sizes.blocks), threads(sizes.threads) {
    for (std::uint64_t i = 0; i < std::uint64_t{blocks} * threads; ++i) {
      const auto thread = static_cast<unsigned>(i % threads);
      partial.push_back(Reduction::encode(partial_sum(i - thread, threads, thread)));
      total += number(i);
    }
    total = Reduction::encode(total);
    input = PinnedBuffer<std::uint32_t>(partial.size());
    for (std::uint64_t i = 0; i < input.size(); ++i) input[i] = number(i);
  }
  std::uint32_t blocks;
  std::uint32_t threads;
  std::vector<std::uint64_t> partial;
  std::uint64_t total = 0;
  PinnedBuffer<std::uint32_t> input;
};

void compute(Region& region, const Expected& expected, Scope release) {
  Reduction sum = Reduction::open(region);
  Stream stream;
  sum.run(stream, expected.input.data(), expected.input.size(), release);
  stream.synchronize();
}

// An item is one partial sum; the one past the last is the total. All are there after recovery,
// whatever was there before it.
std::string verify(Region& region, const Expected& expected, std::uint64_t item) {
  const bool is_total = item == expected.partial.size();
  const char* const name = is_total ? "reduction.total" : "reduction.partial";
  const auto* const sums = static_cast<const std::uint64_t*>(region.address(region.object(name)));
  const std::uint64_t stored = sums[is_total ? 0 : item];
  const std::uint64_t wanted = is_total ? expected.total : expected.partial[item];
  if (stored == wanted) return {};
  return detail::concat(is_total ? "the total" : "a partial sum", " is stored as ", stored,
                        ", and should be as ", wanted);
}

Program make(const Sizes& sizes, Scope release) {
  const auto expected = std::make_shared<Expected>(sizes);
  Program program;
  program.region_bytes = expected->partial.size() * sizeof(std::uint64_t) + (1u << 18);
  program.set_up = [=](Region& region) {
    Reduction::create(region, expected->blocks, expected->threads);
  };
  program.run = [=](Region& region, Session& session) {
    session.start();
    compute(region, *expected, release);
    session.acknowledge();
  };
  program.recover = [=](Region& region) { compute(region, *expected, release); };
  program.items = expected->partial.size() + 1;
  program.verify = [=](Region& region, const History&, std::uint64_t item) {
    return verify(region, *expected, item);
  };
  return program;
}

std::function<Program(const Sizes&)> released_by(Scope release) {
  return [release](const Sizes& sizes) { return make(sizes, release); };
}

}  // namespace
}  // namespace holdfast::check

namespace reduction {

std::vector<holdfast::check::Offer> check_programs() {
  using holdfast::Scope;
  using holdfast::check::released_by;
  using holdfast::check::sized_offer;
  std::vector<holdfast::check::Offer> programs = {
      sized_offer("reduction", "tree reduction (SBRP, Figure 3), recovered by running again",
                  {4, 2, 0}, released_by(Scope::device), {{2, 1, 0}, {3, 2, 0}, {4, 2, 0}}),
      sized_offer("reduction_block_scope",
                  "the reduction with the scoped persistency bug of SBRP, section 5.3", {4, 2, 0},
                  released_by(Scope::block)),
  };
  programs.back().correct = false;
  return programs;
}

}  // namespace reduction
