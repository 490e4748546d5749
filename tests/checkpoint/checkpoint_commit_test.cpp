// Commits and closes behind saves that are still draining, and behind saves that failed.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <thread>

#include "holdfast/testing/checkpoint.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/stream_gate.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::Gate;
using test::StreamGate;

constexpr std::size_t kWeights = 70001;

// Drained by a kernel, or by the engine.
class CheckpointCommitTest : public test::Scratch, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    region_.emplace(Region::create(path(), options(8u << 20)));
    Checkpoint checkpoint = make(*region_);
    save(checkpoint, 1);
    region_->commit();
  }
  Checkpoint make(Region& region) {
    Checkpoint checkpoint(region, "training");
    checkpoint.add("model", "weights", weights_.data(), kWeights);
    if (GetParam()) testing::set_engine_threshold(checkpoint, 1);
    return checkpoint;
  }
  // One that has all that it allocates: the first calls of all wait for the device.
  Checkpoint make_bound() {
    Stream stream;
    Checkpoint checkpoint = make(*region_);
    checkpoint.restore(stream, "model");
    for (int copy = 0; copy < 2; ++copy) checkpoint.save_async(stream, "model", 1).wait();
    return checkpoint;
  }
  void set(int value) {
    Stream stream;
    fill_async(stream, weights_.data(), value, weights_.bytes());
    stream.synchronize();
  }
  void save(Checkpoint& checkpoint, int value) {
    Stream stream;
    set(value);
    checkpoint.save(stream, "model", static_cast<std::uint64_t>(value));
    stream.synchronize();
  }
  // Begins a save whose drain comes once the gate is open.
  PendingSave save_behind(StreamGate& gate, Stream& stream, Checkpoint& checkpoint, int value) {
    set(value);
    gate.hold(stream);
    return checkpoint.save_async(stream, "model", static_cast<std::uint64_t>(value));
  }
  // The save that a region holds, if it is whole.
  std::uint64_t saved_in(Region& region) {
    Stream stream;
    Checkpoint checkpoint = make(region);
    set(0);
    const std::uint64_t tag = checkpoint.restore(stream, "model").value_or(0);
    std::vector<std::uint8_t> found(weights_.bytes());
    copy_async(stream, found.data(), weights_.data(), found.size());
    stream.synchronize();
    EXPECT_EQ(found, std::vector<std::uint8_t>(found.size(), static_cast<std::uint8_t>(tag)));
    return tag;
  }
  std::uint64_t saved_in_image() {
    std::filesystem::copy_file(path(), path("copy"),
                               std::filesystem::copy_options::overwrite_existing);
    OpenOptions elsewhere = for_reading();
    elsewhere.arena_folder = other_arenas();
    Region copy = Region::open(path("copy"), elsewhere);
    return saved_in(copy);
  }

  std::optional<Region> region_;
  DeviceBuffer<float> weights_{kWeights};
};

INSTANTIATE_TEST_SUITE_P(By, CheckpointCommitTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "engine" : "kernel"; });

TEST_P(CheckpointCommitTest, ACommitOnAnyStreamTakesTheSaveIn) {
  StreamGate gate;
  Stream stream, other;
  Checkpoint checkpoint = make_bound();
  save_behind(gate, stream, checkpoint, 2);
  Commit commit = region_->commit(other);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(commit.done());
  gate.open();
  commit.wait();
  EXPECT_EQ(saved_in_image(), 2u);
  region_->commit(other).wait();
  EXPECT_EQ(saved_in_image(), 2u);
}

TEST_P(CheckpointCommitTest, ACommitBehindItInItsStreamTakesTheSaveIn) {
  Stream stream;
  Checkpoint checkpoint = make_bound();
  for (int value = 2; value < 12; ++value) {
    set(value);
    checkpoint.save_async(stream, "model", static_cast<std::uint64_t>(value));
    region_->commit(stream).wait();
    EXPECT_EQ(saved_in_image(), static_cast<std::uint64_t>(value));
  }
}

TEST_P(CheckpointCommitTest, ACommitOnTheHostTakesTheSaveIn) {
  StreamGate gate;
  Stream stream;
  Checkpoint checkpoint = make_bound();
  save_behind(gate, stream, checkpoint, 2);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  region_->commit();
  later.join();
  EXPECT_EQ(saved_in_image(), 2u);
}

TEST_P(CheckpointCommitTest, ACloseTakesTheSaveIn) {
  StreamGate gate;
  Stream stream;
  {
    Checkpoint checkpoint = make_bound();
    save_behind(gate, stream, checkpoint, 2);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      gate.open();
    });
    region_->close();
    later.join();
  }
  region_.emplace(Region::open(path()));
  EXPECT_FALSE(region_->open_report().arena_found);
  EXPECT_EQ(saved_in(*region_), 2u);
}

// A commit that is on its way may take the marks of a save, and the copy as it was before.
TEST_P(CheckpointCommitTest, SavesBesideCommits) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const auto pause = [&](std::uint64_t most_us) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most_us));
  };
  std::optional<Checkpoint> checkpoint(make_bound());
  const int end = 2 + static_cast<int>(test::some_of(60, 10));
  for (int value = 2; value < end; ++value) {
    Stream stream, other;
    set(value);
    const std::uint64_t before = random() % 2000;
    stream.enqueue([before] { std::this_thread::sleep_for(std::chrono::microseconds(before)); });
    std::vector<Commit> commits;
    for (std::uint64_t left = 1 + random() % 2; left > 0; --left) {
      commits.push_back(region_->commit(stream));
    }
    if (random() % 2 == 0) pause(2000);
    PendingSave save = checkpoint->save_async(other, "model", static_cast<std::uint64_t>(value));
    if (random() % 2 == 0) save.wait();
    switch (random() % 3) {
      case 0:
        region_->commit(stream).wait();
        break;
      case 1:
        region_->commit();
        break;
      default:
        checkpoint.reset();
        region_->close();
    }
    for (Commit& commit : commits) commit.wait();
    ASSERT_EQ(saved_in_image(), static_cast<std::uint64_t>(value));
    if (checkpoint) continue;
    region_.emplace(Region::open(path()));
    checkpoint.emplace(make_bound());
  }
}

TEST_P(CheckpointCommitTest, ASaveBehindACommitCostsTheNextOneNothing) {
  constexpr std::size_t kMany = 300 * kPageBytes;
  auto many = region_->allocate<std::uint8_t>("many", kMany, Tracking::marked);
  Stream stream, other;
  Checkpoint checkpoint = make_bound();
  region_->mark(many.data(), kMany);
  EXPECT_GT(region_->commit(stream).wait().pages_examined, 300u);
  checkpoint.save_async(other, "model", 1);
  EXPECT_LT(region_->commit(stream).wait().pages_examined, 300u);
}

TEST_P(CheckpointCommitTest, ASaveThatFailedStopsNoCommitAndIsInNone) {
  if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "the context would be lost";
  const auto other = region_->allocate<int>("other", 1);
  Gate gate;
  Stream failing, stream;
  Checkpoint checkpoint = make_bound();
  set(2);
  failing.enqueue([&] {
    gate.wait();
    throw Error(Errc::kernel_fault, "made to fail");
  });
  PendingSave pending = checkpoint.save_async(failing, "model", 2);
  other[0] = 7;
  Commit commit = region_->commit(stream);
  gate.open();
  commit.wait();
  stream.synchronize();
  EXPECT_EQ(error_of([&] { failing.synchronize(); }), Errc::kernel_fault);
  EXPECT_EQ(error_of([&] { pending.wait(); }), Errc::kernel_fault);
  EXPECT_EQ(saved_in_image(), 1u);
  set(3);
  checkpoint.save_async(stream, "model", 3);  // the next one can succeed
  region_->commit();
  EXPECT_EQ(saved_in_image(), 3u);
  region_->abandon();
  region_.emplace(Region::open(path(), last_commit()));
  EXPECT_EQ(region_->find<int>("other")[0], 7);
}

TEST_P(CheckpointCommitTest, AnAssignedCheckpointWaitsForItsSaves) {
  StreamGate gate;
  Stream stream;
  Checkpoint checkpoint = make_bound();
  PendingSave pending = save_behind(gate, stream, checkpoint, 2);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  checkpoint = make(*region_);  // what the drain reads goes with the old one
  EXPECT_TRUE(pending.done());
  later.join();
  EXPECT_EQ(saved_in(*region_), 2u);
}

TEST_P(CheckpointCommitTest, ACheckpointThatWasMovedFromSaysSo) {
  Stream stream;
  Checkpoint checkpoint = make_bound();
  Checkpoint other = std::move(checkpoint);
  const auto closed = [&](auto&& body) { EXPECT_EQ(error_of(body, {"moved"}), Errc::closed); };
  closed([&] { checkpoint.save(stream, "model"); });
  closed([&] { checkpoint.save_async(stream, "model"); });
  closed([&] { checkpoint.restore(stream, "model"); });
  closed([&] { checkpoint.add("model", "more", weights_.data(), 1); });
  closed([&] { checkpoint.forget("model"); });
  closed([&] { checkpoint.stored("model"); });
  closed([&] { checkpoint.stored_groups(); });
  closed([&] { testing::set_engine_threshold(checkpoint, 1); });
  set(2);
  other.save_async(stream, "model", 2);
  region_->commit();
  EXPECT_EQ(saved_in_image(), 2u);
}

TEST_P(CheckpointCommitTest, AStreamOrASaveThatWasMovedFromIsRefused) {
  Stream stream;
  Checkpoint checkpoint = make_bound();
  set(2);
  Stream taken = std::move(stream);
  const auto closed = [&](auto&& body) { EXPECT_EQ(error_of(body, {"moved"}), Errc::closed); };
  closed([&] { checkpoint.save(stream, "model", 7); });
  closed([&] { checkpoint.save_async(stream, "model", 7); });
  closed([&] { checkpoint.restore(stream, "model"); });
  PendingSave save = checkpoint.save_async(taken, "model", 2);
  PendingSave other = std::move(save);
  closed([&] { save.wait(); });
  closed([&] { save.done(); });
  closed([&] { PendingSave(nullptr).wait(); });
  other.wait();
  EXPECT_EQ(saved_in(*region_), 2u);
}

}  // namespace
}  // namespace holdfast
