// How a workload's results become durable: Holdfast's way and the ways it is measured against.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace workload {

// Source: GPM (ASPLOS '22), sections 3 and 6.1. docs/workloads.md says how each is built here.
enum class Mode {
  gpm,       // kernels store to the medium and persist
  cap_fs,    // copy engine to pinned memory, write(), fsync()
  cap_mm,    // copy engine into the mapped medium, CPU threads flush its cache lines
  ndp,       // kernels store to the medium, CPU threads flush (no direct persistence)
  gpufs,     // kernels call file writes, block by block, which the CPU serves
  cpu,       // no GPU: OpenMP threads compute and persist
  eadr,      // projection: as gpm, with a persistence domain that takes in the caches
  cap_eadr,  // projection: as cap_mm, without the flushes
  // Not in the paper: where the kernel alone knows what it changes, it gathers that in device
  // memory, and CPU threads store it in place. Elsewhere as cap_mm.
  cap_delta,      // behind a redo log: a step is there whole or not at all
  cap_delta_raw,  // without: a step that is cut off is done again
  // Not in the paper: CPU threads persist a step's input, and kernels change device memory alone.
  // Recovery does the steps again. For gpKVS; elsewhere as cap_mm.
  cap_log,
};

const char* to_string(Mode mode) noexcept;
// Empty for a name that is none.
std::optional<Mode> parse_mode(std::string_view name) noexcept;
const std::vector<Mode>& all_modes();

// Kernels store to the medium itself.
constexpr bool stores_directly(Mode mode) {
  return mode == Mode::gpm || mode == Mode::eadr || mode == Mode::ndp;
}
// Kernels persist what they store.
constexpr bool kernel_persists(Mode mode) { return mode == Mode::gpm || mode == Mode::eadr; }
// Kernels gather what they change, where no one else knows it.
constexpr bool gathers(Mode mode) { return mode == Mode::cap_delta || mode == Mode::cap_delta_raw; }

}  // namespace workload
