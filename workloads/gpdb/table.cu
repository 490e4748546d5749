#include "gpdb/table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "holdfast/kernel.hpp"
#include "holdfast/launch.hpp"
#include "holdfast/undo.hpp"

namespace gpdb {
namespace {

using holdfast::CoalescedLogRef;
using holdfast::ConventionalLogRef;
using holdfast::LogLayout;
using holdfast::LogShape;
using holdfast::LogStatus;
using holdfast::Part;
using holdfast::persist;
using workload::DeltaRef;

constexpr const char* kName = "gpdb";
constexpr const char* kRowLog = "row_log";

constexpr unsigned kWarp = 32;
constexpr unsigned kQuarters = 4;    // of a row
constexpr unsigned kPasses = 4;      // quarters that a thread of INSERT stores
constexpr unsigned kScanned = 2048;  // rows that a block of UPDATE looks at

// A quarter of a row: what a thread stores at once.
struct alignas(16) Quarter {
  std::uint64_t halves[2];
};

static_assert(sizeof(Row) == kQuarters * sizeof(Quarter));
static_assert(sizeof(Row) == 2 * sizeof(SecondHalf));
static_assert(offsetof(Row, departure_delay) == sizeof(SecondHalf));
static_assert(offsetof(Row, revision) ==
              offsetof(Row, departure_delay) + offsetof(SecondHalf, changed));

// What UPDATE overwrites. In words of 4 bytes, so that it has no gap.
struct LogEntry {
  std::uint32_t row;
  std::uint32_t old[4];
};

// What kernels report; in device memory.
struct Outcome {
  std::uint32_t slots;    // of the log that blocks have taken
  std::uint32_t updated;  // rows
};

// Neighbouring threads store neighbouring quarters, so that a warp's store is 512 bytes in a row.
__global__ void insert_rows(Quarter* table, std::uint64_t first_row, const Quarter* rows,
                            std::uint64_t quarters, bool persists) {
  const std::uint64_t start = std::uint64_t{blockIdx.x} * blockDim.x * kPasses + threadIdx.x;
  Quarter values[kPasses];
#pragma unroll
  for (unsigned pass = 0; pass < kPasses; ++pass) {
    const std::uint64_t i = start + pass * blockDim.x;
    if (i < quarters) values[pass] = rows[i];
  }
#pragma unroll
  for (unsigned pass = 0; pass < kPasses; ++pass) {
    const std::uint64_t i = start + pass * blockDim.x;
    if (i >= quarters) break;
    if (i % kQuarters == 0) values[pass].halves[0] = first_row + i / kQuarters;  // Row::id
    table[first_row * kQuarters + i] = values[pass];
  }
  if (persists) persist();
}

__global__ void number_rows_in_place(Row* rows, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) rows[i].id = first + i;
}

// One thread: the head, as part of the same transaction.
__global__ void move_head(Head* head, ConventionalLogRef log, std::uint64_t rows_added) {
  const Head before = *head;
  if (log.insert(before) != LogStatus::ok) return;
  head->rows = before.rows + rows_added;
  head->batches = before.batches + 1;
  persist();
}

__device__ Changed changed_by(const Query& query, const Measured& row) {
  const bool known = row.departure_delay != kMissing && row.arrival_delay != kMissing;
  const auto miles = static_cast<std::uint32_t>(row.distance);
  Changed after;
  after.revision = query.revision;
  after.expected_delay = known ? (3 * row.departure_delay + row.arrival_delay) / 4 : 0;
  after.fare = 4000 + miles * query.rate;
  after.compensation = row.arrival_delay >= 180 ? 25 * miles : 0;
  return after;
}

__host__ __device__ SecondHalf* half_of(Row* row) { return reinterpret_cast<SecondHalf*>(row) + 1; }

// Where UPDATE reads, and what it changes.
struct Rows {
  Row* table;
  std::uint64_t count;
  Row* copy;  // may be null

  __device__ SecondHalf read(std::uint32_t row) const {
    return *half_of((copy != nullptr ? copy : table) + row);
  }
  __device__ void change(std::uint32_t row, const Changed& after) const {
    half_of(table + row)->changed = after;
    if (copy != nullptr) half_of(copy + row)->changed = after;
  }
  // The same of each thread that `wants` it: with a copy the whole row, which is a line. All
  // threads of a block call it. Returns whether this one stored anything to the table.
  __device__ bool change_together(bool wants, std::uint32_t row, const Changed& after) const {
    if (copy == nullptr) {
      if (wants) change(row, after);
      return wants;
    }
    Quarter last;
    memcpy(&last, &after, sizeof(last));
    const bool stored = holdfast::store_by_lines(
        reinterpret_cast<Quarter*>(table), reinterpret_cast<const Quarter*>(copy),
        wants ? holdfast::LineChange::line : holdfast::LineChange::none,
        std::uint64_t{row} * kQuarters + kQuarters - 1, last,
        [](Quarter* place, const Quarter& quarter) { *place = quarter; });
    if (wants) half_of(copy + row)->changed = after;
    return stored;
  }
};

// What is kept of a change: where kernels persist, in a log, what it overwrites; where the CPU
// does, what is new.
template <class Log>
__device__ bool keep(const Log& log, std::uint32_t slot, std::uint32_t number,
                     const Changed& before, const Changed&) {
  LogEntry entry;
  entry.row = number;
  entry.old[0] = before.revision;
  entry.old[1] = static_cast<std::uint32_t>(before.expected_delay);
  entry.old[2] = before.fare;
  entry.old[3] = before.compensation;
  return log.insert(entry, slot) == LogStatus::ok;
}
__device__ bool keep(const DeltaRef& delta, std::uint32_t slot, std::uint32_t number,
                     const Changed&, const Changed& after) {
  if (delta.tiles == nullptr) return true;
  const auto word = [](std::uint32_t low, std::uint32_t high) {
    return low | std::uint64_t{high} << 32;
  };
  delta.put(slot, number * kQuarters + kQuarters - 1,
            {{word(after.revision, static_cast<std::uint32_t>(after.expected_delay)),
              word(after.fare, after.compensation)}});
  return true;
}

template <class Log>
constexpr bool kPersists = !std::is_same_v<Log, DeltaRef>;

// Of a row that is selected keeps the change, then stores in place, then persists.
template <class Log>
__device__ void update_row(const Rows& rows, bool selected, std::uint32_t number,
                           const Query& query, const Log& log, std::uint32_t slot) {
  Changed after{};
  bool kept = false;
  if (selected) {
    const SecondHalf before = rows.read(number);
    after = changed_by(query, before.measured);
    kept = keep(log, slot, number, before.changed, after);
  }
  if (rows.change_together(kept, number, after) && kPersists<Log>) persist();
}

// The slot of the `number`-th row that is kept.
template <class Log>
__device__ std::uint32_t slot_of(const Log& log, std::uint32_t number) {
  return log.slot_for(number);
}
__device__ std::uint32_t slot_of(const DeltaRef&, std::uint32_t number) { return number; }

// A block looks at kScanned rows, gathers those that the query selects, and gives each a thread.
// Log slots are taken for whole warps, so that a warp's entries coalesce; of gathered changes there
// are no more than rows.
template <class Log>
__global__ void update_rows(Rows rows, const std::uint16_t* carriers, Query query, Log log,
                            Outcome* outcome) {
  constexpr unsigned kTogether = kPersists<Log> ? kWarp : 1;
  __shared__ std::uint32_t selected;
  __shared__ std::uint32_t first_slot;
  __shared__ std::uint16_t list[kScanned];
  if (threadIdx.x == 0) selected = 0;
  __syncthreads();
  const std::uint32_t start = blockIdx.x * kScanned;
  const std::uint32_t left = static_cast<std::uint32_t>(rows.count) - start;
  const std::uint32_t count = left < kScanned ? left : kScanned;
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (carriers[start + i] != query.carrier) continue;
    list[atomicAdd(&selected, 1u)] = static_cast<std::uint16_t>(i);
  }
  __syncthreads();
  if (threadIdx.x == 0 && selected != 0) {
    first_slot = atomicAdd(&outcome->slots, (selected + kTogether - 1) / kTogether * kTogether);
    atomicAdd(&outcome->updated, selected);
  }
  __syncthreads();
  for (std::uint32_t first = 0; first < selected; first += blockDim.x) {
    const std::uint32_t i = first + threadIdx.x;
    const bool there = i < selected;
    update_row(rows, there, there ? start + list[i] : 0, query, log, slot_of(log, first_slot + i));
  }
}

// Puts back what UPDATE overwrote.
struct UndoRow {
  using Entry = LogEntry;
  Rows rows;
  __device__ bool operator()(const LogEntry& entry) const {
    if (entry.row >= rows.count) return false;
    Changed before;
    before.revision = entry.old[0];
    before.expected_delay = static_cast<std::int32_t>(entry.old[1]);
    before.fare = entry.old[2];
    before.compensation = entry.old[3];
    rows.change(entry.row, before);
    return true;
  }
};

unsigned blocks_for(std::uint64_t items, std::uint64_t of_a_block) {
  return static_cast<unsigned>((items + of_a_block - 1) / of_a_block);
}

void launch_insert(holdfast::Stream& stream, Row* table, std::uint64_t first, const Row* rows,
                   std::uint64_t count, unsigned threads, bool persists) {
  const std::uint64_t quarters = count * kQuarters;
  holdfast::launch(stream, dim3(blocks_for(quarters, threads * kPasses)), dim3(threads),
                   insert_rows, reinterpret_cast<Quarter*>(table), first,
                   reinterpret_cast<const Quarter*>(rows), quarters, persists);
}

template <class Log>
void launch_update(holdfast::Stream& stream, const Rows& rows, const std::uint16_t* carriers,
                   const Query& query, const Log& log, Outcome* outcome, unsigned threads) {
  holdfast::launch(stream, dim3(blocks_for(rows.count, kScanned)), dim3(threads), update_rows<Log>,
                   rows, carriers, query, log, outcome);
}

// Slots for as many rows, and for the rest of each block's last warp; or as many in partitions.
LogShape row_log_shape(const TableParameters& needs) {
  const std::uint64_t blocks = blocks_for(needs.rows, kScanned);
  const std::uint64_t slots = std::min(
      needs.most_updated + (kWarp - 1) * std::min(needs.most_updated, blocks), blocks * kScanned);
  if (needs.layout == LogLayout::coalesced) {
    const std::uint64_t whole = (slots + kWarp - 1) / kWarp * kWarp;
    return LogShape::coalesced(static_cast<std::uint32_t>(whole), sizeof(LogEntry));
  }
  const std::uint64_t entries = (slots + needs.partitions - 1) / needs.partitions;
  if (entries > LogShape::kMaxSlotBytes / sizeof(LogEntry)) {
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("gpdb: a conventional log of ", needs.partitions,
                                 " partitions has no room for ", needs.most_updated,
                                 " rows of one UPDATE: take the coalesced log, or fewer rows"));
  }
  return LogShape::conventional(needs.partitions,
                                static_cast<std::uint32_t>(entries * sizeof(LogEntry)));
}

}  // namespace

holdfast::DeviceBuffer<Row> copy_of(holdfast::Stream& stream, const Row* table,
                                    std::uint64_t rows) {
  holdfast::DeviceBuffer<Row> copy(rows);
  holdfast::copy_async(stream, copy.data(), table, copy.bytes());
  stream.synchronize();
  return copy;
}

std::vector<Part> TableParameters::parts() const {
  if (rows == 0 || rows > kMaxRows || most_updated > rows || partitions == 0 ||
      partitions > LogShape::kMaxSlots) {
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("gpdb: a table of ", rows, " rows, of which ", most_updated,
                                 " change at once, and ", partitions, " partitions; it has 1 to ",
                                 kMaxRows, " rows"));
  }
  // Whoever changes rows does not mark them.
  std::vector<Part> all{Part::array<Row>("rows", rows, holdfast::Tracking::hashed),
                        Part::array<Head>("head", 1, holdfast::Tracking::hashed),
                        Part::transaction(),
                        Part::undo_log("head_log", LogShape::conventional(1, sizeof(Head)))};
  if (most_updated != 0) all.push_back(Part::undo_log(kRowLog, row_log_shape(*this)));
  return all;
}

struct Table::Impl {
  holdfast::Durable<TableParameters> object;
  Shape shape;
  holdfast::Transaction& transaction = object.transaction();
  Row* table = object.part<Row>("rows").data();
  std::uint64_t rows = object.parameters().rows;
  Head* head = object.part<Head>("head").data();
  holdfast::UndoLog head_log = object.log("head_log");
  std::optional<holdfast::UndoLog> row_log;  // none: a table that is only appended to
  holdfast::DeviceBuffer<Row> copy;          // of the table; may be empty
  holdfast::DeviceBuffer<Outcome> outcome{1};
  holdfast::PinnedBuffer<Outcome> outcome_host{1};
  std::uint64_t bytes_stored = 0;
  std::uint64_t bytes_streamed = 0;
  std::uint64_t bytes_unchanged = 0;

  Impl(holdfast::Durable<TableParameters> made, Shape with) : object(std::move(made)), shape(with) {
    if (object.parameters().most_updated != 0) row_log = object.log(kRowLog);
  }

  void begin(holdfast::Stream& stream) {
    holdfast::fill_async(stream, outcome.data(), 0, sizeof(Outcome));
    transaction.begin(stream);
  }

  // Moves the head and ends the transaction.
  Outcome end(holdfast::Stream& stream, std::uint64_t rows_added) {
    holdfast::launch(stream, dim3(1), dim3(1), move_head, head, head_log.conventional(),
                     rows_added);
    transaction.commit(stream);
    holdfast::copy_async(stream, outcome_host.data(), outcome.data(), sizeof(Outcome));
    with_undos([&](const auto&... undos) { transaction.finish(stream, undos...); });
    bytes_stored += 2 * sizeof(Head) + sizeof(std::uint32_t) + 2 * sizeof(std::uint64_t);
    return outcome_host[0];
  }

  // Calls body with what undoes each log.
  template <class Body>
  void with_undos(const Body& body) {
    const auto undo_head = holdfast::undo(head_log, holdfast::PutBack<Head>{head, {}});
    if (row_log) {
      body(holdfast::undo(*row_log, UndoRow{{table, rows, copy.data()}}), undo_head);
    } else {
      body(undo_head);
    }
  }
};

Table::Table(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Table::Table(Table&&) noexcept = default;
Table::~Table() = default;

Table Table::create(holdfast::Region& region, const TableParameters& parameters, Shape shape) {
  return Table(std::make_unique<Impl>(
      holdfast::Durable<TableParameters>::create(region, kName, parameters), shape));
}

Table Table::open(holdfast::Region& region, Shape shape) {
  return Table(
      std::make_unique<Impl>(holdfast::Durable<TableParameters>::open(region, kName), shape));
}

std::uint64_t Table::bytes(const TableParameters& parameters) {
  return holdfast::Durable<TableParameters>::bytes(parameters);
}

const TableParameters& Table::parameters() const { return impl_->object.parameters(); }
std::span<Row> Table::rows() const { return impl_->object.part<Row>("rows"); }
std::span<Head> Table::head_part() const { return impl_->object.part<Head>("head"); }

void Table::keep_copy(holdfast::Stream& stream) {
  impl_->copy = copy_of(stream, impl_->table, impl_->rows);
}

void Table::recover(holdfast::Stream& stream) {
  impl_->with_undos([&](const auto&... undos) { impl_->transaction.recover(stream, undos...); });
}

void Table::insert(holdfast::Stream& stream, const Row* rows, std::uint64_t count) {
  Impl& self = *impl_;
  const std::uint64_t first = head(stream).rows;
  if (count > self.rows - first) {
    throw holdfast::Error(
        holdfast::Errc::no_space,
        holdfast::detail::concat("gpdb: INSERT of ", count, " rows into a table of ", self.rows,
                                 " that holds ", first, ": make a larger table"));
  }
  self.begin(stream);
  launch_insert(stream, self.table, first, rows, count, self.shape.threads, true);
  if (self.copy.data() != nullptr) {
    holdfast::copy_async(stream, self.copy.data() + first, rows, count * sizeof(Row));
    number_rows(stream, self.copy.data() + first, first, count);
  }
  self.end(stream, count);
  self.bytes_stored += count * sizeof(Row);
}

std::uint64_t Table::update(holdfast::Stream& stream, const std::uint16_t* carriers,
                            const Query& query) {
  Impl& self = *impl_;
  if (!self.row_log) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          "gpdb: UPDATE of a table that was made without a log for rows: make it "
                          "with most_updated");
  }
  const std::uint64_t rows = head(stream).rows;
  self.begin(stream);
  self.row_log->visit([&](const auto& log) {
    launch_update(stream, {self.table, rows, self.copy.data()}, carriers, query, log,
                  self.outcome.data(), self.shape.threads);
  });
  const Outcome done = self.end(stream, 0);
  const std::uint64_t logged = done.updated * (sizeof(LogEntry) + sizeof(std::uint32_t));
  const std::uint64_t around = self.copy.size() != 0 ? done.updated * kAroundChanged : 0;
  self.bytes_stored += done.updated * sizeof(Changed) + logged + around;
  self.bytes_unchanged += around;
  if (parameters().layout == LogLayout::coalesced) self.bytes_streamed += logged;
  return done.updated;
}

Head Table::head(holdfast::Stream& stream) const {
  Head head;
  holdfast::copy_async(stream, &head, impl_->head, sizeof(head));
  stream.synchronize();
  return head;
}

std::uint64_t Table::bytes_stored() const { return impl_->bytes_stored; }

std::uint64_t Table::bytes_logged_in_streams() const { return impl_->bytes_streamed; }

std::uint64_t Table::bytes_unchanged() const { return impl_->bytes_unchanged; }

void store_rows(holdfast::Stream& stream, Row* table, std::uint64_t first, const Row* rows,
                std::uint64_t count) {
  launch_insert(stream, table, first, rows, count, Shape{}.threads, false);
}

void number_rows(holdfast::Stream& stream, Row* rows, std::uint64_t first, std::uint64_t count) {
  if (count == 0) return;
  const unsigned threads = Shape{}.threads;
  holdfast::launch(stream, dim3(blocks_for(count, threads)), dim3(threads), number_rows_in_place,
                   rows, first, count);
}

struct PlainUpdate::Impl {
  holdfast::DeviceBuffer<Outcome> outcome{1};
  holdfast::PinnedBuffer<Outcome> outcome_host{1};
};

PlainUpdate::PlainUpdate() : impl_(std::make_unique<Impl>()) {}
PlainUpdate::~PlainUpdate() = default;

std::uint64_t PlainUpdate::run(holdfast::Stream& stream, Row* table, std::uint64_t rows, Row* copy,
                               const std::uint16_t* carriers, const Query& query,
                               const DeltaRef& delta) {
  Outcome* const outcome = impl_->outcome.data();
  holdfast::fill_async(stream, outcome, 0, sizeof(Outcome));
  launch_update(stream, {table, rows, copy}, carriers, query, delta, outcome, Shape{}.threads);
  holdfast::copy_async(stream, impl_->outcome_host.data(), outcome, sizeof(Outcome));
  stream.synchronize();
  return impl_->outcome_host[0].updated;
}

}  // namespace gpdb
