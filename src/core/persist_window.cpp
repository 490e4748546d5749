#include "core/persist_window.hpp"

#include <algorithm>
#include <utility>

namespace holdfast {

bool PersistWindow::needed(const std::string& gpu) const {
  if (gpu.empty() || platform_.processor_vendor() != "GenuineIntel") return false;
  const auto devices = platform_.dax_devices();
  return std::any_of(devices.begin(), devices.end(), [](const DaxDevice& device) {
    return device.persistence_domain != "cpu_cache";
  });
}

void PersistWindow::begin(const std::string& gpu) {
  const std::lock_guard lock(mutex_);
  if (depth_ == 0 && needed(gpu)) {
    const auto ddio = platform_.ddio(gpu);
    if (!ddio || ddio->enabled) {
      platform_.set_ddio(gpu, false);
      switched_ = gpu;
    }
  }
  ++depth_;
}

void PersistWindow::end() {
  const std::lock_guard lock(mutex_);
  if (depth_ == 0) throw Error(Errc::invalid_argument, "persist_end() without persist_begin()");
  if (--depth_ > 0 || switched_.empty()) return;
  platform_.set_ddio(std::exchange(switched_, ""), true);
}

}  // namespace holdfast
