// What every layout of the store is to its interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "core/region_access.hpp"
#include "holdfast/kv_store.hpp"

namespace holdfast {

struct KvStore::Impl {
  // `what`: it is, for messages.
  Impl(Region& r, core::Use user, std::uint64_t most, std::string what)
      : region(r), use(std::move(user)), max_batch(most), where(std::move(what)) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // This, for who may use it. Throws closed, and in_use in a forked child.
  Impl& usable();
  void check_count(std::size_t count) const;  // throws invalid_argument
  // Waits for the stream: whatever a layout has in device memory ends before it.
  void end_work() noexcept;

  // The kinds of a batch that has SETs, and may have ERASEs. In pinned memory.
  struct Mixed {
    const Op* operations;
    std::size_t erases;  // how many of them
  };
  // Arguments are checked but for the number of operations. `values`: null to erase. `mixed`: null
  // where all are alike.
  virtual BatchResult update(const std::uint64_t* keys, const std::uint64_t* values,
                             std::size_t count, const Mixed* mixed) = 0;
  // The same of any kinds.
  BatchResult apply(const Op* operations, const std::uint64_t* keys, const std::uint64_t* values,
                    std::size_t count);
  // As KvStore::reserve(): the store that is to take this one's place, or null. Whoever has this
  // one is not its user any more then.
  virtual std::shared_ptr<Impl> grown(std::uint64_t capacity, std::uint64_t log_records) = 0;
  virtual void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
                   std::size_t count) = 0;
  // For lookups, once all that they read is loaded.
  virtual detail::KvView view() = 0;
  virtual std::uint64_t scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit) = 0;
  virtual std::string verify() = 0;
  virtual void await_cache() = 0;
  virtual Stats stats() = 0;
  virtual Timing timing();

  Region& region;
  core::Use use;
  std::uint64_t max_batch;
  std::string where;
  Order order = Order::automatic;
  PinnedBuffer<Op> kinds;  // of a mixed batch; made at the first one
  Stream stream;
  Event marks[5];
  Recovery recovery;
};

namespace kv {

inline constexpr const char* kName = "kvs";
inline constexpr std::uint32_t kMaxBatch = 1u << 26;

// What messages call the store of a region.
inline std::string where_of(const Region& region) {
  return detail::concat("key-value store '", kName, "' of region '", region.path(), "'");
}

// The layouts. REQUIRES: the options that all layouts have are checked.
std::shared_ptr<KvStore::Impl> create_in_place(Region& region, const KvStore::Options& options);
std::shared_ptr<KvStore::Impl> open_in_place(Region& region, KvStore::Cache cache);
void remove_in_place(Region& region);
// What a growth that was cut off has left, if it is of this layout. May throw std::bad_alloc.
void drop_in_place_growth(Region& region);
std::uint64_t in_place_region_bytes(const KvStore::Options& options);

std::shared_ptr<KvStore::Impl> create_log(Region& region, const KvStore::Options& options);
std::shared_ptr<KvStore::Impl> open_log(Region& region, KvStore::Index index);
void remove_log(Region& region);
void drop_log_growth(Region& region);  // as drop_in_place_growth()
std::uint64_t log_region_bytes(const KvStore::Options& options);
// Whether what is there under the store's name, whole or not, is of the layout log.
bool is_log(const Region& region);

// Of what options are checked by. `option`: its name; `values`: as messages list them.
template <class Option>
void check_option(const char* option, Option given, std::initializer_list<Option> known,
                  const char* values) {
  if (std::find(known.begin(), known.end(), given) != known.end()) return;
  throw Error(Errc::invalid_argument,
              detail::concat("store: ", option, " ", static_cast<int>(given),
                             " is none that there is; give ", values));
}

}  // namespace kv
}  // namespace holdfast
