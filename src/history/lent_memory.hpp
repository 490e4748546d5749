// Memory of another process's device, which that lends to this one's history (PartnerMemory).
//
// Once the lender has ended nothing survives in it that this process loses; but what this process
// has mapped it has as long as before, so that what is there can be read still.
//
// Thread safety: none; the history's mutex is over it. Its bytes are moved without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "history/lender_file.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::history {

class LentMemory {
 public:
  // Maps what is lent at `path`, and changes nothing. Throws not_found (nobody lends there, or no
  // longer), invalid_argument (another number of bytes; another's copies; this very process),
  // unsupported (another backend; this device cannot map it), and as LenderFile.
  LentMemory(const std::string& path, std::uint64_t bytes, const std::string& owner);
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  std::byte* data() const { return data_; }
  // Keeps other writers out from here on, and returns the lease that there is. Throws in_use;
  // invalid_argument, not_found as above.
  Lease lock();
  // A new one, in place of the one that there is from the first write on.
  Lease next_lease();
  // Before any byte of this is written: what others have there counts until then. Throws io.
  void begin_writing();
  // What the matter is with the lender; empty: it lends.
  std::string loss();

  // Moves bytes between memory of the host and this, and returns when they are there. Throws what
  // the copy meets.
  void put(std::uint64_t offset, const void* from, std::size_t bytes);
  void get(std::uint64_t offset, void* to, std::size_t bytes);

 private:
  void check_lender();
  LeaseRecord check_owner() const;
  void copy(void* to, const void* from, std::size_t bytes);

  LenderFile file_;
  const std::uint64_t bytes_;
  const std::string owner_;
  std::optional<Lease> next_;  // which the lender's file does not have yet
  std::byte* data_ = nullptr;
  std::optional<Stream> stream_;
};

}  // namespace holdfast::history
