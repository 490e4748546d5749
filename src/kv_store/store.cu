#include <algorithm>
#include <bit>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/region_access.hpp"
#include "holdfast/durable.hpp"
#include "kv_store/audit.hpp"
#include "kv_store/batch.hpp"
#include "kv_store/kernels.hpp"
#include "kv_store/read_copy.hpp"
#include "kv_store/rules.hpp"

namespace holdfast {
namespace {

using detail::concat;
using kv::Bucket;
using kv::Counters;
using kv::LogEntry;
using kv::Outcome;

constexpr const char* kName = "kvs";
constexpr const char* kTable = "table";
constexpr std::uint32_t kMaxBatch = 1u << 26;
constexpr std::uint64_t kMaxBuckets = std::uint64_t{1} << 32;
constexpr std::uint32_t kPartitions = 1024;  // of the conventional log
constexpr std::uint32_t kMaxPartitionedBatch =
    LogShape::kMaxSlotBytes / sizeof(LogEntry) * kPartitions;

// Every position of a batch logs one entry at most, so neither layout is ever full.
LogShape log_shape(std::uint64_t max_batch, LogLayout layout) {
  const auto threads =
      static_cast<std::uint32_t>((max_batch + kv::kBlock - 1) / kv::kBlock * kv::kBlock);
  if (layout == LogLayout::coalesced) return LogShape::coalesced(threads, sizeof(LogEntry));
  const std::uint32_t partitions = std::min(threads, kPartitions);
  const std::uint32_t sharers = (threads + partitions - 1) / partitions;
  return LogShape::conventional(partitions, static_cast<std::uint32_t>(sharers * sizeof(LogEntry)));
}

// The durable object "kvs". docs/format.md.
struct StoreParameters {
  static constexpr const char* kTypeName = "key-value store";
  static constexpr std::uint32_t kVersion = 2;  // version 1 was no durable object
  std::uint64_t buckets;                        // a power of two
  std::uint32_t max_batch;
  LogLayout log;

  std::vector<Part> parts() const {
    if (!std::has_single_bit(buckets) || buckets > kMaxBuckets) {
      throw Error(Errc::invalid_argument,
                  concat("store: ", buckets, " buckets; there are 2^0 to 2^32"));
    }
    if (max_batch == 0 || max_batch > kMaxBatch) {
      throw Error(Errc::invalid_argument,
                  concat("store: max_batch ", max_batch, "; give 1 to ", kMaxBatch, " operations"));
    }
    if (log == LogLayout::conventional && max_batch > kMaxPartitionedBatch) {
      throw Error(
          Errc::invalid_argument,
          concat("store: max_batch ", max_batch, "; a conventional log takes ",
                 kMaxPartitionedBatch, " operations at most: give fewer, or the coalesced log"));
    }
    return {Part::array<Bucket>(kTable, buckets), Part::array<Counters>("counters", 1),
            Part::transaction(), Part::undo_log("log", log_shape(max_batch, log)),
            Part::undo_log("meta", LogShape::conventional(1, sizeof(Counters)))};
  }
};
using StoreObject = Durable<StoreParameters>;

// `option`: its name; `values`: as messages list them.
template <class Option>
void check_option(const char* option, Option given, std::initializer_list<Option> known,
                  const char* values) {
  if (std::find(known.begin(), known.end(), given) != known.end()) return;
  throw Error(Errc::invalid_argument, concat("store: ", option, " ", static_cast<int>(given),
                                             " is none that there is; give ", values));
}

void check_cache(KvStore::Cache cache) {
  using Cache = KvStore::Cache;
  check_option("cache", cache, {Cache::automatic, Cache::off, Cache::on},
               "Cache::automatic, Cache::off or Cache::on");
}

void check_given(const void* array, std::size_t count, const char* what) {
  if (array != nullptr || count == 0) return;
  throw Error(Errc::invalid_argument, concat("store: ", what));
}

// Refuses a log of no layout here, not by the parameters: those that an earlier build stored with
// one, which made the log a conventional one, still open.
StoreParameters parameters_of(const KvStore::Options& options) {
  check_cache(options.cache);
  check_option("log", options.log, {LogLayout::coalesced, LogLayout::conventional},
               "LogLayout::coalesced or LogLayout::conventional");
  if (options.capacity == 0 || options.capacity > kMaxBuckets * kv::kWays) {
    throw Error(Errc::invalid_argument, concat("store: capacity ", options.capacity, "; give 1 to ",
                                               kMaxBuckets * kv::kWays, " pairs"));
  }
  return {std::bit_ceil((options.capacity + kv::kWays - 1) / kv::kWays), options.max_batch,
          options.log};
}

// Makes its caller the one user of the region's store in this process. For lookups: they ask no
// transaction, and a copy of the table has nothing of another store's batches.
core::Use take_over(const Region& region) {
  return core::RegionAccess::take_over(region, concat(kName, ".", kTable));
}

// A store's device memory.
struct Buffers {
  Buffers(const Region& region, const StoreParameters& parameters, KvStore::Cache cache)
      : planner(parameters.max_batch),
        copy(kv::make_copy(cache, parameters.buckets, region.domain() == Domain::device)) {}
  kv::BatchPlanner planner;
  DeviceBuffer<Bucket> copy;  // of the table; may be empty
  DeviceBuffer<Outcome> outcome{1};
  PinnedBuffer<Outcome> outcome_host{1};
  DeviceBuffer<std::uint64_t> values_out;  // made at the first get()
  DeviceBuffer<std::uint8_t> found_out;
};

}  // namespace

struct KvStore::Impl {
  Region& region;
  std::string where = concat("key-value store '", kName, "' of region '", region.path(), "'");
  StoreObject object;
  core::Use use;
  Transaction& transaction = object.transaction();
  UndoLog log = object.log("log");
  UndoLog meta = object.log("meta");
  Counters* counters = object.part<Counters>("counters").data();
  std::uint64_t max_batch = object.parameters().max_batch;
  kv::Table table{object.part<Bucket>(kTable).data(), object.parameters().buckets - 1,
                  region.marks()};
  Buffers buffers;
  Order order = Order::automatic;
  Stream stream;
  std::optional<Stream> loader;  // of the copy, behind other work
  bool loading = false;
  Event marks[5];
  Recovery recovery;

  Impl(Region& r, StoreObject o, core::Use user, Buffers b)
      : region(r), object(std::move(o)), use(std::move(user)), buffers(std::move(b)) {}

  ~Impl() {
    try {
      if (loading) loader->synchronize();
    } catch (const Error&) {
      // Nobody needs the copy any more.
    }
  }

  // This, for who may use it. Throws closed, and in_use in a forked child.
  Impl& usable() {
    (void)region.path();
    if (use.lasts()) return *this;
    constexpr const char* kSince = ": another of this process has opened it, or its region, since";
    throw Error(Errc::closed, concat(where, kSince, ": use that"));
  }

  bool ordered(std::size_t count, bool updates) const {
    if (order != Order::automatic) return order == Order::ordered;
    return kv::ordering_pays(table.bytes(), table.copy != nullptr, count, updates);
  }

  void check_count(std::size_t count) const {
    if (count <= max_batch) return;
    throw Error(Errc::invalid_argument,
                concat("store: a batch of ", count, " operations; this store takes ", max_batch,
                       " at most (max_batch): split the batch"));
  }

  auto undo_pairs() const { return undo(log, kv::UndoPair{table}); }
  auto undo_counters() const { return undo(meta, PutBack<Counters>{counters, table.marks}); }

  // `values`: null to erase.
  BatchResult update(const std::uint64_t* keys, const std::uint64_t* values, std::size_t count);
  // Begins to load the copy. REQUIRES: the table is as a committed batch left it.
  void load_copy();
  // Returns once it is loaded.
  void await_cache();
};

KvStore::BatchResult KvStore::Impl::update(const std::uint64_t* keys, const std::uint64_t* values,
                                           std::size_t count) {
  region.check_writable("a batch");
  check_count(count);
  if (count == 0) return {};
  await_cache();
  marks[0].record(stream);
  buffers.planner.load(stream, keys, values, count);
  fill_async(stream, buffers.outcome.data(), 0, sizeof(Outcome));
  marks[1].record(stream);
  const kv::Batch batch =
      buffers.planner.plan(stream, table, ordered(count, true), true, buffers.outcome.data());
  marks[2].record(stream);
  buffers.planner.choose(stream, table, batch, buffers.outcome.data());
  transaction.begin(stream);
  kv::launch_store(stream, table, log, batch, buffers.outcome.data());
  marks[3].record(stream);
  launch(stream, dim3(1), dim3(1), kv::count_batch, counters, meta.conventional(), table.marks,
         buffers.outcome.data());
  transaction.commit(stream);
  marks[4].record(stream);
  copy_async(stream, buffers.outcome_host.data(), buffers.outcome.data(), sizeof(Outcome));
  transaction.finish(stream, undo_pairs(), undo_counters());

  const Outcome done = buffers.outcome_host[0];
  if (done.reserved_keys != 0) {
    throw Error(Errc::invalid_argument,
                concat("store: ", done.reserved_keys, " operation(s) have the key ", kReservedKey,
                       ", which marks an empty place and cannot be "
                       "stored; nothing of this batch was"));
  }
  return {done.inserted, done.updated, done.evicted, done.removed};
}

void KvStore::Impl::load_copy() {
  if (buffers.copy.size() == 0) return;
  loader.emplace();
  copy_async(*loader, buffers.copy.data(), table.buckets, buffers.copy.bytes());
  // It stores nothing there, but a region that is let go of meanwhile has to wait for it, too.
  const auto end = std::make_shared<Event>();
  end->record(*loader);
  region.pending(end);
  loading = true;
  table.copy = buffers.copy.data();
}

void KvStore::Impl::await_cache() {
  if (!loading) return;
  loader->synchronize();
  loading = false;
}

KvStore::KvStore(std::shared_ptr<Impl> impl) : impl_(std::move(impl), "store") {}
KvStore::KvStore(KvStore&&) noexcept = default;
KvStore& KvStore::operator=(KvStore&&) noexcept = default;
KvStore::~KvStore() = default;

std::uint64_t KvStore::region_bytes(const KvStore::Options& options) {
  constexpr std::uint64_t kRoom = std::uint64_t{1} << 20;  // for some other objects
  return StoreObject::region_bytes(parameters_of(options)) + kRoom;
}

KvStore KvStore::create(Region& region, const KvStore::Options& options) {
  const StoreParameters parameters = parameters_of(options);
  (void)StoreObject::bytes(parameters);  // refuses parameters before there is memory for them
  Buffers buffers(region, parameters, options.cache);
  StoreObject object = StoreObject::create(region, kName, parameters);
  auto impl =
      std::make_shared<Impl>(region, std::move(object), take_over(region), std::move(buffers));
  impl->table.copy = impl->buffers.copy.data();  // zeroed, as the table is
  return KvStore(std::move(impl));
}

KvStore KvStore::open(Region& region, Cache cache) {
  check_cache(cache);
  StoreObject object = StoreObject::open(region, kName);
  core::Use use = take_over(region);  // from when its transaction is taken over
  Buffers buffers(region, object.parameters(), cache);
  auto impl = std::make_shared<Impl>(region, std::move(object), std::move(use), std::move(buffers));
  impl->recovery =
      impl->transaction.recover(impl->stream, impl->undo_pairs(), impl->undo_counters());
  impl->load_copy();
  return KvStore(std::move(impl));
}

KvStore::BatchResult KvStore::set(const std::uint64_t* keys, const std::uint64_t* values,
                                  std::size_t count) {
  Impl& self = impl_->usable();
  check_given(keys, count, "set() was given no keys: give one for each value");
  check_given(values, count, "set() was given no values: give one for each key, or erase()");
  return self.update(keys, values, count);
}

KvStore::BatchResult KvStore::erase(const std::uint64_t* keys, std::size_t count) {
  Impl& self = impl_->usable();
  check_given(keys, count, "erase() was given no keys: give those that are to go");
  return self.update(keys, nullptr, count);
}

void KvStore::get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
                  std::size_t count) {
  Impl& self = impl_->usable();
  check_given(keys, count, "get() was given no keys: give those to look up");
  check_given(values, count, "get() was given no place for values: give one for each key");
  check_given(found, count, "get() was given no place for found: give one for each key");
  self.check_count(count);
  if (count == 0) return;
  self.await_cache();
  if (self.buffers.values_out.size() == 0) {
    self.buffers.values_out = DeviceBuffer<std::uint64_t>(self.max_batch);
    self.buffers.found_out = DeviceBuffer<std::uint8_t>(self.max_batch);
  }
  self.marks[0].record(self.stream);
  self.buffers.planner.load(self.stream, keys, nullptr, count);
  self.marks[1].record(self.stream);
  const kv::Batch batch = self.buffers.planner.plan(
      self.stream, self.table, self.ordered(count, false), false, self.buffers.outcome.data());
  self.marks[2].record(self.stream);
  const dim3 grid(static_cast<unsigned>((count + kv::kBlock - 1) / kv::kBlock));
  launch(self.stream, grid, dim3(kv::kBlock), kv::get_from_kvs, self.table, batch,
         self.buffers.values_out.data(), self.buffers.found_out.data());
  self.marks[3].record(self.stream);
  copy_async(self.stream, values, self.buffers.values_out.data(), count * sizeof(*values));
  copy_async(self.stream, found, self.buffers.found_out.data(), count);
  self.marks[4].record(self.stream);
  self.stream.synchronize();
}

std::uint64_t KvStore::scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit) {
  Impl& self = impl_->usable();
  std::uint64_t records = 0;
  kv::for_each_bucket(self.table, self.stream, [&](std::uint64_t, const Bucket& bucket) {
    for (const kv::Pair& pair : bucket.ways) {
      if (pair.key == 0) continue;
      if (records < limit && keys) keys[records] = ~pair.key;
      if (records < limit && values) values[records] = pair.value;
      ++records;
    }
  });
  return records;
}

std::string KvStore::verify() {
  Impl& self = impl_->usable();
  if (self.transaction.interrupted()) return "a transaction is open";
  self.await_cache();
  return kv::audit(self.table, self.stream, stats().records);
}

KvStoreRef KvStore::ref() {
  Impl& self = impl_->usable();
  self.await_cache();
  return KvStoreRef(self.table.view());
}

void KvStore::await_cache() { impl_->usable().await_cache(); }

void KvStore::set_order(Order order) {
  Impl& self = impl_->usable();
  check_option("order", order, {Order::automatic, Order::unordered, Order::ordered},
               "Order::automatic, Order::unordered or Order::ordered");
  self.order = order;
}

KvStore::Stats KvStore::stats() const {
  Impl& self = impl_->usable();
  Counters counters;
  copy_async(self.stream, &counters, self.counters, sizeof(counters));
  self.stream.synchronize();
  return {counters.records,
          (self.table.mask + 1) * kv::kWays,
          self.max_batch,
          counters.batches,
          self.table.copy != nullptr,
          self.log.shape().layout,
          {counters.inserted, counters.updated, counters.evicted, counters.removed}};
}

Recovery KvStore::recovery() const { return impl_->usable().recovery; }

KvStore::Timing KvStore::timing() const {
  const Event* const marks = impl_->usable().marks;
  const auto between = [&](int i) {
    return static_cast<double>(Event::elapsed_ms(marks[i], marks[i + 1]));
  };
  return {between(0), between(1), between(2), between(3)};
}

Stream& KvStore::stream() { return impl_->stream; }

}  // namespace holdfast
