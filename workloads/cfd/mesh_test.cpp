// Meshes: those that are generated close and agree; files, whole and damaged.
#include "cfd/mesh.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "cfd/cfd.hpp"
#include "checkpointing/iterative_checks.hpp"

namespace cfd {
namespace {

using checkpointing_checks::error_with;
using holdfast::Errc;
using holdfast::test::error_of;

double normal(const Mesh& mesh, std::uint64_t cell, unsigned face, unsigned axis) {
  return mesh.normals[(axis * kFaces + face) * mesh.cells + cell];
}

std::int32_t neighbour(const Mesh& mesh, std::uint64_t cell, unsigned face) {
  return mesh.neighbours[face * mesh.cells + cell];
}

void expect_same(const Mesh& a, const Mesh& b) {
  EXPECT_EQ(a.cells, b.cells);
  EXPECT_EQ(a.areas, b.areas);
  EXPECT_EQ(a.neighbours, b.neighbours);
  EXPECT_EQ(a.normals, b.normals);
}

TEST(CfdMesh, CellsAreClosed) {
  const Mesh mesh = generate_mesh(5000, 7);
  for (std::uint64_t cell = 0; cell < mesh.cells; ++cell) {
    EXPECT_GT(mesh.areas[cell], 0);
    for (unsigned axis = 0; axis < kAxes; ++axis) {
      double sum = 0;
      for (unsigned face = 0; face < kFaces; ++face) sum += normal(mesh, cell, face, axis);
      ASSERT_NEAR(sum, 0, 1e-6 * std::sqrt(mesh.areas[cell])) << "cell " << cell;
    }
  }
}

// Each face is its neighbour's, turned round; and only one face of the neighbour's is meant.
TEST(CfdMesh, FacesOfNeighboursAgree) {
  const Mesh mesh = generate_mesh(5000, 7);
  std::uint64_t walls = 0, far = 0, inner = 0;
  for (std::uint64_t cell = 0; cell < mesh.cells; ++cell) {
    for (unsigned face = 0; face < kFaces; ++face) {
      const std::int32_t beyond = neighbour(mesh, cell, face);
      walls += beyond == kWall;
      far += beyond == kFarField;
      if (beyond < 0) continue;
      ++inner;
      const auto other = static_cast<std::uint64_t>(beyond);
      unsigned back = 0, matches = 0;
      for (unsigned i = 0; i < kFaces; ++i) {
        if (neighbour(mesh, other, i) != static_cast<std::int32_t>(cell)) continue;
        back = i;
        ++matches;
      }
      ASSERT_EQ(matches, 1u) << "cells " << cell << " and " << other;
      for (unsigned axis = 0; axis < kAxes; ++axis) {
        ASSERT_NEAR(normal(mesh, cell, face, axis), -normal(mesh, other, back, axis), 1e-7);
      }
    }
  }
  EXPECT_GT(walls, 100u);
  EXPECT_GT(far, 3 * walls);
  EXPECT_GT(inner, 4 * far);
}

TEST(CfdMesh, TheSeedDecides) {
  expect_same(generate_mesh(700, 3), generate_mesh(700, 3));
  EXPECT_NE(generate_mesh(700, 3).normals, generate_mesh(700, 4).normals);
}

TEST(CfdMesh, TextHoldsAllOfIt) {
  for (const std::uint64_t cells : {6, 7, 50, 999}) {
    const Mesh mesh = generate_mesh(cells, 2);
    expect_same(parse_mesh(mesh_text(mesh), "text"), mesh);
  }
}

// Rodinia's conventions: neighbours count from 1, 0 is a wall, less is far field, normals point
// out.
TEST(CfdMesh, RodiniasFormIsRead) {
  const Mesh mesh = parse_mesh(
      "2\n0.5  2 1 2 3  0 4 5 6  -1 7 8 9  -3 -1 -2 -3\n"
      "\t1e-2 1 -1 -2 -3 0 0 0 1 -2 1 0 0 -1 0 1 0\n",
      "two");
  EXPECT_EQ(mesh.cells, 2u);
  EXPECT_EQ(mesh.areas, (std::vector<float>{0.5f, 0.01f}));
  EXPECT_EQ(mesh.neighbours, (std::vector<std::int32_t>{1, 0, kWall, kWall, kFarField, kFarField,
                                                        kFarField, kFarField}));
  EXPECT_EQ(normal(mesh, 0, 0, 0), -1.0);
  EXPECT_EQ(normal(mesh, 0, 2, 1), -8.0);
  EXPECT_EQ(normal(mesh, 1, 0, 2), 3.0);
}

TEST(CfdMesh, DamagedTextIsRefused) {
  const std::string first = "0.5 2 1 2 3 0 4 5 6 -1 7 8 9 -1 1 2 3\n";
  const std::string second = "0.5 1 1 2 3 0 4 5 6 -1 7 8 9 -1 1 2 3\n";
  const auto error = [](const std::string& text, const std::vector<std::string>& words) {
    return error_of([&] { parse_mesh(text, "m.txt"); }, words);
  };
  parse_mesh("2\n" + first + second, "m.txt");
  EXPECT_EQ(error("", {"m.txt"}), Errc::damaged);
  EXPECT_EQ(error("0\n", {"m.txt", "line 1"}), Errc::damaged);
  EXPECT_EQ(error("mesh\n", {"m.txt", "'mesh'"}), Errc::damaged);
  EXPECT_EQ(error("2\n" + first, {"m.txt"}), Errc::damaged);
  EXPECT_EQ(error("100000000\n" + first, {"100000000 cells", "too short"}), Errc::damaged);
  EXPECT_EQ(error("1\n" + second + second, {"goes on after its 1 cells"}), Errc::damaged);
  const auto with = [&](std::size_t at, const std::string& word) {
    std::string cell = second;
    return error("2\n" + first + cell.replace(at, word.size(), word), {"m.txt"});
  };
  EXPECT_EQ(with(0, "0.0"), Errc::damaged);
  EXPECT_EQ(with(0, "-.5"), Errc::damaged);
  EXPECT_EQ(with(0, "nan"), Errc::damaged);
  EXPECT_EQ(with(0, "area"), Errc::damaged);
  EXPECT_EQ(with(4, "3"), Errc::damaged);    // neighbour 3 of 2
  EXPECT_EQ(with(4, ".5 "), Errc::damaged);  // half a neighbour
  EXPECT_EQ(with(6, "1e99"), Errc::damaged);
  // Cut off anywhere, it is refused, and never read beyond.
  const std::string whole = mesh_text(generate_mesh(7, 1));
  for (std::size_t length = 0; length + 2 < whole.size(); length += 5) {
    try {
      parse_mesh(whole.substr(0, length), "cut");
      // A number that lost its last digits is a number.
      EXPECT_GT(length + 16, whole.size());
    } catch (const holdfast::Error& problem) {
      EXPECT_EQ(problem.code(), Errc::damaged) << problem.what();
    }
  }
}

class CfdFiles : public checkpointing_checks::Files {};

TEST_F(CfdFiles, TheUsersMeshIsTaken) {
  const std::string file = write("domn", mesh_text(generate_mesh(300, 8)));
  workload::Settings settings;
  settings.options["mesh"] = file;
  EXPECT_NE(info().make(settings)->input().find("300 cells"), std::string::npos);
  const workload_checks::Run read = workload_checks::run_whole(info(), settings);
  EXPECT_EQ(read.wrong, "");
  settings.options = {{"cells", "300"}};
  settings.seed = 8;
  EXPECT_EQ(workload_checks::run_whole(info(), settings).digest, read.digest);
  EXPECT_EQ(error_with(info(), {{"mesh", file}, {"cells", "300"}}, {"leave out cells"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_with(info(), {{"mesh", write("short", "12 1 2 3")}}, {"too short"}),
            Errc::damaged);
}

}  // namespace
}  // namespace cfd
