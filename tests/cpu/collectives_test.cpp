// Every warp collective and voting barrier against a computation on the host.
#include <array>
#include <bit>
#include <vector>

#include "cpu/collectives.hpp"
#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

constexpr unsigned kThreads = 3 * 32 + 16;  // the last warp is half there

// What one thread gets, from the definitions in the CUDA programming guide.
std::uint64_t expected(Collective which, const std::vector<CollectiveInput>& in, unsigned thread) {
  const unsigned base = thread / 32 * 32, lane = thread % 32;
  const CollectiveInput& my = in[thread];
  std::vector<unsigned> members;
  for (unsigned i = 0; i < 32 && base + i < in.size(); ++i) {
    if (my.mask >> i & 1) members.push_back(i);
  }
  const auto word = [&](unsigned i) { return static_cast<std::uint32_t>(in[base + i].value); };
  const auto number = [&](unsigned i) { return static_cast<std::int32_t>(word(i)); };
  unsigned ballot = 0, same = 0, same64 = 0, all_mask = 0;
  std::uint32_t sum = 0, low = ~0u, high = 0, conj = ~0u, disj = 0, parity = 0;
  std::int32_t low_signed = INT32_MAX, high_signed = INT32_MIN;
  for (const unsigned i : members) {
    if (word(i)) ballot |= 1u << i;
    if (word(i) == word(lane)) same |= 1u << i;
    if (in[base + i].value == my.value) same64 |= 1u << i;
    all_mask |= 1u << i;
    sum += word(i);
    if (word(i) < low) low = word(i);
    if (word(i) > high) high = word(i);
    if (number(i) < low_signed) low_signed = number(i);
    if (number(i) > high_signed) high_signed = number(i);
    conj &= word(i);
    disj |= word(i);
    parity ^= word(i);
  }
  const int width = my.width, segment = static_cast<int>(lane) / width * width;
  const int me = static_cast<int>(lane), argument = my.argument;
  const auto from = [&](int source) { return word(static_cast<unsigned>(source)); };
  const int indexed = segment + (((argument % width) + width) % width);
  switch (which) {
    case Collective::ballot:
      return ballot;
    case Collective::any:
      return ballot != 0;
    case Collective::all:
      return ballot == all_mask;
    case Collective::match_any:
      return same;
    case Collective::match_any64:
      return same64;
    case Collective::match_all:
      return same == all_mask ? all_mask | 1ull << 32 : 0;
    case Collective::match_all64:
      return same64 == all_mask ? all_mask | 1ull << 32 : 0;
    case Collective::add:
    case Collective::add_signed:
      return sum;
    case Collective::min:
      return low;
    case Collective::min_signed:
      return static_cast<std::uint32_t>(low_signed);
    case Collective::max:
      return high;
    case Collective::max_signed:
      return static_cast<std::uint32_t>(high_signed);
    case Collective::bit_and:
      return conj;
    case Collective::bit_or:
      return disj;
    case Collective::bit_xor:
      return parity;
    case Collective::shfl:
      return from(indexed);
    case Collective::shfl_up:
      return me - argument >= segment ? from(me - argument) : word(lane);
    case Collective::shfl_down:
      return me + argument < segment + width ? from(me + argument) : word(lane);
    case Collective::shfl_xor:
      return (me ^ argument) < segment + width ? from(me ^ argument) : word(lane);
    case Collective::shfl64:
      return in[base + static_cast<unsigned>(indexed)].value;
    case Collective::shfl_double:
      return from(indexed);
    case Collective::count_:
      break;
  }
  return 0;
}

bool shuffles(Collective which) { return which >= Collective::shfl; }

// Random inputs; the lanes of each warp are split at random into groups that call apart from
// each other. Shuffles name all lanes, so that no lane reads one that is not there.
std::vector<CollectiveInput> make_input(Collective which, std::mt19937_64& random) {
  std::vector<CollectiveInput> in(kThreads);
  const bool few_values = random() % 2;
  const int width = 1 << random() % 6;
  const int lane_mask = static_cast<int>(random() % 32);
  for (unsigned base = 0; base < kThreads; base += 32) {
    const unsigned present = kThreads - base >= 32 ? ~0u : 0xffffu;
    std::array<unsigned, 3> groups{};
    std::array<unsigned, 32> group_of{};
    for (unsigned i = 0; i < 32; ++i) {
      group_of[i] = static_cast<unsigned>(random() % groups.size());
      groups[group_of[i]] |= 1u << i;
    }
    for (unsigned i = 0; i < 32 && base + i < kThreads; ++i) {
      CollectiveInput& my = in[base + i];
      my.mask = shuffles(which) ? ~0u : groups[group_of[i]];
      my.value = few_values ? (random() % 2) << (random() % 2 * 40) : random();
      if (which == Collective::shfl_double) my.value &= 0xffffffff;
      my.width = shuffles(which) ? width : 32;
      if (present != ~0u && my.width > 16) my.width = 16;
      my.argument = which == Collective::shfl_xor ? (present == ~0u ? lane_mask : lane_mask % 16)
                                                  : static_cast<int>(random() % 40);
    }
  }
  return in;
}

class CollectiveTest : public ::testing::TestWithParam<int> {};

TEST_P(CollectiveTest, AgreesWithTheHost) {
  const auto which = static_cast<Collective>(GetParam());
  std::mt19937_64 random(test_seed() + static_cast<unsigned>(GetParam()));
  for (unsigned round = 0; round < 12; ++round) {
    const ScheduleScope scope(with_seed(round % 3 == 0 ? 0 : random()));
    const std::vector<CollectiveInput> in = make_input(which, random);
    std::vector<std::uint64_t> out(kThreads, 0xdead);
    Stream stream;
    launch(stream, 1, kThreads, call_collective, which,
           static_cast<const CollectiveInput*>(in.data()), out.data());
    stream.synchronize();
    for (unsigned i = 0; i < kThreads; ++i) {
      ASSERT_EQ(out[i], expected(which, in, i)) << "thread " << i << ", round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CollectiveTest,
                         ::testing::Range(0, static_cast<int>(Collective::count_)));

TEST(BarrierVotes, AgreeWithTheHost) {
  std::mt19937_64 random(test_seed());
  constexpr unsigned kBlock = 100;
  for (unsigned round = 0; round < 24; ++round) {
    const ScheduleScope scope(with_seed(round / 3 % 2 == 0 ? 0 : random()));
    std::vector<int> predicates(3 * kBlock), out(3 * kBlock);
    const unsigned kind = static_cast<unsigned>(random() % 3);
    for (int& p : predicates) p = kind == 0 ? 0 : kind == 1 ? 7 : static_cast<int>(random() % 2);
    const auto which = static_cast<Vote>(round % 3);
    Stream stream;
    launch(stream, 1, kBlock, call_barrier, which, static_cast<const int*>(predicates.data()),
           out.data());
    stream.synchronize();
    for (unsigned phase = 0; phase < 3; ++phase) {
      int count = 0;
      for (unsigned i = 0; i < kBlock; ++i) count += predicates[phase * kBlock + i] != 0;
      const int want = which == Vote::count ? count
                       : which == Vote::all ? count == static_cast<int>(kBlock)
                                            : count != 0;
      for (unsigned i = 0; i < kBlock; ++i) ASSERT_EQ(out[phase * kBlock + i], want);
    }
  }
}

TEST(Collectives, BlockSum) {
  std::mt19937_64 random(test_seed());
  constexpr unsigned kBlocks = 20, kBlock = 256;
  std::vector<unsigned> in(kBlocks * kBlock), out(kBlocks);
  for (unsigned& v : in) v = static_cast<unsigned>(random());
  for (const std::uint64_t seed : {std::uint64_t{0}, random(), random()}) {
    const ScheduleScope scope(with_seed(seed));
    Stream stream;
    launch(stream, kBlocks, kBlock, block_sum, static_cast<const unsigned*>(in.data()), out.data());
    stream.synchronize();
    for (unsigned block = 0; block < kBlocks; ++block) {
      unsigned want = 0;
      for (unsigned i = 0; i < kBlock; ++i) want += in[block * kBlock + i];
      ASSERT_EQ(out[block], want) << "block " << block << ", seed " << seed;
    }
  }
}

TEST(Collectives, SyncwarpOrdersSharedMemory) {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const ScheduleScope scope(with_seed(seed));
    std::vector<unsigned> out(8 * 64);
    Stream stream;
    launch(stream, 1, 64, rotate_by_syncwarp, out.data());
    stream.synchronize();
    for (unsigned round = 0; round < 8; ++round) {
      for (unsigned i = 0; i < 64; ++i) {
        ASSERT_EQ(out[round * 64 + i], (i / 32 * 32 + (i + 1) % 32) * 100 + round);
      }
    }
  }
}

TEST(Collectives, SyncwarpCountsLanesThatHaveNotExited) {
  std::vector<unsigned> out(48);
  Stream stream;
  launch(stream, 1, 48, early_exit_syncwarp, out.data());
  stream.synchronize();
  for (unsigned i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i % 2);
}

TEST(Collectives, ActivemaskNamesTheCaller) {
  std::vector<unsigned> out(64);
  Stream stream;
  launch(stream, 1, 64, active_masks, out.data());
  stream.synchronize();
  for (unsigned i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], 1u << i % 32);
}

}  // namespace
}  // namespace holdfast::test
