#include "undo_log/medium_store.hpp"

#include <cstring>

#include "holdfast/kernel.hpp"

namespace holdfast {
namespace {

__global__ void store_words(std::uint64_t* to, const std::uint64_t* from, std::uint32_t words,
                            PageMarks marks) {
  for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
    to[i] = from[i];
    marks.mark(&to[i], sizeof(to[i]));
  }
  persist();
}

}  // namespace

void store_durably(Region& region, Stream& stream, void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kWarp = 32;
  const std::size_t words = bytes / sizeof(std::uint64_t);
  const PinnedBuffer<std::uint64_t> staged(words);
  std::memcpy(staged.data(), from, bytes);
  launch(stream, dim3(1), dim3(static_cast<unsigned>(words < kWarp ? words : kWarp)), store_words,
         static_cast<std::uint64_t*>(to), static_cast<const std::uint64_t*>(staged.data()),
         static_cast<std::uint32_t>(words), region.marks());
  stream.synchronize();
}

void read_back(Stream& stream, void* to, const void* from, std::size_t bytes) {
  copy_async(stream, to, from, bytes);
  stream.synchronize();
}

}  // namespace holdfast
