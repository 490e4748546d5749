// An undo log as its transaction owns it.
#pragma once

#include <memory>
#include <string>

#include "holdfast/undo_log.hpp"
#include "undo_log/log_kind.hpp"

namespace holdfast {

// The first bytes of a log's object. docs/format.md.
struct LogHeader {
  static constexpr const char* kTypeName = "undo_log";
  static constexpr std::uint64_t kMagic = 0x31474f4c444c4f48ull;  // "HOLDLOG1"
  std::uint64_t magic;  // stored last, 0 while the log is being made
  std::uint32_t layout;
  std::uint32_t slots;
  std::uint32_t slot_words;
  std::uint32_t reserved;
  char transaction[64];    // whose epoch its tails carry
  std::uint64_t checksum;  // of all before it
};
static_assert(sizeof(LogHeader) == 96);

// As it is on the medium: whole warps, and an even number of words. Throws invalid_argument.
LogShape whole_shape(LogShape shape);

struct UndoLog::Impl : OwnedLog {
  // Throws as Transaction::create_log().
  static std::shared_ptr<Impl> create(Region& region, std::string_view name, const LogShape& shape,
                                      std::string_view transaction, TransactionWords* words);
  // As LogKind::open.
  static std::shared_ptr<OwnedLog> open(Region& region, const ObjectInfo& object,
                                        std::string_view transaction, TransactionWords* words);
  // The name of the transaction whose log an object is. Empty: it is no log, or its creation was
  // cut off. Throws damaged.
  static std::string transaction_of(Region& region, const ObjectInfo& object);

  Impl(Region& region, const ObjectInfo& object, const LogShape& shape, TransactionWords* words);

  const std::string& name() const override { return object_name; }
  std::uint64_t bytes() const override { return object_bytes(shape); }
  void sweep(Stream& stream, const TransactionWords* words) override;

  std::uint32_t* tails() const;
  template <LogLayout L>
  LogRef<L> ref() const;

  std::string object_name;
  LogShape shape;  // rounded up
  std::byte* object;
  PageMarks marks;
  TransactionWords* words;
  DeviceBuffer<std::uint32_t> tails_cached;
  DeviceBuffer<std::uint32_t> locks;  // conventional
};

}  // namespace holdfast
