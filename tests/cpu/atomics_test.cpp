// Every atomic of CUDA, in each scope's spelling, against a computation on the host.
#include "cpu/atomics.hpp"

#include <cstring>
#include <type_traits>
#include <vector>

#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

template <class T>
bool has(Rmw rmw) {
  constexpr bool word = std::is_same_v<T, int> || std::is_same_v<T, unsigned>;
  constexpr bool wide = std::is_same_v<T, unsigned long long>;
  switch (rmw) {
    case Rmw::add:
      return word || wide || std::is_floating_point_v<T>;
    case Rmw::exch:
      return word || wide || std::is_same_v<T, float>;
    case Rmw::sub:
      return word;
    case Rmw::min:
    case Rmw::max:
      return word || wide || std::is_same_v<T, long long>;
    case Rmw::inc:
    case Rmw::dec:
      return std::is_same_v<T, unsigned>;
    case Rmw::cas:
      return word || wide || std::is_same_v<T, unsigned short>;
    default:
      return word || wide;
  }
}

// The value after one call, from the CUDA programming guide.
template <class T>
T after(Rmw rmw, T old, T operand, T compare) {
  if constexpr (std::is_floating_point_v<T>) {
    return rmw == Rmw::add ? old + operand : operand;
  } else {
    // Unsigned arithmetic wraps around; the conversion back is modular.
    const auto a = static_cast<unsigned long long>(old);
    const auto b = static_cast<unsigned long long>(operand);
    switch (rmw) {
      case Rmw::add:
        return static_cast<T>(a + b);
      case Rmw::sub:
        return static_cast<T>(a - b);
      case Rmw::exch:
        return operand;
      case Rmw::min:
        return old < operand ? old : operand;
      case Rmw::max:
        return old > operand ? old : operand;
      case Rmw::inc:
        return old >= operand ? T(0) : static_cast<T>(a + 1);
      case Rmw::dec:
        return old == T(0) || old > operand ? operand : static_cast<T>(a - 1);
      case Rmw::cas:
        return old == compare ? operand : old;
      case Rmw::bit_and:
        return static_cast<T>(a & b);
      case Rmw::bit_or:
        return static_cast<T>(a | b);
      default:
        return static_cast<T>(a ^ b);
    }
  }
}

template <class T>
class AtomicTest : public ::testing::Test {};
using Types =
    ::testing::Types<unsigned short, int, unsigned, long long, unsigned long long, float, double>;
TYPED_TEST_SUITE(AtomicTest, Types);

TYPED_TEST(AtomicTest, AgreesWithTheHost) {
  using T = TypeParam;
  std::mt19937_64 random(test_seed());
  constexpr unsigned kCalls = 200;
  for (int kind = 0; kind < static_cast<int>(Rmw::count_); ++kind) {
    const auto rmw = static_cast<Rmw>(kind);
    if (!has<T>(rmw)) continue;
    for (const Spelling spelling : {Spelling::block, Spelling::device, Spelling::system}) {
      std::vector<T> operands(kCalls), compares(kCalls), old(kCalls), want(kCalls);
      const auto start = static_cast<T>(random());
      T value = start, device_value = start;
      for (unsigned i = 0; i < kCalls; ++i) {
        const bool small = rmw == Rmw::inc || rmw == Rmw::dec;
        operands[i] = static_cast<T>(small ? random() % 4 : random());
        compares[i] = i % 2 ? value : static_cast<T>(random());
        want[i] = value;
        value = after(rmw, value, operands[i], compares[i]);
      }
      Stream stream;
      launch(stream, 1, 1, apply_in_turn<T>, rmw, spelling, static_cast<const T*>(operands.data()),
             static_cast<const T*>(compares.data()), kCalls, &device_value, old.data());
      stream.synchronize();
      EXPECT_EQ(std::memcmp(old.data(), want.data(), kCalls * sizeof(T)), 0) << "kind " << kind;
      EXPECT_EQ(std::memcmp(&device_value, &value, sizeof value), 0) << "kind " << kind;
    }
  }
}

TEST(Atomics, CountFromAllThreads) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const ScheduleScope scope(with_seed(seed));
    unsigned counter = 0;
    double real = 0;
    Stream stream;
    launch(stream, 10, 64, count_up<unsigned>, &counter, 10u);
    launch(stream, 10, 64, count_up<double>, &real, 10u);
    stream.synchronize();
    EXPECT_EQ(counter, 6400u);
    EXPECT_EQ(real, 6400.0);
  }
}

TEST(Atomics, ALockExcludes) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const ScheduleScope scope(with_seed(seed));
    unsigned lock = 0, counter = 0;
    Stream stream;
    launch(stream, 4, 8, locked_increments, &lock, &counter, 3u);
    stream.synchronize();
    EXPECT_EQ(counter, 4u * 8 * 3) << "seed " << seed;
  }
}

TEST(Atomics, HostThreadsTakePart) {
  unsigned counter = 0;
  Stream stream;
  launch(stream, 8, 256, count_up<unsigned>, &counter, 100u);
  for (unsigned i = 0; i < 100'000; ++i) __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
  stream.synchronize();
  EXPECT_EQ(counter, 8u * 256 * 100 + 100'000);
}

TEST(BitFunctions, AgreeWithTheHost) {
  std::mt19937_64 random(test_seed());
  constexpr unsigned kCount = 256;
  std::vector<std::uint64_t> in(kCount), out(kCount * kBitFunctions);
  for (unsigned i = 0; i < kCount; ++i)
    in[i] = i < 66 ? (i == 0 ? 0 : 1ull << (i - 1) % 64) : random();
  Stream stream;
  launch(stream, 1, kCount, bit_functions, static_cast<const std::uint64_t*>(in.data()), out.data(),
         kCount);
  stream.synchronize();
  const auto reverse = [](std::uint64_t v, unsigned bits) {
    std::uint64_t r = 0;
    for (unsigned b = 0; b < bits; ++b) r |= (v >> b & 1) << (bits - 1 - b);
    return r;
  };
  for (unsigned i = 0; i < kCount; ++i) {
    const std::uint64_t v = in[i], low = v & 0xffffffff, high = v >> 32;
    std::uint64_t lowest = 0, lowest64 = 0, count = 0, count64 = 0, lead = 32, lead64 = 64;
    for (unsigned b = 64; b-- > 0;) {
      if ((v >> b & 1) == 0) continue;
      lowest64 = b + 1;
      ++count64;
      if (lead64 == 64) lead64 = 63 - b;
      if (b >= 32) continue;
      lowest = b + 1;
      ++count;
      if (lead == 32) lead = 31 - b;
    }
    // 128-bit product by halves.
    const std::uint64_t w = ~v, wl = w & 0xffffffff, wh = w >> 32;
    const std::uint64_t mid = high * wl + (low * wl >> 32), mid2 = low * wh + (mid & 0xffffffff);
    const std::uint64_t product = high * wh + (mid >> 32) + (mid2 >> 32);
    const unsigned shift = static_cast<unsigned>(high % 32);
    const std::uint64_t want[kBitFunctions] = {lowest,
                                               lowest64,
                                               count,
                                               count64,
                                               lead,
                                               lead64,
                                               reverse(low, 32),
                                               reverse(v, 64),
                                               low * high >> 32,
                                               product,
                                               (v << shift) >> 32,
                                               (v >> shift) & 0xffffffff};
    for (unsigned f = 0; f < kBitFunctions; ++f) {
      ASSERT_EQ(out[f * kCount + i], want[f]) << "function " << f << " of " << v;
    }
  }
}

}  // namespace
}  // namespace holdfast::test
