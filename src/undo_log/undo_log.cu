#define XXH_INLINE_ALL
#include "holdfast/undo_log.hpp"

#include <xxhash.h>

#include <cstring>

#include "holdfast/kernel.hpp"
#include "undo_log/medium_store.hpp"
#include "undo_log/transaction_impl.hpp"
#include "undo_log/undo_log_impl.hpp"

namespace holdfast {
namespace {

using detail::concat;

__global__ void zero_tails(std::uint32_t* persistent, std::uint32_t* cached, std::uint32_t slots,
                           const TransactionWords* words, PageMarks marks) {
  const std::uint32_t slot = blockIdx.x * blockDim.x + threadIdx.x;
  if (slot >= slots || words->stuck != 0) return;
  persistent[slot] = 0;
  cached[slot] = 0;
  marks.mark(&persistent[slot], sizeof(std::uint32_t));
  persist();
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

constexpr std::uint64_t kTailsOffset = kPageBytes;

std::uint64_t words_offset(std::uint32_t slots) {
  return kTailsOffset + round_up(std::uint64_t{slots} * sizeof(std::uint32_t), kPageBytes);
}

bool is_layout(LogLayout layout) {
  return layout == LogLayout::coalesced || layout == LogLayout::conventional;
}

void check_shape(const LogShape& shape) {
  if (!is_layout(shape.layout)) {
    throw Error(Errc::invalid_argument,
                concat("undo log of layout ", static_cast<std::uint32_t>(shape.layout),
                       ": give LogLayout::coalesced or LogLayout::conventional"));
  }
  if (shape.slots == 0 || shape.slots > LogShape::kMaxSlots || shape.bytes_per_slot == 0 ||
      shape.bytes_per_slot > LogShape::kMaxSlotBytes) {
    throw Error(Errc::invalid_argument,
                concat("undo log of ", shape.slots, " slots of ", shape.bytes_per_slot,
                       " bytes: give 1 to ", LogShape::kMaxSlots, " slots of 1 to ",
                       LogShape::kMaxSlotBytes, " bytes"));
  }
}

std::uint64_t header_checksum(const LogHeader& header) {
  return XXH3_64bits(&header, offsetof(LogHeader, checksum));
}

LogHeader header_of(const LogShape& shape, std::string_view transaction) {
  LogHeader header{};
  header.magic = LogHeader::kMagic;
  header.layout = static_cast<std::uint32_t>(shape.layout);
  header.slots = shape.slots;
  header.slot_words = shape.bytes_per_slot / 4;
  std::memcpy(header.transaction, transaction.data(), transaction.size());
  header.checksum = header_checksum(header);
  return header;
}

// Whether an object can be a log at all: others may have its type, too.
bool is_log(const ObjectInfo& object) {
  return object.type == LogHeader::kTypeName && object.element_bytes == 1;
}

// REQUIRES: is_log().
LogHeader read_header(Region& region, Stream& stream, const ObjectInfo& object) {
  LogHeader header;
  if (object.bytes() < kTailsOffset) {
    std::memset(&header, 0xff, sizeof(header));  // fits no log
  } else {
    read_back(stream, &header, region.address(object), sizeof(header));
  }
  return header;
}

Error damaged(const Region& region, const ObjectInfo& object, const char* what) {
  return Error(Errc::damaged, concat("undo log '", object.name, "' of region '", region.path(),
                                     "' ", what, "; reopen the region from its last commit"));
}

// Of a log, or all zero: no log, or one that is being made, with nothing in it.
LogHeader sound_header(Region& region, const ObjectInfo& object) {
  if (!is_log(object)) return {};
  Stream stream;
  LogHeader header = read_header(region, stream, object);
  if (header.magic == 0) return {};  // whatever stands behind it is not all of it
  // Whose it is cannot be told, and what it holds may be missed: so it stops every transaction.
  if (header.magic != LogHeader::kMagic || header.checksum != header_checksum(header)) {
    throw damaged(region, object, "has a damaged header");
  }
  header.transaction[sizeof(header.transaction) - 1] = '\0';
  return header;
}

// The shape that a header claims, or none where it fits no object of so many bytes.
bool shape_in(const LogHeader& header, std::uint64_t bytes, LogShape& shape) {
  shape = {static_cast<LogLayout>(header.layout), header.slots, header.slot_words * 4};
  if (!is_layout(shape.layout) || header.slots == 0 || header.slots > LogShape::kMaxSlots ||
      header.slot_words == 0 || header.slot_words > LogShape::kMaxSlotBytes / 4) {
    return false;
  }
  const LogShape whole = whole_shape(shape);
  return whole.slots == shape.slots && whole.bytes_per_slot == shape.bytes_per_slot &&
         UndoLog::object_bytes(shape) == bytes;
}

}  // namespace

// An even number of words keeps a partition's entries 8-byte aligned.
LogShape whole_shape(LogShape shape) {
  check_shape(shape);
  if (shape.layout == LogLayout::coalesced) {
    shape.slots = static_cast<std::uint32_t>(round_up(shape.slots, 32));
  }
  shape.bytes_per_slot = static_cast<std::uint32_t>(round_up(shape.bytes_per_slot, 8));
  return shape;
}

const LogKind kUndoLogKind{LogHeader::kTypeName, UndoLog::Impl::open};

std::uint64_t UndoLog::object_bytes(const LogShape& shape) {
  const LogShape whole = whole_shape(shape);
  return words_offset(whole.slots) + std::uint64_t{whole.slots} * whole.bytes_per_slot;
}

const std::string& UndoLog::name() const { return impl_->object_name; }
const LogShape& UndoLog::shape() const { return impl_->shape; }
CoalescedLogRef UndoLog::coalesced() const {
  const Impl& log = *impl_;
  transaction_->check_ours();
  return log.ref<LogLayout::coalesced>();
}
ConventionalLogRef UndoLog::conventional() const {
  const Impl& log = *impl_;
  transaction_->check_ours();
  return log.ref<LogLayout::conventional>();
}

std::shared_ptr<UndoLog::Impl> UndoLog::Impl::create(Region& region, std::string_view name,
                                                     const LogShape& shape,
                                                     std::string_view transaction,
                                                     TransactionWords* words) {
  const std::uint64_t bytes = UndoLog::object_bytes(shape);
  Stream stream;
  if (region.contains(name) && is_log(region.object(name)) &&
      read_header(region, stream, region.object(name)).magic == 0) {
    region.remove(name);  // a creation that was cut off
  }
  void* const object = region.allocate_raw(name, LogHeader::kTypeName, 1, bytes, Tracking::marked);
  const LogShape whole = whole_shape(shape);
  store_header(region, stream, object, header_of(whole, transaction));
  return std::make_shared<Impl>(region, region.object(name), whole, words);
}

std::shared_ptr<OwnedLog> UndoLog::Impl::open(Region& region, const ObjectInfo& object,
                                              std::string_view transaction,
                                              TransactionWords* words) {
  const LogHeader header = sound_header(region, object);
  if (header.magic == 0 || transaction != header.transaction) return nullptr;
  LogShape shape;
  if (!shape_in(header, object.bytes(), shape)) {
    throw damaged(region, object, "has a header that does not fit its object");
  }
  return std::make_shared<Impl>(region, object, shape, words);
}

std::string UndoLog::Impl::transaction_of(Region& region, const ObjectInfo& object) {
  return sound_header(region, object).transaction;
}

UndoLog::Impl::Impl(Region& region, const ObjectInfo& info, const LogShape& whole,
                    TransactionWords* words)
    : object_name(info.name),
      shape(whole),
      object(static_cast<std::byte*>(region.address(info))),
      marks(region.marks()),
      words(words),
      tails_cached(whole.slots) {
  if (shape.layout == LogLayout::conventional) locks = DeviceBuffer<std::uint32_t>(shape.slots);
  Stream stream;
  copy_async(stream, tails_cached.data(), tails(), tails_cached.bytes());
  stream.synchronize();
}

void UndoLog::Impl::sweep(Stream& stream, const TransactionWords* owner) {
  constexpr unsigned kBlock = 256;
  launch(stream, dim3((shape.slots + kBlock - 1) / kBlock), dim3(kBlock), zero_tails, tails(),
         tails_cached.data(), shape.slots, owner, marks);
}

std::uint32_t* UndoLog::Impl::tails() const {
  return reinterpret_cast<std::uint32_t*>(object + kTailsOffset);
}

template <LogLayout L>
LogRef<L> UndoLog::Impl::ref() const {
  if (shape.layout != L) {
    throw Error(Errc::invalid_argument,
                concat("undo log '", object_name,
                       "': asked for the coalesced view of a conventional log, or the reverse"));
  }
  LogRef<L> view;
  view.words = reinterpret_cast<std::uint32_t*>(object + words_offset(shape.slots));
  view.tails = tails();
  view.tails_cached = tails_cached.data();
  view.locks = locks.data();
  view.tag = &words->tag;
  view.failures = &words->failures;
  view.slots = shape.slots;
  view.slot_words = shape.bytes_per_slot / 4;
  view.marks = marks;
  return view;
}

}  // namespace holdfast
