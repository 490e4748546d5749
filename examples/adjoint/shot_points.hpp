// Points that a shot can be gone on from, after the process was killed: of a store whose snapshots
// outlive it.
//
// A point of the forward pass is behind a whole number of steps of the image and holds the state
// there, and the traces since the point before. One of the backward pass holds the adjoint, the
// sums and the misfit. With them, and with the snapshots that are there still, the shot goes on
// bit for bit as if nobody had killed it. Points are at every so many steps of the image.
//
// Tested by: resume_within_test, with kills in both passes, and with what is missing or damaged.
#pragma once

#include <cstdint>
#include <span>

#include "holdfast/checkpoint.hpp"
#include "holdfast/stream.hpp"

namespace adjoint {

enum class Pass : std::uint8_t { forward, backward };

struct PointArray {
  const char* name;
  void* data;
  std::uint64_t bytes;
  holdfast::BufferMemory memory = holdfast::BufferMemory::device;
};

// Steps of the image, by number. The forward pass goes on from the state of `from`; the backward
// pass needs 0 to `left` - 1 yet, and begins where the point of `left` is, if that is not the
// number of all.
struct ShotPlace {
  std::uint64_t from = 0;
  std::uint64_t left = 0;
};

// Thread safety: as that of the store.
class ShotPoints {
 public:
  virtual ~ShotPoints() = default;

  // Steps of the image from a point to the next.
  virtual std::uint64_t interval() const = 0;
  // A shot of so many steps of the image begins: what is there of it. What is there of others is
  // discarded. Before plan().
  virtual ShotPlace begin(std::uint64_t shot, std::uint64_t steps) = 0;
  // Saves the arrays as the stream leaves them.
  virtual void save(Pass pass, std::uint64_t step, std::span<const PointArray> arrays,
                    holdfast::Stream& stream) = 0;
  // Loads them, in stream order. False: the point was damaged, and is there no more.
  virtual bool load(Pass pass, std::uint64_t step, std::span<const PointArray> arrays,
                    holdfast::Stream& stream) = 0;
  // Discards all: the shot's sums are kept elsewhere.
  virtual void forget() = 0;
};

}  // namespace adjoint
