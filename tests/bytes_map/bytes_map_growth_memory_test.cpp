// Memory that runs out at each allocation of a growth in turn, of which there is one at least
// between any two changes of the region: where nothing can be allocated any more, what stands then
// is what a kill there would leave.
#include "bytes_map/bytes_map_kills.hpp"
#include "support/failing_memory.hpp"

namespace holdfast::test {
namespace {

constexpr std::uint64_t kRecordBytes = 200'000;

class BytesMapGrowthSteps : public Scratch {
 protected:
  // Returns false once `which` is past the last allocation.
  static bool grow_with_failure(BytesOpened& opened, std::uint64_t which, Fails how, bool& grown) {
    FailingMemory memory(which, how);
    try {
      opened.map->reserve({kSlots + 1, kRecordBytes});
      grown = true;
    } catch (const std::exception&) {
      grown = false;
    }
    return memory.end();
  }
  // It can be grown, and used, as if nothing had been.
  static void expect_goes_on(BytesOpened& opened, Oracle oracle) {
    opened.map->reserve({kSlots + 1, kRecordBytes});
    EXPECT_EQ(opened.map->stats().capacity, 2 * kSlots);
    EXPECT_GE(opened.map->stats().record_bytes, kRecordBytes);
    expect_own_objects(*opened.region, opened.map->stats());
    oracle["more"] = string_of(77, 50'000);
    EXPECT_EQ(opened.put({"more"}, {oracle["more"]}).inserted, 1u);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
  // Whether the map itself says that it has to be opened again.
  static bool is_broken(const BytesOpened& opened) {
    try {
      (void)opened.map->stats();
      (void)opened.contents();
    } catch (const Error& error) {
      // The latter if it is its stream that has failed.
      EXPECT_TRUE(error.code() == Errc::device || error.code() == Errc::no_memory) << error.what();
      return true;
    }
    return false;
  }
};

TEST_F(BytesMapGrowthSteps, EachSizeIsTheOldOrTheNewBetweenAnyTwoStepsAndNothingIsLost) {
  const std::string path = other_arenas() + "/region";  // in memory: it is opened very often
  BytesOpened opened = create_small(path);
  Oracle oracle;
  for (std::uint64_t i = 0; i < 30; ++i) {
    const std::string key = "key" + std::to_string(i);
    oracle[key] = string_of(i, 40);
    ASSERT_EQ(opened.put({key}, {oracle[key]}).inserted, 1u);
  }
  const BytesMapStats had = opened.map->stats();
  opened.close();
  const std::vector<char> image = read_file(path);
  for (const Fails how : {Fails::from_there, Fails::once}) {
    int states[2][2] = {};  // whether the index had grown, and the room for records
    bool reached = true;
    for (std::uint64_t which = 0; reached; which += 1 + which / 24) {
      SCOPED_TRACE(detail::concat(how == Fails::once ? "once " : "from there ", which));
      Region::destroy(path);
      write_file(path, image);
      opened = open_growing(path);
      bool grown = false;
      reached = grow_with_failure(opened, which, how, grown);
      ASSERT_TRUE(grown || reached) << "it failed without a cause";
      // What the process itself goes on with, if it can, and what the next one finds.
      if (!is_broken(opened)) {
        const BytesMapStats stats = opened.map->stats();
        ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
        if (how == Fails::once && which % 2 == 0) {
          ASSERT_NO_FATAL_FAILURE(expect_goes_on(opened, oracle));
          opened.abandon();
          continue;
        }
        EXPECT_EQ(grown, stats.capacity == 2 * kSlots && stats.record_bytes >= kRecordBytes);
      }
      opened.abandon();
      opened = open_growing(path);
      expect_grown(opened, had, {kSlots + 1, kRecordBytes});
      const BytesMapStats stats = opened.map->stats();
      ++states[stats.capacity != had.capacity][stats.record_bytes != had.record_bytes];
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
      ASSERT_NO_FATAL_FAILURE(expect_goes_on(opened, oracle));
      ASSERT_FALSE(HasFailure());
      opened.abandon();
    }
    EXPECT_GT(states[0][0], 0);
    EXPECT_GT(states[0][1] + states[1][1], 0);
  }
}

}  // namespace
}  // namespace holdfast::test
