// The store that keeps every step; stores by name.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "adjoint/snapshot_store.hpp"
#include "adjoint/stores.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace adjoint {
namespace {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Stream;
using holdfast::test::error_of;

// Saves and restores in any order, of sizes that differ, against a map on the host.
TEST(MemoryStore, GivesBackWhatWasSaved) {
  std::mt19937_64 random(holdfast::test::test_seed());
  Stream stream;
  MemoryStore store;
  DeviceBuffer<unsigned char> a(1000), b(1000);
  for (int shot = 0; shot < 3; ++shot) {
    store.plan({});
    std::map<std::uint64_t, std::pair<std::vector<unsigned char>, std::vector<unsigned char>>> kept;
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {
      const std::uint64_t step = random() % 40;
      std::vector<unsigned char> first(random() % 1000), second(1 + random() % 1000);
      for (auto* values : {&first, &second}) {
        for (auto& value : *values) value = static_cast<unsigned char>(random());
      }
      copy_async(stream, a.data(), first.data(), first.size());
      copy_async(stream, b.data(), second.data(), second.size());
      store.protect("a", a.data(), first.size());
      store.protect("b", b.data(), second.size());
      store.save(step, stream);
      stream.synchronize();
      kept[step] = {first, second};
    }
    for (const auto& [step, values] : kept) bytes += values.first.size() + values.second.size();
    EXPECT_GE(store.most_bytes(), bytes);
    for (const auto& [step, values] : kept) {
      ASSERT_EQ(store.size(step, "a"), values.first.size());
      ASSERT_EQ(store.size(step, "b"), values.second.size());
      store.protect("a", b.data(), values.first.size());  // another address is as good
      store.protect("b", a.data(), values.second.size());
      store.restore(step, stream);
      std::vector<unsigned char> first(values.first.size()), second(values.second.size());
      copy_async(stream, first.data(), b.data(), first.size());
      copy_async(stream, second.data(), a.data(), second.size());
      stream.synchronize();
      ASSERT_EQ(first, values.first) << "step " << step;
      ASSERT_EQ(second, values.second) << "step " << step;
    }
  }
}

TEST(MemoryStore, WhatIsNotThereIsRefused) {
  Stream stream;
  MemoryStore store;
  DeviceBuffer<unsigned char> a(100);
  store.protect("a", a.data(), 100);
  EXPECT_EQ(error_of([&] { store.restore(3, stream); }, {"step 3"}), Errc::not_found);
  store.save(3, stream);
  store.restore(3, stream);
  store.protect("a", a.data(), 99);
  EXPECT_EQ(error_of([&] { store.restore(3, stream); }, {"'a' of step 3", "100", "99"}),
            Errc::invalid_argument);
  store.protect("a", a.data(), 100);
  store.protect("b", a.data(), 1);
  EXPECT_EQ(error_of([&] { store.restore(3, stream); }, {"without 'b'"}), Errc::not_found);
  EXPECT_EQ(error_of([&] { store.size(4, "a"); }, {"step 4"}), Errc::not_found);
  store.plan({});
  EXPECT_EQ(error_of([&] { store.size(3, "a"); }, {"step 3"}), Errc::not_found);
  stream.synchronize();
}

TEST(SnapshotStores, AreMadeByName) {
  const auto advance = [](std::uint64_t, Stream&) {};
  EXPECT_FALSE(make_store({"memory", 0, advance})->recomputes());
  EXPECT_TRUE(make_store({"revolve", 0, advance})->recomputes());
  EXPECT_TRUE(make_store({"revolve", 3, advance})->recomputes());
  EXPECT_EQ(error_of(
                [&] {
                  make_store({"memory", 3, advance});
                },
                {"memory", "--snapshots"}),
            Errc::invalid_argument);
  EXPECT_FALSE(make_store({"history", 0, advance, 1 << 20})->recomputes());
  EXPECT_EQ(error_of(
                [&] {
                  make_store({"history", 0, advance});
                },
                {"history", "--folder"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of(
                [&] {
                  make_store({"memory", 0, advance, 1 << 20});
                },
                {"--gpu-cache"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of(
                [&] {
                  make_store({"tape", 0, advance});
                },
                {"'tape'", "memory, revolve, history"}),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace adjoint
