// What this machine can promise: persistent memory, the processor's persistence domain, and the
// path that a GPU's writes take. Read from sysfs; nothing is changed but by set_ddio().
//
// Source: GPM (ASPLOS '22) sections 3.1 and 5.1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/error.hpp"

namespace holdfast {

// A persistent-memory device or file system mount.
struct DaxDevice {
  std::string path;                // "/dev/dax0.0" or "/dev/pmem0"
  std::string kind;                // "device-dax" or "fsdax"
  std::uint64_t size = 0;          // bytes; 0: the system does not say
  std::string persistence_domain;  // "cpu_cache" (eADR), "memory_controller" (ADR), or "unknown"
  int numa_node = -1;              // -1: the system does not say
};

// Whether the writes of a PCI device are placed in the processor's cache (Intel DDIO).
struct Ddio {
  std::string root_port;  // PCI address of the root port above the device
  bool enabled = true;
};

// Thread safety: all members may be called from any thread.
class Platform {
 public:
  // `root` stands before every system path that is read ("/sys/...", "/proc/..."): a test gives a
  // made tree.
  explicit Platform(std::string root = "");

  // Sorted by path. Memory that the kernel uses as ordinary RAM is left out, and so is a pmem
  // device that no file system can map directly. Devices that cannot be read are skipped.
  std::vector<DaxDevice> dax_devices() const;
  // The root port above a PCI device, found by walking up from it. Addresses are accepted in any
  // of the usual forms ("01:00.0", "0000:01:00.0", "00000000:01:00.0"). Throws invalid_argument,
  // or not_found: no such device, or no port above it (virtual machines often have none).
  std::string root_port(const std::string& pci_address) const;
  // Nothing if the processor has no DDIO (not Intel), its state cannot be read, or the root port
  // is not of a generation whose register is documented. Throws as root_port().
  std::optional<Ddio> ddio(const std::string& pci_address) const;
  // Why ddio() has nothing, with the remedy if there is one; empty if it has something. Never
  // throws for a missing device: that is an explanation, too.
  std::string ddio_reason(const std::string& pci_address) const;
  // Switches DDIO of the root port above the device. It concerns every device below that port and
  // every process, and lasts until it is switched again or the machine restarts. Throws
  // permission, unsupported, or as root_port().
  void set_ddio(const std::string& pci_address, bool enabled) const;
  // "GenuineIntel", "AuthenticAMD", ...; "unknown" where the system does not say.
  std::string processor_vendor() const;
  std::uint64_t memory_lock_limit() const;  // bytes; UINT64_MAX: unlimited
  // What an unprivileged process may still take, and the size of the whole file system that holds
  // `folder` (as given, not below `root`). Throw not_found, permission, io.
  std::uint64_t folder_bytes_free(const std::string& folder) const;
  std::uint64_t folder_bytes_total(const std::string& folder) const;

  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

// Whether a file's lock keeps a second descriptor of it out in this folder: where it does not, no
// region can live. Tried on a file without a name, or one that is removed at once. Throws
// not_found, permission, no_space, io.
bool locks_hold(const std::string& folder);

// GPM's gpm_persist_begin() and gpm_persist_end(): switches DDIO off for the GPU in use and, if it
// was on before, back on. Calls nest, over all threads of the process. Does nothing on the CPU
// backend and on machines without DDIO, without a dax device, or with eADR on all of them.
//
// persist_begin() throws permission or unsupported where DDIO is on, or may be, and cannot be
// switched; persist_end() throws invalid_argument without a begin.
// CAUTION: the switch is the machine's, the count is the process's. Where several processes share
// a root port, let one of them hold DDIO off for all.
void persist_begin();
void persist_end();

}  // namespace holdfast
