#include "holdfast/testing/checkpoint.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <numeric>
#include <random>

#include "checkpoint/layout.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;

template <class T>
std::vector<T> read(const T* data, std::size_t count) {
  std::vector<T> values(count);
  Stream stream;
  copy_async(stream, values.data(), data, count * sizeof(T));
  stream.synchronize();
  return values;
}

template <class T>
void write(T* data, const std::vector<T>& values) {
  Stream stream;
  copy_async(stream, data, values.data(), values.size() * sizeof(T));
  stream.synchronize();
}

std::vector<float> floats(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<std::uint8_t> bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> values(count);
  for (auto& value : values) value = static_cast<std::uint8_t>(random());
  return values;
}

struct Moment {
  static constexpr const char* kTypeName = "moment";
  double time;
  float value, error;
};
struct Place {
  static constexpr const char* kTypeName = "place";
  float x, y, z, w;
};
static_assert(sizeof(Moment) == sizeof(Place));

class CheckpointTest : public test::Scratch {
 protected:
  static constexpr std::size_t kWeights = 70001;  // more than a chunk, not a multiple of anything
  static constexpr std::size_t kBytes = 13;

  void SetUp() override { region_.emplace(Region::create(path(), options(64u << 20))); }
  void reopen() {
    region_->abandon();
    region_.reset();
    region_.emplace(Region::open(path()));
  }
  Checkpoint make() {
    Checkpoint checkpoint(*region_, "training");
    checkpoint.add("model", "weights", weights_.data(), kWeights);
    checkpoint.add("model", "odd", odd_.data() + 1, kBytes);
    checkpoint.add("other", "weights", other_.data(), 10);
    return checkpoint;
  }
  void set(float value) {
    stream_.synchronize();  // saves under way read what they save
    write(weights_.data(), floats(kWeights, value));
    write(odd_.data(), bytes(kBytes + 1, static_cast<unsigned>(value)));
    write(other_.data(), floats(10, value));
  }
  void expect(float value) {
    EXPECT_EQ(read(weights_.data(), kWeights), floats(kWeights, value));
    const auto odd = bytes(kBytes + 1, static_cast<unsigned>(value));
    EXPECT_EQ(read(odd_.data() + 1, kBytes), std::vector<std::uint8_t>(odd.begin() + 1, odd.end()));
  }

  std::optional<Region> region_;
  Stream stream_;
  DeviceBuffer<float> weights_{kWeights};
  DeviceBuffer<std::uint8_t> odd_{kBytes + 1};
  DeviceBuffer<float> other_{10};
};

TEST_F(CheckpointTest, NothingIsRestoredWhereNothingWasSaved) {
  set(3);
  Checkpoint checkpoint = make();
  EXPECT_EQ(checkpoint.restore(stream_, "model"), std::nullopt);
  expect(3);
}

TEST_F(CheckpointTest, TheLastSaveIsThereInTheNextProcess) {
  for (const bool engine : {false, true}) {
    for (std::uint64_t round = 1; round <= 5; ++round) {
      Checkpoint checkpoint = make();
      if (engine) testing::set_engine_threshold(checkpoint, 1);
      if (round > 1) {
        set(0);
        EXPECT_EQ(checkpoint.restore(stream_, "model"), round - 1);
        expect(static_cast<float>(round - 1));
      }
      set(static_cast<float>(round));
      checkpoint.save(stream_, "model", round);
      stream_.synchronize();
      reopen();
    }
  }
}

TEST_F(CheckpointTest, SavesAreStreamOrdered) {
  Checkpoint checkpoint = make();
  for (int value = 1; value <= 20; ++value) {
    fill_async(stream_, weights_.data(), value, kWeights * sizeof(float));
    checkpoint.save(stream_, "model", static_cast<std::uint64_t>(value));
  }
  fill_async(stream_, weights_.data(), 99, kWeights * sizeof(float));
  stream_.synchronize();
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 20u);
  const auto found = read(reinterpret_cast<std::uint8_t*>(weights_.data()), kWeights * 4);
  EXPECT_EQ(found, std::vector<std::uint8_t>(kWeights * 4, 20));
}

TEST_F(CheckpointTest, AsynchronousSavesHoldWhatTheStreamLeft) {
  Checkpoint checkpoint = make();
  for (int value = 1; value <= 8; ++value) {
    if (value == 4) testing::set_engine_threshold(checkpoint, 1);  // until then kernels drain
    fill_async(stream_, weights_.data(), value, kWeights * sizeof(float));
    PendingSave pending =
        checkpoint.save_async(stream_, "model", static_cast<std::uint64_t>(value));
    fill_async(stream_, weights_.data(), 99, kWeights * sizeof(float));
    if (value % 3 == 0) {
      pending.wait();
      EXPECT_TRUE(pending.done());
    }
    if (value == 5) checkpoint.save(stream_, "model", 50);
  }
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 8u);
  const auto found = read(reinterpret_cast<std::uint8_t*>(weights_.data()), kWeights * 4);
  EXPECT_EQ(found, std::vector<std::uint8_t>(kWeights * 4, 8));
}

// A kernel that faults before a save was copied: neither that save nor one behind it, on another
// stream, goes over what is durable.
TEST_F(CheckpointTest, WhatWasSavedOutlivesAStreamThatFails) {
  if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "the context would be lost";
  for (const int how : {0, 1, 2}) {
    Checkpoint checkpoint = make();
    if (how == 2) testing::set_engine_threshold(checkpoint, 1);
    PendingSave last(nullptr);
    const auto save = [&](Stream& stream, std::uint64_t tag) {
      if (how == 0) return checkpoint.save(stream, "model", tag);
      last = checkpoint.save_async(stream, "model", tag);
    };
    set(5);
    save(stream_, 5);
    set(6);
    save(stream_, 6);
    stream_.synchronize();
    Stream failing, behind, other;
    std::promise<void> go;
    failing.enqueue([&, ready = go.get_future().share()] {
      ready.wait();
      throw Error(Errc::kernel_fault, "made to fail");
    });
    fill_async(failing, weights_.data(), 99, kWeights * sizeof(float));
    save(failing, 7);
    for (std::uint64_t tag = 8; tag < 10; ++tag) save(behind, tag);
    go.set_value();
    EXPECT_EQ(error_of([&] { failing.synchronize(); }), Errc::kernel_fault);
    EXPECT_EQ(error_of([&] { behind.synchronize(); }), Errc::kernel_fault);
    // A save that is queued before it has failed would fail with it.
    if (how > 0) {
      EXPECT_EQ(error_of([&] { last.wait(); }), Errc::kernel_fault);
    }
    set(0);
    EXPECT_EQ(make().restore(stream_, "model"), 6u) << how;
    expect(6);
    set(10);
    save(other, 10);
    other.synchronize();
    set(0);
    EXPECT_EQ(checkpoint.restore(other, "model"), 10u) << how;
    expect(10);
  }
}

TEST_F(CheckpointTest, HostMemoryIsSavedToo) {
  std::vector<double> host(5000, 1.5);
  {
    Checkpoint checkpoint(*region_, "host");
    checkpoint.add("g", "x", host.data(), host.size(), BufferMemory::host);
    checkpoint.save(stream_, "g", 1);
    host.assign(host.size(), 2.5);
    checkpoint.save_async(stream_, "g", 2).wait();
  }
  reopen();
  host.assign(host.size(), 0);
  Checkpoint checkpoint(*region_, "host");
  checkpoint.add("g", "x", host.data(), host.size(), BufferMemory::host);
  EXPECT_EQ(checkpoint.restore(stream_, "g"), 2u);
  EXPECT_EQ(host, std::vector<double>(5000, 2.5));
}

TEST_F(CheckpointTest, GroupsAreIndependent) {
  Checkpoint checkpoint = make();
  set(1);
  checkpoint.save(stream_, "model", 1);
  set(2);
  checkpoint.save(stream_, "other", 7);
  set(3);
  EXPECT_EQ(checkpoint.restore(stream_, "other"), 7u);
  EXPECT_EQ(read(other_.data(), 10), floats(10, 2));
  EXPECT_EQ(read(weights_.data(), kWeights), floats(kWeights, 3));
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 1u);
  expect(1);
  EXPECT_EQ(checkpoint.stored_groups(), (std::vector<std::string>{"model", "other"}));
  EXPECT_EQ(checkpoint.stored("model").size(), 2u);
  EXPECT_EQ(checkpoint.stored("model")[0].bytes(), kWeights * 4);
}

TEST_F(CheckpointTest, AForgottenGroupTakesOtherAddresses) {
  Checkpoint checkpoint = make();
  set(1);
  checkpoint.save_async(stream_, "model", 1);
  checkpoint.forget("model");
  checkpoint.forget("nothing");
  EXPECT_EQ(error_of([&] { checkpoint.save(stream_, "model"); }, {"model"}), Errc::not_found);
  const DeviceBuffer<float> weights(kWeights);
  const DeviceBuffer<std::uint8_t> odd(kBytes);
  checkpoint.add("model", "weights", weights.data(), kWeights);
  checkpoint.add("model", "odd", odd.data(), kBytes);
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 1u);
  EXPECT_EQ(read(weights.data(), kWeights), floats(kWeights, 1));
  checkpoint.save(stream_, "model", 2);
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 2u);
}

TEST_F(CheckpointTest, AGroupWhoseObjectWasRemovedTouchesNothing) {
  Checkpoint checkpoint = make();
  set(1);
  checkpoint.save(stream_, "model", 1);
  checkpoint.save_async(stream_, "model", 2).wait();
  const auto expect_refused = [&] {
    const std::vector<std::string> words = {"training/model", path(), "forget()", "add()"};
    EXPECT_EQ(error_of([&] { checkpoint.save(stream_, "model", 3); }, words), Errc::not_found);
    EXPECT_EQ(error_of([&] { checkpoint.save_async(stream_, "model", 3); }, words),
              Errc::not_found);
    EXPECT_EQ(error_of([&] { checkpoint.restore(stream_, "model"); }, words), Errc::not_found);
    stream_.synchronize();
  };
  const ObjectInfo removed = region_->object("training/model");
  region_->remove("training/model");
  expect_refused();
  {  // what gets the space
    const auto other = region_->allocate<std::uint8_t>("else", removed.bytes());
    EXPECT_EQ(region_->object("else").offset, removed.offset);
    expect_refused();
    EXPECT_EQ(read(other.data(), other.size()), std::vector<std::uint8_t>(other.size()));
  }
  const auto there = [&](std::uint64_t count) {  // another checkpoint's group of the same name
    Checkpoint another(*region_, "training");
    another.add("model", "weights", weights_.data(), count);
    another.save(stream_, "model", 9);
    stream_.synchronize();
    expect_refused();
    EXPECT_EQ(another.restore(stream_, "model"), 9u);
    region_->remove("training/model");
  };
  there(kWeights);  // elsewhere
  region_->remove("else");
  there(10);  // at its place
  // What the message advises.
  checkpoint.forget("model");
  checkpoint.add("model", "weights", weights_.data(), kWeights);
  EXPECT_EQ(checkpoint.restore(stream_, "model"), std::nullopt);
  checkpoint.save(stream_, "model", 4);
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 4u);
  EXPECT_EQ(checkpoint.restore(stream_, "other"), std::nullopt);
}

TEST_F(CheckpointTest, AnotherShapeIsRefusedAndNamed) {
  {
    Checkpoint checkpoint = make();
    set(4);
    checkpoint.save(stream_, "model", 1);
    stream_.synchronize();
  }
  const auto refused = [&](auto&& add, std::vector<std::string> words) {
    Checkpoint checkpoint(*region_, "training");
    add(checkpoint);
    EXPECT_EQ(error_of([&] { checkpoint.restore(stream_, "model"); }, words),
              Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { checkpoint.save(stream_, "model"); }, words), Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { checkpoint.save_async(stream_, "model"); }, words),
              Errc::invalid_argument);
  };
  auto* const ints = reinterpret_cast<std::int32_t*>(weights_.data());
  refused([&](auto& c) { c.add("model", "weights", weights_.data(), kWeights); },
          {"training/model", "'odd'", "not added"});
  refused(
      [&](auto& c) {
        c.add("model", "weights", weights_.data(), kWeights - 1);
        c.add("model", "odd", odd_.data(), kBytes);
      },
      {"weights", "70001 x f32", "70000 x f32"});
  refused(
      [&](auto& c) {
        c.add("model", "weights", ints, kWeights);
        c.add("model", "odd", odd_.data(), kBytes);
      },
      {"weights", "f32", "i32"});
  refused(
      [&](auto& c) {
        c.add("model", "weight", weights_.data(), kWeights);
        c.add("model", "odd", odd_.data(), kBytes);
      },
      {"no buffer 'weight'"});
  Checkpoint checkpoint = make();
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 1u);
  expect(4);
}

TEST_F(CheckpointTest, MisuseIsRefused) {
  Checkpoint checkpoint = make();
  EXPECT_EQ(error_of([&] { checkpoint.save(stream_, "nothing"); }, {"nothing", "model, other"}),
            Errc::not_found);
  EXPECT_EQ(error_of([&] { checkpoint.add("model", "weights", weights_.data(), 1); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { checkpoint.add("model", "", weights_.data(), 1); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { checkpoint.add("model", "none", weights_.data(), 0); }),
            Errc::invalid_argument);
  for (const std::uint64_t count : {~0ull / 4, 1ull << 62, 1ull << 61, 1ull << 38}) {
    EXPECT_EQ(error_of([&] { checkpoint.add("model", "huge", weights_.data(), count); },
                       {"'huge'", "'model'", "too large", "1099511627776"}),
              Errc::invalid_argument);
  }
  const auto nine = static_cast<BufferMemory>(9);
  EXPECT_EQ(error_of([&] { checkpoint.add("model", "nine", weights_.data(), 1, nine); },
                     {"'nine'", "BufferMemory::host"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { checkpoint.add(std::string(60, 'g'), "x", weights_.data(), 1); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Checkpoint(*region_, "a/b"); }), Errc::invalid_argument);
  checkpoint.save(stream_, "model");
  EXPECT_EQ(error_of([&] { checkpoint.add("model", "late", weights_.data(), 1); }, {"before"}),
            Errc::invalid_argument);
  region_->allocate<float>("taken/g", 4);
  Checkpoint taken(*region_, "taken");
  taken.add("g", "x", weights_.data(), 1);
  EXPECT_EQ(error_of([&] { taken.save(stream_, "g"); }, {"no checkpoint"}), Errc::invalid_argument);
  DeviceBuffer<char> large(80u << 20);
  Checkpoint full(*region_, "full");
  full.add("g", "x", reinterpret_cast<std::uint8_t*>(large.data()), large.size());
  EXPECT_EQ(error_of([&] { full.save(stream_, "g"); }), Errc::no_space);
}

// Kernels copy by the widest words that a buffer's address and size allow.
TEST_F(CheckpointTest, BuffersOfAnyAddressAndSizeComeBack) {
  constexpr std::size_t kSizes[] = {1,  2,  3,  4,  5,  6,  7,  8,     9,
                                    10, 12, 15, 16, 20, 24, 33, 16388, 16397};
  constexpr std::size_t kRoom = 1u << 16;
  DeviceBuffer<std::uint8_t> memory(kRoom);
  Stream stream;
  for (std::size_t shift = 0; shift < 16; ++shift) {
    SCOPED_TRACE(shift);
    const std::vector<std::uint8_t> before = bytes(kRoom, 1 + static_cast<unsigned>(shift));
    Checkpoint checkpoint(*region_, "shift" + std::to_string(shift));
    std::vector<std::uint8_t> saved(kRoom);
    std::size_t at = 16;
    for (const std::size_t size : kSizes) {
      checkpoint.add("any", "of" + std::to_string(size), memory.data() + at + shift, size);
      std::copy_n(&before[at + shift], size, &saved[at + shift]);
      at += (size + 31) / 16 * 16;
    }
    write(memory.data(), before);
    checkpoint.save(stream, "any", 7);
    stream.synchronize();
    write(memory.data(), std::vector<std::uint8_t>(kRoom));
    EXPECT_EQ(checkpoint.restore(stream, "any"), 7u);  // the sum is of the copy, which is aligned
    stream.synchronize();
    const std::vector<std::uint8_t> there = read(memory.data(), kRoom);
    const auto [other, wanted] = std::mismatch(there.begin(), there.end(), saved.begin());
    EXPECT_EQ(other, there.end()) << "byte " << other - there.begin() << ": " << int{*other}
                                  << ", not " << int{*wanted};
  }
}

// On the medium a zero byte ends a name.
TEST_F(CheckpointTest, NamesHaveNoZeroBytes) {
  Checkpoint checkpoint = make();
  const std::string zero("a\0x", 3);
  EXPECT_EQ(error_of([&] { checkpoint.add("model", zero, weights_.data(), 1); }, {"name", "zero"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of(
                [&] {
                  checkpoint.add_raw("model", {"b", zero, 1, 4}, weights_.data());
                },
                {"'b'", "type", "zero"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { checkpoint.add(zero, "b", weights_.data(), 1); }, {"group", "zero"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Checkpoint(*region_, zero); }, {"zero"}), Errc::invalid_argument);
}

TEST_F(CheckpointTest, WhatNoRegionHoldsHasNoBytes) {
  const std::uint64_t most = ~std::uint64_t{0};
  EXPECT_EQ(error_of([&] { Checkpoint::region_bytes(most, 1); }, {std::to_string(most), "region"}),
            Errc::no_space);
  EXPECT_EQ(error_of([&] { Checkpoint::region_bytes(1, most / 256 + 2); }), Errc::no_space);
  EXPECT_GT(Checkpoint::region_bytes(std::uint64_t{1} << 40, 1), std::uint64_t{2} << 40);
}

TEST_F(CheckpointTest, TellsStructsOfOneSizeApart) {
  const DeviceBuffer<Moment> moments(4);
  const auto saving = [&](auto* buffer) {
    Checkpoint checkpoint(*region_, "of structs");
    checkpoint.add("g", "x", buffer, 4);
    checkpoint.save(stream_, "g", 7);
    stream_.synchronize();
  };
  saving(moments.data());
  saving(moments.data());
  EXPECT_EQ(error_of([&] { saving(reinterpret_cast<Place*>(moments.data())); },
                     {"of structs/g", "'x'", "4 x moment", "4 x place"}),
            Errc::invalid_argument);
}

// As builds left it in which all structs had one name.
TEST_F(CheckpointTest, StructsWithoutANameOfTheirOwnAreRestoredByThatName) {
  const CheckpointBuffer unnamed{"x", "struct", 4, sizeof(Moment)};
  const DeviceBuffer<Moment> moments(4);
  write(moments.data(), std::vector<Moment>{{1, 2, 3}});
  {
    Checkpoint old(*region_, "old");
    old.add_raw("g", unnamed, moments.data());
    old.save(stream_, "g", 7);
  }
  stream_.synchronize();
  write(moments.data(), std::vector<Moment>(1));
  Checkpoint named(*region_, "old");
  named.add("g", "x", moments.data(), 4);
  EXPECT_EQ(error_of([&] { named.restore(stream_, "g"); },
                     {"old/g", "'x'", "4 x struct", "4 x moment", "add_raw()"}),
            Errc::invalid_argument);
  Checkpoint raw(*region_, "old");
  raw.add_raw("g", unnamed, moments.data());
  EXPECT_EQ(raw.restore(stream_, "g"), 7u);
  EXPECT_EQ(read(moments.data(), 1)[0].value, 2);
}

// Any bytes that the medium may hold: an error or the right data, never a crash.
TEST_F(CheckpointTest, DamageIsFoundWhereverItIs) {
  {
    Checkpoint checkpoint = make();
    set(1);
    checkpoint.save(stream_, "model", 1);
    set(2);
    checkpoint.save(stream_, "model", 2);
    stream_.synchronize();
  }
  const ObjectInfo info = region_->object("training/model");
  auto* const object = static_cast<unsigned char*>(region_->address(info));
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const checkpoint::Layout layout = checkpoint::layout_of(
      checkpoint::copy_bytes_of({{"weights", "f32", kWeights, 4}, {"odd", "u8", kBytes, 1}}), 2);
  ASSERT_EQ(layout.object_bytes, info.bytes());
  const std::uint64_t current = layout.copies;  // save 2 is in copy 0
  const std::uint64_t places[] = {0,
                                  8,
                                  16,
                                  24,
                                  40,
                                  100,
                                  130,
                                  layout.slots,
                                  layout.slots + 8,
                                  layout.slots + 16,
                                  layout.slots + 24,
                                  current,
                                  current + 4 * kWeights - 1,
                                  current + (4 * kWeights + 255) / 256 * 256 + kBytes - 1,
                                  current + random() % (4 * kWeights),
                                  current + random() % (4 * kWeights)};
  for (const std::uint64_t place : places) {
    const std::vector<unsigned char> before = read(object + place, 1);
    write(object + place, {static_cast<unsigned char>(before[0] ^ (1u << random() % 8))});
    Checkpoint checkpoint = make();
    try {
      const auto tag = checkpoint.restore(stream_, "model");
      // A broken slot reads as one that a crash cut off: the save before it counts.
      EXPECT_EQ(tag, 1u) << "byte " << place;
      EXPECT_GE(place, layout.slots);
      EXPECT_LT(place, layout.slots + 32);
      expect(1);
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Errc::damaged) << place << ": " << error.what();
    }
    write(object + place, before);
  }
  Checkpoint checkpoint = make();
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 2u);
  expect(2);
}

// The words of a slot are stored in no order: whichever of them a crash has kept, the save before
// it counts, also where two saves are of the same tag or the same bytes.
TEST_F(CheckpointTest, AnyPartOfASlotLeavesTheSaveBefore) {
  using Words = std::vector<std::uint64_t>;
  for (const bool same : {false, true}) {
    const auto value = [&](std::uint64_t number) {
      return same ? 7.0f : static_cast<float>(number);
    };
    const auto tag = [&](std::uint64_t number) { return same ? 7 : number; };
    Checkpoint checkpoint = make();
    const auto save = [&](std::uint64_t number) {
      set(value(number));
      checkpoint.save(stream_, "model", tag(number));
      stream_.synchronize();
    };
    for (std::uint64_t number = 1; number <= 2; ++number) save(number);
    const checkpoint::Layout layout = checkpoint::layout_of(
        checkpoint::copy_bytes_of({{"weights", "f32", kWeights, 4}, {"odd", "u8", kBytes, 1}}), 2);
    auto* const slot = reinterpret_cast<std::uint64_t*>(
        static_cast<unsigned char*>(region_->address(region_->object("training/model"))) +
        layout.slots + checkpoint::kSlotDistance);  // of the first save, and of the third
    const Words before = read(slot, 4);
    save(3);
    const Words after = read(slot, 4);
    for (unsigned kept = 0; kept < 16; ++kept) {
      SCOPED_TRACE(kept);
      Words mixed = before;
      for (unsigned i = 0; i < 4; ++i) {
        if ((kept >> i & 1) != 0) mixed[i] = after[i];
      }
      write(slot, mixed);
      const std::uint64_t last = mixed == after ? 3 : 2;
      set(0);
      Checkpoint again = make();
      EXPECT_EQ(again.restore(stream_, "model"), tag(last));
      expect(value(last));
    }
    checkpoint = Checkpoint(*region_, "training");
    region_->remove("training/model");
  }
}

TEST_F(CheckpointTest, ACommitTakesInWhatWasSaved) {
  {
    Checkpoint checkpoint = make();
    set(1);
    checkpoint.save(stream_, "model", 1);
    region_->commit(stream_).wait();
    set(2);
    checkpoint.save_async(stream_, "model", 2).wait();
    region_->commit(stream_).wait();
    set(3);
    checkpoint.save(stream_, "model", 3);
    stream_.synchronize();
  }
  // As after a power cut: the arena is gone.
  region_->abandon();
  region_.reset();
  for (const auto& entry : std::filesystem::directory_iterator(arenas())) {
    std::filesystem::remove_all(entry.path());
  }
  region_.emplace(Region::open(path(), last_commit()));
  Checkpoint checkpoint = make();
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 2u);
  expect(2);
}

TEST_F(CheckpointTest, AKillBeforeTheHeaderLeavesNothingSaved) {
  region_->allocate_raw("training/model", "checkpoint", 1, 12345, Tracking::marked);
  Checkpoint checkpoint = make();
  EXPECT_EQ(checkpoint.restore(stream_, "model"), std::nullopt);
  set(1);
  checkpoint.save(stream_, "model", 1);
  EXPECT_EQ(checkpoint.restore(stream_, "model"), 1u);
}

}  // namespace
}  // namespace holdfast
