#include "cfd/mesh.hpp"

#include <charconv>
#include <cmath>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace cfd {
namespace {

using holdfast::detail::concat;
using workload::damaged_input;

constexpr std::uint64_t kNumbersPerCell = 1 + kFaces * (1 + kAxes);

class Parser {
 public:
  Parser(const std::string& text, const std::string& name) : reader_(text, name), name_(name) {
    mesh_.cells = reader_.whole(1, kMaxCells);
    // Before memory is taken: each number takes two characters.
    if (text.size() / (2 * kNumbersPerCell) + 1 < mesh_.cells) {
      damaged_input(name, concat("is of ", mesh_.cells, " cells, and too short for that"));
    }
    mesh_.areas.resize(mesh_.cells);
    mesh_.neighbours.resize(mesh_.cells * kFaces);
    mesh_.normals.resize(mesh_.cells * kFaces * kAxes);
    mesh_.name = concat(name, ": ", mesh_.cells, " cells");
  }

  Mesh parse() {
    for (std::uint64_t cell = 0; cell < mesh_.cells; ++cell) parse_cell(cell);
    if (!reader_.at_end()) {
      damaged_input(name_, concat("goes on after its ", mesh_.cells, " cells"));
    }
    return std::move(mesh_);
  }

 private:
  void parse_cell(std::uint64_t cell) {
    const float area = number(cell);
    if (!(area > 0)) fail(cell, concat("has area ", area, ", which must be positive"));
    mesh_.areas[cell] = area;
    for (unsigned face = 0; face < kFaces; ++face) {
      mesh_.neighbours[face * mesh_.cells + cell] = neighbour(cell);
      for (unsigned axis = 0; axis < kAxes; ++axis) {
        mesh_.normals[(axis * kFaces + face) * mesh_.cells + cell] = -number(cell);
      }
    }
  }

  float number(std::uint64_t cell) {
    const auto value = static_cast<float>(reader_.real());
    if (!std::isfinite(value)) fail(cell, "has a number that is not finite");
    return value;
  }

  std::int32_t neighbour(std::uint64_t cell) {
    const double value = reader_.real();
    if (value != std::floor(value) || !(value <= static_cast<double>(mesh_.cells))) {
      fail(cell, concat("has neighbour ", value, ", and there are ", mesh_.cells, " cells"));
    }
    if (value < 0) return kFarField;
    return static_cast<std::int32_t>(value) - 1;  // kWall for 0
  }

  [[noreturn]] void fail(std::uint64_t cell, const std::string& what) const {
    damaged_input(name_, concat("cell ", cell + 1, " ", what));
  }

  workload::NumberReader reader_;
  std::string name_;
  Mesh mesh_;
};

void append(std::string& text, char before, float value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  text += before;
  text.append(digits, end.ptr);
}

}  // namespace

Mesh parse_mesh(const std::string& text, const std::string& name) {
  return Parser(text, name).parse();
}

std::string mesh_text(const Mesh& mesh) {
  std::string text = std::to_string(mesh.cells);
  for (std::uint64_t cell = 0; cell < mesh.cells; ++cell) {
    append(text, '\n', mesh.areas[cell]);
    for (unsigned face = 0; face < kFaces; ++face) {
      const std::int32_t neighbour = mesh.neighbours[face * mesh.cells + cell];
      text += ' ' + std::to_string(neighbour == kFarField ? -1 : neighbour + 1);
      for (unsigned axis = 0; axis < kAxes; ++axis) {
        append(text, ' ', -mesh.normals[(axis * kFaces + face) * mesh.cells + cell]);
      }
    }
  }
  return text + '\n';
}

}  // namespace cfd
