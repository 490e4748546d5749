#include "holdfast/transaction.hpp"

#include "holdfast/kernel.hpp"
#include "undo_log/transaction_impl.hpp"

namespace holdfast {
namespace {

__global__ void store_state(TransactionHeader* header, std::uint64_t state, std::uint32_t* tag,
                            std::uint32_t new_tag, PageMarks marks) {
  *tag = new_tag;
  header->state = state;
  marks.mark(header, sizeof(*header));
  persist();
}

__global__ void zero_tails(std::uint32_t* persistent, std::uint32_t* cached, std::uint32_t slots,
                           PageMarks marks) {
  const std::uint32_t slot = blockIdx.x * blockDim.x + threadIdx.x;
  if (slot >= slots) return;
  persistent[slot] = 0;
  cached[slot] = 0;
  marks.mark(&persistent[slot], sizeof(std::uint32_t));
  persist();
}

constexpr unsigned kBlock = 256;

[[noreturn]] void misuse(const std::string& name, const char* what) {
  throw Error(Errc::invalid_argument, detail::concat("transaction '", name, "': ", what));
}

}  // namespace

// Moves the medium's word to the epoch and flags that the host has chosen.
void Transaction::Impl::set_state(Stream& stream, std::uint64_t flags) {
  launch(stream, dim3(1), dim3(1), store_state, header, epoch << 2 | flags, tag.data(),
         tag_of(epoch), marks);
}

// Goes to the next epoch, which makes every tail stale at once. When tags start over, tails of
// the last round would come to life again: they are zeroed under the sweeping flag first, so
// that a crash in between is seen on open.
void Transaction::Impl::advance(Stream& stream) {
  ++epoch;
  active = false;
  interrupted = false;
  if (epoch % kTags != 0) {
    set_state(stream, 0);
    return;
  }
  set_state(stream, TransactionHeader::kSweeping);
  sweep(stream);
}

void Transaction::Impl::sweep(Stream& stream) {
  for (const Tails& log : logs) {
    launch(stream, dim3((log.slots + kBlock - 1) / kBlock), dim3(kBlock), zero_tails,
           log.persistent, log.cached, log.slots, log.marks);
  }
  sweep_pending = false;
  set_state(stream, 0);
}

Transaction Transaction::create(Region& region, std::string_view name) {
  TransactionHeader* const header =
      region.allocate<TransactionHeader>(name, 1, Tracking::marked).data();
  auto impl = std::make_shared<Impl>();
  impl->name = name;
  impl->header = header;
  impl->marks = region.marks();
  impl->tag = DeviceBuffer<std::uint32_t>(1);
  const TransactionHeader fresh{TransactionHeader::kMagic, 0};
  const std::uint32_t tag = tag_of(0);
  Stream stream;
  copy_async(stream, header, &fresh, sizeof(fresh));
  copy_async(stream, impl->tag.data(), &tag, sizeof(tag));
  stream.synchronize();
  region.mark(header, sizeof(*header));
  return Transaction(impl);
}

Transaction Transaction::open(Region& region, std::string_view name) {
  const auto found = region.find<TransactionHeader>(name);
  TransactionHeader header;
  Stream stream;
  copy_async(stream, &header, found.data(), sizeof(header));
  stream.synchronize();
  if (header.magic != TransactionHeader::kMagic || found.size() != 1) {
    throw Error(Errc::damaged,
                detail::concat("object '", std::string(name), "' of region '", region.path(),
                               "' is not a transaction: its magic number does not match; reopen "
                               "the region from its last commit"));
  }
  auto impl = std::make_shared<Impl>();
  impl->name = name;
  impl->header = found.data();
  impl->marks = region.marks();
  impl->epoch = header.state >> 2;
  impl->interrupted = (header.state & TransactionHeader::kActive) != 0;
  impl->sweep_pending = (header.state & TransactionHeader::kSweeping) != 0;
  impl->tag = DeviceBuffer<std::uint32_t>(1);
  const std::uint32_t tag = tag_of(impl->epoch);
  copy_async(stream, impl->tag.data(), &tag, sizeof(tag));
  stream.synchronize();
  return Transaction(impl);
}

void Transaction::begin(Stream& stream) {
  if (impl_->interrupted) misuse(impl_->name, "a crash cut one off: undo it and roll_back() first");
  if (impl_->active)
    misuse(impl_->name, "begin() while one is open: commit() or roll_back() first");
  if (impl_->sweep_pending) impl_->sweep(stream);
  impl_->active = true;
  impl_->set_state(stream, TransactionHeader::kActive);
}

void Transaction::commit(Stream& stream) {
  if (!impl_->active) misuse(impl_->name, "commit() without begin()");
  impl_->advance(stream);
}

bool Transaction::interrupted() const { return impl_->interrupted; }

void Transaction::roll_back(Stream& stream) {
  if (!impl_->active && !impl_->interrupted) misuse(impl_->name, "roll_back() without begin()");
  impl_->advance(stream);
}

void Transaction::clear_logs(Stream& stream) {
  if (impl_->active || impl_->interrupted) {
    misuse(impl_->name, "clear_logs() inside a transaction would lose what undoes it");
  }
  impl_->advance(stream);
}

std::string_view Transaction::name() const { return impl_->name; }

}  // namespace holdfast
