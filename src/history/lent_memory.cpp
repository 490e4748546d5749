#include "history/lent_memory.hpp"

#include <unistd.h>

#include <cstring>

#include "core/uuid.hpp"

namespace holdfast::history {

using holdfast::detail::concat;

LentMemory::LentMemory(const std::string& path, std::uint64_t bytes, const std::string& owner)
    : file_(path), bytes_(bytes), owner_(owner) {
  const LenderRecord& record = file_.record();
  check_lender();
  if (record.bytes != bytes) {
    throw Error(Errc::invalid_argument, concat("'", path, "' lends ", record.bytes,
                                               " bytes: give as many as partner_bytes"));
  }
  if (std::strcmp(record.backend, backend::name()) != 0) {
    throw Error(Errc::unsupported, concat("'", path, "' lends memory of the backend '",
                                          record.backend, "', and this process runs on '",
                                          backend::name(), "': use the same on both sides"));
  }
  if (record.pid == static_cast<std::uint64_t>(::getpid())) {
    throw Error(Errc::invalid_argument,
                concat("'", path,
                       "' is lent by this process itself, with which it would be lost: "
                       "give the path of another's PartnerMemory"));
  }
  (void)check_owner();
  try {
    data_ = static_cast<std::byte*>(backend::import_memory(record.handle, record.pid, bytes));
  } catch (const Error& error) {
    check_lender();
    if (error.code() != Errc::unsupported) throw;
    throw Error(error.code(),
                concat("the memory that '", path, "' lends, of ", file_.lender(),
                       ", cannot be mapped on ", backend::device_name(), ": ", error.what(),
                       "; both have to be devices of one host that reach each other (nvidia-smi "
                       "topo -p2p w), in containers that share their process numbers"));
  }
}

LentMemory::~LentMemory() { backend::release_imported(data_, bytes_); }

void LentMemory::check_lender() {
  const std::string loss = this->loss();
  if (loss.empty()) return;
  throw Error(Errc::not_found,
              concat(loss, ": start it again, or open the history without partner_lender"));
}

LeaseRecord LentMemory::check_owner() const {
  const LeaseRecord record = file_.lease();
  if (record.lease == kNoLease || owner_ == record.owner) return record;
  throw Error(Errc::invalid_argument,
              concat("'", file_.path(), "' has copies of '", record.owner,
                     "', and partner_owner is '", owner_, "': give each rank a lender of its own"));
}

Lease LentMemory::lock() {
  file_.lock_for_writer();
  check_lender();
  return check_owner().lease;
}

Lease LentMemory::next_lease() {
  const core::Uuid random = core::new_uuid();
  Lease lease;
  static_assert(sizeof(random) == sizeof(lease));
  std::memcpy(lease.data(), &random, sizeof(lease));
  next_ = lease;
  return lease;
}

void LentMemory::begin_writing() {
  if (!next_) return;
  file_.set_lease(*next_, owner_);
  next_.reset();
}

std::string LentMemory::loss() {
  if (file_.is_lent()) return {};
  return concat("the memory that '", file_.path(), "' lent is gone, since ", file_.lender(),
                " has ended or has taken it back");
}

void LentMemory::put(std::uint64_t offset, const void* from, std::size_t bytes) {
  begin_writing();
  copy(data_ + offset, from, bytes);
}

void LentMemory::get(std::uint64_t offset, void* to, std::size_t bytes) {
  copy(to, data_ + offset, bytes);
}

void LentMemory::copy(void* to, const void* from, std::size_t bytes) {
  if (!stream_) stream_.emplace();
  copy_async(*stream_, to, from, bytes);
  stream_->synchronize();
}

}  // namespace holdfast::history
