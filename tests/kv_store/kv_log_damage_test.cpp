// What a log may hold when it is opened: what a crash leaves of a run, in any order, and damage. On
// the CPU backend, whose regions the host may change.
#include <algorithm>
#include <functional>
#include <optional>

#include "kv_store/kv_log_medium.hpp"
#include "kv_store/kv_log_test.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

class KvLogDamage : public LogForms {
 protected:
  void SetUp() override { seed_ = test_seed(); }

  // A store with a few hundred pairs, some of them updated, erased, and moved by cleaning.
  void make(int rounds) {
    opened_ = LogOpened::create(path(), log_options(256, 200, 0, GetParam()));
    program_.emplace(seed_, 220, 200);
    for (int i = 0; i < rounds; ++i) ASSERT_NO_FATAL_FAILURE(program_->step(opened_, 30));
    medium_.emplace(*opened_.region);
  }
  // Opens the store as it stands: the one before it was killed, and stores nothing any more.
  void open_as_it_is() {
    opened_.store = std::make_unique<KvStore>(
        KvStore::open(*opened_.region, KvStore::Cache::automatic, GetParam()));
  }
  // Returns what is wrong, or nothing; then it holds `expected`.
  std::string open_again(const Map& expected) {
    try {
      open_as_it_is();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::damaged) << error.what();
      return error.what();
    }
    opened_.expect_holds(expected);
    return {};
  }

  std::uint64_t seed_ = 0;
  LogOpened opened_;
  std::optional<LogProgram> program_;
  std::optional<LogMedium> medium_;
};

HOLDFAST_BOTH_FORMS(KvLogDamage);

TEST_P(KvLogDamage, TheMediumIsAsTheFormatSays) {
  make(40);
  EXPECT_GT(opened_.store->stats().copied_records, 0u);
  EXPECT_EQ(medium_->contents(), program_->oracle);
  EXPECT_EQ(medium_->commit(), LogMedium::word_for(medium_->run()));
}

// Whatever of a batch had reached the medium before its commit word did.
TEST_P(KvLogDamage, ATornRunIsDroppedWhateverIsThereOfIt) {
  std::mt19937_64 random(seed_);
  make(12);
  int torn_runs = 0;
  const std::uint64_t rounds = some_of(60, 20);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    const Words before = medium_->copy();
    const Map held = program_->oracle;
    const std::uint64_t cleaned = opened_.store->stats().copied_records;
    LogProgram next = *program_;
    ASSERT_NO_FATAL_FAILURE(next.step(opened_, 30));
    const Words after = medium_->copy();
    // Cleaning makes runs of its own, and segments free, behind the run.
    bool one_run = medium_->run() == (before.back() >> 16) + 1 &&
                   opened_.store->stats().copied_records == cleaned;
    for (std::size_t i = 0; i < medium_->segments(); ++i) {
      const std::size_t check = i * medium_->words_of_segment() + LogMedium::kHeader - 1;
      one_run = one_run && (after[check] != 0 || before[check] == 0);
    }
    if (one_run) {
      ++torn_runs;
      Words torn = before;
      const unsigned share = random() % 5;
      for (std::size_t i = 0; i + 1 < torn.size(); ++i) {
        if (random() % 4 < share) torn[i] = after[i];
      }
      medium_->put(torn);
      ASSERT_EQ(open_again(held), "");
      if (share >= 4) {
        EXPECT_TRUE(opened_.store->recovery().needed);
      }
      // The same batch again, over what is left of it; and what it makes opens.
      ASSERT_NO_FATAL_FAILURE(program_->step(opened_, 30));
      ASSERT_EQ(open_again(program_->oracle), "");
    } else {
      program_ = next;
    }
  }
  EXPECT_GT(torn_runs, 5);
}

TEST_P(KvLogDamage, ARunThatCountsAndIsDamagedIsNamed) {
  std::mt19937_64 random(seed_);
  make(25);
  medium_->forget_snapshots();  // opening reads all
  const Words whole = medium_->copy();
  for (const LogMedium::Piece& piece : medium_->pieces()) {
    const std::size_t record = LogMedium::kHeader + 2 * (random() % piece.records) + random() % 2;
    medium_->records()[piece.at + record] ^= std::uint64_t{1} << random() % 64;
    const std::string wrong = open_again(program_->oracle);
    EXPECT_NE(wrong.find("run " + std::to_string(piece.run) + " is damaged"), std::string::npos)
        << wrong;
    EXPECT_NE(wrong.find(path()), std::string::npos) << wrong;
    medium_->put(whole);
  }
  ASSERT_EQ(open_again(program_->oracle), "");
}

// A header that is damaged hides what is behind it. Opening says so, unless all of that is dead.
TEST_P(KvLogDamage, NoByteThatMattersChangesUnnoticed) {
  std::mt19937_64 random(seed_);
  make(25);
  medium_->forget_snapshots();  // opening reads all
  const Words whole = medium_->copy();
  const std::vector<LogMedium::Piece> pieces = medium_->pieces();
  unsigned noticed = 0;
  const auto flip = [&](std::uint64_t& word, unsigned byte) {
    word ^= (1 + random() % 255) << 8 * byte;
    noticed += !open_again(program_->oracle).empty();
    medium_->put(whole);
  };
  for (unsigned byte = 0; byte < 8; ++byte) flip(medium_->commit(), byte);
  EXPECT_EQ(noticed, 8u);
  const std::uint64_t step = share();
  for (const LogMedium::Piece& piece : pieces) {
    for (std::uint64_t i = random() % step; i < 8 * LogMedium::kHeader; i += step) {
      flip(medium_->records()[piece.at + i / 8], i % 8);
    }
  }
  for (std::uint64_t i = 0; i < some_of(500); ++i) {
    flip(medium_->records()[random() % medium_->records().size()], random() % 8);
  }
  EXPECT_GT(noticed, pieces.size() * 20 / step);
  ASSERT_EQ(open_again(program_->oracle), "");
}

// Headers whose check is right, and that no store writes.
TEST_P(KvLogDamage, HeadersThatCannotBeAreRefused) {
  make(10);
  const Words whole = medium_->copy();
  const LogMedium::Piece first = medium_->pieces().front();
  const auto with = [&](const std::function<void(std::uint64_t*)>& change) {
    std::uint64_t* const header = &medium_->records()[first.at];
    change(header);
    header[9] = medium_->check_of(first.at, 0);
    const std::string wrong = open_again(program_->oracle);
    EXPECT_NE(wrong, "");
    medium_->put(whole);
  };
  with([](std::uint64_t* header) { header[0] = 0; });
  with([](std::uint64_t* header) { header[0] = 1000000; });
  with([](std::uint64_t* header) { header[6] = 0; });
  with([](std::uint64_t* header) { header[6] = 252; });
  with([](std::uint64_t* header) { header[6] = 0xffffffffu; });
  with([](std::uint64_t* header) { header[6] |= 0xffffull << 32; });
  with([](std::uint64_t* header) { header[7] = 1; });
  with([](std::uint64_t* header) { header[7] = 0xffffffffull << 32; });
  with([](std::uint64_t* header) { header[5] ^= 1; });
  medium_->commit() = LogMedium::word_for(medium_->run() + 1);
  EXPECT_NE(open_again(program_->oracle).find("run " + std::to_string(medium_->run())),
            std::string::npos);
  medium_->put(whole);
  medium_->commit() = LogMedium::word_for(medium_->run() - 2);
  EXPECT_NE(open_again(program_->oracle), "");
  medium_->put(whole);
  ASSERT_EQ(open_again(program_->oracle), "");
}

TEST_P(KvLogDamage, BytesOfAnyKindAreNoCrash) {
  std::mt19937_64 random(seed_);
  make(6);
  for (int round = 0; round < 40; ++round) {
    for (std::uint64_t& word : medium_->records()) word = random();
    const std::uint64_t run = round % 2 == 0 ? 0 : random() % 3;
    medium_->commit() = run == 0 ? 0 : LogMedium::word_for(run);
    const std::string wrong = open_again({});
    EXPECT_EQ(wrong.empty(), run == 0) << wrong;
  }
}

TEST_P(KvLogDamage, VerifyFindsWhatChangedBehindItsBack) {
  make(10);
  ASSERT_EQ(opened_.store->verify(), "");
  std::uint64_t& word = medium_->records()[medium_->pieces().front().at + LogMedium::kHeader];
  word ^= 1;
  EXPECT_NE(opened_.store->verify().find("is damaged"), std::string::npos);
  word ^= 1;
  EXPECT_EQ(opened_.store->verify(), "");
}

}  // namespace
}  // namespace holdfast::test
