// The process-wide persist window, for the GPU that the backend uses.
#include "core/persist_window.hpp"
#include "holdfast/platform.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

namespace {

PersistWindow& process_window() {
  static PersistWindow window{Platform()};
  return window;
}

}  // namespace

void persist_begin() { process_window().begin(backend::device_pci_address()); }

void persist_end() { process_window().end(); }

}  // namespace holdfast
