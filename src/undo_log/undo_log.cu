#define XXH_INLINE_ALL
#include "holdfast/undo_log.hpp"

#include <xxhash.h>

#include <cstring>

#include "holdfast/kernel.hpp"
#include "undo_log/transaction_impl.hpp"

namespace holdfast {
namespace {

// The first bytes of a log's object. docs/format.md.
struct LogHeader {
  static constexpr std::uint64_t kMagic = 0x31474f4c444c4f48ull;  // "HOLDLOG1"
  std::uint64_t magic;
  std::uint32_t layout;
  std::uint32_t slots;
  std::uint32_t slot_words;
  std::uint32_t reserved;
  char transaction[64];    // whose epoch its tails carry
  std::uint64_t checksum;  // of all before it
};
static_assert(sizeof(LogHeader) == 96);

constexpr const char* kTypeName = "undo_log";

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint64_t tails_offset() { return kPageBytes; }

std::uint64_t words_offset(std::uint32_t slots) {
  return tails_offset() + round_up(std::uint64_t{slots} * sizeof(std::uint32_t), kPageBytes);
}

std::uint32_t slot_words_of(const LogShape& shape) {
  // An even number keeps a partition's entries 8-byte aligned.
  return static_cast<std::uint32_t>(round_up((std::uint64_t{shape.bytes_per_slot} + 3) / 4, 2));
}

std::uint32_t whole_warps(const LogShape& shape) {
  return shape.layout == LogLayout::coalesced
             ? static_cast<std::uint32_t>(round_up(shape.slots, 32))
             : shape.slots;
}

void check_shape(const LogShape& shape) {
  if (shape.slots == 0 || shape.slots > LogShape::kMaxSlots || shape.bytes_per_slot == 0 ||
      shape.bytes_per_slot > LogShape::kMaxSlotBytes) {
    throw Error(Errc::invalid_argument,
                detail::concat("undo log of ", shape.slots, " slots of ", shape.bytes_per_slot,
                               " bytes: give 1 to ", LogShape::kMaxSlots, " slots of 1 to ",
                               LogShape::kMaxSlotBytes, " bytes"));
  }
}

std::uint64_t header_checksum(const LogHeader& header) {
  return XXH3_64bits(&header, offsetof(LogHeader, checksum));
}

}  // namespace

struct UndoLog::Impl {
  LogShape shape;
  std::byte* object = nullptr;
  PageMarks marks;
  std::shared_ptr<Transaction::Impl> transaction;
  DeviceBuffer<std::uint32_t> tails_cached;
  DeviceBuffer<std::uint32_t> locks;

  // REQUIRES: shape, object, marks and transaction are set, and the object's tails are there.
  void attach() {
    const std::uint32_t slots = whole_warps(shape);
    tails_cached = DeviceBuffer<std::uint32_t>(slots);
    if (shape.layout == LogLayout::conventional) locks = DeviceBuffer<std::uint32_t>(slots);
    Stream stream;
    copy_async(stream, tails_cached.data(), tails(), tails_cached.bytes());
    stream.synchronize();
    transaction->logs.push_back({tails(), tails_cached.data(), slots, marks});
  }

  std::uint32_t* tails() const { return reinterpret_cast<std::uint32_t*>(object + tails_offset()); }

  template <LogLayout L>
  LogRef<L> ref() const {
    if (shape.layout != L) {
      throw Error(Errc::invalid_argument,
                  "undo log: asked for the coalesced view of a conventional log, or the reverse");
    }
    const std::uint32_t slots = whole_warps(shape);
    LogRef<L> view;
    view.words = reinterpret_cast<std::uint32_t*>(object + words_offset(slots));
    view.tails = tails();
    view.tails_cached = tails_cached.data();
    view.locks = locks.data();
    view.tag = transaction->tag.data();
    view.slots = slots;
    view.slot_words = slot_words_of(shape);
    view.marks = marks;
    return view;
  }
};

std::uint64_t UndoLog::object_bytes(const LogShape& shape) {
  check_shape(shape);
  const std::uint64_t slots = whole_warps(shape);
  return words_offset(static_cast<std::uint32_t>(slots)) +
         slots * slot_words_of(shape) * sizeof(std::uint32_t);
}

UndoLog UndoLog::create(Region& region, std::string_view name, const Transaction& transaction,
                        const LogShape& shape) {
  const std::uint64_t bytes = object_bytes(shape);
  auto impl = std::make_shared<Impl>();
  impl->shape = shape;
  impl->object =
      static_cast<std::byte*>(region.allocate_raw(name, kTypeName, 1, bytes, Tracking::marked));
  impl->marks = region.marks();
  impl->transaction = transaction.impl();

  LogHeader header{};
  header.magic = LogHeader::kMagic;
  header.layout = static_cast<std::uint32_t>(shape.layout);
  header.slots = whole_warps(shape);
  header.slot_words = slot_words_of(shape);
  std::memcpy(header.transaction, transaction.name().data(), transaction.name().size());
  header.checksum = header_checksum(header);
  Stream stream;
  copy_async(stream, impl->object, &header, sizeof(header));
  stream.synchronize();
  region.mark(impl->object, sizeof(header));
  impl->attach();
  return UndoLog(impl);
}

UndoLog UndoLog::open(Region& region, std::string_view name, const Transaction& transaction) {
  const ObjectInfo info = region.object(name);
  const auto refuse = [&](Errc code, const char* what) {
    return Error(code, detail::concat("object '", std::string(name), "' of region '", region.path(),
                                      "' ", what));
  };
  if (info.type != kTypeName || info.bytes() < tails_offset()) {
    throw refuse(Errc::invalid_argument, "is not an undo log");
  }
  auto impl = std::make_shared<Impl>();
  impl->object = static_cast<std::byte*>(region.address(info));
  LogHeader header;
  Stream stream;
  copy_async(stream, &header, impl->object, sizeof(header));
  stream.synchronize();
  if (header.magic != LogHeader::kMagic || header.checksum != header_checksum(header)) {
    throw refuse(Errc::damaged, "has a damaged log header; reopen the region from its last commit");
  }
  const bool coalesced = header.layout == static_cast<std::uint32_t>(LogLayout::coalesced);
  const bool conventional = header.layout == static_cast<std::uint32_t>(LogLayout::conventional);
  impl->shape = {static_cast<LogLayout>(header.layout), header.slots, header.slot_words * 4};
  if ((!coalesced && !conventional) || header.slot_words > LogShape::kMaxSlotBytes / 4 ||
      header.slots == 0 || header.slots > LogShape::kMaxSlots || header.slot_words == 0 ||
      object_bytes(impl->shape) != info.bytes()) {
    throw refuse(Errc::damaged, "has a log header that does not fit its object");
  }
  header.transaction[sizeof(header.transaction) - 1] = '\0';
  if (transaction.name() != header.transaction) {
    throw refuse(Errc::invalid_argument,
                 detail::concat("belongs to transaction '", header.transaction, "', not to '",
                                std::string(transaction.name()), "'")
                     .c_str());
  }
  impl->marks = region.marks();
  impl->transaction = transaction.impl();
  impl->attach();
  return UndoLog(impl);
}

const LogShape& UndoLog::shape() const { return impl_->shape; }
CoalescedLogRef UndoLog::coalesced() const { return impl_->ref<LogLayout::coalesced>(); }
ConventionalLogRef UndoLog::conventional() const { return impl_->ref<LogLayout::conventional>(); }

}  // namespace holdfast
