// Memory that runs out at each allocation of a creation in turn.
#include "log_map/log_map_test.hpp"
#include "support/failing_memory.hpp"

namespace holdfast::test {
namespace {

class LogMapMemory : public Scratch {};

TEST_F(LogMapMemory, ACreationThatFailsIsNoneAndCanBeMadeAgain) {
  const LogMap::Options shape = log_map_options(100, 16, 100);
  RegionOptions options;
  options.size = LogMap::region_bytes(shape) + (1 << 20);
  Region region = Region::create(path(), options);
  int failures = 0;
  for (std::uint64_t which = 0;; ++which) {
    SCOPED_TRACE(which);
    ASSERT_LT(which, 100'000u);
    bool made = true;
    FailingMemory memory(which, Fails::once);
    try {
      (void)LogMap::create(region, "map", shape);
    } catch (const std::exception&) {
      made = false;
    }
    const bool failed = memory.end();
    failures += made ? 0 : 1;
    if (!made) {
      ASSERT_EQ(error_of([&] { (void)LogMap::open(region, "map"); }), Errc::not_found);
      LogMap again = LogMap::create(region, "map", shape);
      ASSERT_EQ(again.verify(), "");
    }
    LogMap::remove(region, "map");
    if (!failed) break;
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace holdfast::test
