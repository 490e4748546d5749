// What tools see of a history's folder.
#include "holdfast/history_folder.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "holdfast/history.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace {

using holdfast::BufferMemory;
using holdfast::Errc;
using holdfast::History;
using holdfast::HistoryFolder;
using holdfast::HistoryStep;
using holdfast::Stream;
using holdfast::test::error_of;
using holdfast::test::Scratch;

class HistoryFolderTest : public Scratch {
 protected:
  std::string folder() const { return path("run"); }

  History open() const { return History::open({.disk = folder()}); }
  void save(History& history, const std::vector<std::uint64_t>& steps) {
    std::vector<std::uint64_t> array(1000, 7);
    std::uint8_t byte = 1;
    history.protect("array", array.data(), array.size(), BufferMemory::host);
    history.protect("byte", &byte, 1, BufferMemory::host);
    Stream stream;
    for (const std::uint64_t step : steps) history.save(step, stream);
    history.flush();
  }
  std::vector<std::uint64_t> listed() const {
    std::vector<std::uint64_t> steps;
    for (const HistoryStep& step : HistoryFolder(folder()).steps()) steps.push_back(step.step);
    return steps;
  }
  void damage(const std::string& file, std::streamoff offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(offset);
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(offset);
    stream.put(byte);
  }
};

using Steps = std::vector<std::uint64_t>;

TEST_F(HistoryFolderTest, ShowsWhatAWriterHasAndChangesNothing) {
  History history = open();
  save(history, {4, 9, 2});
  const HistoryFolder seen(folder());
  EXPECT_EQ(listed(), (Steps{2, 4, 9}));
  EXPECT_EQ(seen.latest(), 2u);
  EXPECT_TRUE(seen.damaged().empty());
  EXPECT_EQ(seen.uuid().size(), 36u);
  const HistoryStep step = seen.steps().front();
  ASSERT_EQ(step.arrays.size(), 2u);
  EXPECT_EQ(step.arrays[0].name, "array");
  EXPECT_EQ(step.arrays[0].bytes, 8000u);
  EXPECT_EQ(step.arrays[1].bytes, 1u);
  EXPECT_TRUE(std::filesystem::exists(step.path));
  std::uint64_t bytes = 0;
  for (const HistoryStep& each : seen.steps()) {
    EXPECT_NO_THROW(seen.verify(each.step));
    bytes += std::filesystem::file_size(each.path);
  }
  EXPECT_EQ(seen.file_bytes(), bytes);
  // It is of its moment.
  save(history, {11});
  EXPECT_EQ(seen.steps().size(), 3u);
  EXPECT_EQ(listed(), (Steps{2, 4, 9, 11}));
}

TEST_F(HistoryFolderTest, DiscardsAllOrNothing) {
  {
    History history = open();
    save(history, {1, 2, 3});
    EXPECT_EQ(error_of([&] { HistoryFolder::discard(folder(), Steps{1}); }), Errc::in_use);
  }
  EXPECT_EQ(error_of([&] { HistoryFolder::discard(folder(), Steps{1, 4}); }), Errc::not_found);
  EXPECT_EQ(listed(), (Steps{1, 2, 3}));
  HistoryFolder::discard(folder(), Steps{3, 1, 3});
  EXPECT_EQ(listed(), Steps{2});
}

TEST_F(HistoryFolderTest, DamagedFilesAreNamedAndCanBeDiscarded) {
  {
    History history = open();
    save(history, {1, 2, 3});
  }
  const std::vector<HistoryStep> steps = HistoryFolder(folder()).steps();
  damage(steps[0].path, 100);   // of the header
  damage(steps[1].path, 5000);  // of the blob
  const HistoryFolder seen(folder());
  ASSERT_EQ(seen.damaged().size(), 1u);
  EXPECT_EQ(seen.damaged()[0].step, 1u);
  EXPECT_EQ(seen.damaged()[0].path, steps[0].path);
  EXPECT_EQ(seen.damaged()[0].code, Errc::damaged);
  EXPECT_EQ(error_of([&] { seen.verify(2); }), Errc::damaged);
  EXPECT_NO_THROW(seen.verify(3));
  HistoryFolder::discard(folder(), Steps{1, 2});
  EXPECT_TRUE(HistoryFolder(folder()).damaged().empty());
  EXPECT_EQ(listed(), Steps{3});
}

TEST_F(HistoryFolderTest, MakesNothing) {
  EXPECT_EQ(error_of([&] { HistoryFolder(path("nothing")); }), Errc::not_found);
  EXPECT_EQ(error_of([&] { HistoryFolder::discard(path("nothing"), Steps{1}); }), Errc::not_found);
  EXPECT_FALSE(std::filesystem::exists(path("nothing")));
  std::filesystem::create_directory(path("empty"));
  EXPECT_EQ(error_of([&] { HistoryFolder::discard(path("empty"), Steps{1}); }), Errc::not_found);
  EXPECT_TRUE(std::filesystem::is_empty(path("empty")));
}

TEST_F(HistoryFolderTest, MovedFromSaysSo) {
  { History history = open(); }
  HistoryFolder first(folder());
  const HistoryFolder second(std::move(first));
  EXPECT_TRUE(second.steps().empty());
  EXPECT_EQ(error_of([&] { first.steps(); }), Errc::closed);  // NOLINT(bugprone-use-after-move)
}

}  // namespace
