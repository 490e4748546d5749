// Memory that runs out at every single allocation of what a region does: the call throws an Error,
// the region is as it was, and the next call succeeds.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>

#include "holdfast/backup.hpp"
#include "holdfast/checkpoint.hpp"
#include "holdfast/inspect.hpp"
#include "holdfast/region.hpp"
#include "support/failing_memory.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using test::Every;
using test::every;
using test::FailingMemory;
using test::Fails;

class AllocationFailureTest : public test::Scratch, public ::testing::WithParamInterface<Fails> {
 protected:
  static constexpr std::uint64_t kSize = 300 * kPageBytes;
  static constexpr std::uint64_t kCount = 6000;
  static constexpr char kLongName[] = "an object with a name that is not short";

  // Made beforehand: the test's own memory does not run out.
  const std::string region_path_ = path();
  const std::string backup_path_ = path("backup");
  const RegionOptions options_ = options(kSize);

  struct Case {
    std::function<void()> prepare = [] {};  // before each attempt
    std::function<void()> attempt;
    std::function<void()> failed = [] {};  // afterwards, if it threw
    std::function<void()> done = [] {};    // afterwards, in any case
  };

  // Lets the first allocation of an attempt fail, then the second, until there are no more.
  void everywhere(const Case& what) {
    std::uint64_t threw = 0;
    const Every tried = every(1, 8);
    for (std::uint64_t which = 0;; which = tried.behind(which)) {
      SCOPED_TRACE("allocation " + std::to_string(which));
      what.prepare();
      bool failed = false;
      bool reached = false;
      {
        FailingMemory memory(which, GetParam());
        try {
          what.attempt();
        } catch (const Error& error) {
          failed = true;
          reached = memory.end();
          EXPECT_STRNE(error.what(), "");
          EXPECT_TRUE(is_about_memory(error)) << to_string(error.code()) << ": " << error.what();
        } catch (const std::exception& error) {
          failed = true;
          reached = memory.end();
          ADD_FAILURE() << "not an Error: " << error.what();
        }
        if (!failed) reached = memory.end();
      }
      if (failed) what.failed();
      what.done();
      threw += failed ? 1 : 0;
      if (!reached) {
        EXPECT_FALSE(failed) << "though no allocation failed";
        break;
      }
      if (HasFailure()) break;
    }
    EXPECT_GT(threw, 0u) << "no allocation failed";
  }

  // What does not allocate itself says what it could not get.
  static bool is_about_memory(const Error& error) {
    return error.code() == Errc::no_memory || error.code() == Errc::no_shared_memory;
  }

  // A region with an object of numbers from `first` on, and another one of marked pages.
  Region make(const std::string& name, std::uint64_t first) {
    Region region = Region::create(path(name), options(kSize));
    fill(region.allocate<std::uint64_t>("data", kCount), first);
    region.allocate<std::uint32_t>("marked", 100, Tracking::marked);
    return region;
  }
  static void fill(std::span<std::uint64_t> data, std::uint64_t first) {
    for (std::uint64_t i = 0; i < data.size(); ++i) data[i] = first + i;
  }
  static void expect_data(Region& region, std::uint64_t first) {
    const auto data = region.find<std::uint64_t>("data");
    ASSERT_EQ(data.size(), kCount);
    for (std::uint64_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], first + i);
  }
  // What the image alone holds.
  void expect_committed(std::uint64_t first) {
    fs::copy_file(path(), path("copy"), fs::copy_options::overwrite_existing);
    OpenOptions elsewhere = for_reading();
    elsewhere.arena_folder = other_arenas();
    Region copy = Region::open(path("copy"), elsewhere);
    expect_data(copy, first);
  }
  static std::size_t files_in(const std::string& folder) {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
};

TEST_P(AllocationFailureTest, Create) {
  everywhere({
      .attempt = [&] { Region::create(region_path_, options_).abandon(); },
      .failed =
          [&] {
            EXPECT_FALSE(fs::exists(path()));
            EXPECT_TRUE(is_empty(arenas()));
          },
      .done =
          [&] {
            if (fs::exists(path())) Region::destroy(path());
          },
  });
}

TEST_P(AllocationFailureTest, OpenOfAnImage) {
  make("region", 7).close();
  std::optional<Region> region;
  everywhere({
      .attempt = [&] { region.emplace(Region::open(region_path_)); },
      .failed = [&] { region.emplace(Region::open(path())); },
      .done =
          [&] {
            expect_data(*region, 7);
            region->close();
            EXPECT_TRUE(is_empty(arenas()));
          },
  });
}

TEST_P(AllocationFailureTest, OpenOfWhatACrashLeft) {
  {
    Region region = make("region", 7);
    region.commit();
    fill(region.find<std::uint64_t>("data"), 8);
    region.abandon();
  }
  std::optional<Region> region;
  everywhere({
      .attempt = [&] { region.emplace(Region::open(region_path_)); },
      .failed = [&] { region.emplace(Region::open(path())); },
      .done =
          [&] {
            EXPECT_TRUE(region->open_report().arena_found);
            expect_data(*region, 8);
            region->abandon();
          },
  });
}

TEST_P(AllocationFailureTest, OpenForReading) {
  for (const bool crashed : {false, true}) {
    Region left = make("region", 7);
    crashed ? left.abandon() : left.close();
    std::optional<Region> region;
    everywhere({
        .attempt = [&] { region.emplace(Region::open(region_path_, for_reading())); },
        .failed = [&] { region.emplace(Region::open(path(), for_reading())); },
        .done =
            [&] {
              expect_data(*region, 7);
              region.reset();
            },
    });
    Region::destroy(path());
  }
}

TEST_P(AllocationFailureTest, AllocateAndRemove) {
  Region region = make("region", 7);
  everywhere({
      .attempt = [&] { region.allocate<float>(kLongName, 5000); },
      .failed =
          [&] {
            EXPECT_FALSE(region.contains(kLongName));
            region.allocate<float>(kLongName, 5000);
          },
      .done = [&] { region.remove(kLongName); },
  });
  everywhere({
      .prepare =
          [&] {
            if (!region.contains(kLongName)) region.allocate<float>(kLongName, 10)[9] = 1;
          },
      .attempt = [&] { region.remove(kLongName); },
      .failed = [&] { EXPECT_EQ(region.find<float>(kLongName)[9], 1); },
  });
  expect_data(region, 7);
  region.abandon();
  EXPECT_EQ(Region::open(path()).objects().size(), 2u);
}

TEST_P(AllocationFailureTest, Grow) {
  RegionOptions wide = options(kSize);
  wide.max_size = 3000 * kPageBytes;
  std::optional<Region> region(Region::create(path(), wide));
  std::uint64_t size = kSize;
  OpenOptions again;
  again.max_size = wide.max_size;
  everywhere({
      .attempt = [&] { region->grow(size + kPageBytes); },
      .failed = [&] { region->grow(size + kPageBytes); },
      .done =
          [&] {
            size += kPageBytes;
            EXPECT_EQ(region->size(), size);
            region->abandon();
            region.emplace(Region::open(path(), again));
            EXPECT_EQ(region->size(), size);
          },
  });
}

TEST_P(AllocationFailureTest, Commit) {
  Region region = make("region", 0);
  region.commit();
  auto data = region.find<std::uint64_t>("data");
  std::uint64_t first = 0;
  everywhere({
      .prepare = [&] { fill(data, ++first); },
      .attempt = [&] { region.commit(); },
      .failed = [&] { region.commit(); },
      .done = [&] { expect_committed(first); },
  });
}

TEST_P(AllocationFailureTest, FirstCommitOfANewProcess) {
  make("region", 0).close();
  std::optional<Region> region;
  std::uint64_t first = 0;
  everywhere({
      .prepare =
          [&] {
            region.emplace(Region::open(path()));
            fill(region->find<std::uint64_t>("data"), ++first);
          },
      .attempt = [&] { region->commit(); },
      .failed = [&] { region->commit(); },
      .done =
          [&] {
            expect_committed(first);
            region->close();
          },
  });
}

TEST_P(AllocationFailureTest, CommitBehindAStream) {
  Region region = make("region", 0);
  region.commit();
  auto data = region.find<std::uint64_t>("data");
  std::uint64_t first = 0;
  Stream stream;
  everywhere({
      .prepare = [&] { fill(data, ++first); },
      .attempt =
          [&] {
            Commit commit = region.commit(stream);
            commit.wait();
          },
      .failed = [&] { region.commit(stream).wait(); },
      .done = [&] { expect_committed(first); },
  });
  stream.synchronize();
}

TEST_P(AllocationFailureTest, Close) {
  std::optional<Region> region;
  std::uint64_t first = 0;
  make("region", 0).close();
  everywhere({
      .prepare =
          [&] {
            region.emplace(Region::open(path()));
            fill(region->find<std::uint64_t>("data"), ++first);
          },
      .attempt = [&] { region->close(); },
      .failed =
          [&] {
            expect_data(*region, first);  // it goes on
            region->close();
          },
      .done =
          [&] {
            EXPECT_TRUE(is_empty(arenas()));
            expect_committed(first);
          },
  });
}

TEST_P(AllocationFailureTest, Destructor) {
  std::uint64_t first = 0;
  make("region", 0).close();
  const Every tried = every(1, 8);
  for (std::uint64_t which = 0;; which = tried.behind(which)) {
    std::optional<Region> region(Region::open(path()));
    fill(region->find<std::uint64_t>("data"), ++first);
    FailingMemory memory(which, GetParam());
    region.reset();  // says so on stderr, and leaves the arena
    if (!memory.end()) break;
    Region found = Region::open(path());
    expect_data(found, first);
    found.close();
    if (HasFailure()) break;
  }
}

TEST_P(AllocationFailureTest, Destroy) {
  make("region", 7).close();
  fs::rename(path(), path("kept"));
  everywhere({
      .prepare = [&] { fs::copy_file(path("kept"), path(), fs::copy_options::overwrite_existing); },
      .attempt = [&] { Region::destroy(region_path_); },
      .failed =
          [&] {
            if (fs::exists(path())) Region::destroy(path());
          },
      .done = [&] { EXPECT_FALSE(fs::exists(path())); },
  });
}

TEST_P(AllocationFailureTest, Inspect) {
  make("region", 7).abandon();
  const Error invalid(Errc::no_memory, "the arena could not be looked at");
  everywhere({
      .attempt =
          [&] {
            // What is wrong with the arena is part of the answer.
            if (!inspect_image(region_path_, Verify::everything).arena.valid) {
              throw invalid;
            }
          },
      .done = [&] { EXPECT_TRUE(inspect_image(path(), Verify::everything).arena.valid); },
  });
}

TEST_P(AllocationFailureTest, Backup) {
  make("region", 7).close();
  everywhere({
      .attempt = [&] { backup(region_path_, backup_path_); },
      .failed =
          [&] {
            EXPECT_EQ(files_in(folder()), 1u) << "half a backup is left";
            backup(path(), path("backup"));
          },
      .done =
          [&] {
            Region copy = Region::open(path("backup"), for_reading());
            expect_data(copy, 7);
            fs::remove(path("backup"));
          },
  });
}

class CheckpointFailureTest : public AllocationFailureTest {
 protected:
  void SetUp() override { region_.emplace(Region::create(path(), options(kSize))); }

  Checkpoint checkpoint() {
    Checkpoint result(*region_, "training");
    result.add("model", "weights", weights_.data(), weights_.size());
    return result;
  }
  // The step that is there, with its content whole.
  std::uint64_t restored() {
    Stream stream;
    const std::uint64_t found = checkpoint().restore(stream, "model").value_or(0);
    if (found > 0) {
      EXPECT_EQ(weights_.data()[999], static_cast<float>(found));
    }
    return found;
  }
  void next_step() { std::fill_n(weights_.data(), 1000, static_cast<float>(++step_)); }

  // Saves a step; after each failure the last one is there, and the same object saves the next.
  void saves(const std::function<void(Checkpoint&, Stream&)>& save) {
    std::optional<Checkpoint> saver;
    std::optional<Stream> stream;
    const auto save_now = [&] {
      save(*saver, *stream);
      stream->synchronize();
    };
    everywhere({
        .prepare =
            [&] {
              stream.emplace();
              saver.emplace(checkpoint());
              next_step();
            },
        .attempt = save_now,
        .failed =
            [&] {
              const std::uint64_t found = restored();
              EXPECT_GE(found + 1, step_);
              std::fill_n(weights_.data(), 1000, static_cast<float>(step_));
              stream.emplace();
              save_now();
            },
        .done = [&] { EXPECT_EQ(restored(), step_); },
    });
  }

  std::optional<Region> region_;
  DeviceBuffer<float> weights_{1000};
  std::uint64_t step_ = 0;
};

TEST_P(CheckpointFailureTest, Save) {
  saves([this](Checkpoint& saver, Stream& stream) { saver.save(stream, "model", step_); });
}

TEST_P(CheckpointFailureTest, SaveAsync) {
  // A stream of its own that failed stays so: another object is made.
  std::optional<Checkpoint> saver;
  everywhere({
      .prepare =
          [&] {
            saver.emplace(checkpoint());
            next_step();
          },
      .attempt =
          [&] {
            Stream stream;
            saver->save_async(stream, "model", step_).wait();
            stream.synchronize();
          },
      .failed =
          [&] {
            saver.reset();
            std::fill_n(weights_.data(), 1000, static_cast<float>(step_));
            saver.emplace(checkpoint());
            Stream stream;
            saver->save_async(stream, "model", step_).wait();
          },
      .done = [&] { EXPECT_EQ(restored(), step_); },
  });
}

TEST_P(CheckpointFailureTest, Restore) {
  Stream stream;
  next_step();
  checkpoint().save(stream, "model", step_);
  stream.synchronize();
  everywhere({
      .prepare = [&] { std::fill_n(weights_.data(), 1000, 0.0f); },
      .attempt =
          [&] {
            Stream own;
            checkpoint().restore(own, "model");
          },
      .done = [&] { EXPECT_EQ(restored(), step_); },
  });
}

std::string mode_name(const ::testing::TestParamInfo<Fails>& info) {
  return info.param == Fails::once ? "Once" : "FromThere";
}
constexpr auto kModes = {Fails::once, Fails::from_there};
INSTANTIATE_TEST_SUITE_P(, AllocationFailureTest, ::testing::ValuesIn(kModes), mode_name);
INSTANTIATE_TEST_SUITE_P(, CheckpointFailureTest, ::testing::ValuesIn(kModes), mode_name);

}  // namespace
}  // namespace holdfast
