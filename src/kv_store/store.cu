// The interface of the store, over whichever layout it has.
#include <algorithm>
#include <span>
#include <utility>

#include "core/guard.hpp"
#include "core/kernel_memory.hpp"
#include "core/stream_end.hpp"
#include "kv_store/impl.hpp"
#include "kv_store/rules.hpp"

namespace holdfast {
namespace {

using detail::concat;

void check_cache(KvStore::Cache cache) {
  using Cache = KvStore::Cache;
  kv::check_option("cache", cache, {Cache::automatic, Cache::off, Cache::on},
                   "Cache::automatic, Cache::off or Cache::on");
}

void check_index(KvStore::Index index) {
  using Index = KvStore::Index;
  kv::check_option("index", index, {Index::automatic, Index::whole, Index::fingerprints},
                   "Index::automatic, Index::whole or Index::fingerprints");
}

// Refuses a log of no layout here, not by the parameters: those that an earlier build stored with
// one, which made the log a conventional one, still open.
void check_options(const KvStore::Options& options) {
  using Layout = KvStore::Layout;
  check_cache(options.cache);
  check_index(options.index);
  kv::check_option("log", options.log, {LogLayout::coalesced, LogLayout::conventional},
                   "LogLayout::coalesced or LogLayout::conventional");
  kv::check_option("layout", options.layout, {Layout::in_place, Layout::log},
                   "Layout::in_place or Layout::log");
}

constexpr const char* kStore = "store";  // as messages call it

void check_given(const void* array, std::size_t count, const char* what) {
  if (array != nullptr || count == 0) return;
  throw Error(Errc::invalid_argument, concat("store: ", what));
}

}  // namespace

KvStore::Impl& KvStore::Impl::usable() {
  (void)region.path();
  if (use.lasts()) return *this;
  throw Error(Errc::closed, concat(where, core::kEnded));
}

void KvStore::Impl::check_count(std::size_t count) const {
  if (count <= max_batch) return;
  throw Error(Errc::invalid_argument,
              concat("store: a batch of ", count, " operations; this store takes ", max_batch,
                     " at most (max_batch): split the batch"));
}

KvStore::Timing KvStore::Impl::timing() {
  const auto between = [&](int i) {
    return static_cast<double>(Event::elapsed_ms(marks[i], marks[i + 1]));
  };
  return {between(0), between(1), between(2), between(3)};
}

KvStore::BatchResult KvStore::Impl::apply(const Op* operations, const std::uint64_t* keys,
                                          const std::uint64_t* values, std::size_t count) {
  check_count(count);
  // Of the host's memory, too: what is counted here has to be what kernels read.
  if (kinds.size() == 0) kinds = PinnedBuffer<Op>(max_batch);
  if (core::in_device_memory(operations, count)) {
    copy_async(stream, kinds.data(), operations, count);
    stream.synchronize();
  } else {
    std::copy_n(operations, count, kinds.data());
  }
  std::size_t erases = 0;
  unsigned bits = 0;  // that any of them has
  for (const Op kind : std::span(kinds.data(), count)) {
    erases += kind == Op::erase;
    bits |= static_cast<unsigned>(kind);
  }
  if (bits > static_cast<unsigned>(Op::erase)) {
    const auto* const none = std::find_if(kinds.data(), kinds.data() + count, [](Op kind) {
      return kind != Op::set && kind != Op::erase;
    });
    throw Error(Errc::invalid_argument,
                concat("store: operation ", none - kinds.data(), " of a batch is ",
                       static_cast<int>(*none), "; give Op::set (0) or Op::erase (1)"));
  }
  const Mixed mixed{kinds.data(), erases};
  core::StreamEnd end(stream);  // what is queued uses `kinds`
  const BatchResult done =
      update(keys, erases == count ? nullptr : values, count, erases == count ? nullptr : &mixed);
  end.has_come();
  return done;
}

void KvStore::Impl::end_work() noexcept { const core::StreamEnd end(stream); }

KvStore::KvStore(std::shared_ptr<Impl> impl) : impl_(std::move(impl), kStore) {}
KvStore::KvStore(KvStore&&) noexcept = default;
KvStore& KvStore::operator=(KvStore&&) noexcept = default;
KvStore::~KvStore() = default;

std::uint64_t KvStore::region_bytes(const KvStore::Options& options) {
  constexpr std::uint64_t kRoom = std::uint64_t{1} << 20;  // for some other objects
  check_options(options);
  return (options.layout == Layout::log ? kv::log_region_bytes(options)
                                        : kv::in_place_region_bytes(options)) +
         kRoom;
}

KvStore KvStore::create(Region& region, const KvStore::Options& options) try {
  check_options(options);
  // Of a store whose removal was cut off, of either layout.
  kv::drop_in_place_growth(region);
  kv::drop_log_growth(region);
  return KvStore(options.layout == Layout::log ? kv::create_log(region, options)
                                               : kv::create_in_place(region, options));
} catch (const std::exception&) {
  core::fail("creating a store");
}

KvStore KvStore::open(Region& region, Cache cache, Index index) try {
  check_cache(cache);
  check_index(index);
  return KvStore(kv::is_log(region) ? kv::open_log(region, index)
                                    : kv::open_in_place(region, cache));
} catch (const std::exception&) {
  core::fail("opening a store");
}

void KvStore::remove(Region& region) {
  region.check_writable("removing a store");
  return kv::is_log(region) ? kv::remove_log(region) : kv::remove_in_place(region);
}

KvStore::BatchResult KvStore::set(const std::uint64_t* keys, const std::uint64_t* values,
                                  std::size_t count) {
  Impl& self = impl_->usable();
  check_given(keys, count, "set() was given no keys: give one for each value");
  check_given(values, count, "set() was given no values: give one for each key, or erase()");
  return self.update(keys, values, count, nullptr);
}

KvStore::BatchResult KvStore::erase(const std::uint64_t* keys, std::size_t count) {
  Impl& self = impl_->usable();
  check_given(keys, count, "erase() was given no keys: give those that are to go");
  return self.update(keys, nullptr, count, nullptr);
}

KvStore::BatchResult KvStore::apply(const Op* operations, const std::uint64_t* keys,
                                    const std::uint64_t* values, std::size_t count) {
  Impl& self = impl_->usable();
  check_given(operations, count, "apply() was given no operations: give one for each key");
  check_given(keys, count, "apply() was given no keys: give one for each operation");
  check_given(values, count, "apply() was given no values: give one for each key, or erase()");
  return self.apply(operations, keys, values, count);
}

void KvStore::get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
                  std::size_t count) {
  Impl& self = impl_->usable();
  check_given(keys, count, "get() was given no keys: give those to look up");
  check_given(values, count, "get() was given no place for values: give one for each key");
  check_given(found, count, "get() was given no place for found: give one for each key");
  self.get(keys, values, found, count);
}

std::uint64_t KvStore::scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit) {
  return impl_->usable().scan(keys, values, limit);
}

std::string KvStore::verify() { return impl_->usable().verify(); }

void KvStore::reserve(std::uint64_t capacity, std::uint64_t log_records) try {
  Impl& self = impl_->usable();
  self.region.check_writable("reserve()");
  if (std::shared_ptr<Impl> grown = self.grown(capacity, log_records)) {
    impl_ = detail::Shared<Impl>(std::move(grown), kStore);
  }
} catch (const std::exception&) {
  core::fail("reserve()");
}

KvStoreRef KvStore::ref() { return KvStoreRef(impl_->usable().view()); }

void KvStore::await_cache() { impl_->usable().await_cache(); }

void KvStore::set_order(Order order) {
  Impl& self = impl_->usable();
  kv::check_option("order", order, {Order::automatic, Order::unordered, Order::ordered},
                   "Order::automatic, Order::unordered or Order::ordered");
  self.order = order;
}

KvStore::Stats KvStore::stats() const { return impl_->usable().stats(); }

Recovery KvStore::recovery() const { return impl_->usable().recovery; }

KvStore::Timing KvStore::timing() const { return impl_->usable().timing(); }

Stream& KvStore::stream() { return impl_->stream; }

}  // namespace holdfast
