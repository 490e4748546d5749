// The scheme's arithmetic, for kernels and mode cpu.
#pragma once

#include <cmath>
#include <cstdint>

#include "cfd/cfd.hpp"
#include "checkpointing/host_device.hpp"

namespace cfd {

inline constexpr float kGamma = 1.4f;
inline constexpr float kSmoothing = 0.2f;

// A cell's variables and what follows from them.
struct State {
  float density;
  float momentum[kAxes];
  float energy;
  float velocity[kAxes];
  float pressure;
  float speed;  // of the flow
  float sound;  // of sound
};

CHECKPOINTING_HOST_DEVICE inline State state_of(float density, const float* momentum,
                                                float energy) {
  State state;
  state.density = density;
  state.energy = energy;
  float squared = 0;
  for (unsigned axis = 0; axis < kAxes; ++axis) {
    state.momentum[axis] = momentum[axis];
    state.velocity[axis] = momentum[axis] / density;
    squared += state.velocity[axis] * state.velocity[axis];
  }
  state.speed = sqrtf(squared);
  state.pressure = (kGamma - 1.0f) * (energy - 0.5f * density * squared);
  state.sound = sqrtf(kGamma * state.pressure / density);
  return state;
}

CHECKPOINTING_HOST_DEVICE inline State load(const float* variables, std::uint64_t cells,
                                            std::uint64_t cell) {
  const float momentum[kAxes] = {variables[cells + cell], variables[2 * cells + cell],
                                 variables[3 * cells + cell]};
  return state_of(variables[cell], momentum, variables[4 * cells + cell]);
}

// Adds half of what flows through a face from a state.
CHECKPOINTING_HOST_DEVICE inline void add_half_flow(const State& state, const float* normal,
                                                    float* flux) {
  float along = 0;  // momentum
  float through = 0;
  for (unsigned axis = 0; axis < kAxes; ++axis) {
    along += state.momentum[axis] * normal[axis];
    through += state.velocity[axis] * normal[axis];
  }
  flux[0] += 0.5f * along;
  for (unsigned axis = 0; axis < kAxes; ++axis) {
    flux[1 + axis] += 0.5f * (through * state.momentum[axis] + state.pressure * normal[axis]);
  }
  flux[4] += 0.5f * through * (state.energy + state.pressure);
}

// Artificial viscosity: the faster waves are, the more two neighbours level out.
CHECKPOINTING_HOST_DEVICE inline void add_viscosity(const State& here, const State& there,
                                                    const float* normal, float* flux) {
  const float length = sqrtf(normal[0] * normal[0] + normal[1] * normal[1] + normal[2] * normal[2]);
  const float factor =
      -length * kSmoothing * 0.5f * (here.speed + there.speed + here.sound + there.sound);
  flux[0] += factor * (here.density - there.density);
  for (unsigned axis = 0; axis < kAxes; ++axis) {
    flux[1 + axis] += factor * (here.momentum[axis] - there.momentum[axis]);
  }
  flux[4] += factor * (here.energy - there.energy);
}

// Stores what flows into a cell, by the variables as they are.
CHECKPOINTING_HOST_DEVICE inline void compute_flux(const Arrays& arrays, const State& far,
                                                   std::uint64_t cell) {
  const std::uint64_t cells = arrays.cells;
  const State here = load(arrays.variables, cells, cell);
  float flux[kVariables] = {};
  for (unsigned face = 0; face < kFaces; ++face) {
    float normal[kAxes];
    for (unsigned axis = 0; axis < kAxes; ++axis) {
      normal[axis] = arrays.normals[(axis * kFaces + face) * cells + cell];
    }
    const std::int32_t neighbour = arrays.neighbours[face * cells + cell];
    if (neighbour == kWall) {
      for (unsigned axis = 0; axis < kAxes; ++axis) flux[1 + axis] += here.pressure * normal[axis];
      continue;
    }
    if (neighbour == kFarField) {
      add_half_flow(far, normal, flux);
    } else {
      const State there = load(arrays.variables, cells, static_cast<std::uint64_t>(neighbour));
      add_viscosity(here, there, normal, flux);
      add_half_flow(there, normal, flux);
    }
    add_half_flow(here, normal, flux);
  }
  for (unsigned v = 0; v < kVariables; ++v) arrays.fluxes[v * cells + cell] = flux[v];
}

// The start of a time step: how far the cell may go, and what it goes from.
CHECKPOINTING_HOST_DEVICE inline void start_cell(const Arrays& arrays, std::uint64_t cell) {
  const State state = load(arrays.variables, arrays.cells, cell);
  arrays.step_factors[cell] = 0.5f / (sqrtf(arrays.areas[cell]) * (state.speed + state.sound));
  for (unsigned v = 0; v < kVariables; ++v) {
    arrays.old_variables[v * arrays.cells + cell] = arrays.variables[v * arrays.cells + cell];
  }
}

// A stage of the scheme, from 0. REQUIRES: fluxes of the stage's variables.
CHECKPOINTING_HOST_DEVICE inline void advance_cell(const Arrays& arrays, unsigned stage,
                                                   std::uint64_t cell) {
  const float factor = arrays.step_factors[cell] / static_cast<float>(kStages - stage);
  for (unsigned v = 0; v < kVariables; ++v) {
    const std::uint64_t i = v * arrays.cells + cell;
    arrays.variables[i] = arrays.old_variables[i] + factor * arrays.fluxes[i];
  }
}

}  // namespace cfd
