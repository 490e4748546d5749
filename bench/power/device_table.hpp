// The rivals' table: gpKVS's, in device memory alone, changed by kernels that neither log nor
// persist. What changed is gathered for the CPU, which makes it durable behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "holdfast/stream.hpp"
#include "sets.hpp"

namespace power {

inline constexpr std::uint64_t kTablePage = 4096;

// Thread safety: one thread.
class DeviceTable {
 public:
  explicit DeviceTable(const Shape& shape);  // empty; throws no_memory
  ~DeviceTable();

  // Carries out a batch in device memory. Stream-ordered.
  void set(holdfast::Stream& stream, const std::uint64_t* keys, const std::uint64_t* values,
           std::uint32_t count);

  // Pages that changed since the last gather(), in rising order, with their bytes one behind the
  // other. Waits for the stream; numbers and bytes are in pinned memory until the next call.
  struct Pages {
    const std::uint32_t* numbers;
    std::byte* bytes;
    std::uint32_t count;
  };
  Pages gather(holdfast::Stream& stream);

  // A table as its bytes were on the medium, to device memory. Waits.
  void load(holdfast::Stream& stream, const std::byte* bytes);
  // The table's bytes. Waits.
  void save(holdfast::Stream& stream, std::byte* bytes) const;
  std::uint64_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Hands the pairs of a table's bytes to `pair`(key, value).
void for_each_pair(const std::byte* bytes, std::uint64_t size,
                   const std::function<void(std::uint64_t key, std::uint64_t value)>& pair);

// A sum of words in device memory that depends on their places, by a kernel and on the host.
// `first`: the place of the first. The sum of two runs is the sum of their sums.
void launch_checksum(holdfast::Stream& stream, const std::uint64_t* words, std::uint64_t count,
                     std::uint64_t first, unsigned long long* sum);
std::uint64_t checksum(const std::uint64_t* words, std::uint64_t count, std::uint64_t first);

}  // namespace power
