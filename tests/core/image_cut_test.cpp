// The image after a power cut: whatever part of a commit's writes reached the disk, it opens as
// the commit before or the commit after.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "core/format.hpp"
#include "holdfast/region.hpp"
#include "support/io_recorder.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using test::FileUnderTest;
using test::IoOperation;

// Objects and their bytes: all that a reader can see.
using Content = std::map<std::string, std::vector<std::uint8_t>>;

Content content_of(Region& region) {
  Content result;
  for (const ObjectInfo& info : region.objects()) {
    const auto* bytes = static_cast<const std::uint8_t*>(region.address(info));
    result[info.name].assign(bytes, bytes + info.bytes());
  }
  return result;
}

class ImageCutTest : public test::Scratch {
 protected:
  test::TapPoint taps_;
  const std::uint64_t seed_ = test::test_seed();

  static constexpr std::uint64_t kSize = 600 * kPageBytes;  // three segments

  // Makes several commits of different kinds and records their writes. `copy` is the file as it
  // was before the first of them.
  void record() {
    Region region = taps_.create(path(), options(kSize));
    auto a = region.allocate<std::uint8_t>("a", 20 * kPageBytes);
    auto b = region.allocate<std::uint8_t>("b", 5 * kPageBytes, Tracking::marked);
    std::memset(a.data(), 1, a.size());
    std::memset(b.data(), 2, b.size());
    region.mark(b.data(), b.size());
    region.commit();
    std::filesystem::copy_file(path(), path("copy"));
    contents.push_back(content_of(region));

    test::IoRecorder recorder(taps_);
    const auto commit = [&] {
      region.commit();
      contents.push_back(content_of(region));
      ends.push_back(recorder.operations.size());
    };
    std::memset(a.data() + 3 * kPageBytes, 3, 2 * kPageBytes);
    commit();
    std::memset(a.data() + 4 * kPageBytes, 4, kPageBytes);
    b[0] = 9;
    region.mark(b.data(), 1);
    commit();
    std::memset(a.data(), 0, a.size());  // pages that become zero
    auto c = region.allocate<std::uint8_t>("c", 546 * kPageBytes);
    std::memset(c.data() + 540 * kPageBytes, 5, 3 * kPageBytes);  // other segments
    commit();
    region.grow(4 * kSize);
    auto d = region.allocate<std::uint8_t>("d", 600 * kPageBytes);
    d[d.size() - 1] = 7;
    region.remove("b");
    commit();
    d[0] = 8;
    commit();
    operations = std::move(recorder.operations);
    region.abandon();
    remove_arenas();
  }

  // The same for commits of scattered pages that move others as well.
  void record_cleaning() {
    Region region = taps_.create(path(), options(kSize));
    auto data = region.allocate<std::uint8_t>("data", 500 * kPageBytes, Tracking::marked);
    std::memset(data.data(), 1, data.size());
    region.mark(data.data(), data.size());
    std::mt19937_64 random(seed_);
    std::uint64_t moved = 0;
    const auto commit = [&] {
      for (int i = 0; i < 9; ++i) {
        std::uint8_t& byte = data[random() % data.size()];
        byte = static_cast<std::uint8_t>(random() % 255 + 1);
        region.mark(&byte, 1);
      }
      moved = region.commit().pages_moved;
    };
    for (int i = 0; i < 2000 && moved == 0; ++i) commit();
    ASSERT_GT(moved, 0u) << "nothing was cleaned";
    std::filesystem::copy_file(path(), path("copy"));
    contents.push_back(content_of(region));
    test::IoRecorder recorder(taps_);
    std::uint64_t moves = 0;
    for (int i = 0; i < 6; ++i) {
      commit();
      moves += moved;
      contents.push_back(content_of(region));
      ends.push_back(recorder.operations.size());
    }
    EXPECT_GT(moves, 0u);
    operations = std::move(recorder.operations);
    region.abandon();
    remove_arenas();
  }

  // Applies what was recorded, cut after every byte of what is small and after some of what is
  // large.
  void cut_everywhere(std::size_t step_of_page);
  // Applies any part of what was written between two syncs.
  void try_subsets(int trials_of_each);

  void remove_arenas() {
    for (const auto& entry : std::filesystem::directory_iterator(arenas())) {
      std::filesystem::remove(entry);
    }
  }

  // Which commit the copy opens as: an index into contents.
  std::size_t opened_as(std::size_t first, std::size_t last, const std::string& state) {
    try {
      Region region = Region::open(path("copy"), for_reading());
      const Content found = content_of(region);
      for (std::size_t i = first; i <= last; ++i) {
        if (found == contents[i]) return i;
      }
      ADD_FAILURE() << state << ": neither the old nor the new content";
    } catch (const Error& error) {
      ADD_FAILURE() << state << ": " << error.what();
    }
    remove_arenas();
    return first;
  }

  std::vector<Content> contents;  // [0]: of the copy; [i]: after the i-th commit
  std::vector<std::size_t> ends;  // [i - 1]: operations up to the end of the i-th commit
  std::vector<IoOperation> operations;
};

void ImageCutTest::cut_everywhere(std::size_t step_of_page) {
  FileUnderTest file(path("copy"));
  std::size_t commit = 1;  // the one being written
  std::size_t newest = 0;
  int cuts = 0;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    while (i >= ends[commit - 1]) ++commit;
    const IoOperation& operation = operations[i];
    const std::size_t bytes = operation.bytes.size();
    // Every byte of what is small, some of what is large, its last one always.
    const std::size_t usual = bytes <= 512 ? 1 : bytes <= kPageBytes ? step_of_page : 1 + bytes / 7;
    const test::Every tried = test::every(usual, ~std::uint64_t{0}, seed_ + i);
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t step = done == 0 && tried.first != 0 ? tried.first : tried.step;
      const std::size_t next = std::min(bytes, done + step);
      file.write(operation.offset + done, operation.bytes.data() + done, next - done);
      done = next;
      const std::string state = "operation " + std::to_string(i) + ", " + std::to_string(done) +
                                " of " + std::to_string(bytes) + " bytes";
      const std::size_t opened = opened_as(commit - 1, commit, state);
      EXPECT_GE(opened, newest) << state << ": went back";
      newest = std::max(newest, opened);
      ++cuts;
    }
    if (operation.kind == IoOperation::resize) file.resize(operation.offset);
    if (i + 1 == ends[commit - 1]) {
      EXPECT_EQ(newest, commit) << "a finished commit is there";
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(newest, contents.size() - 1);
  std::printf("%d cuts\n", cuts);
}

void ImageCutTest::try_subsets(int trials_of_each) {
  std::mt19937_64 random(seed_);
  trials_of_each = static_cast<int>(test::some_of(static_cast<std::uint64_t>(trials_of_each)));
  FileUnderTest file(path("copy"));
  std::size_t commit = 1;
  int tried = 0;
  for (std::size_t begin = 0; begin < operations.size();) {
    std::size_t end = begin;
    while (end < operations.size() && operations[end].kind != IoOperation::sync) ++end;
    while (begin >= ends[commit - 1]) ++commit;
    // The pieces of [begin, end) that a disk writes independently of each other.
    struct Piece {
      std::uint64_t offset;
      const std::byte* data;
      std::size_t bytes;
    };
    std::vector<Piece> pieces;
    for (std::size_t i = begin; i < end; ++i) {
      const IoOperation& operation = operations[i];
      // A file's size is metadata, which fdatasync of the new size orders before what needs it.
      if (operation.kind == IoOperation::resize) file.resize(operation.offset);
      for (std::size_t at = 0; at < operation.bytes.size(); at += kPageBytes) {
        pieces.push_back({operation.offset + at, operation.bytes.data() + at,
                          std::min<std::size_t>(kPageBytes, operation.bytes.size() - at)});
      }
    }
    const int trials = pieces.empty() ? 0 : trials_of_each;
    for (int trial = 0; trial < trials; ++trial, ++tried) {
      const unsigned keep = static_cast<unsigned>(random() % 100);
      std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> undo;
      for (const Piece& piece : pieces) {
        if (random() % 100 >= keep) continue;
        undo.emplace_back(piece.offset, file.read(piece.offset, piece.bytes));
        file.write(piece.offset, piece.data, piece.bytes);
      }
      // The last operation of a commit, the removal of the older record, is synced by the next.
      const std::size_t last = std::min(contents.size() - 1, commit + 1);
      opened_as(commit - 1, last, "before operation " + std::to_string(end));
      if (HasFailure()) return;
      for (auto it = undo.rbegin(); it != undo.rend(); ++it) {
        file.write(it->first, it->second.data(), it->second.size());
      }
    }
    for (std::size_t i = begin; i < end; ++i) file.apply(operations[i]);
    begin = end + 1;
  }
  EXPECT_EQ(opened_as(0, contents.size() - 1, "at the end"), contents.size() - 1);
  std::printf("%d subsets\n", tried);
}

TEST_F(ImageCutTest, CutAtAnyByteGivesTheOldOrTheNewCommit) {
  record();
  cut_everywhere(173);
}

TEST_F(ImageCutTest, CutWhileCleaningGivesTheOldOrTheNewCommit) {
  record_cleaning();
  cut_everywhere(1500);
}

TEST_F(ImageCutTest, AnySubsetOfUnsyncedPagesGivesTheOldOrTheNewCommit) {
  record();
  try_subsets(25);
}

TEST_F(ImageCutTest, AnySubsetWhileCleaningGivesTheOldOrTheNewCommit) {
  record_cleaning();
  try_subsets(40);
}

// Whatever operation of a commit fails, the image keeps the previous commit, the region goes on,
// and the next commit holds everything.
TEST_F(ImageCutTest, FailureOfAnyOperationKeepsTheOldCommit) {
  for (const int error_number : {ENOSPC, EIO}) {
    const test::Every tried = test::every(1, 5, seed_);
    for (std::uint64_t failing = tried.first;; failing += tried.step) {
      std::error_code ignored;
      std::filesystem::remove(path(), ignored);
      Region region = taps_.create(path(), options(kSize));
      auto a = region.allocate<std::uint8_t>("a", 520 * kPageBytes);
      auto b = region.allocate<std::uint8_t>("b", 2 * kPageBytes, Tracking::marked);
      a[0] = a[a.size() - 1] = b[0] = 1;
      region.mark(b.data(), 1);
      region.commit();
      const std::uint64_t before = region.generation();
      a[0] = a[a.size() - 1] = b[0] = 2;
      region.mark(b.data(), 1);
      bool failed = false;
      bool thrown = false;
      {
        test::IoFailure failure(taps_, static_cast<int>(failing), error_number);
        try {
          region.commit();
        } catch (const Error& error) {
          thrown = true;
          EXPECT_EQ(error.code(), error_number == ENOSPC ? Errc::no_space : Errc::io);
          EXPECT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
        }
        failed = failure.failed();
      }
      // The last operation only tidies up: the commit stands without it.
      EXPECT_EQ(region.generation(), before + (thrown ? 0 : 1));
      std::filesystem::copy_file(path(), path("copy"),
                                 std::filesystem::copy_options::overwrite_existing);
      {
        // A copy has another inode: the arena is not its own.
        OpenOptions elsewhere;
        elsewhere.arena_folder = other_arenas();
        Region copy = Region::open(path("copy"), elsewhere);
        const std::uint8_t found = copy.find<std::uint8_t>("a")[0];
        EXPECT_TRUE(thrown || found == 2);
        EXPECT_EQ(copy.find<std::uint8_t>("b")[0], found);
        EXPECT_EQ(copy.find<std::uint8_t>("a").back(), found);
        copy.close();
      }
      a[1] = 3;
      region.commit();
      EXPECT_EQ(region.generation(), before + (thrown ? 1 : 2));
      region.abandon();
      remove_arenas();
      Region again = Region::open(path(), last_commit());
      EXPECT_EQ(again.find<std::uint8_t>("a")[0], 2);
      EXPECT_EQ(again.find<std::uint8_t>("a")[1], 3);
      EXPECT_EQ(again.find<std::uint8_t>("b")[0], 2) << "marks of the failed commit are not lost";
      again.close();
      if (!failed) {
        EXPECT_GT(failing, 6u);
        break;
      }
    }
  }
}

}  // namespace
}  // namespace holdfast
