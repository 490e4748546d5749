#include "adjoint/wavefield_codec.hpp"

#include "holdfast/error.hpp"
#include "holdfast/kernel.hpp"

namespace adjoint {

using holdfast::Errc;
using holdfast::Error;
using holdfast::Stream;

namespace {

constexpr std::uint32_t kDropped = ~std::uint32_t{0};
constexpr int kMost = 32767;  // of a packed number
constexpr unsigned kThreads = 256;

// Of a packed field.
struct Parts {
  std::uint32_t values, blocks;
  std::uint32_t* place;
  float* scale;
  std::int16_t* numbers;
};

// A block's values: [first, end).
struct Span {
  std::uint32_t first, end;
};
__device__ Span span_of(const Parts& parts, std::uint32_t block) {
  const std::uint32_t first = block * kBlockValues;
  return {first, parts.values - first < kBlockValues ? parts.values : first + kBlockValues};
}

template <class Real>
__global__ void find_peaks(Parts parts, const Real* field, Real* peaks) {
  const std::uint32_t block = blockIdx.x * blockDim.x + threadIdx.x;
  if (block >= parts.blocks) return;
  const Span span = span_of(parts, block);
  Real peak = 0;
  for (std::uint32_t i = span.first; i < span.end; ++i) {
    const Real size = field[i] < 0 ? -field[i] : field[i];
    if (size > peak) peak = size;
  }
  peaks[block] = peak;
}

// One block of threads. Each looks at a part of the blocks, in order, so that what is kept lies in
// order, too.
template <class Real>
__global__ void choose_blocks(Parts parts, const Real* peaks, std::uint32_t* kept) {
  __shared__ Real loudest[kThreads];
  __shared__ std::uint32_t counts[kThreads];
  const std::uint32_t each = (parts.blocks + kThreads - 1) / kThreads;
  const std::uint32_t first = threadIdx.x * each;
  const std::uint32_t end = first + each < parts.blocks ? first + each : parts.blocks;
  loudest[threadIdx.x] = 0;
  for (std::uint32_t b = first; b < end; ++b) {
    if (peaks[b] > loudest[threadIdx.x]) loudest[threadIdx.x] = peaks[b];
  }
  __syncthreads();
  Real peak = 0;
  for (unsigned i = 0; i < kThreads; ++i) peak = loudest[i] > peak ? loudest[i] : peak;
  const Real level = peak / Real(2 * kMost);
  std::uint32_t count = 0;
  for (std::uint32_t b = first; b < end; ++b) count += peaks[b] > level ? 1 : 0;
  counts[threadIdx.x] = count;
  __syncthreads();
  std::uint32_t place = 0;
  for (unsigned i = 0; i < threadIdx.x; ++i) place += counts[i];
  for (std::uint32_t b = first; b < end; ++b) {
    const bool keep = peaks[b] > level;
    parts.place[b] = keep ? place++ : kDropped;
    parts.scale[b] = keep ? static_cast<float>(peaks[b] / Real(kMost)) : 0.0f;
  }
  if (threadIdx.x == kThreads - 1) *kept = place;
}

template <class Real>
__global__ void quantise(Parts parts, const Real* field) {
  const std::uint32_t block = blockIdx.x * blockDim.x + threadIdx.x;
  if (block >= parts.blocks || parts.place[block] == kDropped) return;
  const Span span = span_of(parts, block);
  const Real scale = parts.scale[block];
  std::int16_t* const to = parts.numbers + std::uint64_t{parts.place[block]} * kBlockValues;
  for (std::uint32_t i = 0; i < kBlockValues; ++i) {
    const Real value = span.first + i < span.end ? field[span.first + i] / scale : Real(0);
    // To the nearest; what is no number, which a scale that underflows makes, is nothing.
    const Real nearest = value < 0 ? value - Real(0.5) : value + Real(0.5);
    to[i] = nearest >= Real(kMost)    ? kMost
            : nearest <= Real(-kMost) ? -kMost
            : nearest == nearest      ? static_cast<std::int16_t>(nearest)
                                      : 0;
  }
}

template <class Real>
__global__ void restore_values(Parts parts, std::uint32_t kept, Real* field) {
  const std::uint32_t block = blockIdx.x * blockDim.x + threadIdx.x;
  if (block >= parts.blocks) return;
  const Span span = span_of(parts, block);
  const bool there = parts.place[block] < kept;
  const Real scale = there ? parts.scale[block] : Real(0);
  const std::uint64_t from = there ? std::uint64_t{parts.place[block]} * kBlockValues : 0;
  for (std::uint32_t i = span.first; i < span.end; ++i) {
    field[i] = there ? scale * Real(parts.numbers[from + (i - span.first)]) : Real(0);
  }
}

Parts parts_of(unsigned char* packed, std::uint32_t values, std::uint32_t blocks) {
  auto* const place = reinterpret_cast<std::uint32_t*>(packed);
  auto* const scale = reinterpret_cast<float*>(place + blocks);
  return {values, blocks, place, scale, reinterpret_cast<std::int16_t*>(scale + blocks)};
}

constexpr std::uint64_t kKeptBytes = kBlockValues * sizeof(std::int16_t);

}  // namespace

template <class Real>
WavefieldCodec<Real>::WavefieldCodec(std::uint32_t values)
    : values_(values),
      blocks_((values + kBlockValues - 1) / kBlockValues),
      packed_(blocks_ * (8 + kKeptBytes)),
      peaks_(blocks_),
      kept_(1) {}

template <class Real>
std::uint64_t WavefieldCodec<Real>::pack(Stream& stream, const Real* field) {
  const Parts parts = parts_of(packed_.data(), values_, blocks_);
  const dim3 grid(holdfast::blocks_for(blocks_, kThreads));
  holdfast::launch(stream, grid, dim3(kThreads), find_peaks<Real>, parts, field, peaks_.data());
  holdfast::launch(stream, dim3(1), dim3(kThreads), choose_blocks<Real>, parts, peaks_.data(),
                   kept_.data());
  holdfast::launch(stream, grid, dim3(kThreads), quantise<Real>, parts, field);
  stream.synchronize();
  return least_bytes() + std::uint64_t{kept_[0]} * kKeptBytes;
}

template <class Real>
void WavefieldCodec<Real>::unpack(Stream& stream, std::uint64_t bytes, Real* field) {
  if (bytes < least_bytes() || bytes > most_bytes() || (bytes - least_bytes()) % kKeptBytes != 0) {
    throw Error(Errc::invalid_argument,
                holdfast::detail::concat("adjoint: ", bytes, " bytes are no packed field of ",
                                         values_, " values: they take ", least_bytes(), " and ",
                                         kKeptBytes, " for each block that is kept"));
  }
  const auto kept = static_cast<std::uint32_t>((bytes - least_bytes()) / kKeptBytes);
  holdfast::launch(stream, dim3(holdfast::blocks_for(blocks_, kThreads)), dim3(kThreads),
                   restore_values<Real>, parts_of(packed_.data(), values_, blocks_), kept, field);
}

template class WavefieldCodec<float>;
template class WavefieldCodec<double>;

}  // namespace adjoint
