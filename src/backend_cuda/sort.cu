#include <cub/device/device_radix_sort.cuh>

#include "backend_cuda/check.hpp"
#include "holdfast/sort.hpp"

namespace holdfast {

struct PairSorter::Impl {
  std::size_t max_count = 0;
  DeviceBuffer<std::byte> scratch;
};

namespace {

cudaError_t radix_sort(void* scratch, std::size_t& scratch_bytes, const std::uint32_t* keys_in,
                       std::uint32_t* keys_out, const std::uint32_t* values_in,
                       std::uint32_t* values_out, std::size_t count, unsigned bits,
                       cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, keys_in, keys_out, values_in,
                                         values_out, count, 0, static_cast<int>(bits), stream);
}

}  // namespace

PairSorter::PairSorter(std::size_t max_count) : impl_(std::make_unique<Impl>()) {
  detail::check_sorter(max_count);
  std::size_t bytes = 0;
  HOLDFAST_CUDA(
      radix_sort(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, max_count, 32, nullptr));
  impl_->max_count = max_count;
  impl_->scratch = DeviceBuffer<std::byte>(bytes);
}

PairSorter::~PairSorter() = default;
PairSorter::PairSorter(PairSorter&&) noexcept = default;
PairSorter& PairSorter::operator=(PairSorter&&) noexcept = default;

void PairSorter::sort(Stream& stream, const std::uint32_t* keys_in, std::uint32_t* keys_out,
                      const std::uint32_t* values_in, std::uint32_t* values_out, std::size_t count,
                      unsigned bits) {
  detail::check_sort(count, bits, impl_->max_count);
  if (count == 0) return;
  std::size_t bytes = impl_->scratch.size();
  HOLDFAST_CUDA(radix_sort(impl_->scratch.data(), bytes, keys_in, keys_out, values_in, values_out,
                           count, bits, static_cast<cudaStream_t>(stream.native())));
}

}  // namespace holdfast
