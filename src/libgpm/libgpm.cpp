#include "holdfast/compat/libgpm.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "holdfast/platform.hpp"
#include "holdfast/undo_log.hpp"
#include "libgpm/registry.hpp"

namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::Region;
using holdfast::detail::concat;
using holdfast::gpm::kLog;
using holdfast::gpm::kMostBytes;
using holdfast::gpm::kObject;
using holdfast::gpm::kTransaction;
using holdfast::gpm::make_region;
using holdfast::gpm::OpenLog;
using holdfast::gpm::registry;

constexpr std::uint64_t kMetadataBytes = std::uint64_t{1} << 20;

void set(gpmlog& view, const holdfast::CoalescedLogRef& ref) { view.coalesced = ref; }
void set(gpmlog& view, const holdfast::ConventionalLogRef& ref) { view.conventional = ref; }

gpmlog* keep(Region region, holdfast::Transaction transaction, holdfast::UndoLog log) {
  gpmlog view{};
  view.layout = log.shape().layout;
  log.visit([&](const auto& ref) { set(view, ref); });
  auto open = std::make_unique<OpenLog>(OpenLog{std::move(region), std::move(transaction),
                                                std::move(log), holdfast::DeviceBuffer<gpmlog>(1)});
  holdfast::Stream stream;
  holdfast::copy_async(stream, open->view.data(), &view, sizeof(view));
  stream.synchronize();
  gpmlog* const handle = open->view.data();
  const std::lock_guard lock(registry().mutex);
  registry().logs.emplace(handle, std::move(open));
  return handle;
}

gpmlog* create_log(const char* path, const holdfast::LogShape& shape) {
  std::optional<holdfast::Transaction> transaction;
  std::optional<holdfast::UndoLog> log;
  Region region =
      make_region(path, holdfast::UndoLog::object_bytes(shape) + kMetadataBytes, [&](Region& made) {
        transaction = holdfast::Transaction::create(made, kTransaction);
        log = transaction->create_log(made, kLog, shape);
      });
  return keep(std::move(region), *std::move(transaction), *std::move(log));
}

// The bytes of each slot if `size` bytes are shared out. Throws invalid_argument.
std::uint32_t share(const char* what, std::size_t size, std::int64_t slots) {
  const std::uint64_t each = slots > 0 ? (size + slots - 1) / slots : 0;
  if (slots <= 0 || slots > holdfast::LogShape::kMaxSlots || size == 0 ||
      each > holdfast::LogShape::kMaxSlotBytes) {
    throw Error(Errc::invalid_argument,
                concat(what, ": ", size, " bytes for ", slots, " slots; give 1 to ",
                       holdfast::LogShape::kMaxSlots, " slots and at most ",
                       holdfast::LogShape::kMaxSlotBytes, " bytes for each"));
  }
  return static_cast<std::uint32_t>(each);
}

// Managed: a slot for each thread; else a partition for each block.
holdfast::LogShape shape_of(std::size_t size, int blocks, int threads, bool managed) {
  const std::int64_t slots = blocks > 0 && threads > 0 ? std::int64_t{blocks} * threads : 0;
  const std::uint32_t each =
      share(managed ? "gpmlog_create_hcl" : "gpmlog_create_conv", size, slots);
  const auto count = static_cast<std::uint32_t>(slots);
  return managed ? holdfast::LogShape::coalesced(count, each)
                 : holdfast::LogShape::conventional(count, each);
}

// Of a region with at least `size` bytes.
void* keep_map(Region region, std::size_t size) {
  const auto refuse = [&](Errc code, const std::string& why) {
    const std::string message = concat("gpm_map('", region.path(), "'): ", why);
    region.abandon();
    throw Error(code, message);
  };
  if (!region.contains(kObject)) refuse(Errc::not_found, "the file holds no map");
  const std::uint64_t there = region.object(kObject).bytes();
  if (there < size) {
    refuse(Errc::invalid_argument, concat(size, " bytes asked for; it has ", there));
  }
  void* const address = region.address(region.object(kObject));
  const std::lock_guard lock(registry().mutex);
  registry().maps[address] = {std::make_unique<Region>(std::move(region)), there};
  return address;
}

}  // namespace

void* gpm_map(const char* path, std::size_t size, bool create) {
  if (create && (size == 0 || size > kMostBytes)) {
    throw Error(Errc::invalid_argument, concat("gpm_map('", path, "'): ", size,
                                               " bytes to create; give 1 to ", kMostBytes));
  }
  const auto allocate = [&](Region& made) {
    made.allocate_raw(kObject, "u8", 1, size, holdfast::Tracking::hashed);
  };
  return keep_map(create ? make_region(path, size + kMetadataBytes, allocate) : Region::open(path),
                  size);
}

void* holdfast::gpm::reopen_map(const std::string& path, std::size_t bytes) {
  Region region = Region::open(path);
  if (!region.objects().empty()) return keep_map(std::move(region), 0);
  region.close();
  Region::destroy(path);
  return gpm_map(path.c_str(), bytes, true);
}

void gpm_unmap(const char* path, void* address, std::size_t) {
  std::unique_ptr<Region> region;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().maps.find(address);
    if (found == registry().maps.end()) {
      throw Error(Errc::invalid_argument, concat("gpm_unmap('", path, "'): nothing is mapped at ",
                                                 address, ": give what the mapping gave, once"));
    }
    region = std::move(found->second.region);
    registry().maps.erase(found);
  }
  region->close();
}

void gpm_persist_begin() { holdfast::persist_begin(); }
void gpm_persist_end() { holdfast::persist_end(); }

gpmlog* gpmlog_create_conv(const char* path, std::size_t size, int partitions) {
  return create_log(path, shape_of(size, partitions, 1, false));
}

gpmlog* gpmlog_create_hcl(const char* path, std::size_t size, int blocks, int threads) {
  return create_log(path, shape_of(size, blocks, threads, true));
}

void holdfast::gpm::check_log(std::size_t bytes, int blocks, int threads, bool managed) {
  (void)shape_of(bytes, blocks, threads, managed);
}

gpmlog* gpmlog_open(const char* path) {
  Region region = Region::open(path);
  auto transaction = holdfast::Transaction::open(region, kTransaction);
  auto log = transaction.log(kLog);
  return keep(std::move(region), std::move(transaction), std::move(log));
}

void gpmlog_close(gpmlog* log) {
  std::unique_ptr<OpenLog> open;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().logs.find(log);
    if (found == registry().logs.end()) {
      throw Error(Errc::invalid_argument, "gpmlog_close: not an open log");
    }
    open = std::move(found->second);
    registry().logs.erase(found);
  }
  open->region.close();
}
