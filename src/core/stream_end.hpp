// For functions whose buffers end with them.
#pragma once

#include "holdfast/error.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::core {

// Waits for a stream when it ends, also by an exception: declare it behind the buffers that the
// stream's work uses.
class StreamEnd {
 public:
  explicit StreamEnd(Stream& stream) : stream_(stream) {}
  // The stream was waited for: nothing is left to do, where a wait would be noticed.
  void has_come() noexcept { waits_ = false; }
  ~StreamEnd() {
    if (!waits_) return;
    try {
      stream_.synchronize();
    } catch (const Error&) {
      // Whoever waits for the work itself is told; nothing of it runs any more.
    }
  }
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;

 private:
  Stream& stream_;
  bool waits_ = true;
};

}  // namespace holdfast::core
