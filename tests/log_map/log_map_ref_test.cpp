// Refs of a log map: what kernels find, behind batches, growths and openings.
#include "log_map/log_map_ref_test.hpp"

#include <type_traits>

#include "holdfast/stream.hpp"
#include "log_map/log_map_test.hpp"

namespace holdfast::test {
namespace {

static_assert(std::is_trivially_copyable_v<LogMapRef>);

constexpr std::uint32_t kBytes = 20;  // no multiple of what a place is aligned to
constexpr std::uint64_t kMost = 900;

class LogMapRefTest : public Scratch, public ::testing::WithParamInterface<Form> {
 protected:
  // In a stream of the test's own.
  void expect_finds(const LogMapRef& ref, const Oracle& oracle) {
    Keys keys;
    for (std::uint64_t key = 0; key < kMost + 50; ++key) keys.push_back(key);
    keys.push_back(LogMapRef::kReservedKey);
    const PinnedBuffer<std::uint64_t> asked(keys.size());
    std::memcpy(asked.data(), keys.data(), keys.size() * sizeof(keys[0]));
    for (const Looking how : {Looking::alone, Looking::by_warp}) {
      const PinnedBuffer<std::byte> rows(keys.size() * kBytes);
      const PinnedBuffer<std::uint8_t> found(keys.size());
      look_up(stream_, ref, how, asked.data(), rows.data(), found.data(), keys.size());
      stream_.synchronize();
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto at = oracle.find(keys[i]);
        ASSERT_EQ(found[i], at == oracle.end() ? 0 : 1) << "key " << keys[i];
        if (at == oracle.end()) continue;
        ASSERT_EQ(std::memcmp(rows.data() + i * kBytes, at->second.data(), kBytes), 0)
            << "key " << keys[i];
      }
    }
  }

  Stream stream_;
};
INSTANTIATE_TEST_SUITE_P(Forms, LogMapRefTest, ::testing::Values(Form::whole, Form::fingerprints),
                         [](const auto& info) {
                           return info.param == Form::whole ? "whole" : "fingerprints";
                         });

TEST_P(LogMapRefTest, KernelsFindWhatBatchesLeave) {
  LogMapOpened opened =
      LogMapOpened::create(path(), log_map_options(kMost, kBytes, 400, 4096, GetParam()));
  EXPECT_EQ(opened.map->ref().value_bytes(), kBytes);
  LogMapRef ref = opened.map->ref();
  Oracle oracle;
  expect_finds(ref, oracle);
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const NumberedBatch batch(random(), 1 + random() % 400, kMost, kBytes);
    batch.apply(opened);
    batch.apply(oracle);
    // Batches leave it good, cleaning and all.
    ASSERT_NO_FATAL_FAILURE(expect_finds(ref, oracle));
    if (round % 10 == 9) {
      opened.kill();
      opened = LogMapOpened::open(path(), GetParam());
      ref = opened.map->ref();
    } else if (round == 15) {
      opened.map->reserve(2 * kMost);
      ref = opened.map->ref();
    }
  }
}

TEST_F(LogMapRefTest, OneThatIsMadeByDefaultFindsNothing) { expect_finds(LogMapRef(), {}); }

}  // namespace
}  // namespace holdfast::test
