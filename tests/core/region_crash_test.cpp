// Processes that really die: a child changes a region and is killed at any moment; what it was
// told is done must be there.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "core/checksum.hpp"
#include "core/format.hpp"
#include "holdfast/region.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Step {
  enum Kind : int { opened, allocate, remove, fill, grow, commit } kind;
  int done;  // 0: about to begin
  char name[16];
  std::uint64_t pages;  // grow: the new size in bytes
  std::uint8_t value;
  Tracking tracking;
  std::uint64_t generation;
};

struct Object {
  std::uint64_t pages = 0;
  std::uint8_t value = 0;
  Tracking tracking = Tracking::hashed;
  bool mixed = false;  // the kill came while it was being filled with another value
  std::uint8_t next = 0;
  bool operator==(const Object&) const = default;
};
using Model = std::map<std::string, Object>;

void advance(Model& model, const Step& step) {
  if (step.kind == Step::allocate) model[step.name] = {step.pages, 0, step.tracking, false, 0};
  if (step.kind == Step::remove) model.erase(step.name);
  if (step.kind == Step::fill) {
    Object& object = model[step.name];
    object.mixed = step.done == 0;
    if (step.done == 0) {
      object.next = step.value;
    } else {
      object.value = step.value;
    }
  }
}

// What an image holds of it.
Model committed_of(Model model) {
  for (auto& [name, object] : model) {
    if (object.tracking == Tracking::none) object.value = object.next = 0;
  }
  return model;
}

// What differs, in words; empty if nothing.
std::string difference(const Model& model, Region& region) {
  const std::vector<ObjectInfo> objects = region.objects();
  if (objects.size() != model.size()) {
    return std::to_string(objects.size()) + " objects, not " + std::to_string(model.size());
  }
  for (const ObjectInfo& info : objects) {
    const auto found = model.find(info.name);
    if (found == model.end()) return "object '" + info.name + "' should not be there";
    const Object& object = found->second;
    if (info.bytes() != object.pages * kPageBytes) return "'" + info.name + "' has another size";
    const auto* bytes = static_cast<const std::uint8_t*>(region.address(info));
    for (std::uint64_t i = 0; i < info.bytes(); ++i) {
      if (bytes[i] == object.value || (object.mixed && bytes[i] == object.next)) continue;
      return "'" + info.name + "' holds " + std::to_string(bytes[i]) + ", not " +
             std::to_string(object.value);
    }
  }
  return "";
}

class RegionCrashTest : public test::Scratch {
 protected:
  void remove_arenas() {
    for (const auto& entry : std::filesystem::directory_iterator(arenas())) {
      std::filesystem::remove(entry);
    }
  }
};

void send(Step step, int done) {
  step.done = done;
  test::report(step);
}

// The child: opens the region and changes it until it is killed.
TEST(CrashChild, DISABLED_ChangesARegion) {
  std::mt19937_64 random(std::stoull(test::from_environment("HOLDFAST_TEST_CHILD_SEED")));
  Region region = Region::open(test::from_environment("HOLDFAST_TEST_REGION"));
  Stream stream;
  Step opened{};
  opened.kind = Step::opened;
  opened.generation = region.generation();
  send(opened, 1);
  for (;;) {
    const std::vector<ObjectInfo> objects = region.objects();
    const auto choice = random() % 100;
    Step step{};
    if (choice < 25 && objects.size() < 40) {
      step.kind = Step::allocate;
      std::snprintf(step.name, sizeof step.name, "%x", static_cast<unsigned>(random()));
      step.pages = 1 + random() % 40;
      step.tracking = static_cast<Tracking>(random() % 3);
      send(step, 0);
      try {
        region.allocate_raw(step.name, "u8", 1, step.pages * kPageBytes, step.tracking);
      } catch (const Error& error) {
        if (error.code() != Errc::no_space) throw;
        step.kind = Step::grow;  // as good as nothing
      }
    } else if (choice < 40 && !objects.empty()) {
      step.kind = Step::remove;
      std::strcpy(step.name, objects[random() % objects.size()].name.c_str());
      send(step, 0);
      region.remove(step.name);
    } else if (choice < 75 && !objects.empty()) {
      const ObjectInfo& object = objects[random() % objects.size()];
      step.kind = Step::fill;
      step.value = static_cast<std::uint8_t>(random());
      std::strcpy(step.name, object.name.c_str());
      send(step, 0);
      std::memset(region.address(object), step.value, object.bytes());
      region.mark(region.address(object), object.bytes());
    } else if (choice < 80 && region.size() < 12 * kMiB) {
      step.kind = Step::grow;
      send(step, 0);
      region.grow(region.size() + 40 * kPageBytes);
    } else {
      step.kind = Step::commit;
      send(step, 0);
      step.generation =
          (choice % 2 == 0 ? region.commit() : region.commit(stream).wait()).generation;
    }
    send(step, 1);
  }
}

TEST_F(RegionCrashTest, KilledProcessesLoseNothingThatWasDone) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  RegionOptions wanted = options(2 * kMiB);
  wanted.max_size = 16 * kMiB;
  Region::create(path(), wanted).close();
  Model model;                               // what is there now
  std::map<std::uint64_t, Model> committed;  // by generation
  committed[0] = model;
  std::optional<Model> perhaps_committed;
  std::uint64_t generation = 0;
  int steps = 0, adopted = 0, rebooted = 0;
  const int rounds = static_cast<int>(test::some_of(60, 6));
  const int least = static_cast<int>(5 / test::share());
  const auto some_are_missing = [&] { return adopted <= least || rebooted <= least; };
  for (int round = 0; round < rounds || (some_are_missing() && round < 60); ++round) {
    test::Child child("CrashChild.DISABLED_ChangesARegion",
                      {{"HOLDFAST_TEST_REGION", path()},
                       {"HOLDFAST_TEST_CHILD_SEED", std::to_string(seed + round)}});
    Step step{};
    ASSERT_TRUE(child.read(step)) << "round " << round << ": the child could not open";
    std::thread killer([&, delay = random() % 20'000] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      ::kill(child.pid(), SIGKILL);
    });
    std::optional<Step> unfinished;
    while (child.read(step)) {
      ++steps;
      if (step.done == 0) {
        unfinished = step;
        continue;
      }
      unfinished.reset();
      advance(model, step);
      if (step.kind == Step::commit) {
        generation = step.generation;
        committed[generation] = committed_of(model);
      }
    }
    killer.join();
    child.wait();

    if (random() % 3 == 0) {
      remove_arenas();  // a reboot: the last commit, or the one that was being made
      ++rebooted;
      Region region = Region::open(path(), last_commit());
      EXPECT_FALSE(region.open_report().arena_found);
      const bool ahead = region.generation() == generation + 1;
      ASSERT_TRUE(ahead || region.generation() == generation) << region.generation();
      ASSERT_TRUE(!ahead || (unfinished && unfinished->kind == Step::commit));
      const Model expected = ahead ? committed_of(model) : committed[generation];
      ASSERT_EQ(difference(expected, region), "") << "round " << round;
      model = expected;
      generation = region.generation();
      committed[generation] = model;
      region.close();
      continue;
    }
    Region region = Region::open(path());
    adopted += region.open_report().arena_found ? 1 : 0;
    Model after = model;
    if (unfinished) advance(after, *unfinished);
    std::string wrong = difference(after, region);
    if (!wrong.empty() && difference(model, region).empty()) wrong.clear(), after = model;
    ASSERT_EQ(wrong, "") << "round " << round;
    model = after;
    // A half-filled object is settled, so that the next round knows what it holds.
    for (auto& [name, object] : model) {
      if (!object.mixed) continue;
      const ObjectInfo info = region.object(name);
      std::memset(region.address(info), object.value, info.bytes());
      object.mixed = false;
      region.mark(region.address(info), info.bytes());
    }
    for (auto& [name, object] : model) object.next = 0;
    if (random() % 2 == 0) {
      region.close();
      Region again = Region::open(path());
      ASSERT_FALSE(again.open_report().arena_found);
      model = committed_of(model);
      ASSERT_EQ(difference(model, again), "") << "round " << round << ", from the image";
      generation = again.generation();
      committed[generation] = model;
      again.abandon();
      continue;
    }
    generation = region.generation();
    if (committed.count(generation) == 0) committed[generation] = committed_of(model);
    region.abandon();
  }
  std::printf("%d steps, %d arenas adopted, %d reboots\n", steps, adopted, rebooted);
  EXPECT_GT(adopted, least);
  EXPECT_GT(rebooted, least);
}

// A child that makes regions until it is killed.
TEST(CrashChild, DISABLED_CreatesRegions) {
  const std::string folder = test::from_environment("HOLDFAST_TEST_REGION");
  for (int i = 0;; ++i) {
    RegionOptions options;
    options.size = kMiB;
    Region::create(folder + "/" + std::to_string(i), options).abandon();
    test::report(i);
  }
}

TEST_F(RegionCrashTest, CreationIsWholeOrNotAtAll) {
  std::mt19937_64 random(test::test_seed());
  int made = 0;
  const int rounds = static_cast<int>(test::some_of(25, 5));
  for (int round = 0; round < rounds; ++round) {
    std::filesystem::create_directory(path("round"));
    int last = -1;
    {
      test::Child child("CrashChild.DISABLED_CreatesRegions",
                        {{"HOLDFAST_TEST_REGION", path("round")}});
      ASSERT_TRUE(child.read(last));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
      ::kill(child.pid(), SIGKILL);
      while (child.read(last)) {
      }
    }
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path("round"))) {
      Region region = Region::open(entry.path().string());
      EXPECT_TRUE(region.objects().empty());
      region.close();
      ++found;
    }
    EXPECT_TRUE(found == last + 1 || found == last + 2) << found << " of " << last + 1;
    EXPECT_TRUE(is_empty(arenas())) << "an arena without a region";
    made += found;
    std::filesystem::remove_all(path("round"));
  }
  std::printf("%d regions\n", made);
}

// A child that holds a region open.
TEST(CrashChild, DISABLED_HoldsARegion) {
  Region region = Region::open(test::from_environment("HOLDFAST_TEST_REGION"));
  region.find<int>("data")[1] = 5;
  test::report(1);
  for (;;) ::pause();
}

TEST_F(RegionCrashTest, OneProcessAtATime) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 10);
    EXPECT_EQ(error_of([&] { Region::open(path()); }, {path(), "this process"}), Errc::in_use);
    region.close();
  }
  test::Child child("CrashChild.DISABLED_HoldsARegion", {{"HOLDFAST_TEST_REGION", path()}});
  int ready = 0;
  ASSERT_TRUE(child.read(ready));
  const std::string process = "process " + std::to_string(child.pid());
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {path(), process}), Errc::in_use);
  EXPECT_EQ(error_of([&] { Region::destroy(path()); }, {path(), process}), Errc::in_use);
  child.kill();
  Region region = Region::open(path());  // a dead process's lock is gone
  EXPECT_TRUE(region.open_report().arena_found);
  EXPECT_EQ(region.find<int>("data")[1], 5);
}

// A kill within grow(): the file is longer already, and its new part not yet allocated.
TEST_F(RegionCrashTest, AnInterruptedGrowIsCutOff) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 10)[1] = 1;
    region.abandon();
  }
  const std::string arena = only_file(arenas());
  std::filesystem::resize_file(arena, 3 * kMiB + kPageBytes);
  Region region = Region::open(path());
  EXPECT_TRUE(region.open_report().arena_found);
  EXPECT_EQ(region.size(), kMiB);
  EXPECT_EQ(std::filesystem::file_size(arena), kMiB + kPageBytes);
  EXPECT_EQ(region.find<int>("data")[1], 1);
  region.grow(2 * kMiB);
  EXPECT_EQ(region.allocate<char>("more", kMiB)[kMiB - 1], 0);
}

TEST_F(RegionCrashTest, AnArenaOfAnotherBootIsNotUsed) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 10)[1] = 1;
    region.commit();
    region.find<int>("data")[1] = 2;
    region.abandon();
  }
  // Another boot id with a sound checksum, as a real reboot leaves it in a folder on disk.
  const std::string arena = only_file(arenas());
  std::vector<char> bytes = test::read_file(arena);
  core::ArenaHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.boot_id[3] ^= 1;
  header.checksum = core::hash_bytes(&header, offsetof(core::ArenaHeader, checksum));
  std::memcpy(bytes.data(), &header, sizeof header);
  test::write_file(arena, bytes);
  Region region = Region::open(path());
  EXPECT_FALSE(region.open_report().arena_found);
  EXPECT_EQ(region.find<int>("data")[1], 1) << "the last commit";
  region.close();
  EXPECT_TRUE(is_empty(arenas()));
}

}  // namespace
}  // namespace holdfast
