#include "cfd/cfd.hpp"
#include "checkpointing/iterative.hpp"

namespace cfd {
namespace {

constexpr std::uint64_t kMinCells = 6;

struct Shape {
  std::uint64_t cells, steps, iterations;
};

Shape usual_shape(workload::Size size) {
  switch (size) {
    case workload::Size::test:
      return {1'000, 4, 3};
    case workload::Size::real:
      return {97'046, 5, 10};
    case workload::Size::paper:
      return {232'536, 10, 40};
  }
  return {1'000, 4, 3};
}

Mesh make_mesh(const workload::Settings& settings, const Shape& usual) {
  const std::uint64_t cells =
      workload::number_option(settings, "cells", usual.cells, kMinCells, kMaxCells);
  if (settings.options.count("mesh") != 0 && settings.options.count("cells") != 0) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          "cfd: options mesh and cells are both given: leave out cells, the file "
                          "says how many there are");
  }
  const auto mesh = workload::read_named_input(
      settings, "mesh", "a mesh in Rodinia's form, such as data/cfd/fvcorr.domn.097K of Rodinia");
  return mesh ? parse_mesh(mesh->text, mesh->path) : generate_mesh(cells, settings.seed);
}

class Cfd : public checkpointing::Iterative {
 public:
  Cfd(const workload::Settings& settings, const Shape& usual)
      : Iterative(settings, usual.steps),
        iterations_(
            workload::number_option(settings, "iterations", usual.iterations, 1, 1'000'000)),
        mesh_(make_mesh(settings, usual)) {}

  std::string input() const override { return mesh_.name; }

 private:
  // As GPM's artifact registers it: the variables, from which each time step makes the fluxes anew.
  std::vector<std::uint64_t> saved_bytes() const override {
    return {mesh_.cells * kVariables * sizeof(float)};
  }
  std::vector<workload::Buffer> allocate(workload::Backing& backing) override {
    for (auto* values : {&variables_, &fluxes_, &old_variables_}) {
      values->allocate(backing, mesh_.cells * kVariables);
    }
    step_factors_.allocate(backing, mesh_.cells);
    areas_.allocate(backing, mesh_.areas.size());
    areas_.set(mesh_.areas);
    neighbours_.allocate(backing, mesh_.neighbours.size());
    neighbours_.set(mesh_.neighbours);
    normals_.allocate(backing, mesh_.normals.size());
    normals_.set(mesh_.normals);
    return {variables_.buffer("variables")};
  }
  void start() override {
    const FarField far = far_field();
    std::vector<float> variables(mesh_.cells * kVariables);
    for (std::uint64_t i = 0; i < variables.size(); ++i) {
      variables[i] = far.variables[i / mesh_.cells];
    }
    variables_.set(variables);
  }
  void iterate(std::uint64_t) override {
    const Arrays arrays{mesh_.cells,           areas_.data(),       neighbours_.data(),
                        normals_.data(),       variables_.data(),   fluxes_.data(),
                        old_variables_.data(), step_factors_.data()};
    if (on_cpu()) {
      iterate_on_cpu(threads(), arrays, iterations_);
    } else {
      cfd::iterate(backing().stream(), arrays, iterations_);
    }
  }
  void add_to(workload::Digester& all) override { all.add(variables_.get()); }
  std::string compare() override {
    return compare_with_oracle(mesh_, steps() * iterations_, variables_.get());
  }

  std::uint64_t iterations_;
  Mesh mesh_;
  checkpointing::Values<float> variables_, fluxes_, old_variables_, step_factors_, areas_, normals_;
  checkpointing::Values<std::int32_t> neighbours_;
};

}  // namespace

FarField far_field() {
  constexpr float kDensity = 1.4f, kPressure = 1.0f, kMach = 1.2f;  // sound at speed 1
  return {{kDensity, kDensity * kMach, 0, 0, 0.5f * kDensity * kMach * kMach + kPressure / 0.4f}};
}

workload::Info info() {
  return {
      .name = "cfd",
      .summary = "an unstructured Euler solver (Rodinia), checkpointed every so many time steps",
      .kind = workload::Info::Class::checkpointing,
      .table_row = 4,
      .options = {{"cells",
                   "of the generated mesh, 6 to 2^27 (default 1,000, 97,046 or 232,536 by size)"},
                  {"mesh", "file with a mesh in Rodinia's form, such as fvcorr.domn.097K"},
                  {"iterations",
                   "time steps between two checkpoints (default 3, 10 or 40 by size)"},
                  {"checkpoint", workload::kCopiedByWords}},
      .make = [](const workload::Settings& settings) -> std::unique_ptr<workload::Workload> {
        return std::make_unique<Cfd>(settings, usual_shape(settings.size));
      },
  };
}

std::vector<workload::Info> workloads() { return {info()}; }

}  // namespace cfd
