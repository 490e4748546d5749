// Operations of kernels on a map of byte strings: against an oracle where groups have keys of their
// own, and on few keys at once, where some order of them has to explain what they were answered.
#include "bytes_map/bytes_map_ref_test.hpp"

#include <optional>
#include <type_traits>

#include "bytes_map/bytes_map_kills.hpp"
#include "support/error_of.hpp"
#include "support/killed_child.hpp"
#include "support/linearizable.hpp"
#include "support/share.hpp"
#if defined(HOLDFAST_BACKEND_CPU)
#include "holdfast/cpu/executor.hpp"
#endif

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;
static_assert(std::is_trivially_copyable_v<BytesMapRef>);

// Strings in memory of the device, each at any address.
class Spans {
 public:
  explicit Spans(const Strings& strings) {
    std::vector<char> all;
    std::vector<std::size_t> at;
    for (const std::string& each : strings) {
      at.push_back(all.size());
      all.insert(all.end(), each.begin(), each.end());
    }
    bytes_ = DeviceBuffer<std::byte>(all.size() + 1);
    spans_ = DeviceBuffer<ByteSpan>(strings.size() + 1);
    std::vector<ByteSpan> spans;
    for (std::size_t i = 0; i < strings.size(); ++i) {
      spans.push_back({bytes_.data() + at[i], strings[i].size()});
    }
    Stream stream;
    copy_async(stream, bytes_.data(), all.data(), all.size());
    copy_async(stream, spans_.data(), spans.data(), spans.size() * sizeof(ByteSpan));
    stream.synchronize();
  }
  const ByteSpan* data() const { return spans_.data(); }

 private:
  DeviceBuffer<std::byte> bytes_;
  DeviceBuffer<ByteSpan> spans_;
};

// Runs steps in one kernel; returns what each has read.
Strings run(const BytesMapRef& ref, std::vector<BytesStep>& steps, std::uint32_t each,
            const Strings& keys, const Strings& values, std::size_t longest) {
  const Spans of_keys(keys), of_values(values);
  const DeviceBuffer<BytesStep> there(steps.size());
  const DeviceBuffer<std::byte> out(steps.size() * (longest + 1));
  const DeviceBuffer<unsigned long long> clock(1);
  Stream stream;
  copy_async(stream, there.data(), steps.data(), there.bytes());
  fill_async(stream, clock.data(), 0, clock.bytes());
  make_steps(stream, ref,
             {there.data(), each, static_cast<std::uint32_t>(steps.size() / each), of_keys.data(),
              of_values.data(), out.data(), static_cast<std::uint32_t>(longest + 1), clock.data()},
             2);
  std::vector<char> bytes(out.bytes());
  copy_async(stream, steps.data(), there.data(), there.bytes());
  copy_async(stream, bytes.data(), out.data(), out.bytes());
  stream.synchronize();
  Strings read;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    read.emplace_back(bytes.data() + i * (longest + 1), steps[i].bytes);
  }
  return read;
}

BytesStep step_of(BytesCall call, std::size_t key, std::size_t value = 0) {
  BytesStep step{};
  step.call = call;
  step.key = static_cast<std::uint32_t>(key);
  step.value = static_cast<std::uint32_t>(value);
  return step;
}

class BytesMapRefTest : public Scratch {
 protected:
#if defined(HOLDFAST_BACKEND_CPU)
  void TearDown() override { cpu::set_schedule({}); }
  static void schedule(U64 seed) {
    cpu::set_schedule({});
    cpu::Schedule schedule = cpu::schedule();
    schedule.seed = seed | 1;
    cpu::set_schedule(schedule);
  }
#else
  static void schedule(U64) {}
#endif
  // One step, and what it answered.
  static BytesStep one(const BytesMapRef& ref, BytesCall call, const std::string& key,
                       const std::string& value = "") {
    std::vector<BytesStep> steps{step_of(call, 0)};
    run(ref, steps, 1, {key}, {value}, 10'000);
    return steps[0];
  }
};

// ---- Alone with their keys ---------------------------------------------------------------------

// Groups change keys of their own, behind batches, in rooms that may be too small; abandoned and
// opened again, and quiesced, the map is as the oracle says, and no byte is lost.
TEST_F(BytesMapRefTest, RandomProgramsDoWhatAnOracleDoes) {
  std::mt19937_64 random(test_seed());
  constexpr std::size_t kGroups = 7, kEach = 6;
  Strings keys;
  for (U64 i = 0; i < kGroups * 5; ++i) keys.push_back(key_of(i));
  int no_value = 0, replaced = 0;
  // Three programs in a hundred meet no room that is too small.
  const auto some_are_missing = [&] { return no_value == 0 || replaced <= 20; };
  for (U64 program = 0; program < some_of(3) || (some_are_missing() && program < 12); ++program) {
    const std::string path = this->path("region" + std::to_string(program));
    BytesOpened opened = BytesOpened::create(path, BytesOpened::shape(200, 400'000));
    Oracle oracle;
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(detail::concat("program ", program, " round ", round));
      run_batch(opened, random, oracle);
      ASSERT_FALSE(HasFailure());
      Strings values;
      std::vector<BytesStep> steps;
      for (std::size_t i = 0; i < kGroups * kEach; ++i) {
        values.push_back(string_of(random(), some_length(random)));
        steps.push_back(
            step_of(static_cast<BytesCall>(random() % 4), i / kEach * 5 + random() % 5, i));
      }
      const Oracle before = oracle;
      for (const std::string& key : keys) ASSERT_LE(value_in(before, key).size(), 10'000u);
      schedule(random());
      const U64 room = random() % 3 == 0 ? random() % 20'000 : 120'000;
      const BytesMapRef ref = opened.map->ref(room);
      EXPECT_TRUE(opened.map->stats().refs_out);
      const Strings read = run(ref, steps, kEach, keys, values, 10'000);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const BytesStep& step = steps[i];
        const std::string& key = keys[step.key];
        const bool there = oracle.count(key) != 0;
        if (step.call == BytesCall::find) {
          ASSERT_EQ(step.found, there ? BytesFound::present : BytesFound::absent) << i;
          ASSERT_EQ(step.read, step.found) << i;
          ASSERT_EQ(read[i], value_in(oracle, key)) << i;
        } else if (step.call == BytesCall::erase) {
          ASSERT_EQ(step.status, there ? MapStatus::erased : MapStatus::absent) << i;
          oracle.erase(key);
        } else if (there && step.call == BytesCall::insert) {
          ASSERT_EQ(step.status, MapStatus::kept) << i;
        } else if (step.status == MapStatus::no_value) {
          ASSERT_LT(room, 120'000u) << i;
          ++no_value;
        } else {
          ASSERT_EQ(step.status, there ? MapStatus::assigned : MapStatus::inserted) << i;
          replaced += there;
          oracle[key] = values[step.value];
        }
      }
      ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle)) << "a batch beside refs";
      ASSERT_EQ(opened.contents(), oracle);
      ASSERT_EQ(opened.map->size(), oracle.size());
      ASSERT_EQ(opened.map->verify(), "");
      const bool again = random() % 3 == 0;
      if (again) opened.abandon();
      if (again) opened = BytesOpened::open(path);
      if (!again) opened.map->quiesce();
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
  }
  EXPECT_GT(no_value, 0);
  EXPECT_GT(replaced, 20);
}

// ---- On few keys at once -----------------------------------------------------------------------

// What a map has for a digest: which key, and which value.
using State = std::optional<std::pair<std::uint32_t, std::uint32_t>>;

// A step, and which value it got.
struct Called {
  BytesStep step;
  std::uint32_t got;
  int behind = -1;
};

bool answers(const Called& called, State& state) {
  const BytesStep& step = called.step;
  const bool there = state && state->first == step.key;
  switch (step.call) {
    case BytesCall::find:
      return step.found == (there ? BytesFound::present : BytesFound::absent) &&
             (!there || called.got == state->second);
    case BytesCall::erase:
      if (step.status != (there ? MapStatus::erased : MapStatus::absent)) return false;
      if (there) state.reset();
      return true;
    default:
      break;
  }
  if (state && !there) return step.status == MapStatus::refused;
  if (there && step.call == BytesCall::insert) return step.status == MapStatus::kept;
  if (step.status != (there ? MapStatus::assigned : MapStatus::inserted)) return false;
  state = {step.key, step.value};
  return true;
}

std::string text_of(const std::vector<Called>& calls) {
  static constexpr const char* kNames[] = {"insert", "insert_or_assign", "erase", "find"};
  std::string text;
  for (const Called& each : calls) {
    text += detail::concat("  ", each.step.begun, "..", each.step.ended, " ",
                           kNames[static_cast<int>(each.step.call)], " key ", each.step.key,
                           " set ", each.step.value, " status ", static_cast<int>(each.step.status),
                           " found ", static_cast<int>(each.step.found), " got ", each.got, "\n");
  }
  return text;
}

// Keys of two digests in all: those of one shut each other out, whoever comes between a look and
// a change. Each history under a schedule of its own.
TEST_F(BytesMapRefTest, SomeOrderExplainsWhatKernelsAreAnsweredThoughDigestsAreOne) {
  std::mt19937_64 random(test_seed());
  const U64 histories = some_of(400, 15);
  const Strings keys{"a", "another key of more than 16 bytes", "", "b", "c", "d"};
  BytesMapOptions shape = BytesOpened::shape(90, 100'000);
  shape.digest_bits = 1;
  BytesOpened opened = BytesOpened::create(path(), shape);
  std::vector<std::vector<std::uint32_t>> alike(2);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    // Keys of one digest: one that is refused while the first one is there.
    MapStatus status{};
    opened.map->insert(ByteStringVector({keys[0]}), ByteStringVector({""}));
    opened.map->insert(ByteStringVector({keys[i]}), ByteStringVector({""}), &status);
    alike[status == MapStatus::refused || i == 0 ? 0 : 1].push_back(i);
    opened.map->erase(ByteStringVector({keys[0]}));
    opened.map->erase(ByteStringVector({keys[i]}));
  }
  ASSERT_GT(alike[0].size(), 1u);
  ASSERT_GT(alike[1].size(), 1u);
  int refused = 0;
  for (unsigned history = 0; history < histories; ++history) {
    const std::uint32_t each = 1 + random() % 3, groups = 2 + random() % 3;
    const std::uint32_t erases = random() % 2 == 0 ? 25 : 60;
    Strings values;
    std::vector<BytesStep> steps;
    for (std::uint32_t i = 0; i < groups * each; ++i) {
      values.push_back(string_of(random(), random() % 40) + "#" + std::to_string(i));
      const auto call =
          random() % 100 < erases ? BytesCall::erase : static_cast<BytesCall>(random() % 4);
      const auto& of = alike[random() % 5 == 0 ? 1 : 0];
      steps.push_back(step_of(call, of[random() % (random() % 2 == 0 ? of.size() : 2)], i));
    }
    schedule(random());
    const Strings read = run(opened.map->ref(60'000), steps, each, keys, values, 80);
    opened.map->quiesce();
    ASSERT_EQ(opened.map->verify(), "");
    const Oracle left = opened.contents();
    const auto number_of = [&](const std::string& value) {
      return static_cast<std::uint32_t>(std::find(values.begin(), values.end(), value) -
                                        values.begin());
    };
    for (const auto& of : alike) {
      std::vector<Called> calls;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (std::find(of.begin(), of.end(), steps[i].key) == of.end()) continue;
        const bool found = steps[i].found == BytesFound::present;
        refused += steps[i].status == MapStatus::refused;
        ASSERT_EQ(steps[i].read, steps[i].found);
        calls.push_back({steps[i], found ? number_of(read[i]) : 0});
      }
      for (const std::uint32_t key : of) {
        BytesStep last = step_of(BytesCall::find, key);
        const auto there = left.find(keys[key]);
        last.found = there != left.end() ? BytesFound::present : BytesFound::absent;
        last.begun = ~0ull - 1, last.ended = ~0ull;
        calls.push_back({last, there != left.end() ? number_of(there->second) : 0});
      }
      ASSERT_TRUE(is_explained(calls, State())) << "history " << history << ":\n" << text_of(calls);
    }
    for (const auto& [key, value] : left) opened.map->erase(ByteStringVector({key}));
    ASSERT_EQ(opened.map->size(), 0u);
    ASSERT_EQ(opened.map->stats().free_bytes, opened.map->stats().record_bytes);
  }
  EXPECT_GT(refused, static_cast<int>(histories) / 10);
}

// ---- What is promised --------------------------------------------------------------------------

TEST_F(BytesMapRefTest, ItsRoomIsWhatWasAskedFor) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 64 * 10));
  const BytesMapRef ref = opened.map->ref(64 * 3);
  EXPECT_EQ(one(ref, BytesCall::insert, "a", string_of(1, 32)).status, MapStatus::inserted);
  EXPECT_EQ(one(ref, BytesCall::insert, "b", string_of(2, 300)).status, MapStatus::no_value);
  EXPECT_EQ(one(ref, BytesCall::insert, "c", string_of(3, 32)).status, MapStatus::inserted);
  EXPECT_EQ(one(ref, BytesCall::insert_or_assign, "a", string_of(4, 32)).status,
            MapStatus::assigned);
  EXPECT_EQ(one(ref, BytesCall::insert_or_assign, "a", string_of(5, 32)).status,
            MapStatus::no_value);
  // Another ref has another room; one without room erases and finds.
  const BytesMapRef other = opened.map->ref(64 * 7), none = opened.map->ref();
  EXPECT_EQ(one(other, BytesCall::insert_or_assign, "c", string_of(6, 32)).status,
            MapStatus::assigned);
  EXPECT_EQ(one(none, BytesCall::insert, "d", "").status, MapStatus::no_value);
  EXPECT_EQ(one(none, BytesCall::erase, "c").status, MapStatus::erased);
  EXPECT_EQ(one(none, BytesCall::find, "a").read, BytesFound::present);
  EXPECT_EQ(opened.map->stats().free_bytes, 0u);
  opened.map->quiesce();
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{"a", string_of(4, 32)}}));
}

TEST_F(BytesMapRefTest, WhileRefsAreOutBatchesChangeNothing) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 1 << 16));
  opened.put({"a"}, {"1"});
  const BytesMapRef ref = opened.map->ref(1000);
  EXPECT_EQ(one(ref, BytesCall::insert, "b", "2").status, MapStatus::inserted);
  const Oracle both{{"a", "1"}, {"b", "2"}};
  const auto refused = [&](auto&& call) {
    EXPECT_EQ(error_of(call, {"'map'", "quiesce()"}), Errc::invalid_argument);
    EXPECT_EQ(opened.contents(), both);
  };
  refused([&] { opened.put({"a"}, {"3"}); });
  refused([&] { opened.map->insert(ByteStringVector({"c"}), ByteStringVector({"3"})); });
  refused([&] { opened.map->erase(ByteStringVector({"a"})); });
  refused([&] { opened.map->reserve({.record_bytes = 1 << 17}); });
  opened.expect_found({"a", "b", "c"}, both);
  opened.map->quiesce();
  opened.map->quiesce();  // nothing is out
  EXPECT_FALSE(opened.map->stats().refs_out);
  EXPECT_EQ(opened.put({"a"}, {"3"}).assigned, 1u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{"a", "3"}, {"b", "2"}}));
}

// Else two of them would have one room.
TEST_F(BytesMapRefTest, WhileRefsAreOutAMapIsNotOpenedAgain) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 1 << 16));
  std::optional<BytesMapRef> ref = opened.map->ref(1000);
  const auto open = [&] { BytesMap::open(*opened.region, "map"); };
  EXPECT_EQ(error_of(open, {"bytes map 'map'", "quiesce()"}), Errc::invalid_argument);
  EXPECT_EQ(one(*ref, BytesCall::insert, "a", "1").status, MapStatus::inserted);
  opened.map->quiesce();
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{"a", "1"}}));
  BytesMap again = BytesMap::open(*opened.region, "map");
  EXPECT_EQ(error_of([&] { opened.map->quiesce(); }), Errc::closed);
  ref = again.ref(1000);
  EXPECT_EQ(error_of(open), Errc::invalid_argument);
  EXPECT_EQ(one(*ref, BytesCall::insert, "b", "2").status, MapStatus::inserted);
  // It may be opened again when the map has ended.
  { const BytesMap ends = std::move(again); }
  *opened.map = BytesMap::open(*opened.region, "map");
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{"a", "1"}, {"b", "2"}}));
}

// Of two keys of one digest the other is there, and its value damaged: that is none of this one's.
TEST_F(BytesMapRefTest, ADamagedValueIsItsOwnKeysBusiness) {
  BytesMapOptions shape = BytesOpened::shape(100, 1 << 16);
  shape.digest_bits = 1;
  BytesOpened opened = BytesOpened::create(path(), shape);
  const std::string value = string_of(1, 100);
  opened.put({"the one"}, {value});
  std::string other;
  for (int i = 0; other.empty(); ++i) {
    MapStatus status{};
    const std::string key = "other" + std::to_string(i);
    opened.map->insert(ByteStringVector({key}), ByteStringVector({""}), &status);
    if (status == MapStatus::refused) other = key;
  }
  const auto records = opened.region->find<std::uint8_t>("map.records");
  const std::string_view bytes(reinterpret_cast<const char*>(&records[0]), records.size());
  ASSERT_NE(bytes.find(value), std::string_view::npos);
  records[bytes.find(value)] ^= 1;
  std::vector<BytesFound> found;
  opened.map->find(ByteStringVector({"the one", other}), found);
  EXPECT_EQ(found, (std::vector<BytesFound>{BytesFound::damaged, BytesFound::absent}));
  MapStatus status{};
  opened.map->insert_or_assign(ByteStringVector({other}), ByteStringVector({"x"}), &status);
  EXPECT_EQ(status, MapStatus::refused);
  opened.map->erase(ByteStringVector({other}), &status);
  EXPECT_EQ(status, MapStatus::absent);
  const BytesMapRef ref = opened.map->ref(1000);
  EXPECT_EQ(one(ref, BytesCall::insert_or_assign, other, "x").status, MapStatus::refused);
  EXPECT_EQ(one(ref, BytesCall::erase, other).status, MapStatus::absent);
  EXPECT_EQ(one(ref, BytesCall::find, other).found, BytesFound::absent);
  EXPECT_EQ(one(ref, BytesCall::find, "the one").read, BytesFound::damaged);
  opened.map->quiesce();
}

TEST_F(BytesMapRefTest, ARoomThatIsNotFreeIsRefused) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 6400));
  for (const U64 bytes : {U64{6401}, ~U64{0}, ~U64{0} - 14}) {
    EXPECT_EQ(error_of([&] { opened.map->ref(bytes); }, {"'map'", "6400", "reserve()"}),
              Errc::no_space)
        << bytes;
    EXPECT_FALSE(opened.map->stats().refs_out);
  }
  opened.map->ref(6400);
  opened.map->quiesce();
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

TEST_F(BytesMapRefTest, WhatIsTooLongIsRefused) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 1 << 20));
  const BytesMapRef ref = opened.map->ref(1 << 19);
  const std::string longest = string_of(1, kMostBytesOfKey),
                    longer = string_of(1, kMostBytesOfKey + 1);
  EXPECT_EQ(one(ref, BytesCall::insert, longest, "x").status, MapStatus::inserted);
  EXPECT_EQ(one(ref, BytesCall::find, longest).read, BytesFound::present);
  EXPECT_EQ(one(ref, BytesCall::insert, longer, "x").status, MapStatus::refused);
  EXPECT_EQ(one(ref, BytesCall::erase, longer).status, MapStatus::absent);
  EXPECT_EQ(one(ref, BytesCall::find, longer).found, BytesFound::absent);
  opened.map->quiesce();
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{longest, "x"}}));
}

// A bit of a record that has flipped: no bytes are given, and the key can be replaced and erased.
TEST_F(BytesMapRefTest, ADamagedRecordIsTold) {
  std::mt19937_64 random(test_seed());
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 1 << 20));
  const std::string key = "a key that is not short";
  opened.put({key}, {string_of(1, 300)});
  const auto records = opened.region->find<std::uint8_t>("map.records");
  const auto at = std::search(records.begin(), records.end(), key.begin(), key.end());
  ASSERT_NE(at, records.end());
  const auto head = static_cast<std::size_t>(at - records.begin()) - 16;
  const BytesMapRef ref = opened.map->ref(1 << 18);
  for (int i = 0; i < 60; ++i) {
    const std::size_t bit = random() % ((i % 2 == 0 ? 16 + 32 : 16 + 32 + 304) * 8);
    SCOPED_TRACE(bit);
    records[head + bit / 8] ^= 1 << bit % 8;
    std::vector<BytesStep> steps{step_of(BytesCall::find, 0)};
    const Strings read = run(ref, steps, 1, {key}, {}, 400);
    EXPECT_EQ(steps[0].read, BytesFound::damaged);
    EXPECT_EQ(read[0], std::string(read[0].size(), '\0'));
    EXPECT_EQ(one(ref, BytesCall::insert, key, "x").status, MapStatus::kept);
    records[head + bit / 8] ^= 1 << bit % 8;
  }
  records[head + 20] ^= 1;
  EXPECT_EQ(one(ref, BytesCall::insert_or_assign, key, "new").status, MapStatus::assigned);
  EXPECT_EQ(one(ref, BytesCall::find, key).read, BytesFound::present);
  opened.map->quiesce();
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{key, "new"}}));
}

// ---- Killed ------------------------------------------------------------------------------------

// What a kernel does to the keys of a batch, of which each group has one: as the batch's last
// operation of that key.
void apply_by_kernel(BytesOpened& opened, const Numbered& batch) {
  Strings keys, values;
  for (const auto& [key, value] : batch.becomes) keys.push_back(key), values.push_back(value);
  std::vector<BytesStep> steps;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    steps.push_back(step_of(batch.erases ? BytesCall::erase : BytesCall::insert_or_assign, i, i));
  }
  run(opened.map->ref(batch.erases ? 0 : 200'000), steps, 1, keys, values, 1);
  opened.map->quiesce();
}

TEST(BytesMapRefChild, DISABLED_RunsUntilKilled) {
  BytesOpened opened = BytesOpened::open(from_environment("HOLDFAST_TEST_PATH"));
  for (U64 n = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++n) {
    report_batch(n, [&] { apply_by_kernel(opened, Numbered(n)); });
  }
}

TEST_F(BytesMapRefTest, KilledAtAnyMomentEachOperationIsThereWholeOrNot) {
  std::mt19937_64 random(test_seed());
  expect_survives_kills("BytesMapRefChild.DISABLED_RunsUntilKilled", path(), arenas(), random);
}

}  // namespace
}  // namespace holdfast::test
