#include "core/region_kernels.hpp"

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

__global__ void store_words_kernel(std::uint32_t* words, std::size_t count, std::uint32_t value,
                                   PageMarks marks) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  words[i] = value + static_cast<std::uint32_t>(i);
  marks.mark(&words[i], sizeof words[i]);
  persist();
}

__global__ void fault_kernel(std::uint32_t* nowhere) { *nowhere = 1; }

}  // namespace

void store_words(Stream& stream, std::uint32_t* words, std::size_t count, std::uint32_t value,
                 PageMarks marks) {
  launch(stream, blocks_for(count, 256), 256, store_words_kernel, words, count, value, marks);
}

void fault(Stream& stream) {
  launch(stream, dim3(1), dim3(1), fault_kernel, reinterpret_cast<std::uint32_t*>(std::size_t{64}));
}

}  // namespace holdfast::test
