// The layout in place: a set-associative table in the region, changed under an undo log.
#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/growth.hpp"
#include "core/reason.hpp"
#include "core/stream_end.hpp"
#include "durable/creation.hpp"
#include "durable/removal.hpp"
#include "holdfast/durable.hpp"
#include "kv_store/audit.hpp"
#include "kv_store/batch.hpp"
#include "kv_store/impl.hpp"
#include "kv_store/kernels.hpp"
#include "kv_store/read_copy.hpp"
#include "kv_store/rules.hpp"

namespace holdfast::kv {
namespace {

using detail::concat;

constexpr const char* kTable = "table";
// A store with a larger table that is being made, or with the smaller one that it was made for.
constexpr const char* kGrown = "kvs.grown";
constexpr std::uint64_t kMaxBuckets = std::uint64_t{1} << 32;
constexpr std::uint32_t kPartitions = 1024;  // of the conventional log
constexpr std::uint32_t kMaxPartitionedBatch =
    LogShape::kMaxSlotBytes / sizeof(LogEntry) * kPartitions;

// Every position of a batch logs one entry at most, so neither layout is ever full.
LogShape log_shape(std::uint64_t max_batch, LogLayout layout) {
  const auto threads = static_cast<std::uint32_t>((max_batch + kBlock - 1) / kBlock * kBlock);
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

StoreParameters parameters_of(const KvStore::Options& options) {
  if (options.log_records != 0) {
    throw Error(Errc::invalid_argument,
                concat("store: log_records ", options.log_records,
                       " and the layout in_place, which has no log of records: leave it 0, or give "
                       "Layout::log"));
  }
  if (options.capacity == 0 || options.capacity > kMaxBuckets * kWays) {
    throw Error(Errc::invalid_argument, concat("store: capacity ", options.capacity, "; give 1 to ",
                                               kMaxBuckets * kWays, " pairs"));
  }
  return {std::bit_ceil((options.capacity + kWays - 1) / kWays), options.max_batch, options.log};
}

// Makes its caller the one user of the region's store in this process. For lookups: they ask no
// transaction, and a copy of the table has nothing of another store's batches.
core::Use take_over(const Region& region, const char* store = kName) {
  return core::RegionAccess::take_over(region, concat(store, ".", kTable));
}

// A store's device memory.
struct Buffers {
  Buffers(const Region& region, const StoreParameters& parameters, KvStore::Cache cache)
      : planner(parameters.max_batch),
        copy(make_copy(cache, parameters.buckets, region.domain() == Domain::device)) {}
  BatchPlanner planner;
  DeviceBuffer<Bucket> copy;  // of the table; may be empty
  DeviceBuffer<Outcome> outcome{1};
  PinnedBuffer<Outcome> outcome_host{1};
  DeviceBuffer<std::uint64_t> values_out;  // made at the first get()
  DeviceBuffer<std::uint8_t> found_out;
};

class InPlaceStore : public KvStore::Impl {
 public:
  InPlaceStore(Region& r, StoreObject o, core::Use user, Buffers b, KvStore::Cache cache)
      : Impl(r, std::move(user), o.parameters().max_batch, where_of(r)),
        object_(std::move(o)),
        buffers_(std::move(b)),
        cache_(cache) {}
  ~InPlaceStore() override {
    try {
      if (loading_) loader_->synchronize();
    } catch (const Error&) {
      // Nobody needs the copy any more.
    }
    end_work();
  }

  void begin_empty() { table_.copy = buffers_.copy.data(); }  // zeroed, as the table is
  void recover();

  KvStore::BatchResult update(const std::uint64_t* keys, const std::uint64_t* values,
                              std::size_t count, const Mixed* mixed) override;
  std::shared_ptr<Impl> grown(std::uint64_t capacity, std::uint64_t log_records) override;
  void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
           std::size_t count) override;
  detail::KvView view() override {
    check_whole();
    await_cache();
    return table_.view();
  }
  std::uint64_t scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit) override;
  std::string verify() override;
  void await_cache() override;
  KvStore::Stats stats() override;

 private:
  bool ordered(std::size_t count, bool updates) const {
    if (order != KvStore::Order::automatic) return order == KvStore::Order::ordered;
    return ordering_pays(table_.bytes(), table_.copy != nullptr, count, updates);
  }
  auto undo_pairs() const { return undo(log_, UndoPair{table_}); }
  auto undo_counters() const { return undo(meta_, PutBack<Counters>{counters_, table_.marks}); }

  void check_whole() const;  // throws device: an earlier call failed
  void carry_out(const std::uint64_t* keys, const std::uint64_t* values, const KvStore::Op* kinds,
                 std::size_t count);
  // Makes a larger table beside this one, and uses it from then on. Where it throws the store is as
  // it was.
  void move_to(const StoreParameters& larger);
  // Begins to load the copy. REQUIRES: the table is as a committed batch left it.
  void load_copy();

  StoreObject object_;  // of the table that it had first
  Transaction& transaction_ = object_.transaction();
  UndoLog log_ = object_.log("log");
  UndoLog meta_ = object_.log("meta");
  Counters* counters_ = object_.part<Counters>("counters").data();
  Table table_{object_.part<Bucket>(kTable).data(), object_.parameters().buckets - 1,
               region.marks()};
  Buffers buffers_;
  KvStore::Cache cache_;          // as asked for
  std::optional<Stream> loader_;  // of the copy, behind other work
  bool loading_ = false;
  std::string broken_;
};

void InPlaceStore::recover() {
  recovery = transaction_.recover(stream, undo_pairs(), undo_counters());
  load_copy();
}

// The new table comes with a store of its own. What is exchanged is the table, and the header,
// which says how large it is: counters, transaction and logs are those of before, and the logs name
// their transaction. So behind it the other store is whole, too, with the smaller table.
void InPlaceStore::move_to(const StoreParameters& larger) {
  DeviceBuffer<Bucket> copy = make_copy(cache_, larger.buckets, region.domain() == Domain::device);
  const StoreObject other =
      core::make_enlarging(region, where, kGrown, StoreObject::bytes(larger),
                           [&] { return StoreObject::create(region, kGrown, larger); });
  const Table table{other.part<Bucket>(kTable).data(), larger.buckets - 1, region.marks(),
                    copy.data()};
  Stream spreading;  // what fails there is no failure of this store's
  const DeviceBuffer<std::uint32_t> strays(1);
  std::uint32_t found = 0;
  {
    const core::StreamEnd end(spreading);
    launch_spread(spreading, table_, table, strays.data());
    copy_async(spreading, &found, strays.data(), sizeof(found));
    spreading.synchronize();
  }
  if (found != 0) {
    throw Error(Errc::damaged,
                concat(where, ": ", found,
                       " of its pairs are in a bucket where their keys do not belong, and would be "
                       "lost: reopen the region from its last commit"));
  }
  std::vector<core::Renaming> names;
  for (const char* const part : {Part::kHeader, kTable}) {
    const std::string mine = concat(kName, ".", part);
    const std::string others = concat(kGrown, ".", part);
    names.insert(names.end(), {{mine, others}, {others, mine}});
  }
  core::Use grown_use = take_over(region, kGrown);
  core::RegionAccess::rename(region, names);
  use = std::move(grown_use);
  table_ = table;
  buffers_.copy = std::move(copy);
}

std::shared_ptr<KvStore::Impl> InPlaceStore::grown(std::uint64_t capacity,
                                                   std::uint64_t log_records) {
  check_whole();
  KvStore::Options options;
  options.capacity = std::max(capacity, (table_.mask + 1) * kWays);
  options.log_records = log_records;
  options.max_batch = object_.parameters().max_batch;
  options.log = object_.parameters().log;
  const StoreParameters larger = parameters_of(options);
  if (larger.buckets == table_.mask + 1) return nullptr;
  await_cache();
  drop_in_place_growth(region);
  const auto refuse_foreign = [&](std::string_view part) {
    core::refuse_foreign(region, where, kName, concat(kGrown, ".", part));
  };
  refuse_foreign(Part::kHeader);
  for (const Part& part : larger.parts()) refuse_foreign(part.name);
  finish_creation([&] { move_to(larger); }, [&] { drop_in_place_growth(region); });
  try {
    drop_in_place_growth(region);
  } catch (const std::exception&) {
    // It goes at the next opening.
  }
  return nullptr;
}

KvStore::BatchResult InPlaceStore::update(const std::uint64_t* keys, const std::uint64_t* values,
                                          std::size_t count, const Mixed* mixed) {
  region.check_writable("a batch");
  check_whole();
  check_count(count);
  if (count == 0) return {};
  await_cache();
  if (mixed != nullptr) buffers_.planner.reserve_mixed();
  try {
    carry_out(keys, values, mixed != nullptr ? mixed->operations : nullptr, count);
  } catch (const std::exception& error) {
    // What is queued uses the caller's arrays. Of the batch the medium may have a part, which the
    // next opening takes back; but a log that is full has been told of, and the batch taken back.
    buffers_.planner.end_work();
    end_work();
    const auto* const known = dynamic_cast<const Error*>(&error);
    if (known == nullptr || known->code() != Errc::log_full) core::keep_reason(broken_, error);
    throw;
  }
  const Outcome done = buffers_.outcome_host[0];
  if (done.reserved_keys != 0) {
    throw Error(Errc::invalid_argument,
                concat("store: ", done.reserved_keys, " operation(s) have the key ", kReservedKey,
                       ", which marks an empty place and cannot be "
                       "stored; nothing of this batch was"));
  }
  return {done.inserted, done.updated, done.evicted, done.removed};
}

void InPlaceStore::check_whole() const {
  if (broken_.empty()) return;
  throw Error(Errc::device,
              concat(where, ": an earlier call failed (", broken_, "): open it again"));
}

// To its end: when it returns, the batch is committed, and its outcome is there.
void InPlaceStore::carry_out(const std::uint64_t* keys, const std::uint64_t* values,
                             const KvStore::Op* kinds, std::size_t count) {
  marks[0].record(stream);
  buffers_.planner.load(stream, keys, values, count, kinds);
  fill_async(stream, buffers_.outcome.data(), 0, sizeof(Outcome));
  marks[1].record(stream);
  const Batch batch =
      buffers_.planner.plan(stream, table_, ordered(count, true), true, buffers_.outcome.data());
  marks[2].record(stream);
  buffers_.planner.choose(stream, table_, batch, buffers_.outcome.data());
  transaction_.begin(stream);
  launch_store(stream, table_, log_, batch, buffers_.outcome.data());
  marks[3].record(stream);
  launch(stream, dim3(1), dim3(1), count_batch, counters_, meta_.conventional(), table_.marks,
         buffers_.outcome.data());
  transaction_.commit(stream);
  marks[4].record(stream);
  copy_async(stream, buffers_.outcome_host.data(), buffers_.outcome.data(), sizeof(Outcome));
  transaction_.finish(stream, undo_pairs(), undo_counters());
}

void InPlaceStore::load_copy() {
  if (buffers_.copy.size() == 0) return;
  loader_.emplace();
  copy_async(*loader_, buffers_.copy.data(), table_.buckets, buffers_.copy.bytes());
  // It stores nothing there, but a region that is let go of meanwhile has to wait for it, too.
  const auto end = std::make_shared<Event>();
  end->record(*loader_);
  region.pending(end);
  loading_ = true;
  table_.copy = buffers_.copy.data();
}

void InPlaceStore::await_cache() {
  if (!loading_) return;
  loader_->synchronize();
  loading_ = false;
}

void InPlaceStore::get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
                       std::size_t count) {
  check_count(count);
  if (count == 0) return;
  check_whole();
  await_cache();
  if (buffers_.values_out.size() == 0) {
    DeviceBuffer<std::uint64_t> values_out(max_batch);
    buffers_.found_out = DeviceBuffer<std::uint8_t>(max_batch);
    buffers_.values_out = std::move(values_out);
  }
  core::StreamEnd end(stream);  // what is queued uses the caller's arrays
  marks[0].record(stream);
  buffers_.planner.load(stream, keys, nullptr, count);
  marks[1].record(stream);
  const Batch batch =
      buffers_.planner.plan(stream, table_, ordered(count, false), false, buffers_.outcome.data());
  marks[2].record(stream);
  const dim3 grid(static_cast<unsigned>((count + kBlock - 1) / kBlock));
  launch(stream, grid, dim3(kBlock), get_from_kvs, table_, batch, buffers_.values_out.data(),
         buffers_.found_out.data());
  marks[3].record(stream);
  copy_async(stream, values, buffers_.values_out.data(), count * sizeof(*values));
  copy_async(stream, found, buffers_.found_out.data(), count);
  marks[4].record(stream);
  stream.synchronize();
  end.has_come();
}

std::uint64_t InPlaceStore::scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit) {
  check_whole();
  std::uint64_t records = 0;
  for_each_bucket(table_, stream, [&](std::uint64_t, const Bucket& bucket) {
    for (const Pair& pair : bucket.ways) {
      if (pair.key == 0) continue;
      if (records < limit && keys) keys[records] = ~pair.key;
      if (records < limit && values) values[records] = pair.value;
      ++records;
    }
  });
  return records;
}

std::string InPlaceStore::verify() {
  check_whole();
  if (transaction_.interrupted()) return "a transaction is open";
  await_cache();
  return audit(table_, stream, stats().records);
}

KvStore::Stats InPlaceStore::stats() {
  Counters read;
  copy_async(stream, &read, counters_, sizeof(read));
  stream.synchronize();
  KvStore::Stats result;
  result.records = read.records;
  result.capacity = (table_.mask + 1) * kWays;
  result.max_batch = max_batch;
  result.batches = read.batches;
  result.cached = table_.copy != nullptr;
  result.log = log_.shape().layout;
  result.total = {read.inserted, read.updated, read.evicted, read.removed};
  return result;
}

}  // namespace

void drop_in_place_growth(Region& region) { drop_remains<StoreObject>(region, kGrown); }

std::shared_ptr<KvStore::Impl> create_in_place(Region& region, const KvStore::Options& options) {
  const StoreParameters parameters = parameters_of(options);
  (void)StoreObject::bytes(parameters);  // refuses parameters before there is memory for them
  Buffers buffers(region, parameters, options.cache);
  StoreObject object = StoreObject::create(region, kName, parameters);
  return finish_creation(
      [&] {
        auto store = std::make_shared<InPlaceStore>(region, std::move(object), take_over(region),
                                                    std::move(buffers), options.cache);
        store->begin_empty();
        return store;
      },
      [&] { StoreObject::remove(region, kName); });
}

std::shared_ptr<KvStore::Impl> open_in_place(Region& region, KvStore::Cache cache) {
  StoreObject object = StoreObject::open(region, kName);
  core::Use use = take_over(region);  // from when its transaction is taken over
  Buffers buffers(region, object.parameters(), cache);
  auto store = std::make_shared<InPlaceStore>(region, std::move(object), std::move(use),
                                              std::move(buffers), cache);
  store->recover();
  if (!region.read_only()) drop_in_place_growth(region);
  return store;
}

void remove_in_place(Region& region) {
  remove_in_use<StoreObject>(region, kName, kTable);
  drop_in_place_growth(region);
}

std::uint64_t in_place_region_bytes(const KvStore::Options& options) {
  return StoreObject::region_bytes(parameters_of(options));
}

}  // namespace holdfast::kv
