// Meshes of cells with four faces each, in the text form of Rodinia's cfd: the number of cells;
// then for each its area and, for each face, the neighbour and the outward normal (x, y, z, as long
// as the face is large). Neighbours count from 1; 0 is a solid wall, anything below 0 the far
// field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cfd {

inline constexpr unsigned kFaces = 4;
inline constexpr unsigned kAxes = 3;
inline constexpr std::uint64_t kMaxCells = 1u << 27;

// Neighbours that are none.
inline constexpr std::int32_t kWall = -1;
inline constexpr std::int32_t kFarField = -2;

// Arrays of structures of arrays: what belongs to cell i is at i, i + cells, i + 2 * cells ...
struct Mesh {
  std::uint64_t cells = 0;
  std::vector<float> areas;              // its square root scales the time step
  std::vector<std::int32_t> neighbours;  // [face][cell]; from 0, kWall or kFarField
  std::vector<float> normals;            // [axis][face][cell]; inwards
  std::string name;                      // in words
};

// Throws damaged: cut off, too long, a neighbour that is not there, an area that is not positive, a
// number that is none or not finite. `name` is the file's.
Mesh parse_mesh(const std::string& text, const std::string& name);
// The text that parse_mesh() makes the same mesh of.
std::string mesh_text(const Mesh& mesh);

// Tetrahedra over a plate with a smooth bump, irregular in a way that the seed decides: the plate
// is a wall, all else around is far field. REQUIRES: 6 <= cells <= kMaxCells.
Mesh generate_mesh(std::uint64_t cells, std::uint64_t seed);

}  // namespace cfd
