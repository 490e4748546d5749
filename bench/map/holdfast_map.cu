// Our maps as contestants: each batch in the map's own batches, of one operation each.
#include <algorithm>
#include <chrono>
#include <optional>
#include <type_traits>

#include "device_parts.hpp"
#include "holdfast/hash_map.hpp"
#include "holdfast/log_map.hpp"
#include "medium.hpp"

namespace maps {
namespace {

template <unsigned Bytes>
using KeyOf = std::conditional_t<Bytes == 8, std::uint64_t, holdfast::Bytes<Bytes>>;
using holdfast::MapOptions;
using holdfast::MapResult;
using holdfast::MapStatus;

constexpr double kLoad = 0.75;

// The order in which a batch's operations are carried out, as all operations of one kind are one
// batch of the map. What is read is read first; what is read and updated stands between both.
enum : std::uint32_t { kFind, kReadAndUpdate, kUpdate, kInsert, kErase, kTurns };

__host__ __device__ std::uint32_t turn_of(Op op) {
  switch (op) {
    case Op::find:
      return kFind;
    case Op::read_modify_write:
      return kReadAndUpdate;
    case Op::update:
      return kUpdate;
    case Op::insert:
      return kInsert;
    case Op::erase:
      break;
  }
  return kErase;
}

// A batch by turns.
template <class Key>
struct Rows {
  const Key* keys;
  const std::byte* values;
  std::byte* found;
  const std::uint32_t* numbers;  // of the operations, in the batch; null: they are in its order
  const std::uint32_t* turns;    // null: all have `only`
  std::uint32_t only;
  MapStatus* status;
  std::uint8_t* there;

  __device__ std::uint32_t number(std::uint32_t row) const {
    return numbers != nullptr ? numbers[row] : row;
  }
  __device__ std::uint32_t turn(std::uint32_t row) const {
    return turns != nullptr ? turns[row] : only;
  }
};

__global__ void number_by_turn(Batch batch, std::uint32_t* turns, std::uint32_t* numbers) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch.count) return;
  turns[i] = turn_of(batch.ops[i]);
  numbers[i] = i;
}

// A thread for each chunk of a value, in both.
template <class Key>
__global__ void gather_rows(Batch batch, Rows<Key> rows, Key* keys, std::byte* values) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const auto row = static_cast<std::uint32_t>(thread / kChunks);
  const unsigned chunk = thread % kChunks;
  if (row >= batch.count) return;
  const std::uint32_t from = rows.number(row);
  const std::uint32_t turn = rows.turn(row);
  if (chunk == 0) keys[row] = reinterpret_cast<const Key*>(batch.keys)[from];
  if (turn == kFind || turn == kErase) return;
  chunks_of(values, row)[chunk] = chunks_of(batch.values, from)[chunk];
}

template <class Key>
__global__ void scatter_found(Batch batch, Rows<Key> rows, std::uint32_t reads) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const auto row = static_cast<std::uint32_t>(thread / kChunks);
  const unsigned chunk = thread % kChunks;
  if (row >= reads || rows.there[row] == 0) return;
  chunks_of(batch.found, rows.number(row))[chunk] = chunks_of(rows.found, row)[chunk];
}

// What became of an operation that another one of its key has superseded follows from the other: it
// came before an update, and behind an insert or erase. `not_done`: that may have failed.
__device__ Outcome outcome_of(std::uint32_t turn, MapStatus status, bool there, bool not_done) {
  if (turn == kFind) return there ? Outcome::present : Outcome::absent;
  switch (status) {
    case MapStatus::inserted:
    case MapStatus::absent:
      return Outcome::absent;
    case MapStatus::assigned:
    case MapStatus::kept:
    case MapStatus::erased:
      return Outcome::present;
    case MapStatus::superseded:
      if (turn == kErase) return Outcome::absent;
      if (not_done) return Outcome::failed;
      return there || turn == kInsert ? Outcome::present : Outcome::absent;
    default:
      return Outcome::failed;
  }
}

template <class Key>
__global__ void answer(Batch batch, Rows<Key> rows, bool not_done) {
  const std::uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= batch.count) return;
  const std::uint32_t turn = rows.turn(row);
  const MapStatus status = turn == kFind ? MapStatus{} : rows.status[row];
  const bool there = turn <= kUpdate && rows.there[row] != 0;
  batch.outcomes[rows.number(row)] = outcome_of(turn, status, there, not_done);
}

// Of what was not done, what became of it later.
__global__ void take_again(MapStatus* status, const MapStatus* again, std::uint32_t count) {
  const std::uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= count) return;
  if (status[row] == MapStatus::full || status[row] == MapStatus::no_value)
    status[row] = again[row];
}

// The hash map.
template <class K>
class HashTable : public holdfast::HashMap<K> {
 public:
  using Key = K;
  using Base = holdfast::HashMap<Key>;
  static std::uint64_t capacity_for(std::uint64_t keys) {
    return static_cast<std::uint64_t>(static_cast<double>(keys) / kLoad) + 1;
  }
  HashTable(holdfast::Region& region, bool fresh, const MapOptions& options, bool ordered)
      : Base(fresh ? Base::create(region, "map", options)
                   : Base::open(region, "map",
                                {options.value_bytes, options.max_batch, options.directory})) {
    this->set_order(ordered ? MapOptions::Order::automatic : MapOptions::Order::unordered);
  }
  double seconds_ordering() const { return this->timing().prepare / 1e3; }
};

// The log map, which orders where it pays, whatever it is told. Of a batch that it has no room for
// nothing is done.
class LogTable : public holdfast::LogMap {
 public:
  using Key = std::uint64_t;
  using Base = holdfast::LogMap;
  static std::uint64_t capacity_for(std::uint64_t keys) { return keys; }
  static std::uint64_t region_bytes(const MapOptions& options) {
    return Base::region_bytes(options_of(options));
  }
  LogTable(holdfast::Region& region, bool fresh, const MapOptions& options, bool)
      : Base(fresh ? Base::create(region, "map", options_of(options)) : Base::open(region, "map")) {
  }
  std::uint64_t capacity() const { return stats().capacity; }
  double seconds_ordering() const { return 0; }

  MapResult insert(const Key* keys, const void* values, std::size_t count, MapStatus* status) {
    MapResult result;
    try {
      result.inserted = Base::insert(keys, values, count, status).inserted;
    } catch (const holdfast::Error& error) {
      if (error.code() != holdfast::Errc::no_space) throw;
      holdfast::fill_async(stream(), status, static_cast<int>(MapStatus::full), count);
      result.full = count;
    }
    return result;
  }
  // Of a key that is absent all operations are, so that one that is superseded has a key that is
  // there.
  MapResult assign(const Key* keys, const void* values, std::size_t count, MapStatus* status) {
    MapResult result;
    result.assigned = Base::assign(keys, values, count, status).assigned;
    result.superseded = count - result.assigned;
    return result;
  }
  MapResult erase(const Key* keys, std::size_t count, MapStatus* status) {
    MapResult result;
    result.erased = Base::erase(keys, count, status).erased;
    return result;
  }
  void contains(const Key* keys, std::uint8_t* found, std::size_t count) {
    find(keys, nullptr, found, count);
  }
  void grow() { reserve(2 * capacity()); }
  void migrate(std::uint64_t) {}

 private:
  static Base::Options options_of(const MapOptions& options) {
    Base::Options result;
    result.capacity = options.capacity;
    result.value_bytes = options.value_bytes;
    result.max_batch = options.max_batch;
    return result;
  }
};

template <class Table>
class HoldfastMap : public Contestant {
 public:
  using Key = typename Table::Key;
  using RowsOf = Rows<Key>;
  HoldfastMap(const Setting& setting, const Promise& promise, MapOptions::Directory directory)
      : setting_(setting),
        sorter_(setting.batch),
        turns_(setting.batch),
        sorted_turns_(setting.batch),
        numbers_(setting.batch),
        sorted_numbers_(setting.batch),
        keys_(setting.batch),
        values_(std::size_t{setting.batch} * kValueBytes),
        found_(std::size_t{setting.batch} * kValueBytes),
        status_(setting.batch),
        again_(setting.batch),
        there_(setting.batch),
        promise_(promise) {
    // Of one that is made for growing: all of its slots.
    options_.capacity =
        setting.first_keys != 0 ? setting.first_keys : Table::capacity_for(setting.keys);
    options_.value_bytes = kValueBytes;
    options_.max_batch = setting.batch;
    options_.directory = directory;
    open();
  }
  ~HoldfastMap() override { let_go(); }

  const Promise& promise() const override { return promise_; }
  std::uint64_t places() const override { return map_->capacity(); }

  Phases run(const Batch& batch) override {
    check(batch, setting_);
    const auto start = std::chrono::steady_clock::now();
    Phases phases;
    times_[0].record(map_->stream());
    const RowsOf rows = by_turn(batch);
    times_[1].record(map_->stream());
    const bool not_done = carry_out(batch, rows, phases);
    holdfast::launch(map_->stream(), holdfast::blocks_for(batch.count, kBlock), kBlock, answer<Key>,
                     batch, rows, not_done);
    map_->stream().synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    phases.order += holdfast::Event::elapsed_ms(times_[0], times_[1]) / 1e3;
    phases.operations = std::max(took.count() - phases.order, 0.0);
    return phases;
  }

  void crash_and_reopen() override {
    let_go();
    open();
  }

 private:
  void let_go() {
    map_.reset();
    if (region_) region_->abandon();
    region_.reset();
  }
  void open() {
    bool fresh = false;
    MapOptions most = options_;
    most.capacity =
        4 * setting_.keys;  // the last growth that the keys may need, and what was there
    region_ = open_or_create(setting_.path, Table::region_bytes(options_), fresh,
                             setting_.first_keys != 0 ? 4 * Table::region_bytes(most) : 0);
    map_.emplace(*region_, fresh, options_, setting_.ordered);
  }

  static std::uint32_t of(const Batch& batch, Op op) {
    return batch.of_each[static_cast<unsigned>(op)];
  }

  // A batch of one operation is as it is; another one is gathered in an order of its own.
  RowsOf by_turn(const Batch& batch) {
    RowsOf rows{keys_.data(),         values_.data(),       found_.data(),  sorted_numbers_.data(),
                sorted_turns_.data(), std::uint32_t{kFind}, status_.data(), there_.data()};
    for (const Op op : {Op::find, Op::insert, Op::update, Op::erase, Op::read_modify_write}) {
      if (of(batch, op) != batch.count) continue;
      rows.keys = reinterpret_cast<const Key*>(batch.keys);
      rows.values = batch.values;
      rows.found = batch.found;
      rows.numbers = nullptr;
      rows.turns = nullptr;
      rows.only = turn_of(op);
      return rows;
    }
    holdfast::Stream& stream = map_->stream();
    holdfast::launch(stream, holdfast::blocks_for(batch.count, kBlock), kBlock, number_by_turn,
                     batch, turns_.data(), numbers_.data());
    sorter_.sort(stream, turns_.data(), sorted_turns_.data(), numbers_.data(),
                 sorted_numbers_.data(), batch.count, bits_of(kTurns));
    holdfast::launch(stream, holdfast::blocks_for(std::uint64_t{batch.count} * kChunks, kBlock),
                     kBlock, gather_rows<Key>, batch, rows, keys_.data(), values_.data());
    return rows;
  }

  // Returns whether something was not done.
  bool carry_out(const Batch& batch, const RowsOf& rows, Phases& phases) {
    const std::uint32_t reads = of(batch, Op::find) + of(batch, Op::read_modify_write);
    std::uint32_t at = of(batch, Op::find);
    bool not_done = false;
    const auto note = [&] { phases.order += map_->seconds_ordering(); };
    if (reads != 0) {
      map_->find(rows.keys, rows.found, rows.there, reads);
      note();
      if (rows.numbers != nullptr) {
        holdfast::launch(map_->stream(),
                         holdfast::blocks_for(std::uint64_t{reads} * kChunks, kBlock), kBlock,
                         scatter_found<Key>, batch, rows, reads);
      }
    }
    const auto change = [&](std::uint32_t count, const auto& made) {
      MapResult result;
      if (count == 0) return result;
      result = made(rows.keys + at, rows.values + std::size_t{at} * kValueBytes, count,
                    rows.status + at);
      note();
      not_done |= result.not_done() != 0;
      at += count;
      return result;
    };
    const MapResult updated = change(reads - at + of(batch, Op::update),
                                     [&](auto... all) { return map_->assign(all...); });
    if (at > reads) find_superseded(rows, reads, at - reads, updated);
    change(of(batch, Op::insert), [&](auto... all) { return insert(all...); });
    change(of(batch, Op::erase),
           [&](const Key* keys, const std::byte*, std::uint32_t count, MapStatus* status) {
             return map_->erase(keys, count, status);
           });
    return not_done;
  }

  // Grows when a key finds no place, and moves some buckets behind each batch until that is over.
  MapResult insert(const Key* keys, const std::byte* values, std::uint32_t count,
                   MapStatus* status) {
    MapResult result = map_->insert(keys, values, count, status);
    if (setting_.first_keys == 0) return result;
    while (result.not_done() != 0) {
      map_->grow();
      const MapResult again = map_->insert(keys, values, count, again_.data());
      holdfast::launch(map_->stream(), holdfast::blocks_for(count, kBlock), kBlock, take_again,
                       status, static_cast<const MapStatus*>(again_.data()), count);
      result.inserted += again.inserted;
      result.full = again.full;
      result.no_value = again.no_value;
    }
    map_->migrate(count);
    return result;
  }

  // Whether the keys of superseded updates were there: they are, unless some of the batch are not.
  void find_superseded(const RowsOf& rows, std::uint32_t first, std::uint32_t count,
                       const MapResult& updated) {
    if (updated.superseded == 0) return;
    if (updated.absent == 0) {
      holdfast::fill_async(map_->stream(), rows.there + first, 1, count);
    } else {
      map_->contains(rows.keys + first, rows.there + first, count);
    }
  }

  Setting setting_;
  MapOptions options_;
  holdfast::PairSorter sorter_;
  holdfast::DeviceBuffer<std::uint32_t> turns_, sorted_turns_, numbers_, sorted_numbers_;
  holdfast::DeviceBuffer<Key> keys_;
  holdfast::DeviceBuffer<std::byte> values_, found_;
  holdfast::DeviceBuffer<MapStatus> status_, again_;
  holdfast::DeviceBuffer<std::uint8_t> there_;
  Promise promise_;
  holdfast::Event times_[2];
  std::optional<holdfast::Region> region_;
  std::optional<Table> map_;
};

constexpr const char* kOfOperations =
    "each operation of a batch is there once run() has returned, and before that whole or not at "
    "all; of updates of one key the last one is made";
constexpr const char* kOfKinds =
    "all operations of one kind of a batch are there once run() has returned, and before that all "
    "or none of them; of updates of one key the last one is made";
constexpr const char* kOrdered = "ordered where it pays";

template <unsigned... Bytes>
std::unique_ptr<Contestant> make(const Setting& setting, const char* name,
                                 MapOptions::Directory directory) {
  check(setting, {Bytes...});
  const Promise promise{
      name, setting.ordered ? kOrdered : "as given", "process", "operations", kOfOperations, 0};
  std::unique_ptr<Contestant> map;
  const auto make_one = [&](auto key) {
    using Key = decltype(key);
    if (setting.key_bytes == sizeof(Key)) {
      map = std::make_unique<HoldfastMap<HashTable<Key>>>(setting, promise, directory);
    }
  };
  (make_one(KeyOf<Bytes>{}), ...);
  return map;
}

}  // namespace

std::unique_ptr<Contestant> make_holdfast_map(const Setting& setting) {
  return make<8, 16, 32, 64, 128>(setting, "holdfast", MapOptions::Directory::on);
}
std::unique_ptr<Contestant> make_holdfast_map_without_directory(const Setting& setting) {
  return make<8, 16, 32, 64, 128>(setting, "holdfast-no-directory", MapOptions::Directory::off);
}
std::unique_ptr<Contestant> make_holdfast_log_map(const Setting& setting) {
  check(setting, {8});
  return std::make_unique<HoldfastMap<LogTable>>(
      setting, Promise{"holdfast-log", kOrdered, "process", "operations", kOfKinds, 0},
      MapOptions::Directory::automatic);
}

}  // namespace maps
