// The switch for DDIO in the root ports of Intel Xeon processors.
//
// Source: Intel Xeon Processor Scalable Family datasheet, volume two (registers), perfctrlsts_0:
// bit 7, Use_Allocating_Flow_Wr, says whether writes from the devices below allocate in the
// processor's last-level cache.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast {

struct DdioState {
  enum class Kind {
    on,
    off,
    absent,      // the processor has no such switch
    unknown,     // a root port whose register is not documented
    unreadable,  // the register lies beyond what this process may read
  };
  Kind kind = Kind::absent;
  std::string why;  // for the last three: the cause and the remedy
};

// Whether the register of a root port with this PCI device id (of vendor 8086) is documented.
// Elsewhere the same offset holds something else, which must be neither believed nor written.
bool ddio_register_documented(std::uint16_t device_id);

// `config` is the root port's configuration space in sysfs.
DdioState read_ddio(const std::string& vendor, const std::string& root_port,
                    const std::string& config);

// Throws permission or unsupported, and if the register does not keep the new value.
void write_ddio(const std::string& vendor, const std::string& root_port, const std::string& config,
                bool enabled);

}  // namespace holdfast
