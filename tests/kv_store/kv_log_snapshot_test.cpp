// Snapshots of a log: what they say, when they are taken, and that none that is damaged, torn, old
// or a lie changes an answer.
#include <algorithm>
#include <cstring>
#include <optional>

#include "kv_store/kv_log_medium.hpp"
#include "kv_store/kv_log_test.hpp"
#include "support/in_child.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

class KvLogSnapshots : public LogForms {
 protected:
  void SetUp() override { random_.seed(seed_ = test_seed()); }

  void create(std::uint64_t capacity, std::uint32_t max_batch, std::uint64_t log_records = 0) {
    opened_ = LogOpened::create(path(), log_options(capacity, max_batch, log_records, GetParam()));
    program_.emplace(seed_, capacity * 7 / 8, max_batch);
    medium_.emplace(*opened_.region);
  }
  // Batches until cleaning has been at work, and until there are dead records.
  void fill(std::uint64_t rounds) {
    for (std::uint64_t i = 0; i < rounds; ++i) ASSERT_NO_FATAL_FAILURE(program_->step(opened_, 30));
  }
  // Opens the store as it stands, in its region; the one before it stores nothing any more.
  void open_as_it_is() {
    opened_.store = std::make_unique<KvStore>(
        KvStore::open(*opened_.region, KvStore::Cache::automatic, GetParam()));
  }
  // In the same region.
  void close_and_open() {
    opened_.store.reset();
    open_as_it_is();
  }
  KvStore::Stats stats() const { return opened_.store->stats(); }
  std::uint64_t sealed() const { return stats().segments - stats().free_segments - 1; }

  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
  LogOpened opened_;
  std::optional<LogProgram> program_;
  std::optional<LogMedium> medium_;
};
HOLDFAST_BOTH_FORMS(KvLogSnapshots);

TEST_P(KvLogSnapshots, AStoreThatIsClosedIsOpenedByThem) {
  create(2048, 300);
  EXPECT_EQ(stats().snapshots, 0u);
  EXPECT_EQ(stats().snapshot_bytes, 0u);
  ASSERT_NO_FATAL_FAILURE(fill(40));
  close_and_open();
  EXPECT_GT(sealed(), 5u);
  EXPECT_EQ(stats().snapshots_used, sealed());
  EXPECT_EQ(stats().snapshots, sealed());
  EXPECT_EQ(stats().snapshot_age, 0u);
  EXPECT_FALSE(stats().snapshots_refused);
  ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
  // One that only looked takes none.
  const Words before = medium_->copy();
  opened_.store.reset();
  EXPECT_EQ(medium_->copy(), before);
}

// The medium holds what the format says, read without the library, by the snapshots and without.
TEST_P(KvLogSnapshots, TheyAreAsTheFormatSays) {
  create(1024, 300);
  std::size_t dead_and_left_out = 0;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(program_->step(opened_, 30));
    if (random_() % 4 == 0) close_and_open();
    const std::vector<std::size_t> counting = medium_->snapshots_that_count();
    EXPECT_EQ(counting.size(), stats().snapshots);
    EXPECT_EQ(medium_->contents_by_snapshots(), program_->oracle);
    EXPECT_EQ(medium_->contents(), program_->oracle);
    EXPECT_EQ(opened_.store->verify(), "");
    for (const std::size_t segment : counting) {
      std::size_t live = 0;
      const auto bits = medium_->snapshot(segment).subspan(LogMedium::kSnapshotHeader);
      for (std::size_t i = 0; i < bits.size(); i += 2) {
        EXPECT_EQ(bits[i + 1] & ~bits[i], 0u);
        live += static_cast<std::size_t>(__builtin_popcountll(bits[i]));
      }
      EXPECT_LE(live, stats().segment_records - LogMedium::kHeader / 2);
      dead_and_left_out += stats().segment_records - live;
    }
  }
  EXPECT_GT(dead_and_left_out, 1000u);
}

// Of many small runs each segment has its snapshot as soon as none reaches into it any more; of
// large ones none has, until the store is closed.
TEST_P(KvLogSnapshots, TheyAreTakenBehindSmallBatches) {
  create(1 << 14, 1000);
  for (std::uint64_t i = 0; i < 400; ++i) opened_.set({i, i + 1}, {i, i});
  EXPECT_GT(sealed(), 5u);
  EXPECT_EQ(stats().snapshots, sealed());
  EXPECT_GT(stats().snapshot_age, 300u);
  opened_.reopen_killed(path());
  EXPECT_EQ(stats().snapshots_used, sealed());
  EXPECT_EQ(stats().records, 401u);
  Keys keys(1000);
  for (std::uint64_t i = 0; i < 16; ++i) {
    for (std::size_t k = 0; k < keys.size(); ++k) keys[k] = i * 1000 + k;
    opened_.set(keys, keys);
  }
  EXPECT_LE(stats().snapshot_bytes, 64u + 64 + 8) << "but of the one that small runs had begun";
  EXPECT_EQ(opened_.store->verify(), "");
}

// What they store is counted, and no more than its bound.
TEST_P(KvLogSnapshots, WhatTheyStoreIsBounded) {
  create(4096, 500);
  for (int i = 0; i < 2500; ++i) {
    const std::uint64_t key = random_() % 3000;
    opened_.set({key}, {key});
  }
  const KvStore::Stats now = stats();
  EXPECT_GT(now.snapshot_bytes, 1000u);
  EXPECT_LE(static_cast<double>(now.snapshot_bytes),
            static_cast<double>(now.bytes_stored - now.snapshot_bytes) / 32 * 1.1);
}

// Segments that were made free and written again since; copies; tombstones that were dropped.
TEST_P(KvLogSnapshots, OldOnesStaySound) {
  const Every tried = every(1, 6, seed_);
  for (std::uint64_t turn = tried.first; turn < 6; turn += tried.step) {
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", turn " + std::to_string(turn));
    create(1024, 300, 3072);
    ASSERT_NO_FATAL_FAILURE(fill(10 + turn * 3));
    close_and_open();
    Words old(medium_->snapshots().begin(), medium_->snapshots().end());
    // However little of the log is as it was, those of then are as good as none, or better.
    for (int round = 0; round < 25; ++round) {
      SCOPED_TRACE(round);
      ASSERT_NO_FATAL_FAILURE(program_->step(opened_, 30));
      std::copy(old.begin(), old.end(), medium_->snapshots().begin());
      open_as_it_is();
      ASSERT_FALSE(stats().snapshots_refused);
      ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
    }
    opened_.abandon();
    Region::destroy(path());
  }
}

// Any of them of any time, each segment's by itself.
TEST_P(KvLogSnapshots, AnyMixtureOfTimesIsSound) {
  create(1024, 300, 3072);
  std::vector<Words> times;
  for (std::uint64_t round = 0; round < some_of(40, 12); ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", round " + std::to_string(round));
    ASSERT_NO_FATAL_FAILURE(program_->step(opened_, 30));
    close_and_open();
    times.emplace_back(medium_->snapshots().begin(), medium_->snapshots().end());
    const std::size_t words = medium_->snapshot(0).size();
    const std::size_t recent = std::min<std::size_t>(times.size(), 6);
    for (std::size_t segment = 0; segment < medium_->segments(); ++segment) {
      const Words& from = times[times.size() - 1 - random_() % recent];
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(segment * words), words,
                  medium_->snapshot(segment).begin());
    }
    open_as_it_is();
    ASSERT_FALSE(stats().snapshots_refused);
    ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
  }
}

TEST_P(KvLogSnapshots, DamageOfThemIsNeverAnError) {
  create(512, 200);
  ASSERT_NO_FATAL_FAILURE(fill(30));
  close_and_open();
  const std::uint64_t all = stats().snapshots_used;
  ASSERT_GT(all, 3u);
  const Words whole = medium_->copy();
  const auto flip = [&](std::uint64_t& word, unsigned byte) {
    word ^= (1 + random_() % 255) << 8 * byte;
    open_as_it_is();
    ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
  };
  for (const std::size_t segment : medium_->snapshots_that_count()) {
    const Every bytes = every(1, 64, seed_ + segment);
    for (std::uint64_t byte = bytes.first; byte < 64; byte += bytes.step) {
      SCOPED_TRACE(byte);
      ASSERT_NO_FATAL_FAILURE(flip(medium_->snapshot(segment)[byte / 8], byte % 8));
      const bool read = byte < 44 || byte >= 56;  // the others are reserved
      EXPECT_EQ(stats().snapshots_used, read ? all - 1 : all);
      EXPECT_FALSE(stats().snapshots_refused);
      medium_->put(whole);
    }
    for (std::uint64_t i = 0; i < some_of(12); ++i) {
      const auto bits = medium_->snapshot(segment).subspan(LogMedium::kSnapshotHeader);
      ASSERT_NO_FATAL_FAILURE(flip(bits[random_() % bits.size()], random_() % 8));
      EXPECT_TRUE(stats().snapshots_refused);
      EXPECT_EQ(stats().snapshots_used, 0u);
      EXPECT_TRUE(medium_->snapshots_that_count().empty());
      medium_->put(whole);
    }
  }
  // Behind that it goes on as any other.
  open_as_it_is();
  ASSERT_NO_FATAL_FAILURE(fill(10));
  close_and_open();
  EXPECT_FALSE(stats().snapshots_refused);
  ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
}

// Of right sums and checks. What they leave out or add is found by the digest of all pairs.
TEST_P(KvLogSnapshots, ThoseThatLieAreRefused) {
  create(512, 200);
  ASSERT_NO_FATAL_FAILURE(fill(30));
  close_and_open();
  const Words whole = medium_->copy();
  const std::vector<std::size_t> counting = medium_->snapshots_that_count();
  unsigned refused = 0;
  const std::uint64_t rounds = some_of(100, 20);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", round " + std::to_string(round));
    const std::size_t segment = counting[random_() % counting.size()];
    const auto words = medium_->snapshot(segment);
    const auto bits = words.subspan(LogMedium::kSnapshotHeader);
    switch (random_() % 3) {
      case 0:  // nothing is live
        std::fill(bits.begin(), bits.end(), 0);
        break;
      case 1:  // all is, what is no record, too
        for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i % 2 == 0 ? ~std::uint64_t{0} : 0;
        break;
      default:
        for (std::uint64_t& word : bits) word = random_();
    }
    words[4] = medium_->bits_sum_of(segment);
    words[7] = medium_->snapshot_check_of(segment);
    open_as_it_is();
    refused += stats().snapshots_refused;
    ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
    medium_->put(whole);
  }
  EXPECT_GT(refused, rounds / 2);
}

// Whatever of a closing had reached the medium.
TEST_P(KvLogSnapshots, TornOnesCountForNothing) {
  create(1024, 300);
  for (std::uint64_t round = 0; round < some_of(60, 15); ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", round " + std::to_string(round));
    ASSERT_NO_FATAL_FAILURE(program_->step(opened_, 30));
    const Words before = medium_->copy();
    opened_.store.reset();
    Words torn = medium_->copy();
    const unsigned share = random_() % 5;
    const bool by_words = random_() % 2 == 0;
    bool keeps = false;
    for (std::size_t i = 0; i < torn.size(); ++i) {
      if (by_words || i % 24 == 0) keeps = random_() % 4 < share;
      if (!keeps) torn[i] = before[i];
    }
    medium_->put(torn);
    open_as_it_is();
    ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
  }
}

// Opening by snapshots answers rightly, or names the damage; and verify() names what it did not
// read.
TEST_P(KvLogSnapshots, DamageOfTheLogUnderThemIsNeverAWrongAnswer) {
  create(512, 200);
  ASSERT_NO_FATAL_FAILURE(fill(30));
  close_and_open();
  const Words whole = medium_->copy();
  const std::uint64_t step = 3 * share();
  unsigned unread = 0;
  unsigned named = 0;
  const auto flip = [&](std::uint64_t& word, unsigned byte) {
    word ^= (1 + random_() % 255) << 8 * byte;
    try {
      open_as_it_is();
      ASSERT_EQ(opened_.contents(), program_->oracle);
      unread += !opened_.store->verify().empty();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::damaged) << error.what();
      ++named;
    }
    medium_->put(whole);
  };
  for (const LogMedium::Piece& piece : medium_->pieces()) {
    for (std::uint64_t i = random_() % step; i < 8 * LogMedium::kHeader; i += step) {
      ASSERT_NO_FATAL_FAILURE(flip(medium_->records()[piece.at + i / 8], i % 8));
    }
    for (std::uint64_t i = 0; i < some_of(12); ++i) {
      const std::size_t word = LogMedium::kHeader + random_() % (2 * piece.records);
      ASSERT_NO_FATAL_FAILURE(flip(medium_->records()[piece.at + word], random_() % 8));
    }
  }
  EXPECT_GT(unread, 150 / step);
  EXPECT_GT(named, 150 / step);
  open_as_it_is();
  ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
}

// A store that is none of this process, or that another has ended, takes none.
TEST_P(KvLogSnapshots, OnlyTheStoreThatIsTheLastTakesThem) {
  create(1024, 300);
  ASSERT_NO_FATAL_FAILURE(fill(12));
  const Words before = medium_->copy();
  if (std::strcmp(backend::name(), "cuda") != 0) {
    EXPECT_EQ(in_child([&] { opened_.store.reset(); }), 0);
    EXPECT_EQ(medium_->copy(), before);
  }
  open_as_it_is();  // which ends the one before it
  EXPECT_EQ(medium_->copy(), before);
  ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
}

TEST_P(KvLogSnapshots, ACommittedImageHoldsThem) {
  create(1024, 300);
  ASSERT_NO_FATAL_FAILURE(fill(30));
  opened_.store.reset();
  opened_.region->commit();
  opened_.region->abandon();
  opened_.region.reset();
  std::filesystem::remove(only_file(arenas()));  // as a reboot does
  OpenOptions options;
  options.last_commit = true;
  opened_ = LogOpened::open(path(), options, GetParam());
  EXPECT_EQ(stats().snapshots_used, sealed());
  ASSERT_NO_FATAL_FAILURE(opened_.expect_holds(program_->oracle));
}

}  // namespace
}  // namespace holdfast::test
