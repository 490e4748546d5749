// Histories that are damaged, forged, strange or someone else's, and processes that share one: what
// does not fit is refused by name, and what is not ours stays as it is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <thread>

#include "folder_store_support.hpp"
#include "history/folder_store.hpp"
#include "step_ledger.hpp"
#include "support/in_child.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/still_fork.hpp"

namespace holdfast {
namespace {

using history::open_folder_store;
using history::Step;
using history::StepStore;
using test::error_of;
using test::make_step;
using test::read_file;
using test::read_step;
using test::SavedStep;
using test::write_file;

constexpr std::uint64_t kSmall = 12000;

class FolderStoreDamageTest : public test::FolderStoreTest {};

// ---- Damage -------------------------------------------------------------------------------------

TEST_F(FolderStoreDamageTest, DamageToAnyByteOfAFileIsFound) {
  // In memory: a disk's time for each byte is long.
  const std::string home = arenas() + "/history";
  const std::string file = home + "/" + history::step_file_name(3);
  SavedStep saved = make_step(3, 1, 0);
  saved.info.bytes = 4096 + 700;
  saved.info.parts = {{"u", 0, 4096}, {"v", 4096, 700}};
  saved.blob.assign(saved.info.bytes, std::byte{0x5a});
  const SavedStep other = make_step(4, 2, kSmall);
  auto store = open_small(home);
  write(*store, saved);
  write(*store, other);
  store.reset();
  std::vector<char> bytes = read_file(file);
  const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const test::Every tried = test::every(1, 50);
  std::size_t number = 0;
  for (std::size_t i = tried.first; i < bytes.size(); i += tried.step, ++number) {
    const char damaged = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    ASSERT_EQ(::pwrite(fd, &damaged, 1, static_cast<off_t>(i)), 1);
    store = open(home, true);
    EXPECT_EQ(store->latest(), Step{4});
    if (i < 4096) {
      ASSERT_EQ(store->damaged().size(), 1u) << "byte " << i;
      EXPECT_EQ(store->damaged()[0].path, file);
      EXPECT_EQ(store->find(3), std::nullopt) << "byte " << i;
      EXPECT_EQ(store->damaged()[0].code, Errc::damaged) << "byte " << i;
    } else {
      ASSERT_EQ(store->damaged().size(), 0u);
      // Chunks are counted from 0.
      const char* const chunk = i < 8192 ? "chunk 0 (bytes 0 to 4095, part 'u')"
                                         : "chunk 1 (bytes 4096 to 4795, part 'v')";
      const auto found = [&](auto&& body) {
        return error_of(body, {chunk, history::step_file_name(3)});
      };
      ASSERT_EQ(found([&] { read_step(*store, 3); }), Errc::damaged) << "byte " << i;
      // Into whole pages the padding is read in place.
      alignas(4096) static std::byte page[4096];
      const auto room = [](std::uint64_t, std::uint64_t) { return std::span<std::byte>(page); };
      const auto take = [](std::uint64_t, std::span<const std::byte>) {};
      ASSERT_EQ(found([&] { store->read_chunks(3, room, take, {}); }), Errc::damaged)
          << "byte " << i;
      if (number % 50 == 0) {
        EXPECT_EQ(found([&] { store->verify(3, {}); }), Errc::damaged);
      }
    }
    if (number % 500 == 0) {
      EXPECT_EQ(read_step(*store, 4), other);
    }
    ASSERT_EQ(::pwrite(fd, &bytes[i], 1, static_cast<off_t>(i)), 1);
  }
  ::close(fd);
}

TEST_F(FolderStoreDamageTest, AFileOfAnotherLengthIsDamaged) {
  auto store = open_small(home());
  const SavedStep saved = make_step(3, 7, kSmall);
  write(*store, saved);
  store.reset();
  const std::vector<char> whole = read_file(file_of(3));
  for (std::size_t bytes = 0; bytes < whole.size() + 9000; bytes += 511) {
    std::vector<char> other = whole;
    other.resize(bytes);
    write_file(file_of(3), other);
    store = open(home(), true);
    ASSERT_EQ(store->damaged().size(), 1u) << bytes;
    EXPECT_EQ(store->damaged()[0].code, Errc::damaged) << bytes;
    EXPECT_EQ(store->steps().size(), 0u);
  }
  // Cut off while it is open.
  write_file(file_of(3), whole);
  store = open(home());
  write_file(file_of(3), {whole.begin(), whole.begin() + 4096});
  EXPECT_EQ(error_of([&] { read_step(*store, 3); }, {"counts"}), Errc::damaged);
  // And while it is read.
  write_file(file_of(3), whole);
  std::vector<std::byte> into(saved.info.bytes);
  const auto cut = [&](std::uint64_t) {
    std::filesystem::resize_file(file_of(3), 4096);
    return true;
  };
  // Which chunk is met first is the readers' race.
  EXPECT_EQ(error_of([&] { store->read(3, into, cut); }, {"chunk ", file_of(3), "cut off"}),
            Errc::damaged);
}

TEST_F(FolderStoreDamageTest, ADamagedStepIsNotReplacedButCanBeRemoved) {
  auto store = open(home());
  const SavedStep saved = make_step(3, 1, kSmall);
  write(*store, saved);
  store.reset();
  std::filesystem::resize_file(file_of(3), 5000);
  store = open(home());
  EXPECT_EQ(error_of([&] { write(*store, saved); }, {"step 3", "damaged"}), Errc::already_exists);
  EXPECT_EQ(error_of([&] { store->verify(3, {}); }, {"5000"}), Errc::damaged);
  store->remove(3);
  EXPECT_EQ(store->damaged().size(), 0u);
  EXPECT_TRUE(write(*store, saved));
  EXPECT_EQ(read_step(*open(home(), true), 3), saved);
}

TEST_F(FolderStoreDamageTest, AFileThatSomeonePutThereMeanwhileIsNotReplaced) {
  auto store = open(home());
  write_file(file_of(3), {'x'});
  const auto before = files_in(home());
  EXPECT_EQ(error_of([&] { write(*store, make_step(3, 1, kSmall)); }, {file_of(3)}),
            Errc::already_exists);
  EXPECT_EQ(files_in(home()), before);
  EXPECT_EQ(store->find(3), std::nullopt);
}

// Fronts that fit their checksum, and say what cannot be.
TEST_F(FolderStoreDamageTest, ForgedFrontsAreRefused) {
  auto store = open(home());
  history::Front good;
  good.info = {1, 4096, {{"a", 0, 100}, {"b", 100, 3996}}, 5};
  good.history = store->uuid();
  good.sequence = 9;
  good.hashes = {0};
  store.reset();
  const auto put = [&](const history::Front& front, std::uint64_t extra_bytes = 4096) {
    const history::AlignedBytes bytes = history::encode(front);
    std::vector<char> file(bytes.size() + extra_bytes);
    std::memcpy(file.data(), bytes.data(), bytes.size());
    write_file(file_of(1), file);
    auto opened = open(home(), true);
    const auto damaged = opened->damaged();
    return damaged.empty() ? std::string("offered") : damaged[0].reason;
  };
  EXPECT_EQ(put(good), "offered");
  const auto wrong = [&](auto&& change, const char* word) {
    history::Front front = good;
    change(front);
    EXPECT_NE(put(front).find(word), std::string::npos) << put(front);
  };
  using history::Front;
  wrong([](Front& f) { f.sequence = 0; }, "sequence");
  wrong([](Front& f) { f.sequence = ~std::uint64_t{0}; }, "sequence");
  wrong([](Front& f) { f.info.parts[1].offset = 99; }, "overlap");
  wrong([](Front& f) { f.info.parts[1].bytes = ~std::uint64_t{0}; }, "beyond");
  wrong([](Front& f) { f.info.parts[1].offset = ~std::uint64_t{0}; }, "beyond");
  wrong([](Front& f) { f.info.parts[1].name = "a"; }, "two parts");
  wrong([](Front& f) { f.info.parts[1].name = ""; }, "name");
  wrong([](Front& f) { f.info.step = 2; }, "holds step 2");
  wrong([](Front& f) { f.history[0] ^= 1; }, "belongs to the history");
  wrong(
      [](Front& f) {
        f.chunk_bytes = 2048;
        f.hashes = {0, 0};
      },
      "impossible");
  wrong([](Front& f) { f.chunk_bytes = 3 * 4096; }, "impossible");
  wrong([](Front& f) { f.chunk_bytes = 2u << 26; }, "impossible");  // memory for one is asked for
  // A table of more than the most: no memory is asked for. (The file has a hole.)
  std::vector<char> file = read_file(file_of(1));
  history::StepHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  header.chunk_bytes = 4096;
  header.bytes = std::uint64_t{36} << 30;
  header.front_bytes = history::round_up(sizeof header + 2 * 128 + header.bytes / 4096 * 8);
  ASSERT_GT(header.front_bytes, history::kMaxFrontBytes);
  std::memcpy(file.data(), &header, sizeof header);
  write_file(file_of(1), file);
  std::filesystem::resize_file(file_of(1), header.front_bytes + header.bytes);
  EXPECT_NE(open(home(), true)->damaged().at(0).reason.find("impossible"), std::string::npos);
}

// Whatever a file says: what is written next is the latest, or is refused.
TEST_F(FolderStoreDamageTest, ASequenceFromTheFutureIsFollowed) {
  auto store = open(home());
  history::Front future;
  future.info = {1, 0, {}, 5};
  future.history = store->uuid();
  const auto put = [&](std::uint64_t sequence) {
    future.sequence = sequence;
    const history::AlignedBytes bytes = history::encode(future);
    std::vector<char> file(bytes.size());
    std::memcpy(file.data(), bytes.data(), bytes.size());
    store.reset();
    write_file(file_of(1), file);
    store = open(home());
    EXPECT_EQ(store->latest(), Step{1});
  };
  put(core::kMaxGeneration - 1);
  EXPECT_TRUE(write(*store, make_step(2, 2, kSmall)));
  EXPECT_EQ(store->latest(), Step{2});
  EXPECT_EQ(open(home(), true)->latest(), Step{2});
  store->remove(2);
  put(core::kMaxGeneration);
  EXPECT_EQ(error_of([&] { write(*store, make_step(2, 2, kSmall)); }, {"forged"}), Errc::damaged);
  EXPECT_EQ(store->find(2), std::nullopt);
}

TEST_F(FolderStoreDamageTest, NewerStepsAndThoseOfOthersAreListedApartAndStay) {
  auto other = open(path("other"));
  write(*other, make_step(1, 1, kSmall));
  auto store = open(home());
  const SavedStep saved = make_step(2, 2, kSmall);
  write(*store, saved);
  write(*store, make_step(3, 3, kSmall));
  store.reset();
  std::filesystem::copy_file(path("other") + "/" + history::step_file_name(1), file_of(1));
  std::vector<char> newer = read_file(file_of(3));
  newer[8] = 2;
  newer[4000] ^= 1;  // its checksum is another one
  write_file(file_of(3), newer);
  std::filesystem::create_symlink(file_of(2), file_of(4));
  std::filesystem::create_directory(file_of(5));
  ASSERT_EQ(::mkfifo(file_of(6).c_str(), 0600), 0);
  write_file(file_of(7), std::vector<char>(5000, 'x'));
  std::filesystem::copy_file(file_of(2), file_of(8));
  ASSERT_EQ(::chmod(file_of(8).c_str(), 0666), 0);
  const auto before = files_in(home());
  store = open(home());
  ASSERT_EQ(store->steps().size(), 1u);
  EXPECT_EQ(read_step(*store, 2), saved);
  std::map<Step, Errc> codes;
  for (const auto& file : store->damaged()) codes[file.step] = file.code;
  EXPECT_EQ(codes, (std::map<Step, Errc>{{1, Errc::foreign},
                                         {3, Errc::newer_version},
                                         {4, Errc::permission},
                                         {5, Errc::permission},
                                         {6, Errc::permission},
                                         {7, Errc::foreign},
                                         {8, Errc::permission}}));
  for (const auto& [step, code] : codes) {
    EXPECT_EQ(error_of([&] { store->remove(step); }), code) << step;
    EXPECT_EQ(error_of([&] { write(*store, make_step(step, 9, kSmall)); }), Errc::already_exists);
  }
  EXPECT_EQ(files_in(home()), before);
}

// ---- Folders ------------------------------------------------------------------------------------

TEST_F(FolderStoreDamageTest, WhatIsNoHistoryIsRefusedAndNotTouched) {
  EXPECT_EQ(error_of([&] { open(home(), true); }), Errc::not_found);
  EXPECT_FALSE(std::filesystem::exists(home()));
  EXPECT_EQ(error_of([&] { open(path("a") + "/b"); }), Errc::not_found);
  write_file(path("file"), {'x'});
  EXPECT_EQ(error_of([&] { open(path("file")); }, {"no folder"}), Errc::invalid_argument);
  std::filesystem::create_directory(home());
  EXPECT_EQ(error_of([&] { open(home(), true); }, {"no history"}), Errc::not_found);
  write_file(home() + "/notes.txt", {'x'});
  const auto before = files_in(home());
  EXPECT_EQ(error_of([&] { open(home()); }, {"notes.txt"}), Errc::foreign);
  EXPECT_EQ(files_in(home()), before);
}

TEST_F(FolderStoreDamageTest, AHistoryFileThatDoesNotFitIsRefusedAndNotTouched) {
  open_folder_store(home(), {false, "rtm"});
  const std::string file = home() + "/" + history::kHistoryFile;
  const std::vector<char> good = read_file(file);
  const auto refused = [&](std::size_t at, char value, std::size_t bytes = 4096) {
    std::vector<char> bad = good;
    bad[at] = value;
    bad.resize(bytes);
    write_file(file, bad);
    const auto before = files_in(home());
    const Errc code = error_of([&] { open(home()); });
    EXPECT_EQ(error_of([&] { open(home(), true); }), code);
    EXPECT_EQ(files_in(home()), before);
    return code;
  };
  EXPECT_EQ(refused(0, 'x'), Errc::foreign);
  EXPECT_EQ(refused(8, 2), Errc::newer_version);
  EXPECT_EQ(refused(8, 0), Errc::damaged);
  EXPECT_EQ(refused(20, static_cast<char>(good[20] ^ 1)), Errc::damaged);
  EXPECT_EQ(refused(4095, static_cast<char>(good[4095] ^ 1)), Errc::damaged);
  EXPECT_EQ(refused(0, good[0], 4095), Errc::foreign);
  EXPECT_EQ(refused(0, good[0], 4097), Errc::damaged);
  write_file(file, good);
  const auto before = files_in(home());
  EXPECT_EQ(error_of(
                [&] {
                  open_folder_store(home(), {false, "cfd"});
                },
                {"'rtm'", "'cfd'"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] {
              open_folder_store(home(), {false, std::string(128, 'x')});
            }),
            Errc::invalid_argument);
  EXPECT_EQ(files_in(home()), before);
  EXPECT_EQ(open_folder_store(home(), {false, "rtm"})->name(), "rtm");
  EXPECT_EQ(open(home())->name(), "rtm");
}

TEST_F(FolderStoreDamageTest, RemainsGoAndOtherFilesStay) {
  auto store = open(home());
  const SavedStep saved = make_step(1, 1, kSmall);
  write(*store, saved);
  store.reset();
  const std::string step = "." + history::step_file_name(2) + ".0123456789abcdef.tmp";
  const std::vector<char> whole = read_file(file_of(1));
  std::vector<std::string> ours, others;
  const auto put = [&](std::vector<std::string>& list, std::string name, std::vector<char> bytes) {
    write_file(home() + "/" + name, bytes);
    list.push_back(name);
  };
  put(ours, step, {});
  put(ours, history::temporary_name(history::step_file_name(2)), whole);
  put(ours, history::temporary_name(history::step_file_name(3)), std::vector<char>(9000, 0));
  put(ours, history::temporary_name(history::kHistoryFile), {'H', 'F', 'H', 0, 0, 0, 0, 0});
  put(others, history::temporary_name(history::step_file_name(3)), {'t', 'e', 'x', 't'});
  put(others, ".step-2.holdfast.0123456789abcdef.tmp", {});
  put(others, step + "x", {});
  put(others, "x" + step, {});
  put(others, "." + history::step_file_name(2) + ".0123456789abcdeg.tmp", {});
  put(others, "notes.txt", {'x'});
  put(others, "step-1.holdfast", whole);
  put(others, "step-99999999999999999999.holdfast", whole);  // no number of 64 bits
  std::filesystem::create_directory(home() + "/" +
                                    history::temporary_name(history::step_file_name(4)));
  open(home(), true).reset();
  for (const std::string& name : ours) EXPECT_TRUE(files_in(home()).count(name)) << name;
  store = open(home());
  for (const std::string& name : ours) EXPECT_FALSE(files_in(home()).count(name)) << name;
  for (const std::string& name : others) EXPECT_TRUE(files_in(home()).count(name)) << name;
  EXPECT_EQ(files_in(home()).size(), others.size() + 1 + 3);
  EXPECT_EQ(store->steps().size(), 1u);
  EXPECT_EQ(read_step(*store, 1), saved);
}

TEST_F(FolderStoreDamageTest, AFolderThatGoesAwayIsNotFound) {
  auto store = open(home());
  write(*store, make_step(1, 1, kSmall));
  std::filesystem::remove_all(home());
  EXPECT_EQ(error_of([&] { write(*store, make_step(2, 2, kSmall)); }, {home()}), Errc::not_found);
  EXPECT_EQ(error_of([&] { read_step(*store, 1); }), Errc::not_found);
  EXPECT_EQ(store->find(2), std::nullopt);
}

// ---- Processes ----------------------------------------------------------------------------------

TEST_F(FolderStoreDamageTest, OneProcessWritesAndOthersRead) {
  auto store = open(home());
  const SavedStep first = make_step(1, 1, kSmall), second = make_step(2, 2, kSmall);
  write(*store, first);
  write(*store, second);
  EXPECT_EQ(error_of([&] { open(home()); }), Errc::in_use);
  const auto before = files_in(home());
  const int status = test::in_child([&] {
    EXPECT_EQ(error_of([&] { open(home()); }, {"process"}), Errc::in_use);
    auto reader = open(home(), true);
    EXPECT_EQ(reader->steps().size(), 2u);
    EXPECT_EQ(read_step(*reader, 1), first);
    EXPECT_EQ(error_of([&] { write(*reader, make_step(3, 3, kSmall)); }, {"for reading"}),
              Errc::unsupported);
    EXPECT_EQ(error_of([&] { reader->remove(1); }, {"for reading"}), Errc::unsupported);
    // What is the parent's.
    EXPECT_EQ(error_of([&] { store->remove(1); }), Errc::in_use);
    EXPECT_EQ(error_of([&] { write(*store, make_step(3, 3, kSmall)); }), Errc::in_use);
    store.reset();
    EXPECT_EQ(error_of([&] { open(home()); }), Errc::in_use);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(files_in(home()), before);
  auto reader = open(home(), true);
  store->remove(1);
  store->remove(2);
  SavedStep other = second;  // nothing tells it from the one before but when it was completed
  other.blob.assign(other.blob.size(), std::byte{9});
  write(*store, other);
  EXPECT_EQ(error_of([&] { read_step(*reader, 1); }, {"removed"}), Errc::not_found);
  EXPECT_EQ(error_of([&] { read_step(*reader, 2); }, {"removed"}), Errc::not_found);
  store.reset();
  EXPECT_EQ(open(home())->steps().size(), 1u);
}

TEST_F(FolderStoreDamageTest, ReadersSeeWholeStepsWhileTheyComeAndGo) {
  auto store = open(home());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t id = 1; !stop; ++id) {
      const Step step = id % 7;
      if (store->find(step)) store->remove(step);
      write(*store, make_step(step, id, kSmall));
    }
  });
  std::uint64_t seen = 0;
  for (int i = 0; i < 60 || (seen < 100 && i < 10'000); ++i) {
    auto reader = open(home(), true);
    EXPECT_EQ(reader->damaged().size(), 0u);
    for (const history::StepInfo& info : reader->steps()) {
      try {
        EXPECT_EQ(read_step(*reader, info.step), make_step(info.step, info.saved_at_ns, kSmall));
        ++seen;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_found) << error.what();
      }
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(seen, 0u);
}

TEST_F(FolderStoreDamageTest, AForkedChildDoesNotHoldOnToTheLock) {
  auto store = open(home());
  int wait_for_end[2];
  ASSERT_EQ(::pipe(wait_for_end), 0);
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    ::close(wait_for_end[1]);
    char byte;
    const ssize_t ignored = ::read(wait_for_end[0], &byte, 1);
    ::_exit(ignored > 0 ? 1 : 0);
  }
  ::close(wait_for_end[0]);
  store.reset();
  EXPECT_NO_THROW(open(home()));
  ::close(wait_for_end[1]);
  ::waitpid(child, nullptr, 0);
}

TEST_F(FolderStoreDamageTest, AFileSizeLimitIsNoSpaceAndLeavesNothing) {
  open(home()).reset();
  const auto before = files_in(home());
  const int status = test::in_child([&] {
    auto store = open(home());
    const rlimit limit{20000, 20000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    SavedStep saved = make_step(1, 1, 0);
    saved.info.bytes = 100'000;
    saved.blob.resize(100'000);
    int calls = 0;
    const auto count = [&](std::uint64_t) { return ++calls > 0; };
    EXPECT_EQ(error_of([&] { write(*store, saved, count); }, {"step 1 takes 106496 bytes", home()}),
              Errc::no_space);
    EXPECT_EQ(calls, 0) << "it was found out by writing";
    EXPECT_EQ(files_in(home()), before);
    EXPECT_TRUE(write(*store, make_step(1, 2, 10000)));
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace holdfast
