// Steps as objects, beside an oracle; requests that fail, answers that are lost, uploads that are
// cut short, bytes that flip, listings that lag; and who may write.
#include "history/object_step_store.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "core/process.hpp"
#include "core/uuid.hpp"
#include "history/folder_store.hpp"
#include "memory_objects.hpp"
#include "step_ledger.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/still_fork.hpp"

namespace holdfast {
namespace {

using history::ObjectOptions;
using history::open_object_step_store;
using history::Step;
using history::step_file_name;
using history::StepStore;
using test::error_of;
using test::make_step;
using test::MemoryObjects;
using test::Mishap;
using test::read_step;
using test::SavedStep;
using test::StepLedger;

constexpr std::uint64_t kMost = 50'000;  // bytes of a step, in chunks of a page

class ObjectStepStoreTest : public test::Scratch {
 protected:
  static ObjectOptions options() {
    ObjectOptions options;
    options.transfer = {4096, 1};
    return options;
  }
  std::unique_ptr<StepStore> open(const ObjectOptions& with = options()) const {
    return open_object_step_store(objects_, with);
  }
  std::unique_ptr<StepStore> open_for_reading() const {
    ObjectOptions with = options();
    with.read_only = true;
    return open(with);
  }
  // Of many chunks.
  static SavedStep large_step(Step step) {
    SavedStep saved = make_step(step, step + 1000, kMost);
    saved.blob.resize(kMost, std::byte{7});
    saved.info.bytes = kMost;
    return saved;
  }
  static bool write(StepStore& store, const SavedStep& saved, const StepStore::Pace& pace = {}) {
    return store.write(saved.info, saved.blob, pace);
  }
  // Chunk by chunk, as from a cache of the GPU, and from a file, whose checksums are known.
  static bool write_chunks(StepStore& store, const SavedStep& saved, int* fills = nullptr,
                           const history::ChunkHashes& hashes = {}) {
    return store.write_chunks(
        saved.info,
        [&](std::uint64_t offset, std::uint64_t bytes) {
          if (fills != nullptr) ++*fills;
          return std::span(saved.blob).subspan(offset, bytes);
        },
        {}, hashes);
  }

  std::shared_ptr<MemoryObjects> objects_ = std::make_shared<MemoryObjects>();
};

TEST_F(ObjectStepStoreTest, HoldsWhatAMapHolds) {
  std::mt19937_64 random(test::test_seed());
  StepLedger ledger;
  auto store = open();
  for (std::uint64_t id = 1; id <= 200; ++id) {
    const Step step = random() % 12;
    objects_->part_bytes = 1 + random() % 20'000;
    if (store->find(step)) {
      EXPECT_EQ(error_of([&] { write(*store, make_step(step, id, kMost)); }, {"already"}),
                Errc::already_exists);
      store->remove(step);
      ledger.removed(step);
    } else {
      const SavedStep saved = make_step(step, id, kMost);
      EXPECT_TRUE(id % 2 == 0 ? write(*store, saved) : write_chunks(*store, saved));
      ledger.wrote(saved);
    }
    if (random() % 8 == 0) {
      store.reset();
      store = open();
    }
    if (random() % 4 == 0) {
      ASSERT_EQ(ledger.check(*store), "");
    }
  }
  store.reset();
  EXPECT_FALSE(objects_->has(history::kLockFile));
  EXPECT_EQ(ledger.check(*open_for_reading()), "");
}

TEST_F(ObjectStepStoreTest, ObjectsAreTheFilesOfAFolder) {
  const SavedStep saved = make_step(7, 3, kMost), other = make_step(9, 4, kMost);
  {
    auto store = open();
    write(*store, saved);
    write_chunks(*store, other);
  }
  // As a folder.
  const std::string folder = path("copied");
  std::filesystem::create_directory(folder);
  for (const auto& [key, object] : objects_->objects()) {
    std::ofstream file(folder + "/" + key, std::ios::binary);
    file.write(reinterpret_cast<const char*>(object.bytes.data()),
               static_cast<std::streamsize>(object.bytes.size()));
    std::filesystem::permissions(folder + "/" + key, std::filesystem::perms::owner_all);
  }
  const auto as_folder = history::open_folder_store(folder);
  EXPECT_EQ(read_step(*as_folder, 7), saved);
  EXPECT_EQ(read_step(*as_folder, 9), other);
  EXPECT_EQ(as_folder->latest(), 9u);
  EXPECT_EQ(as_folder->uuid(), open_for_reading()->uuid());
}

TEST_F(ObjectStepStoreTest, KnownChecksumsSaveAPass) {
  const SavedStep saved = large_step(1);
  const int chunks = static_cast<int>((saved.info.bytes + 4095) / 4096);
  ASSERT_GT(chunks, 2);
  auto store = open();
  int fills = 0;
  write_chunks(*store, saved, &fills);
  EXPECT_EQ(fills, 2 * chunks);
  const auto reader = store->open_reader(1);
  SavedStep again = saved;
  again.info.step = 2;
  fills = 0;
  write_chunks(*store, again, &fills, reader->hashes());
  EXPECT_EQ(fills, chunks);
  EXPECT_EQ(read_step(*store, 2), again);
}

TEST_F(ObjectStepStoreTest, ReadsInOrderAskAhead) {
  const SavedStep saved = large_step(1);
  auto store = open();
  write(*store, saved);
  const auto read_in_order = [&](std::uint64_t room_bytes) {
    std::vector<std::byte> room(room_bytes), whole;
    EXPECT_TRUE(store->read_chunks(
        1, [&](std::uint64_t, std::uint64_t bytes) { return std::span(room).first(bytes); },
        [&](std::uint64_t offset, std::span<const std::byte> chunk) {
          EXPECT_EQ(offset, whole.size());
          whole.insert(whole.end(), chunk.begin(), chunk.end());
        },
        {}));
    EXPECT_EQ(whole, saved.blob);
  };
  objects_->requests = 0;
  read_in_order(4096);
  const std::uint64_t chunks = (kMost + 4095) / 4096;
  EXPECT_LE(objects_->requests, chunks + 6);  // none twice
  for (const Mishap mishap : {Mishap::refused, Mishap::cut_short, Mishap::flipped}) {
    for (std::uint64_t first = 2; first < 2 + chunks; ++first) {  // behind the header
      objects_->fail(mishap);
      objects_->first = first;
      objects_->times = 1;
      if (mishap == Mishap::cut_short) {
        read_in_order(4096);
      } else {
        const auto expected = mishap == Mishap::flipped ? Errc::damaged : Errc::io;
        EXPECT_EQ(error_of([&] { read_in_order(4096); }), expected) << first;
      }
    }
  }
  objects_->heal();
  read_in_order(4096);
}

TEST_F(ObjectStepStoreTest, MemoryThatChangesMeanwhileIsNotWritten) {
  auto store = open();
  SavedStep saved = large_step(1);
  objects_->part_bytes = 3000;
  int fills = 0;
  const auto fill = [&](std::uint64_t offset, std::uint64_t bytes) {
    if (++fills == 20) saved.blob[offset] ^= std::byte{1};
    return std::span<const std::byte>(saved.blob).subspan(offset, bytes);
  };
  EXPECT_EQ(error_of([&] { store->write_chunks(saved.info, fill, {}, {}); },
                     {"chunk", "changed while it was read"}),
            Errc::io);
  EXPECT_FALSE(objects_->has(step_file_name(1)));
  EXPECT_TRUE(write(*store, saved));
}

TEST_F(ObjectStepStoreTest, AnUploadThatIsGivenUpLeavesNothing) {
  auto store = open();
  const SavedStep saved = large_step(1);
  const auto before = objects_->objects().size();
  int left = 5;
  EXPECT_FALSE(write(*store, saved, [&](std::uint64_t) { return left-- > 0; }));
  EXPECT_EQ(objects_->objects().size(), before);
  EXPECT_EQ(objects_->uploads_open, 0);
  // What the source throws comes out as it is.
  struct OfTheSource {};
  left = 5;
  EXPECT_THROW(write(*store, saved,
                     [&](std::uint64_t) {
                       if (left-- == 0) throw OfTheSource{};
                       return true;
                     }),
               OfTheSource);
  EXPECT_EQ(objects_->objects().size(), before);
  EXPECT_FALSE(store->find(1));
  EXPECT_TRUE(write(*store, saved));
  EXPECT_EQ(read_step(*store, 1), saved);
}

// ---- Failures -----------------------------------------------------------------------------------

// A life of a store in which every error is an answer, noted in the ledger.
void live(const std::function<std::unique_ptr<StepStore>()>& open, StepLedger& ledger) {
  std::unique_ptr<StepStore> store;
  const auto attempt = [&](auto&& body) {
    try {
      return body();
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Errc::io || error.code() == Errc::damaged ||
                  error.code() == Errc::not_found || error.code() == Errc::already_exists ||
                  error.code() == Errc::foreign)
          << error.what();
    } catch (int) {
    }
    return false;
  };
  for (int tries = 0; tries < 2 && !store; ++tries)
    attempt([&] {
      store = open();
      return true;
    });
  if (!store) return;
  std::uint64_t id = 100;
  const auto write = [&](Step step) {
    const SavedStep saved = make_step(step, ++id, 20'000);
    ledger.begin_write(saved);
    if (attempt([&] { return store->write(saved.info, saved.blob, {}); })) ledger.wrote(saved);
  };
  const auto remove = [&](Step step) {
    ledger.begin_remove(step);
    if (attempt([&] {
          store->remove(step);
          return true;
        })) {
      ledger.removed(step);
    }
  };
  write(1);
  write(2);
  for (const auto& info : store->steps()) {
    attempt([&] { return read_step(*store, info.step).info.bytes > 0; });
    attempt([&] { return store->verify(info.step, {}); });
  }
  remove(1);
  write(3);
  write(1);
}

TEST_F(ObjectStepStoreTest, EveryRequestFailsInTurn) {
  StepLedger whole;
  live([&] { return open(); }, whole);
  EXPECT_EQ(whole.check(*open_for_reading()), "");
  const std::uint64_t requests = objects_->requests + 6;
  ASSERT_GT(requests, 30u);
  const test::Every tried = test::every(1, 9);
  std::uint64_t struck = 0, runs = 0;
  for (const Mishap mishap :
       {Mishap::refused, Mishap::answer_lost, Mishap::cut_short, Mishap::exception}) {
    for (const std::uint64_t times : {1u, 3u, 1u << 30}) {
      for (std::uint64_t first = (tried.first + runs) % tried.step; first < requests;
           first += tried.step) {
        SCOPED_TRACE("mishap " + std::to_string(static_cast<int>(mishap)) + " at request " +
                     std::to_string(first) + ", times " + std::to_string(times));
        objects_ = std::make_shared<MemoryObjects>();
        objects_->first = first;
        objects_->times = times;
        objects_->mishap = mishap;
        StepLedger ledger;
        live([&] { return open(); }, ledger);
        struck += objects_->struck > 0;
        ++runs;
        objects_->heal();
        EXPECT_EQ(objects_->uploads_open, 0);
        // The lock of one that could not take it back is its own process's, and ends with the
        // lease.
        if (objects_->has(history::kLockFile)) {
          objects_->make_older(history::kLockFile, std::chrono::hours(1));
        }
        const auto again = open();
        ASSERT_EQ(ledger.check(*again), "");
        ledger.settle(*again);
        const SavedStep after = make_step(1, 999, 9000);
        if (again->find(1)) again->remove(1);
        ASSERT_TRUE(write(*again, after));
        ledger.wrote(after);
        ASSERT_EQ(ledger.check(*again), "");
      }
    }
  }
  std::printf("%llu runs, %llu with a mishap\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(struck));
  EXPECT_GT(struck * 2, runs);
}

TEST_F(ObjectStepStoreTest, WhatASilentStoreLosesOrFlipsIsFound) {
  for (const Mishap mishap : {Mishap::flipped, Mishap::vanished}) {
    objects_ = std::make_shared<MemoryObjects>();
    auto store = open();
    const SavedStep saved = large_step(4);
    objects_->fail(mishap);
    const std::uint64_t before_upload = 1;  // it looks for the object first
    objects_->first = before_upload;
    EXPECT_TRUE(write(*store, saved));  // it was told so
    objects_->heal();
    std::vector<std::byte> into(saved.info.bytes);
    const Errc expected = mishap == Mishap::flipped ? Errc::damaged : Errc::not_found;
    EXPECT_EQ(error_of([&] { store->read(4, into, {}); }, {step_file_name(4)}), expected);
    EXPECT_EQ(error_of([&] { store->verify(4, {}); }), expected);
    store->remove(4);
    EXPECT_TRUE(write(*store, saved));
    EXPECT_EQ(read_step(*store, 4), saved);
  }
}

TEST_F(ObjectStepStoreTest, EveryFlippedByteIsFound) {
  const SavedStep saved = make_step(4, 12, 6000);
  { write(*open(), saved); }
  const std::vector<std::byte> bytes = objects_->bytes_of(step_file_name(4));
  ASSERT_LT(bytes.size(), 20'000u);
  const test::Every tried = test::every(1, 20);
  for (std::size_t at = tried.first; at < bytes.size(); at += tried.step * (at < 600 ? 1 : 7)) {
    std::vector<std::byte> flipped = bytes;
    flipped[at] ^= std::byte{16};
    objects_->set(step_file_name(4), flipped);
    const auto store = open_for_reading();
    if (!store->find(4)) {
      ASSERT_EQ(store->damaged().size(), 1u) << at;
      continue;
    }
    std::vector<std::byte> into(saved.info.bytes);
    ASSERT_EQ(error_of([&] { store->read(4, into, {}); }), Errc::damaged) << at;
  }
  for (std::size_t size : {std::size_t{0}, std::size_t{4095}, bytes.size() - 1}) {
    objects_->set(step_file_name(4),
                  std::vector(bytes.begin(), bytes.begin() + std::ptrdiff_t(size)));
    EXPECT_EQ(open_for_reading()->damaged().size(), 1u) << size;
  }
}

TEST_F(ObjectStepStoreTest, ListingsThatLag) {
  const SavedStep first = make_step(1, 1, kMost), second = make_step(2, 2, kMost);
  {
    auto store = open();
    write(*store, first);
    write(*store, second);
  }
  objects_->unlisted = {step_file_name(1), step_file_name(2)};
  objects_->ghosts = {step_file_name(9)};
  auto store = open();
  EXPECT_TRUE(store->steps().empty());
  EXPECT_TRUE(store->damaged().empty());
  // The same step again: it is there.
  const std::uint64_t changed = objects_->objects().at(step_file_name(1)).modified_ns;
  EXPECT_TRUE(write(*store, first));
  EXPECT_EQ(objects_->objects().at(step_file_name(1)).modified_ns, changed);
  EXPECT_EQ(read_step(*store, 1), first);
  // Another one under its number: it is found, and makes way when it is removed.
  const SavedStep other = make_step(2, 77, kMost);
  EXPECT_EQ(error_of([&] { write(*store, other); }, {step_file_name(2)}), Errc::already_exists);
  store->remove(2);
  EXPECT_TRUE(write(*store, other));
  EXPECT_EQ(read_step(*store, 2), other);
  // And the history's own object, which listing must not make a second time.
  const auto uuid = store->uuid();
  store.reset();
  objects_->unlisted.insert(history::kHistoryFile);
  for (const bool put_new : {true, false}) {
    objects_->has_put_new = put_new;
    objects_->unlisted.insert({step_file_name(1), step_file_name(2)});
    EXPECT_EQ(open()->uuid(), uuid);
  }
}

TEST_F(ObjectStepStoreTest, RefusesWhatIsNoHistory) {
  EXPECT_EQ(error_of([&] { open_for_reading(); }, {"no history in 'mem://bucket/run'"}),
            Errc::not_found);
  EXPECT_TRUE(objects_->objects().empty());
  objects_->set("picture.png", "bytes");
  EXPECT_EQ(error_of([&] { open(); }, {"picture.png"}), Errc::foreign);
  EXPECT_EQ(objects_->objects().size(), 1u);
  objects_->set(history::kHistoryFile, std::string(4096, 'x'));
  EXPECT_EQ(error_of([&] { open(); }, {history::kHistoryFile}), Errc::foreign);
  objects_ = std::make_shared<MemoryObjects>();
  open().reset();
  auto header = objects_->bytes_of(history::kHistoryFile);
  header[100] ^= std::byte{1};
  objects_->set(history::kHistoryFile, header);
  EXPECT_EQ(error_of([&] { open(); }, {"damaged"}), Errc::damaged);
  EXPECT_EQ(error_of([&] { open_object_step_store(nullptr); }, {"null"}), Errc::invalid_argument);
}

TEST_F(ObjectStepStoreTest, ErrorsSayWhatToDo) {
  const struct {
    Errc code;
    const char* remedy;
  } cases[] = {{Errc::permission, "credentials"},
               {Errc::not_found, "bucket"},
               {Errc::io, "address and the network"}};
  for (const auto& [code, remedy] : cases) {
    objects_->fail(Mishap::refused, code);
    EXPECT_EQ(error_of([&] { open(); }, {"mem://bucket/run", "503 Slow Down", remedy}), code);
  }
}

// ---- Who may write ------------------------------------------------------------------------------

class ObjectClaimTest : public ObjectStepStoreTest {
 protected:
  // As a process would have left it.
  void set_lock(const std::string& boot, const core::ProcessName& process) {
    objects_->set(history::kLockFile, "holdfast history lock 1\nid other\nhost elsewhere\nboot " +
                                          boot + "\nprocess " + std::to_string(process.pid) + " " +
                                          std::to_string(process.start) + " " +
                                          std::to_string(process.pid_namespace) + "\n");
  }
  static std::string this_boot() { return core::to_text(core::this_boot()); }
  static ObjectOptions brief() {
    ObjectOptions with = options();
    with.lease = std::chrono::milliseconds(200);
    return with;
  }
};

TEST_F(ObjectClaimTest, OneAtATime) {
  for (const bool put_new : {true, false}) {
    objects_->has_put_new = put_new;
    auto store = open();
    EXPECT_EQ(error_of([&] { open(); }, {"open for writing", std::to_string(::getpid()), "prefix"}),
              Errc::in_use);
    write(*store, make_step(put_new ? 1 : 2, 1, 100));
    EXPECT_NE(open_for_reading()->latest(), std::nullopt);  // beside it
    store.reset();
    open().reset();
    EXPECT_EQ(objects_->objects().size(), put_new ? 2u : 3u);  // no lock, nothing temporary
  }
}

TEST_F(ObjectClaimTest, OfADeadProcessOnThisMachineAtOnce) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    const core::ProcessName name = core::this_process();
    if (::write(pipe_ends[1], &name, sizeof name) != sizeof name) ::_exit(1);
    ::pause();
  }
  core::ProcessName name;
  ASSERT_EQ(::read(pipe_ends[0], &name, sizeof name), static_cast<ssize_t>(sizeof name));
  set_lock(this_boot(), name);
  objects_->make_older(history::kLockFile, std::chrono::hours(1));
  // It lives, though it stands still.
  EXPECT_EQ(error_of([&] { open(); }, {std::to_string(child), "elsewhere"}), Errc::in_use);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  EXPECT_TRUE(write(*open(), make_step(1, 1, 100)));
}

TEST_F(ObjectClaimTest, OfAnotherMachineOnceItIsSilent) {
  set_lock("00000000-0000-4000-8000-000000000000", core::this_process());
  EXPECT_EQ(error_of([&] { open(); }, {"elsewhere", "60 s"}), Errc::in_use);
  objects_->make_older(history::kLockFile, std::chrono::seconds(50));
  EXPECT_EQ(error_of([&] { open(); }), Errc::in_use);
  objects_->make_older(history::kLockFile, std::chrono::seconds(20));
  EXPECT_NO_THROW(open());
  for (const char* text : {"", "nonsense", "holdfast history lock 1\nprocess x\n"}) {
    objects_->set(history::kLockFile, std::string(text));
    EXPECT_EQ(error_of([&] { open(); }), Errc::in_use) << text;
    objects_->make_older(history::kLockFile, std::chrono::hours(1));
    EXPECT_NO_THROW(open()) << text;
  }
}

TEST_F(ObjectClaimTest, IsRenewed) {
  auto store = open(brief());
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(error_of([&] { open(brief()); }), Errc::in_use);
  }
  // It may be removed by someone who tidies up, and is there again.
  objects_->erase(history::kLockFile);
  while (!objects_->has(history::kLockFile)) std::this_thread::yield();
  EXPECT_TRUE(write(*store, make_step(1, 1, 100)));
}

TEST_F(ObjectClaimTest, WhoWasTakenOverWritesNothing) {
  auto store = open(brief());
  EXPECT_TRUE(write(*store, make_step(1, 1, 100)));
  set_lock(this_boot(), core::this_process());  // by another
  const auto written = [&] { return write(*store, make_step(2, 2, 100)); };
  for (Step step = 10;; ++step) {  // until it notices
    try {
      write(*store, make_step(step, step, 100));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::in_use) << error.what();
      break;
    }
  }
  EXPECT_EQ(error_of(written, {"taken over", "elsewhere"}), Errc::in_use);
  EXPECT_EQ(error_of([&] { store->remove(1); }), Errc::in_use);
  EXPECT_EQ(read_step(*store, 1), make_step(1, 1, 100));
  store.reset();
  EXPECT_TRUE(objects_->has(history::kLockFile));  // the other's
}

TEST_F(ObjectClaimTest, AStoreThatCannotBeReachedDoesNotEndTheClaimByItself) {
  auto store = open(brief());
  objects_->fail(Mishap::refused);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(error_of([&] { write(*store, make_step(1, 1, 100)); }, {"503"}), Errc::io);
  objects_->heal();
  EXPECT_TRUE(write(*store, make_step(1, 1, 100)));
}

}  // namespace
}  // namespace holdfast
