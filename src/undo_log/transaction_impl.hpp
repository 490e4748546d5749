// What Transaction and UndoLog share.
#pragma once

#include <string>
#include <vector>

#include "holdfast/transaction.hpp"

namespace holdfast {

// Tags run from 1 to kTags and then start over; 0 marks a tail that was never written.
inline constexpr std::uint64_t kTags = 65535;
constexpr std::uint32_t tag_of(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(epoch % kTags) + 1;
}

struct Transaction::Impl {
  // The tails of a log that belongs to this transaction.
  struct Tails {
    std::uint32_t* persistent;
    std::uint32_t* cached;
    std::uint32_t slots;
    PageMarks marks;
  };

  std::string name;
  TransactionHeader* header = nullptr;
  PageMarks marks;
  // The state that the stream will have reached: the host never reads it back from the device.
  std::uint64_t epoch = 0;
  bool active = false;
  bool interrupted = false;
  bool sweep_pending = false;  // found on open: tails must be zeroed before anything is logged
  DeviceBuffer<std::uint32_t> tag;
  std::vector<Tails> logs;

  void set_state(Stream& stream, std::uint64_t flags);
  void advance(Stream& stream);
  void sweep(Stream& stream);
};

}  // namespace holdfast
