// The prefix sum, one operation: recovery is to run it again.
#include "prefix_sum/prefix_sum.hpp"

#include <memory>

#include "checking/sized_offer.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::check {
namespace {

std::uint32_t number(std::uint64_t i) {
  return static_cast<std::uint32_t>(i * 7 % 5);
}  // zeros, too

std::shared_ptr<PinnedBuffer<std::uint32_t>> numbers(std::uint64_t count) {
  auto result = std::make_shared<PinnedBuffer<std::uint32_t>>(count);
  for (std::uint64_t i = 0; i < count; ++i) (*result)[i] = number(i);
  return result;
}

void compute(Region& region, const std::uint32_t* input) {
  prefix_sum::PrefixSum sum = prefix_sum::PrefixSum::open(region);
  Stream stream;
  sum.run(stream, input);
  stream.synchronize();
}

// An item is a partial sum, then a final one. All of them are there after recovery, whatever was
// there before it.
std::string verify(Region& region, const std::vector<std::uint64_t>& expected, std::uint64_t item) {
  const auto* const rows =
      static_cast<const std::uint64_t*>(region.address(region.object("prefix_sum")));
  const std::uint64_t stored = rows[item];
  if (stored == expected[item] + 1) return {};
  return detail::concat("sum ", item, " is stored as ", stored, ", and should be as ",
                        expected[item] + 1);
}

Program make(const Sizes& sizes) {
  using prefix_sum::PrefixSum;
  const std::uint32_t blocks = sizes.blocks;
  const std::uint32_t threads = sizes.threads;
  const std::uint64_t count = std::uint64_t{blocks} * threads;
  const auto input = numbers(count);
  auto expected = std::make_shared<std::vector<std::uint64_t>>(2 * count);
  for (std::uint64_t i = 0, sum = 0, of_row = 0; i < count; ++i) {
    of_row = i % threads == 0 ? number(i) : of_row + number(i);
    (*expected)[i] = of_row;
    (*expected)[count + i] = sum += number(i);
  }
  Program program;
  program.region_bytes = PrefixSum::object_bytes(blocks, threads) + (1u << 18);
  program.set_up = [=](Region& region) { PrefixSum::create(region, blocks, threads); };
  program.run = [=](Region& region, Session& session) {
    session.start();
    compute(region, input->data());
    session.acknowledge();
  };
  program.recover = [=](Region& region) { compute(region, input->data()); };
  program.items = expected->size();
  program.verify = [=](Region& region, const History&, std::uint64_t item) {
    return verify(region, *expected, item);
  };
  return program;
}

}  // namespace
}  // namespace holdfast::check

namespace prefix_sum {

std::vector<holdfast::check::Offer> check_programs() {
  return {holdfast::check::sized_offer("prefix_sum",
                                       "prefix sum (GPM, Figure 8), recovered by running again",
                                       {4, 2, 0}, holdfast::check::make, {{2, 2, 0}, {3, 3, 0}})};
}

}  // namespace prefix_sum
