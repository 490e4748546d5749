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

bool PersistWindow::switch_off(const std::string& gpu) const {
  try {
    const auto ddio = platform_.ddio(gpu);
    if (ddio && !ddio->enabled) return false;
    platform_.set_ddio(gpu, false);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    throw Error(Errc::unsupported, detail::concat("cannot switch DDIO: ", error.what()));
  }
}

void PersistWindow::begin(const std::string& gpu) {
  const std::lock_guard lock(mutex_);
  if (depth_ == 0 && needed(gpu) && switch_off(gpu)) switched_ = gpu;
  ++depth_;
}

void PersistWindow::end() {
  const std::lock_guard lock(mutex_);
  if (depth_ == 0) throw Error(Errc::invalid_argument, "persist_end() without persist_begin()");
  if (--depth_ > 0 || switched_.empty()) return;
  platform_.set_ddio(std::exchange(switched_, ""), true);
}

}  // namespace holdfast
