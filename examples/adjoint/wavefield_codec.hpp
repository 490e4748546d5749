// Wavefields in half the bytes or fewer, on the device.
//
// A field is cut into blocks of 64 values. A block has a scale and 64 numbers of 16 bits; one that
// is quieter than a quantum of the loudest block is left out, as all are that no wave has come to.
// So the size of a packed field grows with the wave: 8 bytes a block, and 128 for each that is
// kept.
//
// Layout: u32 place[blocks] (kDropped for one that is left out), f32 scale[blocks], i16 values of
// the blocks that are kept, in order.
//
// Invariant: no value is wrong by more than max |field| / 65534, but for the rounding of float and
// for subnormal numbers. The same field gives the same bytes.
// Tested by codec_test.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"

namespace adjoint {

inline constexpr std::uint32_t kBlockValues = 64;

// Thread safety: one thread, one stream at a time. Real is float or double.
template <class Real>
class WavefieldCodec {
 public:
  explicit WavefieldCodec(std::uint32_t values);

  // Packs a field into packed(); the bytes that this took. Waits for the stream.
  std::uint64_t pack(holdfast::Stream& stream, const Real* field);
  // Unpacks what packed() holds, of which `bytes` count. Stream-ordered. What no pack() has made
  // gives some field. Throws invalid_argument if no field packs into so many bytes.
  void unpack(holdfast::Stream& stream, std::uint64_t bytes, Real* field);

  unsigned char* packed() const { return packed_.data(); }
  std::uint64_t least_bytes() const { return std::uint64_t{blocks_} * 8; }
  std::uint64_t most_bytes() const { return packed_.bytes(); }

 private:
  std::uint32_t values_, blocks_;
  holdfast::DeviceBuffer<unsigned char> packed_;
  holdfast::DeviceBuffer<Real> peaks_;          // of each block
  holdfast::PinnedBuffer<std::uint32_t> kept_;  // one number
};

}  // namespace adjoint
