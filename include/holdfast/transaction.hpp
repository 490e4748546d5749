// The transaction flag: one persistent word that says whether a kernel's updates are under way,
// and whose single store commits them and empties every log that belongs to it.
//
// Source: GPM (ASPLOS '22) section 5.2, "Example use of logging". Where GPM clears a flag and then
// every log's tail, here tails carry the flag's epoch, so the store that commits also makes all
// tails stale.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "holdfast/config.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

// On the medium. docs/format.md.
struct TransactionHeader {
  static constexpr const char* kTypeName = "transaction";
  static constexpr std::uint64_t kMagic = 0x315854444c4f48ull;  // "HOLDTX1"
  static constexpr std::uint64_t kActive = 1;                   // between begin and commit
  static constexpr std::uint64_t kSweeping = 2;                 // stale tails are being zeroed
  std::uint64_t magic;
  std::uint64_t state;  // epoch << 2 | flags
};

// Life of a batch:
//   tx.begin(stream);  launch(... log.insert(old); store in place; persist() ...);
//   tx.commit(stream);
// After a crash:
//   if (tx.interrupted()) { launch(undo kernel); tx.roll_back(stream); }
//
// Invariants: a tail counts only if its tag is that of the current epoch; the epoch changes by one
// 8-byte persisted store. Thread safety: one thread at a time.
class Transaction {
 public:
  static Transaction create(Region& region, std::string_view name);
  // Throws not_found, damaged.
  static Transaction open(Region& region, std::string_view name);

  // Stream-ordered. Throws invalid_argument if a transaction is open (begin) or none is (commit).
  void begin(Stream& stream);
  void commit(Stream& stream);

  // Whether a crash cut off a transaction that has not been rolled back yet.
  bool interrupted() const;
  // Ends recovery. REQUIRES: a kernel ordered before it undid and persisted every entry.
  void roll_back(Stream& stream);

  // Empties every log of this transaction, outside of begin and commit.
  void clear_logs(Stream& stream);

  std::string_view name() const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Transaction(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace holdfast
