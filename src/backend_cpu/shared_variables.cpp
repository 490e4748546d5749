// Which addresses are in a block's __shared__ memory. Static __shared__ variables are thread_local
// ones of the slot's OS thread.
#include <link.h>

#include <vector>

#include "backend_cpu/events.hpp"
#include "backend_cpu/run.hpp"

namespace holdfast::cpu {
namespace {

struct Range {
  const std::byte* start;
  std::size_t bytes;
  bool contains(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= start && byte < start + bytes;
  }
  std::uint64_t offset_of(const void* address) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - start);
  }
};

// The calling thread's thread_local variables, module by module.
struct ThreadLocals {
  std::vector<Range> ranges;
  bool is_whole = false;  // no module has yet to get its memory, which it does at its first use

  void look() {
    ranges.clear();
    is_whole = true;
    dl_iterate_phdr(
        [](dl_phdr_info* module, std::size_t, void* data) {
          auto& self = *static_cast<ThreadLocals*>(data);
          for (int i = 0; i < module->dlpi_phnum; ++i) {
            const auto& segment = module->dlpi_phdr[i];
            if (segment.p_type != PT_TLS) continue;
            if (module->dlpi_tls_data == nullptr) {
              self.is_whole = false;
            } else {
              self.ranges.push_back(
                  {static_cast<const std::byte*>(module->dlpi_tls_data), segment.p_memsz});
            }
          }
          return 0;
        },
        this);
  }
  std::optional<std::uint64_t> offset_of(const void* address) const {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].contains(address)) return (i + 1) << 40 | ranges[i].offset_of(address);
    }
    return std::nullopt;
  }
};

}  // namespace

bool is_shared(const void* address) noexcept { return shared_offset(address).has_value(); }

std::optional<std::uint64_t> shared_offset(const void* address) noexcept {
  if (t_current == nullptr) return std::nullopt;
  const Slot& slot = *t_current->slot;
  const Range dynamic{static_cast<const std::byte*>(slot.shared_base()),
                      slot.run().shape.shared_bytes};
  if (dynamic.contains(address)) return dynamic.offset_of(address);
  static thread_local ThreadLocals locals;
  if (const auto offset = locals.offset_of(address)) return offset;
  if (locals.is_whole) return std::nullopt;
  locals.look();
  return locals.offset_of(address);
}

}  // namespace holdfast::cpu
