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
  std::uint64_t size = 0;          // bytes
  std::string persistence_domain;  // "cpu_cache" (eADR), "memory_controller" (ADR), or "unknown"
};

// Whether the writes of a PCI device are placed in the processor's cache (Intel DDIO).
struct Ddio {
  std::string root_port;  // PCI address of the root port above the device
  bool enabled = true;
};

class Platform {
 public:
  // `root` stands before every path that is read ("/sys/..."): a test gives a made tree.
  explicit Platform(std::string root = "");

  std::vector<DaxDevice> dax_devices() const;
  // The root port above a PCI device, found by walking up from it. Throws not_found.
  std::string root_port(const std::string& pci_address) const;
  // Nothing if the processor has no DDIO (not Intel) or its state cannot be read.
  std::optional<Ddio> ddio(const std::string& pci_address) const;
  // Switches DDIO of the root port above the device. Throws permission or unsupported.
  void set_ddio(const std::string& pci_address, bool enabled) const;
  // "GenuineIntel", "AuthenticAMD", ...
  std::string processor_vendor() const;
  std::uint64_t memory_lock_limit() const;          // bytes; UINT64_MAX: unlimited
  std::uint64_t folder_bytes_free(const std::string& folder) const;
  std::uint64_t folder_bytes_total(const std::string& folder) const;

 private:
  std::string root_;
};

// GPM's gpm_persist_begin() and gpm_persist_end(): switches DDIO off for the GPU in use and back
// on. Does nothing on machines without DDIO or without a dax domain. Throws permission.
void persist_begin();
void persist_end();

}  // namespace holdfast
