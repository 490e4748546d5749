// Another GPU's memory, without Holdfast: what plain copies between two GPUs take.
#pragma once

#include <cstddef>

namespace score {

// GPUs that this process sees; 1 on the CPU backend.
unsigned gpus_in_sight();

// Memory of the second GPU, to which the first one copies by itself; where there is one GPU, or
// none, of that.
class PeerMemory {
 public:
  explicit PeerMemory(std::size_t bytes);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace score
