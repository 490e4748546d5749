#include "holdfast/whole_lines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/whole_lines_kernels.hpp"
#include "holdfast/region.hpp"
#include "support/scratch.hpp"

namespace holdfast::test {
namespace {

constexpr std::uint64_t kLines = 512;

// What memory holds, and what the copy says that it holds: they differ, so that what comes from the
// copy is told from what was left alone.
struct Image {
  std::vector<LineCell> held, copy;
  explicit Image(std::mt19937_64& random) {
    for (std::uint64_t i = 0; i < kLines * kLineCells; ++i) {
      held.push_back({{random(), random()}});
      copy.push_back({{random(), random()}});
    }
  }
};

// Of every line one change as a whole, up to four cells, or none, in any order.
std::vector<LineTask> draw_tasks(std::mt19937_64& random) {
  std::vector<LineTask> tasks;
  for (std::uint64_t line = 0; line < kLines; ++line) {
    const auto kind = static_cast<LineChange>(random() % 3);
    const std::uint64_t changes = kind == LineChange::cell ? 1 + random() % kLineCells : 1;
    std::uint64_t cells[kLineCells];
    std::iota(std::begin(cells), std::end(cells), line * kLineCells);
    std::shuffle(std::begin(cells), std::end(cells), random);
    for (std::uint64_t i = 0; i < changes; ++i) {
      tasks.push_back({static_cast<unsigned>(kind), cells[i], {{random(), random()}}});
    }
  }
  std::shuffle(tasks.begin(), tasks.end(), random);
  return tasks;
}

std::vector<LineCell> expected(const Image& image, const std::vector<LineTask>& tasks) {
  std::vector<LineCell> cells = image.held;
  for (const LineTask& task : tasks) {
    const auto kind = static_cast<LineChange>(task.change);
    if (kind == LineChange::none) continue;
    if (kind == LineChange::line) {
      const std::uint64_t first = task.at / kLineCells * kLineCells;
      std::copy_n(image.copy.begin() + first, kLineCells, cells.begin() + first);
    }
    cells[task.at] = task.value;
  }
  return cells;
}

// A thread has to persist what it stored for any of its four.
std::vector<std::uint8_t> expected_stores(const std::vector<LineTask>& tasks) {
  std::vector<std::uint8_t> stored(tasks.size(), 0);
  for (std::uint64_t i = 0; i < tasks.size(); ++i) {
    const auto kind = static_cast<LineChange>(tasks[i].change);
    const std::uint64_t first = i / kLineCells * kLineCells;
    if (kind == LineChange::cell)
      stored[std::min(first + tasks[i].at % kLineCells, stored.size() - 1)] = 1;
    if (kind != LineChange::line) continue;
    for (std::uint64_t k = first; k < std::min(first + kLineCells, stored.size()); ++k)
      stored[k] = 1;
  }
  return stored;
}

class WholeLines : public Scratch, public ::testing::WithParamInterface<unsigned> {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend::usable(&why)) GTEST_SKIP() << why;
  }
};

TEST_P(WholeLines, HoldTheChangeAndWhatTheCopyHasAround) {
  std::mt19937_64 random(test_seed());
  Region region = Region::create(path(), options(1 << 20));
  const auto cells = region.allocate<LineCell>("cells", kLines * kLineCells);
  const Image image(random);
  std::copy(image.held.begin(), image.held.end(), cells.begin());
  std::vector<LineTask> tasks = draw_tasks(random);
  while (tasks.size() % kLineCells != 0) tasks.push_back({0, 0, {}});
  EXPECT_EQ(store_by_lines_of(cells, image.copy, tasks, GetParam()), expected_stores(tasks));
  EXPECT_TRUE(std::ranges::equal(cells, expected(image, tasks)));
}

// Blocks of a single group of four, of a warp and a part of one, and of several.
INSTANTIATE_TEST_SUITE_P(Blocks, WholeLines, ::testing::Values(4u, 36u, 256u));

}  // namespace
}  // namespace holdfast::test
