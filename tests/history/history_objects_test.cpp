// A history whose remote tier is an object store: what it keeps, and what it does when the store
// fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "history/engine.hpp"
#include "history/step_file.hpp"
#include "history_oracle.hpp"
#include "holdfast/history_folder.hpp"
#include "memory_objects.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using history::Engine;
using history::Step;
using history::step_file_name;
using test::error_of;
using test::Field;
using test::MemoryObjects;
using test::Mishap;

constexpr std::uint64_t kUnit = Field::kMost;

class HistoryObjectsTest : public test::Scratch {
 protected:
  HistoryObjectsTest() { ::alarm(250); }  // what waits for ever fails
  ~HistoryObjectsTest() override { ::alarm(0); }

  HistoryOptions options(std::uint64_t gpu = 2, std::uint64_t host = 2, bool disk = true) const {
    HistoryOptions options;
    options.gpu_bytes = gpu * kUnit;
    options.host_bytes = host * kUnit;
    if (disk) options.disk = disk_;
    options.remote_store = objects_;
    return options;
  }
  Ticket save(Engine& engine, Step step) {
    Field& field = *(fields_[step] = std::make_unique<Field>());
    engine.protect("field", {field.data(), field.fill(step + 1), BufferMemory::device});
    return Ticket(engine.save(step, stream_, false));
  }
  ::testing::AssertionResult restores(Engine& engine, Step step) {
    Field field;
    const std::uint64_t bytes = engine.size(step, "field");
    engine.protect("field", {field.data(), bytes, BufferMemory::device});
    engine.restore(step, stream_, false);
    stream_.synchronize();
    if (field.holds(step + 1, bytes)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "checkpoint " << step << " came back wrong";
  }
  void fill(const HistoryOptions& with, Step steps) {
    Engine engine(with);
    for (Step step = 0; step < steps; ++step) save(engine, step);
    engine.close();
  }
  void damage_file(Step step) const {
    std::fstream file(disk_ + "/" + step_file_name(step),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 5);
    file.put('!');
  }
  void damage_object(Step step) const {
    auto bytes = objects_->bytes_of(step_file_name(step));
    bytes[4096 + 5] ^= std::byte{1};
    objects_->set(step_file_name(step), bytes);
  }

  std::string disk_ = path("disk");
  std::shared_ptr<MemoryObjects> objects_ = std::make_shared<MemoryObjects>();
  Stream stream_;
  std::map<Step, std::unique_ptr<Field>> fields_;
};

TEST_F(HistoryObjectsTest, IsFoundAgainWithAnEmptyDisk) {
  fill(options(), 8);
  std::filesystem::remove_all(disk_);
  Engine engine(options());
  EXPECT_EQ(engine.steps().size(), 8u);
  EXPECT_EQ(engine.latest(Tier::remote), 7u);
  EXPECT_EQ(engine.latest(Tier::disk), std::nullopt);
  for (Step step = 8; step-- > 0;) EXPECT_TRUE(restores(engine, step));
  EXPECT_TRUE(engine.discard(3));
  engine.flush();
  EXPECT_FALSE(objects_->has(step_file_name(3)));
}

TEST_F(HistoryObjectsTest, WithoutADisk) {
  for (const auto& [gpu, host] : {std::pair{2, 2}, {2, 0}, {0, 2}, {0, 0}}) {
    SCOPED_TRACE(std::to_string(gpu) + " and " + std::to_string(host));
    objects_ = std::make_shared<MemoryObjects>();
    const HistoryOptions with =
        options(static_cast<std::uint64_t>(gpu), static_cast<std::uint64_t>(host), false);
    fill(with, 6);
    Engine engine(with);
    for (const Step step : {3u, 0u, 5u, 1u, 4u, 2u}) EXPECT_TRUE(restores(engine, step));
  }
}

TEST_F(HistoryObjectsTest, LargeCheckpointsGoPastTheCaches) {
  constexpr std::uint64_t kBytes = 11 << 20;  // three chunks, twice through the bounce buffers
  DeviceBuffer<std::byte> field(kBytes);
  for (std::uint64_t i = 0; i < kBytes; ++i) field.data()[i] = std::byte(i * 2654435761u >> 13);
  HistoryOptions with = options(0, 0, false);
  {
    History history = History::open(with);
    history.protect("field", field.data(), kBytes);
    history.save(1, stream_);
    history.close();
  }
  with.gpu_bytes = 12 << 20;
  History history = History::open(with);
  std::fill_n(field.data(), kBytes, std::byte{0});
  history.protect("field", field.data(), kBytes);
  history.restore(1, stream_);
  stream_.synchronize();
  for (std::uint64_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(field.data()[i], std::byte(i * 2654435761u >> 13)) << i;
  }
  history.save(2, stream_);  // by way of the GPU's cache
  history.close();
  EXPECT_EQ(objects_->bytes_of(step_file_name(2)).size(), kBytes + 4096);
}

TEST_F(HistoryObjectsTest, EachTierMakesUpForTheOther) {
  fill(options(), 4);
  damage_file(0);
  damage_object(1);
  objects_->erase(step_file_name(2));
  Engine engine(options(0, 0));
  EXPECT_EQ(engine.steps().size(), 4u);
  for (Step step = 0; step < 4; ++step) EXPECT_TRUE(restores(engine, step));
  EXPECT_EQ(error_of([&] { engine.verify(1); }, {step_file_name(1)}), Errc::damaged);
  engine.flush();  // written again, from the other
  for (Step step = 0; step < 4; ++step) {
    EXPECT_NO_THROW(engine.verify(step));
    EXPECT_TRUE(objects_->has(step_file_name(step)));
  }
  damage_file(3);
  damage_object(3);
  EXPECT_EQ(error_of([&] { restores(engine, 3); }, {"no tier has it whole"}), Errc::damaged);
}

TEST_F(HistoryObjectsTest, AStoreThatIsDown) {
  Engine engine(options(4, 4));
  objects_->fail(Mishap::refused);
  const Ticket ticket = save(engine, 0);
  ticket.wait(Tier::disk);
  EXPECT_EQ(error_of([&] { ticket.wait(Tier::remote); }, {"503", step_file_name(0), "network"}),
            Errc::io);
  EXPECT_EQ(error_of([&] { save(engine, 1); }, {"503"}), Errc::io);  // once
  EXPECT_NO_THROW(save(engine, 1));
  EXPECT_TRUE(restores(engine, 0));
  EXPECT_EQ(error_of([&] { engine.flush(); }, {"503"}), Errc::io);
  objects_->heal();
  engine.flush();
  EXPECT_TRUE(engine.is_in(0, Tier::remote));
  EXPECT_TRUE(engine.is_in(1, Tier::remote));
  objects_->fail(Mishap::refused, Errc::permission);
  save(engine, 2).wait(Tier::disk);
  EXPECT_EQ(error_of([&] { engine.close(); }, {"credentials"}), Errc::permission);
  objects_->heal();
  objects_->make_older(history::kLockFile, std::chrono::hours(1));  // it could not be taken back
  Engine again(options());
  again.flush();  // what the store lacked goes there now
  for (Step step = 0; step < 3; ++step) EXPECT_TRUE(again.is_in(step, Tier::remote));
}

// What retention lets go is there for a while yet: a place with room for little more than is kept
// takes every save, from memory, from the disk and from the program.
TEST_F(HistoryObjectsTest, RoomThatRemovalsAreAboutToMakeIsWaitedFor) {
  for (const std::uint64_t caches : {2, 0}) {
    for (const bool disk : {false, true}) {
      SCOPED_TRACE(std::to_string(caches) + " in each cache" + (disk ? ", a disk" : ""));
      objects_ = std::make_shared<MemoryObjects>();
      objects_->room = 5 * (kUnit + 8192);
      objects_->removal_us = 20'000;
      HistoryOptions with = options(caches, caches, disk);
      if (disk) with.disk += std::to_string(caches);
      with.keep_last = 3;
      Engine engine(with);
      for (Step step = 0; step < 20; ++step) save(engine, step).wait(Tier::remote);
      engine.flush();
      EXPECT_EQ(engine.steps(), (std::vector<Step>{17, 18, 19}));
      EXPECT_TRUE(restores(engine, 19));
      // Where none is about to make any the answer is as it was.
      objects_->room = 0;
      EXPECT_EQ(error_of([&] { save(engine, 20).wait(Tier::remote); }, {"507"}), Errc::no_space);
    }
  }
}

TEST_F(HistoryObjectsTest, OneHistoryAtATime) {
  Engine engine(options());
  HistoryOptions other = options();
  other.disk = path("other");
  EXPECT_EQ(error_of([&] { Engine second(other); }, {"open for writing"}), Errc::in_use);
  other.remote = path("folder");
  EXPECT_EQ(error_of([&] { Engine second(other); }, {"remote_store"}), Errc::invalid_argument);
}

// Every request to the store fails in turn: what the disk has is never lost, and what was said to
// be in the store is there.
TEST_F(HistoryObjectsTest, EveryRequestFailsInTurn) {
  struct Told {
    std::set<Step> on_disk, remote;
    bool ended_well = false;
  };
  const auto run = [&](const HistoryOptions& with) {
    Told told;
    const auto answers = [&](auto&& body) {
      try {
        body();
        return true;
      } catch (const Error& error) {
        const Errc code = error.code();
        EXPECT_TRUE(code == Errc::io || code == Errc::damaged || code == Errc::not_found ||
                    code == Errc::already_exists)
            << error.what();
      } catch (int) {
      }
      return false;
    };
    std::unique_ptr<Engine> engine;
    if (!answers([&] { engine = std::make_unique<Engine>(with); })) return told;
    std::vector<Ticket> tickets;
    for (Step step = 0; step < 4; ++step) {
      const auto once = [&] { tickets.push_back(save(*engine, step)); };
      if (!answers(once)) answers(once);
    }
    answers([&] { EXPECT_TRUE(restores(*engine, 1)); });
    answers([&] { engine->discard(2); });
    answers([&] { engine->verify(0); });
    answers([&] { engine->flush(); });
    told.ended_well = answers([&] { engine->close(); });
    for (const Ticket& ticket : tickets) {
      if (ticket.step() == 2) continue;
      if (ticket.is_in(Tier::disk)) told.on_disk.insert(ticket.step());
      if (ticket.is_in(Tier::remote)) told.remote.insert(ticket.step());
    }
    return told;
  };
  run(options());
  const std::uint64_t requests = objects_->requests + 4;
  const test::Every tried = test::every(4, 12);
  std::uint64_t struck = 0, runs = 0, well = 0;
  ::testing::internal::CaptureStderr();
  for (const Mishap mishap : {Mishap::refused, Mishap::answer_lost, Mishap::cut_short}) {
    for (const std::uint64_t times : {1u, 1u << 30}) {
      for (std::uint64_t first = (tried.first + runs) % tried.step; first < requests;
           first += tried.step) {
        SCOPED_TRACE("mishap " + std::to_string(static_cast<int>(mishap)) + " at request " +
                     std::to_string(first) + ", times " + std::to_string(times));
        std::filesystem::remove_all(disk_);
        objects_ = std::make_shared<MemoryObjects>();
        objects_->first = first;
        objects_->times = times;
        objects_->mishap = mishap;
        HistoryOptions with = options();
        with.on_error = first % 8 < 4 ? OnError::raise : OnError::warn;
        const Told told = run(with);
        objects_->heal();
        struck += objects_->struck > 0;
        well += told.ended_well;
        ++runs;
        if (objects_->has(history::kLockFile)) {
          objects_->make_older(history::kLockFile, std::chrono::hours(1));
        }
        {
          Engine engine(options());
          for (const Step step : told.on_disk) EXPECT_TRUE(restores(engine, step));
        }
        std::filesystem::remove_all(disk_);
        Engine engine(options());
        for (const Step step : engine.steps()) EXPECT_TRUE(restores(engine, step));
        for (const Step step : told.remote) EXPECT_TRUE(engine.is_in(step, Tier::remote)) << step;
        if (HasFailure()) break;
      }
    }
  }
  ::testing::internal::GetCapturedStderr();
  std::printf("%llu runs, %llu with a mishap, %llu ended well\n",
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(struck),
              static_cast<unsigned long long>(well));
  EXPECT_GT(struck * 2, runs);
  EXPECT_GT(well * (test::share() == 1 ? 4 : 12), runs);
}

TEST_F(HistoryObjectsTest, ToolsLookAtIt) {
  fill(options(), 3);
  damage_object(1);
  const HistoryFolder found(objects_);
  EXPECT_EQ(found.path(), "mem://bucket/run");
  ASSERT_EQ(found.steps().size(), 3u);
  EXPECT_EQ(found.steps()[2].path, "mem://bucket/run/" + step_file_name(2));
  EXPECT_NO_THROW(found.verify(0));
  EXPECT_EQ(error_of([&] { found.verify(1); }, {"mem://bucket/run"}), Errc::damaged);
  const std::vector<std::uint64_t> none{7}, one{1};
  EXPECT_EQ(error_of([&] { HistoryFolder::discard(objects_, none); }), Errc::not_found);
  HistoryFolder::discard(objects_, one);
  EXPECT_FALSE(objects_->has(step_file_name(1)));
  const auto before = objects_->objects().size();
  objects_ = std::make_shared<MemoryObjects>();
  EXPECT_EQ(error_of([&] { HistoryFolder::discard(objects_, one); }), Errc::not_found);
  EXPECT_TRUE(objects_->objects().empty());
  EXPECT_EQ(before, 3u);
}

}  // namespace
}  // namespace holdfast
