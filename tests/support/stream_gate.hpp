// Holds streams until a test lets them go.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"
#include "support/gate.hpp"

namespace holdfast::test {

// By a host function on the CPU backend. On a GPU by a kernel: CUDA may run the host functions of
// all streams on one thread, and one that waits would hold up those that commits stand on. That
// kernel gives up after ten seconds, so that what waits for it fails instead of hanging.
class StreamGate {
 public:
  StreamGate();
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  // Later work of `stream` waits at the gate. The gate outlives that.
  void hold(Stream& stream);
  void open();
  // Returns once a stream is held.
  void wait_until_reached();

 private:
  enum Word { kReached, kOpen, kWords };
  Gate gate_;
  PinnedBuffer<std::uint32_t> words_{kWords};
};

}  // namespace holdfast::test
