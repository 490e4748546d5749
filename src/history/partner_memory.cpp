#include "holdfast/partner_memory.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/files.hpp"
#include "core/guard.hpp"
#include "history/lender_file.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

using detail::concat;

namespace {

void check(const std::string& path, std::uint64_t bytes) {
  if (path.empty() || path.find('\0') != path.npos) {
    throw Error(Errc::invalid_argument,
                "PartnerMemory: its path is empty or has a zero byte: name a file that is free");
  }
  if (bytes == 0) throw Error(Errc::invalid_argument, "PartnerMemory: there is nothing to lend");
}

std::string device_in_words() {
  const std::string address = backend::device_pci_address();
  return address.empty() ? backend::device_name() : concat(backend::device_name(), ", ", address);
}

}  // namespace

struct PartnerMemory::Impl {
  Impl(const std::string& path, std::uint64_t size) : bytes(size) {
    check(path, size);
    history::LenderRecord record{};
    record.bytes = bytes;
    std::strncpy(record.backend, backend::name(), sizeof(record.backend) - 1);
    std::strncpy(record.device, device_in_words().c_str(), sizeof(record.device) - 1);
    address = backend::allocate_exported(bytes, record.handle);
    try {
      file.emplace(history::LenderFile::publish(core::from_anywhere(path), record));
    } catch (...) {
      backend::free_exported(address, bytes, record.handle);
      throw;
    }
  }
  ~Impl() {
    if (!maker.is_this_process()) return;  // the file and the memory are its
    file->withdraw();
    if (!file->has_writer()) backend::free_exported(address, bytes, file->record().handle);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const core::Maker maker;
  const std::uint64_t bytes;
  void* address = nullptr;
  std::optional<history::LenderFile> file;
};

PartnerMemory::PartnerMemory(const std::string& path, std::uint64_t bytes) try
    : impl_(std::make_unique<Impl>(path, bytes)) {
} catch (const std::exception&) {
  core::fail("PartnerMemory()");
}

PartnerMemory::~PartnerMemory() = default;
PartnerMemory::PartnerMemory(PartnerMemory&&) noexcept = default;
PartnerMemory& PartnerMemory::operator=(PartnerMemory&&) noexcept = default;

PartnerMemory::Impl& PartnerMemory::impl() const {
  if (!impl_) detail::throw_moved_from("partner's memory");
  return *impl_;
}

const std::string& PartnerMemory::path() const { return impl().file->path(); }
std::uint64_t PartnerMemory::bytes() const { return impl().bytes; }

}  // namespace holdfast
