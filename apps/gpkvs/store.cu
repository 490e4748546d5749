#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "gpkvs/audit.hpp"
#include "gpkvs/batch.hpp"
#include "gpkvs/kernels.hpp"
#include "gpkvs/read_copy.hpp"
#include "gpkvs/rules.hpp"

namespace gpkvs {
namespace {

// The object "kvs.header". docs/format.md.
struct StoreHeader {
  static constexpr std::uint64_t kMagic = 0x313053564b444c48ull;  // "HLDKVS01"
  std::uint64_t magic;
  std::uint64_t buckets;
  std::uint64_t max_batch;
  std::uint64_t checksum;  // of the three before it
  Counters counters;       // changed by transactions
};

constexpr const char* kHeader = "kvs.header";
constexpr const char* kTable = "kvs.table";
constexpr const char* kTransaction = "kvs.tx";
constexpr const char* kLog = "kvs.log";
constexpr const char* kMeta = "kvs.meta";
constexpr std::uint32_t kMaxBatch = 1u << 26;
constexpr std::uint64_t kMaxBuckets = std::uint64_t{1} << 32;
constexpr std::uint32_t kPartitions = 1024;  // of the conventional log
constexpr std::uint32_t kMaxPartitionedBatch =
    holdfast::LogShape::kMaxSlotBytes / sizeof(LogEntry) * kPartitions;

std::uint64_t header_checksum(const StoreHeader& header) {
  return XXH3_64bits(&header, offsetof(StoreHeader, checksum));
}

void check_options(const StoreOptions& options) {
  if (options.capacity == 0 || options.capacity > kMaxBuckets * kWays) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          holdfast::detail::concat("store: capacity ", options.capacity,
                                                   "; give 1 to ", kMaxBuckets * kWays, " pairs"));
  }
  if (options.max_batch == 0 || options.max_batch > kMaxBatch) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          holdfast::detail::concat("store: max_batch ", options.max_batch,
                                                   "; give 1 to ", kMaxBatch, " operations"));
  }
  if (options.log == holdfast::LogLayout::conventional &&
      options.max_batch > kMaxPartitionedBatch) {
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("store: max_batch ", options.max_batch,
                                 "; a conventional log takes ", kMaxPartitionedBatch,
                                 " operations at most: give fewer, or the coalesced log"));
  }
}

std::uint64_t buckets_for(std::uint64_t capacity) {
  return std::bit_ceil((capacity + kWays - 1) / kWays);
}

// Every position of a batch logs one entry at most, so neither layout is ever full.
holdfast::LogShape log_shape(std::uint64_t max_batch, holdfast::LogLayout layout) {
  const auto threads = static_cast<std::uint32_t>((max_batch + kBlock - 1) / kBlock * kBlock);
  if (layout == holdfast::LogLayout::coalesced) {
    return holdfast::LogShape::coalesced(threads, sizeof(LogEntry));
  }
  const std::uint32_t partitions = std::min(threads, kPartitions);
  const std::uint32_t sharers = (threads + partitions - 1) / partitions;
  return holdfast::LogShape::conventional(partitions,
                                          static_cast<std::uint32_t>(sharers * sizeof(LogEntry)));
}

holdfast::LogShape meta_shape() { return holdfast::LogShape::conventional(1, sizeof(Counters)); }

std::uint64_t pages(std::uint64_t bytes) {
  return (bytes + holdfast::kPageBytes - 1) / holdfast::kPageBytes * holdfast::kPageBytes;
}

// What a creation that was cut off left behind: the header's magic number is stored last.
void remove_remains(holdfast::Region& region) {
  for (const char* name : {kHeader, kTable, kTransaction, kLog, kMeta}) {
    if (region.contains(name)) region.remove(name);
  }
}

// Without the counters: recovery may be about to change them.
StoreHeader read_header(holdfast::Region& region, holdfast::Stream& stream) {
  const holdfast::ObjectInfo info = region.object(kHeader);
  StoreHeader header{};
  if (info.bytes() == sizeof(header)) {
    holdfast::copy_async(stream, &header, region.address(info), offsetof(StoreHeader, counters));
    stream.synchronize();
  }
  return header;
}

}  // namespace

struct Store::Impl {
  holdfast::Region& region;
  holdfast::Transaction transaction;
  holdfast::UndoLog log;
  holdfast::UndoLog meta;
  StoreHeader* header;  // in the region
  Table table;
  std::uint64_t max_batch;
  Order order = Order::automatic;
  holdfast::Stream stream;
  BatchPlanner planner;
  holdfast::DeviceBuffer<Outcome> outcome{1};
  holdfast::PinnedBuffer<Outcome> outcome_host{1};
  holdfast::DeviceBuffer<Bucket> copy;     // of the table; may be empty
  std::optional<holdfast::Stream> loader;  // of the copy, behind other work
  bool loading = false;
  holdfast::DeviceBuffer<std::uint64_t> values_out;  // made at the first get()
  holdfast::DeviceBuffer<std::uint8_t> found_out;
  holdfast::Event marks[5];
  holdfast::Recovery recovery;

  Impl(holdfast::Region& r, holdfast::Transaction tx, holdfast::UndoLog entries,
       holdfast::UndoLog counters, const StoreHeader& shape, Cache cache)
      : region(r),
        transaction(std::move(tx)),
        log(std::move(entries)),
        meta(std::move(counters)),
        header(static_cast<StoreHeader*>(r.address(r.object(kHeader)))),
        table{static_cast<Bucket*>(r.address(r.object(kTable))), shape.buckets - 1, r.marks()},
        max_batch(shape.max_batch),
        planner(static_cast<std::uint32_t>(shape.max_batch)),
        copy(make_copy(cache, shape.buckets, r.domain() == holdfast::Domain::device)) {}

  ~Impl() {
    try {
      if (loading) loader->synchronize();
    } catch (const holdfast::Error&) {
      // Nobody needs the copy any more.
    }
  }

  bool ordered(std::size_t count, bool updates) const {
    if (order != Order::automatic) return order == Order::ordered;
    return ordering_pays(table.bytes(), table.copy != nullptr, count, updates);
  }

  void check_count(std::size_t count) const {
    if (count <= max_batch) return;
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("store: a batch of ", count, " operations; this store takes ",
                                 max_batch, " at most (max_batch): split the batch"));
  }

  auto undo_pairs() const { return holdfast::undo(log, UndoPair{table}); }
  auto undo_counters() const {
    return holdfast::undo(meta, holdfast::PutBack<Counters>{&header->counters, table.marks});
  }

  // `values`: null to erase.
  BatchResult update(const std::uint64_t* keys, const std::uint64_t* values, std::size_t count);
  // Begins to load the copy. REQUIRES: the table is as a committed batch left it.
  void load_copy();
  // Returns once it is loaded.
  void await_cache();
};

BatchResult Store::Impl::update(const std::uint64_t* keys, const std::uint64_t* values,
                                std::size_t count) {
  region.check_writable("a batch");
  check_count(count);
  if (count == 0) return {};
  await_cache();
  marks[0].record(stream);
  planner.load(stream, keys, values, count);
  holdfast::fill_async(stream, outcome.data(), 0, sizeof(Outcome));
  marks[1].record(stream);
  const Batch batch = planner.plan(stream, table, ordered(count, true), true, outcome.data());
  marks[2].record(stream);
  planner.choose(stream, table, batch, outcome.data());
  transaction.begin(stream);
  launch_store(stream, table, log, batch, outcome.data());
  marks[3].record(stream);
  holdfast::launch(stream, dim3(1), dim3(1), count_batch, &header->counters, meta.conventional(),
                   table.marks, outcome.data());
  transaction.commit(stream);
  marks[4].record(stream);
  holdfast::copy_async(stream, outcome_host.data(), outcome.data(), sizeof(Outcome));
  transaction.finish(stream, undo_pairs(), undo_counters());

  const Outcome done = outcome_host[0];
  if (done.reserved_keys != 0) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          holdfast::detail::concat("store: ", done.reserved_keys,
                                                   " operation(s) have the key ", kReservedKey,
                                                   ", which marks an empty place and cannot be "
                                                   "stored; nothing of this batch was"));
  }
  return {done.inserted, done.updated, done.evicted, done.removed};
}

void Store::Impl::load_copy() {
  if (copy.size() == 0) return;
  loader.emplace();
  holdfast::copy_async(*loader, copy.data(), table.buckets, copy.bytes());
  loading = true;
  table.copy = copy.data();
}

void Store::Impl::await_cache() {
  if (!loading) return;
  loader->synchronize();
  loading = false;
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

std::uint64_t Store::region_bytes(const StoreOptions& options) {
  check_options(options);
  // Objects, a page each for the header and the transaction, and the region's own metadata.
  constexpr std::uint64_t kMetadata = std::uint64_t{1} << 20;
  return buckets_for(options.capacity) * sizeof(Bucket) +
         pages(holdfast::UndoLog::object_bytes(log_shape(options.max_batch, options.log))) +
         pages(holdfast::UndoLog::object_bytes(meta_shape())) + 2 * holdfast::kPageBytes +
         kMetadata;
}

Store Store::create(holdfast::Region& region, const StoreOptions& options) {
  check_options(options);
  holdfast::Stream stream;
  if (region.contains(kHeader) && read_header(region, stream).magic == StoreHeader::kMagic) {
    throw holdfast::Error(
        holdfast::Errc::already_exists,
        holdfast::detail::concat("region '", region.path(), "' already holds a store: open it"));
  }
  remove_remains(region);
  const std::uint64_t free = region.size() - region.used();
  if (region_bytes(options) > free + (std::uint64_t{1} << 20)) {
    throw holdfast::Error(
        holdfast::Errc::no_space,
        holdfast::detail::concat("a store of ", options.capacity, " pairs and batches of ",
                                 options.max_batch, " takes a region of ", region_bytes(options),
                                 " bytes; '", region.path(), "' has ", free, " free: grow() it"));
  }
  StoreHeader header{};
  header.magic = StoreHeader::kMagic;
  header.buckets = buckets_for(options.capacity);
  header.max_batch = options.max_batch;
  header.checksum = header_checksum(header);

  region.allocate_raw(kHeader, "kvs_header", sizeof(StoreHeader), 1, holdfast::Tracking::marked);
  region.allocate_raw(kTable, "kvs_bucket", sizeof(Bucket), header.buckets,
                      holdfast::Tracking::marked);
  auto transaction = holdfast::Transaction::create(region, kTransaction);
  auto log = transaction.create_log(region, kLog, log_shape(options.max_batch, options.log));
  auto meta = transaction.create_log(region, kMeta, meta_shape());
  auto impl = std::make_unique<Impl>(region, std::move(transaction), std::move(log),
                                     std::move(meta), header, options.cache);
  impl->table.copy = impl->copy.data();  // zeroed, as the table is
  holdfast::copy_async(stream, &impl->header->buckets, &header.buckets,
                       sizeof(header) - offsetof(StoreHeader, buckets));
  stream.synchronize();
  holdfast::copy_async(stream, &impl->header->magic, &header.magic, sizeof(header.magic));
  stream.synchronize();
  region.mark(impl->header, sizeof(header));
  return Store(std::move(impl));
}

Store Store::open(holdfast::Region& region, Cache cache) {
  holdfast::Stream stream;
  const auto refuse = [&](holdfast::Errc code, const char* what) {
    return holdfast::Error(code, holdfast::detail::concat("region '", region.path(), "' ", what));
  };
  if (!region.contains(kHeader)) {
    throw refuse(holdfast::Errc::not_found, "holds no store: create one in it");
  }
  const StoreHeader header = read_header(region, stream);
  if (header.magic == 0) {
    throw refuse(holdfast::Errc::not_found,
                 "holds a store whose creation was cut off: create it again");
  }
  if (header.magic != StoreHeader::kMagic || header.checksum != header_checksum(header)) {
    throw refuse(holdfast::Errc::damaged,
                 "has a damaged store header; reopen the region from its last commit");
  }
  if (!std::has_single_bit(header.buckets) || header.buckets > kMaxBuckets ||
      header.max_batch == 0 || header.max_batch > kMaxBatch || !region.contains(kTable) ||
      region.object(kTable).bytes() != header.buckets * sizeof(Bucket)) {
    throw refuse(holdfast::Errc::damaged, "has a store header that does not fit its table");
  }
  auto transaction = holdfast::Transaction::open(region, kTransaction);
  auto log = transaction.log(kLog);
  auto meta = transaction.log(kMeta);
  const holdfast::LogShape shape = log_shape(header.max_batch, log.shape().layout);
  if (log.shape().slots < shape.slots || log.shape().bytes_per_slot < shape.bytes_per_slot ||
      meta.shape().layout != holdfast::LogLayout::conventional) {
    throw refuse(holdfast::Errc::damaged, "has undo logs that do not fit its store");
  }
  auto impl = std::make_unique<Impl>(region, std::move(transaction), std::move(log),
                                     std::move(meta), header, cache);
  impl->recovery =
      impl->transaction.recover(impl->stream, impl->undo_pairs(), impl->undo_counters());
  impl->load_copy();
  return Store(std::move(impl));
}

BatchResult Store::set(const std::uint64_t* keys, const std::uint64_t* values, std::size_t count) {
  if (values == nullptr && count != 0) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          "store: set() was given no values: give one for each key, or erase()");
  }
  return impl_->update(keys, values, count);
}

BatchResult Store::erase(const std::uint64_t* keys, std::size_t count) {
  return impl_->update(keys, nullptr, count);
}

void Store::get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
                std::size_t count) {
  Impl& self = *impl_;
  self.check_count(count);
  if (count == 0) return;
  self.await_cache();
  if (self.values_out.size() == 0) {
    self.values_out = holdfast::DeviceBuffer<std::uint64_t>(self.max_batch);
    self.found_out = holdfast::DeviceBuffer<std::uint8_t>(self.max_batch);
  }
  self.marks[0].record(self.stream);
  self.planner.load(self.stream, keys, nullptr, count);
  self.marks[1].record(self.stream);
  const Batch batch = self.planner.plan(self.stream, self.table, self.ordered(count, false), false,
                                        self.outcome.data());
  self.marks[2].record(self.stream);
  const dim3 grid(static_cast<unsigned>((count + kBlock - 1) / kBlock));
  holdfast::launch(self.stream, grid, dim3(kBlock), get_from_kvs, self.table, batch,
                   self.values_out.data(), self.found_out.data());
  self.marks[3].record(self.stream);
  holdfast::copy_async(self.stream, values, self.values_out.data(), count * sizeof(*values));
  holdfast::copy_async(self.stream, found, self.found_out.data(), count);
  self.marks[4].record(self.stream);
  self.stream.synchronize();
}

std::uint64_t Store::scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit) {
  std::uint64_t records = 0;
  for_each_bucket(impl_->table, impl_->stream, [&](std::uint64_t, const Bucket& bucket) {
    for (const Pair& pair : bucket.ways) {
      if (pair.key == 0) continue;
      if (records < limit && keys) keys[records] = ~pair.key;
      if (records < limit && values) values[records] = pair.value;
      ++records;
    }
  });
  return records;
}

std::string Store::verify() {
  Impl& self = *impl_;
  if (self.transaction.interrupted()) return "a transaction is open";
  self.await_cache();
  return audit(self.table, self.stream, stats().records);
}

void Store::await_cache() { impl_->await_cache(); }

void Store::set_order(Order order) { impl_->order = order; }

StoreStats Store::stats() const {
  Counters counters;
  holdfast::copy_async(impl_->stream, &counters, &impl_->header->counters, sizeof(counters));
  impl_->stream.synchronize();
  return {counters.records,
          (impl_->table.mask + 1) * kWays,
          impl_->max_batch,
          counters.batches,
          impl_->table.copy != nullptr,
          impl_->log.shape().layout,
          {counters.inserted, counters.updated, counters.evicted, counters.removed}};
}

holdfast::Recovery Store::recovery() const { return impl_->recovery; }

BatchTiming Store::timing() const {
  const holdfast::Event* const marks = impl_->marks;
  const auto between = [&](int i) {
    return static_cast<double>(holdfast::Event::elapsed_ms(marks[i], marks[i + 1]));
  };
  return {between(0), between(1), between(2), between(3)};
}

holdfast::Stream& Store::stream() { return impl_->stream; }

}  // namespace gpkvs
