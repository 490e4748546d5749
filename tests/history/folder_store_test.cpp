// A history in a folder: what is written is read again, in another process, too.
#include "history/folder_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "folder_store_support.hpp"
#include "step_ledger.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using history::Part;
using history::Step;
using history::StepInfo;
using test::error_of;
using test::FolderStoreTest;
using test::make_step;
using test::read_step;
using test::SavedStep;

constexpr std::uint64_t kSmall = 12000;

// ---- What is written is read --------------------------------------------------------------------

class FolderStoreSizesTest : public FolderStoreTest, public ::testing::WithParamInterface<bool> {};

TEST_P(FolderStoreSizesTest, BlobsOfAnySizeAndPlaceComeBack) {
  history::use_page_cache = GetParam();
  const std::uint64_t chunk = history::kChunkBytes;
  Step step = 0;
  std::map<Step, SavedStep> saved;
  auto store = open(home());
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4095}, std::uint64_t{4096},
        std::uint64_t{4097}, chunk - 1, chunk, chunk + 1, 9 * chunk + 5}) {
    for (const std::uint64_t shift : {0, 1}) {
      history::AlignedBytes memory(bytes + shift + 1);
      std::mt19937_64 random(bytes + shift);
      for (std::uint64_t i = 0; i < bytes; i += 97) {
        memory.data()[shift + i] = static_cast<std::byte>(random());
      }
      const std::span<const std::byte> blob = memory.span().subspan(shift, bytes);
      SavedStep& one = saved[step];
      one.info = {step, bytes, {{"all", 0, bytes}}, 17 + step};
      one.blob.assign(blob.begin(), blob.end());
      ASSERT_TRUE(store->write(one.info, blob, {}));
      history::AlignedBytes back(bytes + shift + 1);
      const std::span<std::byte> into = back.span().subspan(shift, bytes);
      ASSERT_TRUE(store->read(step, into, {}));
      EXPECT_EQ(std::memcmp(into.data(), blob.data(), bytes), 0) << bytes << " at " << shift;
      EXPECT_TRUE(store->verify(step, {}));
      ++step;
    }
  }
  store.reset();
  store = open(home(), true);
  ASSERT_EQ(store->steps().size(), saved.size());
  for (const auto& [number, one] : saved) EXPECT_EQ(read_step(*store, number), one) << number;
}

INSTANTIATE_TEST_SUITE_P(Ways, FolderStoreSizesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "cached" : "direct"; });

// As on a file system that takes O_DIRECT at the opening and refuses the transfers.
TEST_F(FolderStoreTest, ATransferThatDirectAccessRefusesGoesThroughTheCache) {
  const auto files = history::open_folder(folder());
  const auto file = files->create("file").file;
  ASSERT_NE(file, nullptr);
  history::AlignedBytes memory(8192), back(8192);
  for (std::uint64_t i = 0; i < 8192; ++i) memory.data()[i] = static_cast<std::byte>(i * 7 >> 3);
  ASSERT_EQ(file->write(memory.data() + 1, 1000, 3), 1000);
  ASSERT_EQ(file->sync(), 0);
  const auto again = files->open("file").file;
  ASSERT_EQ(again->read(back.data() + 5, 1000, 3), 1000);
  EXPECT_EQ(std::memcmp(back.data() + 5, memory.data() + 1, 1000), 0);
  EXPECT_EQ(again->size(), 1003);
}

TEST_F(FolderStoreTest, TheLatestIsTheOneThatWasCompletedLast) {
  auto store = open(home());
  EXPECT_EQ(store->latest(), std::nullopt);
  EXPECT_EQ(store->bytes_used(), 0u);
  for (const Step step : {Step{5}, Step{9}, ~Step{0}, Step{2}}) {
    write(*store, make_step(step, step, kSmall));
    EXPECT_EQ(store->latest(), step);
  }
  std::uint64_t bytes = 0;
  for (const Step step : {Step{2}, Step{5}, Step{9}, ~Step{0}}) {
    bytes += std::filesystem::file_size(file_of(step));
  }
  EXPECT_EQ(store->bytes_used(), bytes);
  store.reset();
  store = open(home());
  EXPECT_EQ(store->latest(), Step{2});
  std::vector<Step> steps;
  for (const StepInfo& info : store->steps()) steps.push_back(info.step);
  EXPECT_EQ(steps, (std::vector<Step>{2, 5, 9, ~Step{0}}));
  store->remove(2);
  EXPECT_EQ(store->latest(), ~Step{0});
  EXPECT_EQ(store->find(2), std::nullopt);
  write(*store, make_step(2, 77, kSmall));
  EXPECT_EQ(open(home(), true)->latest(), Step{2});
}

TEST_F(FolderStoreTest, RandomOperationsAgreeWithAnOracle) {
  std::mt19937_64 random(test::test_seed());
  test::StepLedger ledger;
  auto store = open_small(home());
  for (std::uint64_t i = 1; i <= test::some_of(1000, 100); ++i) {
    const Step step = random() % 12;
    const std::uint64_t what = random() % 20;
    const SavedStep saved = make_step(step, i, 30000);
    if (what == 0) {
      store.reset();  // the lock first
      store = random() % 2 == 0 ? open(home()) : open_small(home());
      ASSERT_EQ(ledger.check(*store), "") << "behind operation " << i;
    } else if (store->find(step) && what < 10) {
      store->remove(step);
      ledger.removed(step);
    } else if (store->find(step)) {
      EXPECT_EQ(error_of([&] { write(*store, saved); }, {"already"}), Errc::already_exists);
    } else if (what < 5) {
      EXPECT_EQ(error_of([&] { store->remove(step); }), Errc::not_found);
    } else {
      std::uint64_t calls = 1 + random() % 5;
      const bool done = write(*store, saved, [&](std::uint64_t) { return --calls != 0; });
      if (done) ledger.wrote(saved);
    }
    if (i % 50 == 0) {
      ASSERT_EQ(ledger.check(*store), "") << "at operation " << i;
    }
  }
  EXPECT_EQ(ledger.check(*open(home(), true)), "");
}

TEST_F(FolderStoreTest, ThreadsWriteAndReadStepsOfTheirOwn) {
  auto store = open(home());
  std::vector<std::thread> threads;
  for (Step thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (Step i = 0; i < 10; ++i) {
        const SavedStep saved = make_step(thread * 100 + i, 1 + thread * 100 + i, kSmall);
        EXPECT_TRUE(write(*store, saved));
        EXPECT_EQ(read_step(*store, saved.info.step), saved);
        if (i % 3 == 0) store->remove(saved.info.step);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto steps = store->steps();
  EXPECT_EQ(steps.size(), 24u);
  const auto latest = store->latest();
  store.reset();
  store = open(home());
  EXPECT_EQ(store->steps(), steps);
  EXPECT_EQ(store->latest(), latest);
}

// ---- The pace -----------------------------------------------------------------------------------

TEST_F(FolderStoreTest, AWriteThatIsGivenUpLeavesNothing) {
  auto store = open_small(home());
  const SavedStep saved = make_step(1, 4, 60000);
  const auto before = files_in(home());
  std::vector<std::uint64_t> told;
  std::uint64_t most = 0;
  for (;; ++most) {
    told.clear();
    const bool done = write(*store, saved, [&](std::uint64_t bytes) {
      told.push_back(bytes);
      return told.size() <= most;
    });
    if (done) break;
    EXPECT_EQ(told.size(), most + 1);
    EXPECT_EQ(files_in(home()), before);
    EXPECT_EQ(store->steps().size(), 0u);
  }
  // Before the first chunk, and behind each.
  EXPECT_EQ(most, 1 + (saved.info.bytes + 4095) / 4096);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.front(), 0u);
  EXPECT_EQ(told.back(), saved.info.bytes);
  std::vector<std::byte> into(saved.info.bytes);
  int calls = 0;
  const auto two = [&](std::uint64_t) { return ++calls < 2; };
  EXPECT_FALSE(store->read(1, into, two));
  calls = 0;
  EXPECT_FALSE(store->verify(1, two));
  EXPECT_EQ(read_step(*store, 1), saved);
}

TEST_F(FolderStoreTest, WhileAStepIsWrittenOthersAreUsedAndItsNumberIsTaken) {
  auto store = open(home());
  const SavedStep first = make_step(1, 1, kSmall), second = make_step(2, 2, kSmall);
  write(*store, first);
  bool asked = false;
  const bool done = write(*store, second, [&](std::uint64_t) {
    if (std::exchange(asked, true)) return true;
    EXPECT_EQ(error_of([&] { write(*store, second); }, {"step 2", "already"}),
              Errc::already_exists);
    EXPECT_EQ(store->find(2), std::nullopt);
    EXPECT_EQ(error_of([&] { store->remove(2); }), Errc::not_found);
    EXPECT_EQ(read_step(*store, 1), first);
    EXPECT_TRUE(write(*store, make_step(3, 3, kSmall)));
    store->remove(1);
    return true;
  });
  EXPECT_TRUE(done);
  EXPECT_EQ(store->latest(), Step{2});  // completed behind step 3, which was begun later
  EXPECT_EQ(read_step(*store, 2), second);
}

TEST_F(FolderStoreTest, APaceThatThrowsEndsTheWrite) {
  auto store = open(home());
  const auto before = files_in(home());
  EXPECT_THROW(write(*store, make_step(1, 1, kSmall),
                     [](std::uint64_t) -> bool { throw std::runtime_error("the pace"); }),
               std::runtime_error);
  EXPECT_EQ(files_in(home()), before);
  EXPECT_TRUE(write(*store, make_step(1, 1, kSmall)));
}

// ---- What programs give -------------------------------------------------------------------------

TEST_F(FolderStoreTest, WhatCannotBeSavedIsRefused) {
  auto store = open(home());
  const auto before = files_in(home());
  const auto refused = [&](StepInfo info, const char* word) {
    const std::vector<std::byte> blob(100);
    EXPECT_EQ(error_of([&] { store->write(info, blob, {}); }, {word}), Errc::invalid_argument);
  };
  refused({1, 99, {}, 0}, "99 bytes, and 100");
  refused({1, 100, {{"", 0, 1}}, 0}, "name");
  refused({1, 100, {{std::string(112, 'x'), 0, 1}}, 0}, "1 to 111");
  refused({1, 100, {{std::string("a\0b", 3), 0, 1}}, 0}, "zero");
  refused({1, 100, {{"a", 0, 1}, {"a", 1, 1}}, 0}, "two parts");
  refused({1, 100, {{"a", 0, 10}, {"b", 9, 1}}, 0}, "overlap");
  refused({1, 100, {{"a", 90, 11}}, 0}, "'a' reaches beyond");
  refused({1, 100, {{"a", 1, ~std::uint64_t{0}}}, 0}, "beyond");
  EXPECT_EQ(files_in(home()), before);
  // What touches, or is empty, does not overlap.
  const std::vector<std::byte> blob(100);
  EXPECT_TRUE(store->write(
      {1, 100, {{std::string(111, 'x'), 0, 10}, {"b", 10, 90}, {"c", 5, 0}}, 0}, blob, {}));
  std::vector<std::byte> into(99);
  EXPECT_EQ(error_of([&] { store->read(1, into, {}); }, {"100 bytes, and 99"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { store->read(2, into, {}); }), Errc::not_found);
}

TEST_F(FolderStoreTest, ThousandsOfPartsComeBack) {
  auto store = open(home());
  SavedStep saved{{1, 20000, {}, 3}, std::vector<std::byte>(20000, std::byte{7})};
  for (std::uint64_t i = 0; i < 20000; ++i) {
    saved.info.parts.push_back({"layer." + std::to_string(i), i, 1});
  }
  write(*store, saved);
  EXPECT_EQ(read_step(*open(home(), true), 1), saved);
}

TEST(StepStoreTest, PartsAreComparedByNameAndBytes) {
  const std::vector<Part> stored{{"u", 0, 100}, {"v", 100, 50}};
  EXPECT_EQ(history::difference(stored, std::vector<Part>{{"v", 0, 50}, {"u", 64, 100}}), "");
  EXPECT_NE(history::difference(stored, std::vector<Part>{{"u", 0, 100}}).find("'v'"),
            std::string::npos);
  const auto check = [&](std::vector<Part> wanted, const std::vector<std::string>& words) {
    EXPECT_EQ(error_of(
                  [&] {
                    history::check_parts({4, 150, stored, 0}, wanted, "/h");
                  },
                  words),
              Errc::invalid_argument);
  };
  check({{"u", 0, 100}, {"v", 0, 50}, {"w", 0, 1}}, {"step 4", "/h", "no part 'w'"});
  check({{"u", 0, 101}, {"v", 0, 50}}, {"'u' has 100 bytes", "101"});
  check({{"u", 0, 100}}, {"part 'v'", "does not protect"});
  EXPECT_NO_THROW(history::check_parts({4, 150, stored, 0}, stored, "/h"));
}

}  // namespace
}  // namespace holdfast
