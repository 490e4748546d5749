#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "cfd/mesh.hpp"
#include "checkpointing/iterative.hpp"

namespace cfd {
namespace {

using Point = std::array<double, 3>;
// In steps of the grid that the tetrahedra are cut from.
using Place = std::array<std::uint64_t, 3>;
using Corners = std::array<std::uint64_t, 3>;  // numbers of points, ascending

Point minus(const Point& a, const Point& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Point cross(const Point& a, const Point& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}
double dot(const Point& a, const Point& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// Points of a box of cubes, z upwards, bent over a bump.
class Grid {
 public:
  // Twice as long as wide and high, or longer.
  Grid(std::uint64_t cubes, std::uint64_t seed) : seed_(seed) {
    std::uint64_t width = 1;
    while (2 * (width + 1) * (width + 1) * (width + 1) <= cubes) ++width;
    size_ = {(cubes + width * width - 1) / (width * width), width, width};
  }

  // Of cube `number`: those with small x first.
  Place cube(std::uint64_t number) const {
    const std::uint64_t layer = size_[1] * size_[2];
    return {number / layer, number % layer / size_[2], number % size_[2]};
  }
  std::uint64_t number(const Place& place) const {
    return (place[0] * (size_[1] + 1) + place[1]) * (size_[2] + 1) + place[2];
  }
  bool on_plate(std::uint64_t point) const { return point % (size_[2] + 1) == 0; }

  Point point(const Place& place) const {
    Point at;
    for (unsigned axis = 0; axis < 3; ++axis) {
      at[axis] = static_cast<double>(place[axis]);
      if (place[axis] == 0 || place[axis] == size_[axis]) continue;
      const std::uint64_t bits = checkpointing::mix(seed_, 3 * number(place) + axis);
      at[axis] += double{checkpointing::uniform(bits, -0.1f, 0.1f)};
    }
    const double length = static_cast<double>(size_[0]), width = static_cast<double>(size_[1]);
    const double height = static_cast<double>(size_[2]);
    const double x = (at[0] / length - 0.4) / 0.15, y = (at[1] / width - 0.5) / 0.3;
    at[2] += 0.08 * height * std::exp(-x * x - y * y) * (1 - at[2] / height);
    for (double& coordinate : at) coordinate /= width;
    return at;
  }

 private:
  std::uint64_t seed_;
  Place size_;
};

// One of the six tetrahedra of a cube: from its lowest corner to its highest, along the axes in one
// of their orders. All cubes are cut alike, so that the faces of neighbours meet.
std::array<Place, 4> tetrahedron(const Place& cube, unsigned which) {
  constexpr unsigned kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                      {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  std::array<Place, 4> corners{cube, cube, cube, cube};
  for (unsigned i = 1; i < 4; ++i) {
    corners[i] = corners[i - 1];
    ++corners[i][kOrders[which][i - 1]];
  }
  return corners;
}

struct Face {
  Corners corners;
  std::uint64_t cell;
  unsigned face;
};

void add_cell(Mesh& mesh, const Grid& grid, std::uint64_t cell, std::vector<Face>& faces) {
  const std::array<Place, 4> places =
      tetrahedron(grid.cube(cell / 6), static_cast<unsigned>(cell % 6));
  std::array<Point, 4> points;
  for (unsigned i = 0; i < 4; ++i) points[i] = grid.point(places[i]);
  double surface = 0;
  for (unsigned face = 0; face < kFaces; ++face) {
    // The three corners but `face`.
    const unsigned a = face == 0 ? 1 : 0, b = face <= 1 ? 2 : 1, c = face <= 2 ? 3 : 2;
    Point normal = cross(minus(points[b], points[a]), minus(points[c], points[a]));
    const bool inwards = dot(normal, minus(points[face], points[a])) > 0;
    for (unsigned axis = 0; axis < kAxes; ++axis) {
      mesh.normals[(axis * kFaces + face) * mesh.cells + cell] =
          static_cast<float>(inwards ? normal[axis] / 2 : -normal[axis] / 2);
    }
    surface += std::sqrt(dot(normal, normal)) / 2;
    Corners corners{grid.number(places[a]), grid.number(places[b]), grid.number(places[c])};
    std::sort(corners.begin(), corners.end());
    faces.push_back({corners, cell, face});
    const bool on_plate = std::all_of(corners.begin(), corners.end(),
                                      [&](std::uint64_t point) { return grid.on_plate(point); });
    mesh.neighbours[face * mesh.cells + cell] = on_plate ? kWall : kFarField;
  }
  mesh.areas[cell] = static_cast<float>(surface * surface / 4);
}

}  // namespace

Mesh generate_mesh(std::uint64_t cells, std::uint64_t seed) {
  const Grid grid((cells + 5) / 6, seed);
  Mesh mesh;
  mesh.cells = cells;
  mesh.areas.resize(cells);
  mesh.neighbours.resize(cells * kFaces);
  mesh.normals.resize(cells * kFaces * kAxes);
  mesh.name =
      holdfast::detail::concat("generated: flow over a bump, ", cells, " cells, seed ", seed);
  std::vector<Face> faces;
  faces.reserve(cells * kFaces);
  for (std::uint64_t cell = 0; cell < cells; ++cell) add_cell(mesh, grid, cell, faces);
  std::sort(faces.begin(), faces.end(), [](const Face& a, const Face& b) {
    return std::tie(a.corners, a.cell) < std::tie(b.corners, b.cell);
  });
  for (std::size_t i = 1; i < faces.size(); ++i) {
    const Face& a = faces[i - 1];
    const Face& b = faces[i];
    if (a.corners != b.corners) continue;
    mesh.neighbours[a.face * cells + a.cell] = static_cast<std::int32_t>(b.cell);
    mesh.neighbours[b.face * cells + b.cell] = static_cast<std::int32_t>(a.cell);
  }
  return mesh;
}

}  // namespace cfd
