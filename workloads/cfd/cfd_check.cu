// Two time steps of a flow through two cells.
#include "cfd/cfd.hpp"
#include "checking/checkpointed_program.hpp"
#include "checking/sized_offer.hpp"

namespace holdfast::check {
namespace {

constexpr std::uint64_t kCells = 2;
constexpr std::uint64_t kVariables = kCells * cfd::kVariables;
constexpr std::uint64_t kPadded = 12;  // 16-byte words, which keeps the states few

// Two tetrahedra that share a face; one stands on a wall.
constexpr const char* kMesh =
    "2\n"
    "1 2 0.5 0.5 0.5 0 -0.5 0 0 -1 0 -0.5 0 -1 0 0 -0.5\n"
    "1 1 -0.5 -0.5 -0.5 -1 0.5 0 0 -1 0 0.5 0 -1 0 0 0.5\n";

class Flow : public Simulation {
 public:
  Flow() : neighbours_(kCells * cfd::kFaces) {
    const cfd::Mesh mesh = cfd::parse_mesh(kMesh, "two cells");
    set(areas_, mesh.areas);
    set(normals_, mesh.normals);
    copy_async(stream, neighbours_.data(), mesh.neighbours.data(), neighbours_.bytes());
    stream.synchronize();
  }
  void start() override {
    std::vector<float> variables(kPadded);
    for (std::uint64_t i = 0; i < kVariables; ++i) {
      variables[i] = cfd::far_field().variables[i / kCells];
    }
    set(variables_, variables);
  }
  void step(std::uint64_t) override {
    cfd::iterate(stream,
                 {kCells, areas_.data(), neighbours_.data(), normals_.data(), variables_.data(),
                  fluxes_.data(), old_variables_.data(), step_factors_.data()},
                 1);
  }
  // The fluxes follow from them.
  std::vector<DeviceBuffer<float>*> saved() override { return {&variables_}; }

 private:
  DeviceBuffer<std::int32_t> neighbours_;
  DeviceBuffer<float> areas_{kCells}, normals_{kCells * cfd::kFaces * cfd::kAxes};
  DeviceBuffer<float> variables_{kPadded}, fluxes_{kVariables}, old_variables_{kVariables};
  DeviceBuffer<float> step_factors_{kCells};
};

Program make(const Sizes&) {
  return checkpointed_program([] { return std::make_unique<Flow>(); });
}

}  // namespace
}  // namespace holdfast::check

namespace cfd {

std::vector<holdfast::check::Offer> check_programs() {
  return {holdfast::check::sized_offer(
      "cfd",
      "two time steps of a flow through two cells, a checkpoint after each, recovered by going on",
      {}, holdfast::check::make)};
}

}  // namespace cfd
