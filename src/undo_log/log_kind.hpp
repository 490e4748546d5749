// What a transaction needs of a log, whatever its kind. An undo log is the one there is; a redo log
// would be another (docs/architecture.md, "Logs in one frame").
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/transaction.hpp"

namespace holdfast {

// What the kernels of a transaction share, in device memory.
struct TransactionWords {
  std::uint32_t tag;       // of the current epoch
  std::uint32_t failures;  // inserts since begin() that were not ok
  std::uint32_t stuck;     // a commit met failures: nothing moves until they are taken back
  std::uint64_t state;     // what the medium's word holds
};

// A log that a transaction owns, with its volatile part. A log does not know when the epoch moves:
// what it stored in another one must not count by what stands in it, the tag.
class OwnedLog {
 public:
  virtual ~OwnedLog() = default;
  virtual const std::string& name() const = 0;
  virtual std::uint64_t bytes() const = 0;  // of its object
  // Tags start over: makes what was stored in the last round count no more. Stream-ordered; nothing
  // happens where words->stuck.
  virtual void sweep(Stream& stream, const TransactionWords* words) = 0;
};

struct LogKind {
  const char* type;  // of its objects
  // The log in an object of that type, validated; null if it belongs to another transaction, or its
  // creation was cut off. Throws damaged.
  std::shared_ptr<OwnedLog> (*open)(Region& region, const ObjectInfo& object,
                                    std::string_view transaction, TransactionWords* words);
};

extern const LogKind kUndoLogKind;

}  // namespace holdfast
