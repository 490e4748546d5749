// Creations that are cut off: the object is absent or whole, and the next creation makes it.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "core/format.hpp"
#include "durable/header.hpp"
#include "durable/ledger.hpp"
#include "support/failing_memory.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "holdfast/testing/crash_medium.hpp"
#endif

namespace holdfast {
namespace {

using test::error_of;
using test::Every;
using test::every;
using test::FailingMemory;
using test::Fails;
using test::Ledger;
using test::LedgerParameters;
using test::names_in;

// Too long for a std::string without memory of its own: whoever looks for an object allocates.
constexpr const char* kName = "the books of all the years";
constexpr std::uint64_t kSize = std::uint64_t{1} << 20;
constexpr LedgerParameters kSmall{40, 4};
constexpr LedgerParameters kOther{700, 2};

// Whether it is there: whole, or not at all and to be created.
bool is_there(Region& region) {
  try {
    Ledger::open(region, kName);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::not_found) << error.what();
    return false;
  }
}

// Creates it, of other parameters, where it is not there; and it is as it should be.
void expect_made(Region& region) {
  const bool there = is_there(region);
  if (!there) {
    const Ledger made = Ledger::create(region, kName, kOther);
    for (const std::uint64_t value : made.part<std::uint64_t>("balances")) ASSERT_EQ(value, 0u);
  }
  Ledger found = Ledger::open(region, kName);
  EXPECT_EQ(found.parameters().accounts, there ? kSmall.accounts : kOther.accounts);
  EXPECT_FALSE(found.transaction().interrupted());
  std::vector<std::string> expected;
  for (const std::string& object : test::ledger_objects()) {
    expected.push_back(kName + object.substr(object.find('.')));
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names_in(region), expected);
}

// Also the first stream of a process, where each test is one.
TEST(DurableKillStream, EndsWhereNoMemoryIsLeft) {
  std::optional<Stream> stream(std::in_place);
  const FailingMemory memory(0, Fails::from_there);
  stream.reset();
}

// Memory that runs out at each allocation in turn, of which there is one at least between any two
// changes of the region: where nothing can be allocated any more, what stands then is what a kill
// there would leave.
class DurableKill : public test::Scratch {
 protected:
  // Returns false once `which` is past the last allocation of it.
  template <class Attempt>
  static bool cut_off(std::uint64_t which, Fails how, Attempt&& attempt) {
    FailingMemory memory(which, how);
    try {
      attempt();
    } catch (const Error&) {
    }
    return memory.end();
  }
  void reopen() {
    region.abandon();
    region = Region::open(path());
  }

  const std::uint64_t seed = test::test_seed();
  Region region = Region::create(path(), options(kSize));
};

TEST_F(DurableKill, BetweenAnyTwoStepsOfItsCreation) {
  for (const Fails how : {Fails::from_there, Fails::once}) {
    unsigned absent = 0;
    unsigned with_parts = 0;
    bool reached = true;
    int tries = 0;
    const Every tried = every(1, 32, seed);
    for (std::uint64_t which = tried.first; reached; which += tried.step) {
      SCOPED_TRACE(which);
      reached = cut_off(which, how, [&] { Ledger::create(region, kName, kSmall); });
      if (tries++ % 16 == 0) reopen();
      absent += !is_there(region);
      with_parts += region.objects().size() > 1 && !is_there(region);
      expect_made(region);
      if (HasFailure()) return;
      Ledger::remove(region, kName);
    }
    EXPECT_GT(absent, 50 / tried.step);
    if (how == Fails::once) {
      EXPECT_EQ(with_parts, 0u) << "a creation that failed left parts";
    } else {
      EXPECT_GT(with_parts, 20 / tried.step) << "no creation was cut off between two parts";
    }
  }
}

// The creation that removes what one left, itself cut off.
TEST_F(DurableKill, BetweenAnyTwoStepsOfTheNextCreation) {
  const Every tried_first = every(37, 148, seed), tried = every(5, 20, seed);
  for (std::uint64_t first = tried_first.first; first < 400; first += tried_first.step) {
    bool reached = true;
    for (std::uint64_t which = tried.first; reached; which += tried.step) {
      SCOPED_TRACE(detail::concat(first, ", ", which));
      cut_off(first, Fails::from_there, [&] { Ledger::create(region, kName, kOther); });
      if (is_there(region)) Ledger::remove(region, kName);
      reached = cut_off(which, Fails::from_there, [&] { Ledger::create(region, kName, kSmall); });
      expect_made(region);
      if (HasFailure()) return;
      Ledger::remove(region, kName);
    }
  }
}

TEST_F(DurableKill, BetweenAnyTwoStepsOfItsRemoval) {
  bool reached = true;
  unsigned there = 0;
  int tries = 0;
  const Every tried = every(1, 32, seed);
  for (std::uint64_t which = tried.first; reached; which += tried.step) {
    SCOPED_TRACE(which);
    Ledger::create(region, kName, kSmall);
    reached = cut_off(which, Fails::from_there, [&] { Ledger::remove(region, kName); });
    if (tries++ % 16 == 0) reopen();
    there += region.contains(std::string(kName) + ".header") && is_there(region);
    expect_made(region);
    if (HasFailure()) return;
    Ledger::remove(region, kName);
  }
  EXPECT_GT(there, 0u);
}

#ifdef HOLDFAST_INTERCEPT

// Dies at the n-th event of a kernel.
class Reaper : public cpu::Listener {
 public:
  explicit Reaper(std::uint64_t events) : left_(events) {}
  void on_event(const cpu::Event& event) override {
    if (event.host) return;
    if (left_-- == 0) ::kill(::getpid(), SIGKILL);
  }

 private:
  std::uint64_t left_;
};

TEST(DurableChild, DISABLED_DiesInACreation) {
  Region region = Region::open(test::from_environment("HOLDFAST_TEST_PATH"));
  Reaper reaper(std::stoull(test::from_environment("HOLDFAST_TEST_EVENTS")));
  cpu::set_listener(&reaper);
  Ledger::create(region, kName, kSmall);
  cpu::set_listener(nullptr);
  region.abandon();
}

// A process that really dies, in its kernels.
TEST_F(DurableKill, InItsKernels) {
  region.close();
  const std::vector<char> image = test::read_file(path());
  unsigned absent = 0;
  int status = 1;
  const auto behind = [](std::uint64_t event, std::uint64_t steps) {
    for (; steps > 0; --steps) event += event < 60 ? 7 : 53;
    return event;
  };
  const Every tried = every(1, 20, seed);
  for (std::uint64_t event = behind(0, tried.first); status != 0;
       event = behind(event, tried.step)) {
    SCOPED_TRACE(event);
    Region::destroy(path());
    test::write_file(path(), image);
    {
      test::Child child("DurableChild.DISABLED_DiesInACreation",
                        {{"HOLDFAST_TEST_PATH", path()},
                         {"HOLDFAST_ARENA_DIR", arenas()},
                         {"HOLDFAST_TEST_EVENTS", std::to_string(event)}});
      status = child.wait();
    }
    ::setenv("HOLDFAST_ARENA_DIR", arenas().c_str(), 1);
    ASSERT_TRUE(status == 0 || status == 128 + SIGKILL) << status;
    region = Region::open(path());
    absent += !is_there(region);
    expect_made(region);
    region.abandon();
    if (HasFailure()) return;
  }
  EXPECT_GT(absent, 20 / tried.step);
}

// A region of the file domain that was left with these bytes of another one, its header apart.
Region region_of(const std::string& path, const std::string& arenas,
                 const std::vector<std::byte>& bytes) {
  RegionOptions options;
  options.size = bytes.size();
  Region::create(path, options).abandon();
  const std::filesystem::path arena = std::filesystem::directory_iterator(arenas)->path();
  std::fstream file(arena, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(2 * kPageBytes);  // behind the arena's header and the region's
  file.write(reinterpret_cast<const char*>(bytes.data()) + kPageBytes,
             static_cast<std::streamsize>(bytes.size() - kPageBytes));
  file.close();
  return Region::open(path);
}

// Stores of its kernels that no fence has waited for may be lost.
TEST_F(DurableKill, WithStoresThatAreLost) {
  region.close();
  Region::destroy(path());
  bool crashed = true;
  unsigned absent = 0;
  const Every tried = every(1, 20, seed);
  for (std::uint64_t fence = tried.first; crashed; fence += tried.step) {
    SCOPED_TRACE(fence);
    ASSERT_LT(fence, 1000u);
    std::vector<std::byte> bytes(kSize);
    {
      RegionOptions emulated = options(kSize);
      emulated.domain = Domain::emulated;
      Region volatile_region = Region::create("emulated", emulated);
      testing::CrashMedium medium(volatile_region, seed + fence);
      medium.crash_at(fence);
      Ledger::create(volatile_region, kName, kSmall);
      crashed = medium.crashed();
      if (crashed) medium.crash();
      std::memcpy(bytes.data(), volatile_region.base(), bytes.size());
    }
    region = region_of(path(), arenas(), bytes);
    absent += !is_there(region);
    EXPECT_TRUE(crashed || is_there(region));
    expect_made(region);
    region.abandon();
    Region::destroy(path());
    if (HasFailure()) return;
  }
  EXPECT_GT(absent, 20 / tried.step);
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast
