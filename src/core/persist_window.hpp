// The time during which a GPU's writes bypass the processor's cache: persist_begin() to
// persist_end().
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "holdfast/platform.hpp"

namespace holdfast {

// Invariant: DDIO is switched back on by the last end() if and only if the first begin() switched
// it off. Thread safety: any thread.
class PersistWindow {
 public:
  explicit PersistWindow(Platform platform) : platform_(std::move(platform)) {}

  // `gpu` is a PCI address; empty: there is none, and only the nesting is counted. On an error
  // nothing was opened.
  void begin(const std::string& gpu);
  // On an error the window is closed and DDIO stays off: slower, but no promise is broken.
  void end();

 private:
  bool needed(const std::string& gpu) const;
  // False if it was off before.
  bool switch_off(const std::string& gpu) const;

  Platform platform_;
  std::mutex mutex_;
  unsigned depth_ = 0;
  std::string switched_;  // the GPU whose port was switched, or empty
};

}  // namespace holdfast
