// Lives of processes over one disk that loses power: created, opened again, killed at any
// operation, with syncs that fail and forget. Whatever state of the disk a power cut may leave, it
// opens, as the last commit that was acknowledged or as one that was on its way after it.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "core/region_access.hpp"
#include "core/uuid.hpp"
#include "support/lives_ledger.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/simulated_disk.hpp"

namespace holdfast {
namespace {

using core::kPage;
using detail::concat;
using test::below;
using test::chance;
using test::Content;
using test::CutState;
using test::holds;
using test::judge;
using test::Ledger;
using test::Life;
using test::Random;
using test::SimulatedDisk;
using test::Verdict;

struct Tally {
  std::uint64_t scenarios = 0;
  std::uint64_t lives = 0;
  std::uint64_t kills = 0;
  std::uint64_t faults = 0;
  std::uint64_t cuts = 0;    // after which a life went on
  std::uint64_t states = 0;  // sampled
  std::uint64_t opened = 0;  // of them opened as whole regions
  std::uint64_t missing = 0;
  std::uint64_t refused = 0;
  std::uint64_t wrong = 0;
  std::uint64_t unfit = 0;            // what a process left, for the next one of the same boot
  std::vector<std::string> failures;  // each with its scenario's seed
  std::string trace;                  // of the first
  void print(const char* name) const {
    std::printf(
        "%s: %llu states (%llu opened as regions, %llu without a region, as they may be) of "
        "%llu lives in %llu scenarios with %llu kills, %llu failed operations and %llu power "
        "cuts survived: %llu refused, %llu wrong; %llu processes failed without a cut\n",
        name, ull(states), ull(opened), ull(missing), ull(lives), ull(scenarios), ull(kills),
        ull(faults), ull(cuts), ull(refused), ull(wrong), ull(unfit));
  }
  static unsigned long long ull(std::uint64_t value) { return value; }
};

// Files as they were at a moment, to be put back.
class KeptFiles {
 public:
  void keep(const std::string& region, const std::string& arenas) {
    region_ = region;
    arenas_ = arenas;
    kept_name_ = ::link(region.c_str(), (region + ".kept").c_str()) == 0;
    files_.clear();
    for (const auto& entry : std::filesystem::directory_iterator(arenas)) {
      files_[entry.path().string()] = test::read_file(entry.path().string());
    }
  }
  void put_back() {
    if (kept_name_) {
      // The same file: what is linked already stays.
      if (::access(region_.c_str(), F_OK) == 0) {
        ::unlink((region_ + ".kept").c_str());
      } else {
        std::filesystem::rename(region_ + ".kept", region_);
      }
    } else {
      ::unlink(region_.c_str());
    }
    for (const auto& entry : std::filesystem::directory_iterator(arenas_)) {
      if (!files_.contains(entry.path().string())) std::filesystem::remove(entry.path());
    }
    for (const auto& [path, bytes] : files_) test::write_file(path, bytes);
    files_.clear();
  }

 private:
  std::string region_, arenas_;
  bool kept_name_ = false;
  std::map<std::string, std::vector<char>> files_;
};

struct Settings {
  Life::Omissions omit;
  unsigned samples = 2;           // of each operation, on average
  unsigned kills_in_create = 25;  // of a hundred
  unsigned failed_syncs = 30;     // of a hundred lives
};

class Scenario {
 public:
  Scenario(test::ScratchFolders& folders, std::uint64_t seed, const Settings& settings,
           Tally& tally)
      : folders_(folders),
        settings_(settings),
        tally_(tally),
        seed_(seed),
        random_(seed),
        sampling_(~seed) {
    boot_ = core::new_uuid();
    clear_folders();
    ++tally_.scenarios;
  }
  ~Scenario() { clear_folders(); }

  void run() {
    try {
      if (!create()) return;
      const std::uint64_t lives = 2 + below(random_, 6);
      for (std::uint64_t i = 0; i < lives && !stopped(); ++i) {
        if (!between_lives()) return;
        reopen();
      }
    } catch (const Error& error) {
      fail(Failure::unfit, error.what());
    }
  }

 private:
  enum class Failure { refused, wrong, unfit };

  bool stopped() const { return failed_; }
  void clear_folders();
  void fail(Failure failure, const std::string& why);
  void fail(const Verdict& verdict, const std::string& when) {
    fail(verdict.refused ? Failure::refused : Failure::wrong, concat(when, ": ", verdict.why));
  }
  void trace(const std::string& line) {
    trace_.push_back(line);
    if (trace_.size() > 120) trace_.pop_front();
  }

  core::Surroundings around(Life& life);
  std::unique_ptr<Life> new_life();
  void plan_faults(Life& life);
  void end_life(Life& life);
  // Samples states that the power may leave now.
  void sample(std::uint64_t count);
  void check(const CutState& state);
  void open_whole(const CutState& state, std::size_t commit);

  bool create();
  void reopen();
  bool between_lives();
  void live(Life& life, Region region);
  void change(Region& region);
  void change_object(Region& region);
  void forget_untracked(Region& region);
  void allocate(Region& region);
  bool commit(Region& region, bool close);

  test::ScratchFolders& folders_;
  const Settings& settings_;
  Tally& tally_;
  const std::uint64_t seed_;
  Random random_;
  Random sampling_;
  SimulatedDisk disk_;
  Ledger ledger_;
  Content live_;  // what the region's bytes are, to be found by the next process of this boot
  core::Uuid boot_{};
  KeptFiles kept_;
  std::unique_ptr<Life> life_;
  std::deque<std::string> trace_;
  std::uint64_t names_ = 0;
  bool opened_in_vain_ = false;  // a life was cut off that may have begun with the image
  bool failed_ = false;
};

void Scenario::clear_folders() {
  for (const std::string& folder :
       {folders_.folder(), folders_.arenas(), folders_.other_arenas()}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::filesystem::remove(entry);
    }
  }
}

void Scenario::fail(Failure failure, const std::string& why) {
  static constexpr const char* kNames[] = {"refused", "wrong", "unfit"};
  if (std::exchange(failed_, true)) return;
  std::uint64_t* const counts[] = {&tally_.refused, &tally_.wrong, &tally_.unfit};
  ++*counts[static_cast<int>(failure)];
  tally_.failures.push_back(
      concat("HOLDFAST_TEST_SEED=", seed_, ": ", kNames[static_cast<int>(failure)], ": ", why));
  if (!tally_.trace.empty()) return;
  for (const std::string& line : trace_) tally_.trace += concat("  ", line, "\n");
}

// ---- States that a power cut may leave
// ------------------------------------------------------------

void Scenario::sample(std::uint64_t count) {
  if (!disk_.is_uncertain()) count = std::min<std::uint64_t>(count, 1);
  for (std::uint64_t i = 0; i < count && !failed_; ++i) check(disk_.sample(sampling_));
}

void Scenario::check(const CutState& state) {
  if (!disk_.has_name()) return;  // create() has not come to it: nothing is there to be looked at
  ++tally_.states;
  if (!state.named) {
    ++tally_.missing;
    if (ledger_.must_exist())
      fail(Failure::wrong, "the region is gone: its name was never made durable");
    return;
  }
  const Verdict verdict = judge(std::make_unique<test::FrozenStore>(disk_, &state), ledger_);
  if (!verdict.commit) return fail(verdict, concat("a cut (", state.choice, ")"));
  // A sample may be taken in a stream's host function, where CUDA can pin nothing.
  if (std::strcmp(backend::name(), "cpu") == 0 && chance(sampling_, 2)) {
    open_whole(state, *verdict.commit);
  }
}

// Opens the state as a region, in another file, and goes on from there.
void Scenario::open_whole(const CutState& state, std::size_t commit) {
  ++tally_.opened;
  SimulatedDisk disk = disk_;
  disk.cut(state);
  const std::string path = folders_.path("copy");
  test::write_file(path, {});
  Life life(disk, sampling_());
  core::Surroundings surroundings = around(life);
  surroundings.boot = core::new_uuid;
  OpenOptions options;
  options.arena_folder = folders_.other_arenas();
  try {
    Region region = core::RegionAccess::open(path, options, surroundings);
    Content content = ledger_.at(commit);
    if (!holds(region, content))
      fail(Failure::wrong, "a region opened after a cut holds something else");
    if (!content.objects.empty()) {
      auto& [name, object] = *content.objects.begin();
      object.bytes[0] ^= std::byte{1};
      const ObjectInfo info = region.object(name);
      std::memcpy(region.address(info), object.bytes.data(), 1);
      region.mark(region.address(info), 1);
    }
    region.commit();
    region.close();
    Ledger after;
    after.attempt(content);
    const Verdict verdict = judge(std::make_unique<test::FrozenStore>(disk), after);
    if (!verdict.commit) fail(verdict, "after a cut and a commit");
  } catch (const Error& error) {
    fail(Failure::refused, concat("a region after a cut (", state.choice, "): ", error.what()));
  }
}

// ---- Lives
// ----------------------------------------------------------------------------------------

core::Surroundings Scenario::around(Life& life) {
  core::Surroundings result;
  result.make_store = [&life](core::UniqueFd fd, const std::string& path) {
    return std::make_unique<test::SimulatedStore>(life, std::move(fd), path);
  };
  result.boot = [this] { return boot_; };
  return result;
}

std::unique_ptr<Life> Scenario::new_life() {
  ++tally_.lives;
  auto life = std::make_unique<Life>(disk_, random_());
  life->omit = settings_.omit;
  life->forgets_at_once = chance(random_, 30);
  life->trace = [this](const std::string& line) { trace(line); };
  life->on_begin = [this] {
    if (::access(folders_.path().c_str(), F_OK) == 0) disk_.link();
  };
  life->on_done = [this] { sample(below(sampling_, 2 * settings_.samples + 1)); };
  life->on_death = [this] { kept_.keep(folders_.path(), folders_.arenas()); };
  return life;
}

void Scenario::plan_faults(Life& life) {
  static constexpr Life::When kWhen[] = {Life::When::before, Life::When::within, Life::When::after};
  const auto some = [&] { return chance(random_, 30) ? below(random_, 6) : below(random_, 40); };
  if (chance(random_, 40)) life.kill_at(some(), kWhen[below(random_, 3)]);
  const int times = chance(random_, 75) ? 1 : 1 + static_cast<int>(below(random_, 4));
  if (chance(random_, settings_.failed_syncs)) {
    life.fail_sync(chance(random_, 40) ? below(random_, 3) : below(random_, 10), times);
  }
  if (chance(random_, 15)) life.fail_change(some(), chance(random_, 50) ? EIO : ENOSPC, times);
}

void Scenario::end_life(Life& life) {
  tally_.faults += life.faults();
  if (!life.dead()) return;
  ++tally_.kills;
  kept_.put_back();
}

// False: there is no region, and need not be.
bool Scenario::create() {
  trace("life: create");
  const std::uint64_t pages = chance(random_, 10) ? 300 : 40 + below(random_, 80);
  RegionOptions options;
  options.size = pages * kPage;
  options.max_size = 2 * options.size;
  options.arena_folder = folders_.arenas();
  live_.region_bytes = options.size;
  ledger_.attempt(live_);
  life_ = new_life();
  life_->opening = false;  // what may be left out then is for those that read
  if (chance(random_, settings_.kills_in_create)) {
    life_->kill_at(below(random_, 16),  // creation makes some fourteen changes
                   chance(random_, 50) ? Life::When::before : Life::When::after);
  } else if (chance(random_, 50)) {
    plan_faults(*life_);
  }
  std::optional<Region> region;
  try {
    region = core::RegionAccess::create(folders_.path(), options, around(*life_));
  } catch (const Error& error) {
    trace(concat("create: ", error.what()));
    sample(settings_.samples);
    end_life(*life_);
    return life_->dead() && ::access(folders_.path().c_str(), F_OK) == 0;
  }
  ledger_.acknowledge();
  sample(settings_.samples);
  live(*life_, std::move(*region));
  end_life(*life_);
  return true;
}

void Scenario::reopen() {
  trace("life: open");
  life_ = new_life();
  plan_faults(*life_);
  OpenOptions options;
  options.arena_folder = folders_.arenas();
  options.max_size = 2 * live_.region_bytes;
  std::optional<Region> region;
  try {
    region = core::RegionAccess::open(folders_.path(), options, around(*life_));
  } catch (const Error& error) {
    trace(concat("open: ", error.what()));
    end_life(*life_);
    opened_in_vain_ = true;
    if (life_->dead() || life_->faults() > 0) return;
    return fail(Failure::unfit, concat("the next process: ", error.what()));
  }
  if (!region->open_report().arena_found || opened_in_vain_) forget_untracked(*region);
  opened_in_vain_ = false;
  if (!holds(*region, live_))
    fail(Failure::unfit, "the next process finds other bytes than the last one left");
  const Verdict verdict = judge(std::make_unique<test::FrozenStore>(disk_), ledger_);
  if (!verdict.commit) {
    fail(Failure::unfit, concat("the image, once opened: ", verdict.why));
  } else {
    ledger_.found(*verdict.commit);
  }
  life_->opening = false;
  sample(settings_.samples);
  live(*life_, std::move(*region));
  end_life(*life_);
}

// What commits leave out is zero where the region began with its image.
void Scenario::forget_untracked(Region& region) {
  const Content forgotten = in_image(live_);
  for (auto& [name, object] : live_.objects) {
    if (object.tracking != Tracking::none || !region.contains(name)) continue;
    const ObjectInfo info = region.object(name);
    const std::vector<std::byte>& zeroes = forgotten.objects.at(name).bytes;
    const bool zero = info.bytes() == zeroes.size() &&
                      std::memcmp(region.address(info), zeroes.data(), zeroes.size()) == 0;
    if (zero || !region.open_report().arena_found) object.bytes = zeroes;
  }
}

// False: the power cut took the region, which need not have been there.
bool Scenario::between_lives() {
  if (chance(random_, 40)) {
    trace("the page cache forgets");
    disk_.evict(random_);
  }
  sample(settings_.samples);
  if (stopped() || chance(random_, 60)) return !stopped();
  const CutState state = disk_.sample(random_);
  trace(concat("power cut: ", state.choice));
  ++tally_.cuts;
  check(state);
  if (stopped() || !state.named) return false;
  disk_.cut(state);
  const Verdict verdict = judge(std::make_unique<test::FrozenStore>(disk_), ledger_);
  ledger_.settled(verdict.commit.value());
  live_ = ledger_.at(0);
  boot_ = core::new_uuid();
  for (const auto& entry : std::filesystem::directory_iterator(folders_.arenas())) {
    std::filesystem::remove(entry);
  }
  return true;
}

// The region changes, commits, and goes in one of the ways in which regions go.
void Scenario::live(Life& life, Region region) {
  bool goes_on = true;
  for (std::uint64_t i = below(random_, 5); i > 0 && goes_on && !stopped(); --i) {
    for (std::uint64_t changes = below(random_, 5); changes > 0; --changes) change(region);
    goes_on = commit(region, false) || (!life.dead() && chance(random_, 50));
  }
  if (goes_on && chance(random_, 50)) change(region);
  while (goes_on && !stopped() && chance(random_, 60)) {
    if (commit(region, true)) return;
    goes_on = !life.dead();
  }
  trace("abandon");
  region.abandon();
}

// False: it failed.
bool Scenario::commit(Region& region, bool close) {
  trace(close ? "close" : "commit");
  const std::size_t before = ledger_.size();
  ledger_.attempt(live_);
  try {
    if (close) {
      region.close();
    } else {
      region.commit();
    }
  } catch (const Error& error) {
    trace(error.what());
    if (life_->dead()) return false;
    if (std::string(error.what()).find("still holds the previous commit") != std::string::npos) {
      ledger_.withdraw(before);
    }
    if (error.code() != Errc::io && error.code() != Errc::no_space)
      fail(Failure::unfit, error.what());
    sample(2 * settings_.samples);
    return false;
  }
  ledger_.acknowledge();
  sample(settings_.samples);
  return true;
}

// ---- Changes
// --------------------------------------------------------------------------------------

void Scenario::allocate(Region& region) {
  const std::string name = concat("object ", names_++);
  const auto tracking = static_cast<Tracking>(below(random_, 3));
  const std::uint64_t bytes = (1 + below(random_, 12)) * kPage - below(random_, 100);
  try {
    region.allocate<std::uint8_t>(name, bytes, tracking);
  } catch (const Error& error) {
    if (error.code() != Errc::no_space) throw;
    return;
  }
  live_.objects[name] = {tracking, std::vector<std::byte>(bytes)};
}

// Some of its bytes, or whole pages that become zero.
void Scenario::change_object(Region& region) {
  auto object = live_.objects.begin();
  std::advance(object, below(random_, live_.objects.size()));
  std::vector<std::byte>& bytes = object->second.bytes;
  const std::uint64_t first = below(random_, bytes.size());
  const std::uint64_t most = chance(random_, 50) ? 3 * kPage : 100;
  const std::uint64_t count = std::min(bytes.size() - first, 1 + below(random_, most));
  const bool to_zero = chance(random_, 20);
  const std::uint64_t from = to_zero ? first / kPage * kPage : first;
  const auto value = static_cast<std::byte>(to_zero ? 0 : 1 + below(random_, 255));
  std::memset(bytes.data() + from, static_cast<int>(value), first + count - from);
  auto* const address = static_cast<std::byte*>(region.address(region.object(object->first)));
  std::memcpy(address + from, bytes.data() + from, first + count - from);
  region.mark(address + from, first + count - from);
}

void Scenario::change(Region& region) {
  const std::uint64_t what = below(random_, 100);
  if (what < 25 || live_.objects.empty()) return allocate(region);
  if (what < 33) {
    auto object = live_.objects.begin();
    std::advance(object, below(random_, live_.objects.size()));
    region.remove(object->first);
    live_.objects.erase(object);
  } else if (what < 37 && region.size() < region.max_size()) {
    const std::uint64_t pages = 1 + below(random_, 20);
    live_.region_bytes = std::min(region.max_size(), region.size() + pages * kPage);
    region.grow(live_.region_bytes);
  } else {
    change_object(region);
  }
}

// ---- Tests
// ----------------------------------------------------------------------------------------

class ImageLivesTest : public test::Scratch {
 protected:
  // Runs scenarios, each from a seed of its own, until so many states were sampled. `enough` says
  // of a tally that no more are needed.
  template <class Enough>
  Tally run(std::uint64_t states, const Settings& settings, Enough&& enough) {
    std::uint64_t seed = seed_;
    Tally tally;
    const std::uint64_t last = seed + states;  // scenarios may come to no state at all
    while (tally.states < states && !enough(tally) && seed < last) {
      Scenario(*this, seed++, settings, tally).run();
    }
    EXPECT_TRUE(seed < last) << "too few states in " << states << " scenarios";
    return tally;
  }

  // States that are refused, or wrong, are found where the code under test leaves something out.
  void expect_found(const char* what, std::uint64_t Tally::*failures, const Settings& settings,
                    std::uint64_t within_states) {
    const auto found = [&](const Tally& tally) { return tally.*failures > 0; };
    const Tally tally = run(within_states, settings, found);
    tally.print(what);
    EXPECT_TRUE(found(tally)) << what;
    if (!tally.failures.empty()) std::printf("  %s\n", tally.failures.back().c_str());
  }

  // What is rare is searched for until it is there: where a share is tried, in one run of N.
  bool is_left_to_another_run() const { return seed_ % test::share() != 0; }

  static std::uint64_t states_wanted() {
    const char* const given = std::getenv("HOLDFAST_LIVES_STATES");
    return given != nullptr ? std::strtoull(given, nullptr, 0) : test::some_of(12'000, 500);
  }

 private:
  const std::uint64_t seed_ = test::test_seed();
};

TEST_F(ImageLivesTest, WhateverAPowerCutLeavesIsACommitThatWasAskedFor) {
  const Tally tally = run(states_wanted(), {}, [](const Tally&) { return false; });
  tally.print("lives");
  for (const std::string& failure : tally.failures) ADD_FAILURE() << failure;
  std::printf("%s", tally.trace.c_str());
}

TEST_F(ImageLivesTest, TheTestItselfFindsAMissingSyncWhileOpening) {
  if (is_left_to_another_run()) GTEST_SKIP() << "left to another run";
  Settings settings;
  settings.omit.sync_while_opening = true;
  settings.failed_syncs = 80;
  expect_found("no sync while opening", &Tally::refused, settings, 200'000);
}
TEST_F(ImageLivesTest, TheTestItselfFindsARecordNotWrittenAgainWhileOpening) {
  if (is_left_to_another_run()) GTEST_SKIP() << "left to another run";
  Settings settings;
  settings.omit.record_while_opening = true;
  settings.failed_syncs = 80;
  expect_found("no record while opening", &Tally::refused, settings, 200'000);
}
TEST_F(ImageLivesTest, TheTestItselfFindsAMissingSyncOfTheName) {
  Settings settings;
  settings.omit.sync_name = true;
  expect_found("no sync of the name", &Tally::wrong, settings, 10'000);
}
TEST_F(ImageLivesTest, TheTestItselfFindsAMissingSyncOfTheNameWhileOpening) {
  Settings settings;
  settings.omit.sync_name_while_opening = true;
  settings.kills_in_create = 100;
  expect_found("no sync of the name while opening", &Tally::wrong, settings, 100'000);
}
TEST_F(ImageLivesTest, TheTestItselfFindsAMissingSyncBeforeTheRecord) {
  Settings settings;
  settings.omit.sync_before_record = true;
  expect_found("no sync before the record", &Tally::refused, settings, 10'000);
}
TEST_F(ImageLivesTest, TheTestItselfFindsAMissingSyncAfterTheRecord) {
  Settings settings;
  settings.omit.sync_after_record = true;
  expect_found("no sync after the record", &Tally::refused, settings, 10'000);
}

}  // namespace
}  // namespace holdfast
