// Batches and lookups of a log map.
#include "log_map/host.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "core/kernel_memory.hpp"
#include "core/reason.hpp"
#include "core/stream_end.hpp"
#include "holdfast/kernel.hpp"
#include "kv_store/rules.hpp"

namespace holdfast {

namespace log_map {

Memory::Memory(std::uint32_t places, std::uint32_t max_batch)
    : used((places + 31) / 32),
      list(places),
      scratch(blocks_for(places, kPlacesOfBlock)),
      keys(max_batch),
      place(max_batch),
      sorted(max_batch),
      ops(max_batch),
      sorted_ops(max_batch),
      found(max_batch),
      sorter(max_batch) {
  for (auto& each : taken) each = DeviceBuffer<std::uint64_t>(max_batch);
}

Selection::Selection(std::uint32_t max_batch)
    : passed_over((max_batch + 31) / 32),
      op(max_batch),
      old(max_batch),
      scratch(blocks_for(max_batch, kPlacesOfBlock)),
      keys(max_batch),
      place(max_batch),
      chosen(1) {}

}  // namespace log_map

namespace detail {
namespace {

// Rows that kernels cannot read where they are come by pieces of about so many bytes.
constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

Error wrong(const std::string& where, const std::string& what) {
  return Error(Errc::invalid_argument, concat(where, ": ", what));
}

}  // namespace

LogMapHost::LogMapHost(Region& region, std::string_view name, std::string where,
                       log_map::LogMapObject object, std::shared_ptr<kv::log::LogStore> index)
    : region_(region),
      name_(name),
      where_(std::move(where)),
      object_(std::move(object)),
      index_(std::move(index)),
      places_(static_cast<std::uint32_t>(object_.parameters().places)),
      rows_{reinterpret_cast<std::byte*>(object_.part<std::uint8_t>(log_map::kValues).data()),
            object_.parameters().value_bytes, object_.parameters().stride(), region.marks()},
      memory_(places_, static_cast<std::uint32_t>(index_->max_batch)) {}

LogMapHost::~LogMapHost() { end_work(); }

void LogMapHost::end_work() noexcept {
  const core::StreamEnd ends[] = {core::StreamEnd(behind_), core::StreamEnd(writer_),
                                  core::StreamEnd(stream())};
}

LogMapHost& LogMapHost::usable() {
  (void)index_->usable();
  if (broken_.empty()) return *this;
  throw Error(Errc::device, concat(where_, ": an earlier call failed (", broken_,
                                   "): open it again to go on from what is durable"));
}

// What `body` throws breaks the map, unless it was refused before anything was changed. Nothing of
// it is under way then: it may use the caller's arrays, and the region, which may be closed next.
template <class Body>
auto LogMapHost::whole(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    end_work();
    if (error.code() != Errc::no_space && error.code() != Errc::invalid_argument &&
        error.code() != Errc::no_memory) {
      core::keep_reason(broken_, error);
    }
    throw;
  } catch (const std::exception& error) {
    end_work();
    core::keep_reason(broken_, error);
    throw;
  }
}

void LogMapHost::check_batch(const void* keys, std::size_t count) const {
  if (count > index_->max_batch) {
    throw wrong(where_, concat("a batch of ", count, " operations; this map takes ",
                               index_->max_batch, " at most (max_batch): split the batch"));
  }
  if (count != 0 && keys == nullptr) {
    throw wrong(where_, "a batch without keys: give one for each operation");
  }
}

std::byte* LogMapHost::rows(std::uint64_t bytes) {
  if (memory_.rows.size() < bytes) memory_.rows = DeviceBuffer<std::byte>(bytes);
  return memory_.rows.data();
}

// What the last batch has left to do reads the index and its keys.
void LogMapHost::begin(const std::uint64_t* keys, std::uint32_t count) {
  if (batches_ != 0) settled_.wait(stream());
  copy_async(stream(), memory_.keys.data(), keys, count * sizeof(*keys));
}

// ---- Changes ------------------------------------------------------------------------------------

log_map::Changes LogMapHost::all_of(std::uint32_t count) const {
  return {memory_.keys.data(), memory_.place.data(), nullptr, count};
}

MapStatus* LogMapHost::statuses(const MapStatus* asked) {
  if (asked == nullptr) return nullptr;
  if (status_.size() == 0) status_ = DeviceBuffer<MapStatus>(index_->max_batch);
  return status_.data();
}

const LogMap::Op* LogMapHost::kinds(const LogMap::Op* operations, std::uint32_t count) {
  if (kinds_.size() == 0) kinds_ = DeviceBuffer<LogMap::Op>(index_->max_batch);
  copy_async(stream(), kinds_.data(), operations, count * sizeof(*operations));
  return kinds_.data();
}

void LogMapHost::check_pairs(const void* keys, const void* values, std::size_t count) const {
  region_.check_writable("a batch");
  check_batch(keys, count);
  if (count != 0 && values == nullptr) {
    throw wrong(where_, "a batch without values: give a row for each key, or erase()");
  }
}

// Values are stored while keys are looked up, to places that no pair has: before the commit nothing
// of the batch counts, and of a crash nothing has to be taken back. An operation that erases has a
// place for its row, too, which nothing names then.
LogMap::Result LogMapHost::assign(const KvStore::Op* operations, const std::uint64_t* keys,
                                  const void* values, std::size_t count, MapStatus* status) {
  check_pairs(keys, values, count);
  if (count == 0) return {};
  return whole([&] {
    const auto rows = static_cast<std::uint32_t>(count);
    std::uint64_t* const taken = memory_.taken[batches_ % 2].data();
    (void)statuses(status);
    // What the caller has made stream() wait for may be what fills the rows.
    asked_.record(stream());
    asked_.wait(writer_);
    begin(keys, rows);
    take(rows, taken);
    store(values, rows, taken);
    written_.record(writer_);
    log_map::Changes changes = all_of(rows);
    if (operations != nullptr && status != nullptr) changes.kinds = kinds(operations, rows);
    log_map::launch_look(stream(), index_->view(), changes.keys, rows, memory_.place.data(),
                         nullptr);
    return commit(operations, changes, taken, status, rows);
  });
}

// As above, but which operations store is known before any does: what is left out takes no place.
LogMap::Result LogMapHost::assign_some(log_map::Which which, const std::uint64_t* keys,
                                       const void* values, std::size_t count, MapStatus* status) {
  check_pairs(keys, values, count);
  if (count == 0) return {};
  return whole([&] {
    const auto rows = static_cast<std::uint32_t>(count);
    std::uint64_t* const taken = memory_.taken[batches_ % 2].data();
    begin(keys, rows);
    const log_map::Changes changes = choose(which, rows, statuses(status));
    if (changes.count == 0) {
      if (status != nullptr) copy_async(stream(), status, status_.data(), rows * sizeof(*status));
      stream().synchronize();
      return LogMap::Result{};
    }
    take(changes.count, taken);
    const std::uint64_t* of_rows = taken;
    if (changes.op != nullptr) {
      std::uint64_t* const spread = selection_->place.data();
      log_map::launch_spread(writer_, taken, changes.op, changes.count, spread, rows);
      of_rows = spread;
    }
    store(values, rows, of_rows);
    written_.record(writer_);
    return commit(nullptr, changes, taken, status, rows);
  });
}

LogMap::Result LogMapHost::commit(const KvStore::Op* operations, const log_map::Changes& changes,
                                  const std::uint64_t* taken, MapStatus* status,
                                  std::uint32_t count) {
  written_.wait(stream());
  const KvStore::BatchResult done = change(operations, changes, taken);
  taken_ += changes.count;
  settle(changes, taken, status, count);
  return {done.inserted, done.updated, done.removed};
}

log_map::Changes LogMapHost::choose(log_map::Which which, std::uint32_t count, MapStatus* status) {
  if (!selection_) selection_.emplace(static_cast<std::uint32_t>(index_->max_batch));
  log_map::Selection& selection = *selection_;
  const log_map::Changes all = all_of(count);
  log_map::launch_look(stream(), index_->view(), all.keys, count, memory_.place.data(), nullptr);
  fill_async(stream(), selection.chosen.data(), 0, sizeof(log_map::Chosen));
  log_map::launch_choose(stream(), which, all.keys, all.old, count, selection.passed_over.data(),
                         status, selection.chosen.data());
  log_map::Chosen chosen{};
  {
    const core::StreamEnd end(stream());
    copy_async(stream(), &chosen, selection.chosen.data(), sizeof(chosen));
    stream().synchronize();
  }
  if (chosen.reserved_keys != 0) {
    throw wrong(where_,
                concat(chosen.reserved_keys, " operation(s) have the key ", LogMap::kReservedKey,
                       ", which cannot be stored; nothing of this batch was"));
  }
  if (chosen.count == count) return all;
  if (chosen.count != 0) {
    log_map::launch_list_free(stream(), selection.passed_over.data(), count, selection.op.data(),
                              selection.scratch.data());
    log_map::launch_pick(stream(), selection.op.data(), chosen.count, all.keys, all.old,
                         selection.keys.data(), selection.old.data());
    asked_.record(stream());
    asked_.wait(writer_);
  }
  return {selection.keys.data(), selection.old.data(), selection.op.data(), chosen.count};
}

LogMap::Result LogMapHost::erase(const std::uint64_t* keys, std::size_t count, MapStatus* status) {
  region_.check_writable("a batch");
  check_batch(keys, count);
  if (count == 0) return {};
  return whole([&] {
    const auto operations = static_cast<std::uint32_t>(count);
    const log_map::Changes changes = all_of(operations);
    (void)statuses(status);
    begin(keys, operations);
    log_map::launch_look(stream(), index_->view(), changes.keys, operations, memory_.place.data(),
                         nullptr);
    const KvStore::BatchResult done = change(nullptr, changes, nullptr);
    settle(changes, nullptr, status, operations);
    return LogMap::Result{0, 0, done.removed};
  });
}

void LogMapHost::take(std::uint32_t count, std::uint64_t* to) {
  if (taken_ + count > listed_) {
    if (batches_ != 0) settled_.wait(writer_);
    log_map::launch_list_free(writer_, memory_.used.data(), places_, memory_.list.data(),
                              memory_.scratch.data());
    taken_ = 0;
    listed_ = free_places();
  }
  log_map::launch_take(writer_, memory_.list.data() + taken_, count, to);
}

// What the index refuses it does not know to be this map's.
KvStore::BatchResult LogMapHost::change(const KvStore::Op* operations,
                                        const log_map::Changes& changes,
                                        const std::uint64_t* places) {
  try {
    return operations != nullptr ? index_->apply(operations, changes.keys, places, changes.count)
                                 : index_->update(changes.keys, places, changes.count, nullptr);
  } catch (const Error& error) {
    throw Error(error.code(), concat(where_, ": ", error.what()));
  }
}

void LogMapHost::store(const void* values, std::uint32_t count, const std::uint64_t* to) {
  const std::uint64_t each = rows_.value_bytes;
  const auto* const from = static_cast<const std::byte*>(values);
  if (core::readable_by_kernels(values, count * each)) {
    log_map::launch_store(writer_, rows_, from, to, count);
    return;
  }
  const auto of_piece =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(count, kPieceBytes / each));
  std::byte* const room = rows(of_piece * each);
  for (std::uint32_t first = 0; first < count; first += of_piece) {
    const std::uint32_t rows = std::min(of_piece, count - first);
    copy_async(writer_, room, from + first * each, rows * each);
    log_map::launch_store(writer_, rows_, room, to + first, rows);
  }
}

// The commit may be known before its kernel has ended, and cleaning may follow it: the index is
// read behind both.
void LogMapHost::settle(const log_map::Changes& changes, const std::uint64_t* taken,
                        MapStatus* asked, std::uint32_t count) {
  try {
    changed_.record(stream());
    changed_.wait(behind_);
    const KvView index = index_->view();
    log_map::launch_settle(behind_, index, changes, taken, memory_.used.data(),
                           asked != nullptr ? status_.data() : nullptr);
    if (asked != nullptr) copy_async(behind_, asked, status_.data(), count * sizeof(*asked));
    // Its lookups read the region, which the caller may close next.
    if (asked != nullptr || index.layout == KvLayout::fingerprints) behind_.synchronize();
    ++batches_;
    settled_.record(behind_);
  } catch (const std::exception& error) {
    core::keep_reason(broken_, error);  // whatever it is: the batch is committed
    throw;
  }
}

// ---- Lookups ------------------------------------------------------------------------------------

bool LogMapHost::reads_in_order(std::size_t count) const {
  return kv::ordering_pays(std::uint64_t{places_} * rows_.stride, false, count, false);
}

void LogMapHost::find(const std::uint64_t* keys, void* values, std::uint8_t* found,
                      std::size_t count) {
  check_batch(keys, count);
  if (count == 0) return;
  if (found == nullptr) {
    throw wrong(where_, "find() was given no place for found: give one for each key");
  }
  whole([&] {
    const auto operations = static_cast<std::uint32_t>(count);
    begin(keys, operations);
    log_map::launch_look(stream(), index_->view(), memory_.keys.data(), operations,
                         memory_.place.data(), memory_.found.data());
    copy_async(stream(), found, memory_.found.data(), count);
    if (values != nullptr) read(operations, values);
    stream().synchronize();
  });
}

// Where many are read from more memory than addresses are translated for at speed, in the order of
// these.
void LogMapHost::read(std::uint32_t count, void* values) {
  const std::uint64_t each = rows_.value_bytes;
  const bool reachable = core::readable_by_kernels(values, count * each);
  auto* const out = reachable ? static_cast<std::byte*>(values) : rows(count * each);
  const std::uint32_t* place = memory_.place.data();
  const std::uint32_t* op = nullptr;
  if (reads_in_order(count)) {
    memory_.sorter.sort(stream(), memory_.place.data(), memory_.sorted.data(), memory_.ops.data(),
                        memory_.sorted_ops.data(), count,
                        static_cast<unsigned>(std::bit_width(places_)));
    place = memory_.sorted.data();
    op = memory_.sorted_ops.data();
  }
  log_map::launch_gather(stream(), rows_, place, op, count, out);
  if (reachable) return;
  std::vector<std::byte> read(count * each);
  std::vector<std::uint8_t> is_there(count);
  const core::StreamEnd end(stream());
  copy_async(stream(), read.data(), out, read.size());
  copy_async(stream(), is_there.data(), memory_.found.data(), count);
  stream().synchronize();
  for (std::uint32_t i = 0; i < count; ++i) {
    if (is_there[i] == 0) continue;
    std::memcpy(static_cast<std::byte*>(values) + i * each, read.data() + i * each, each);
  }
}

std::uint64_t LogMapHost::scan(std::uint64_t* keys, void* values, std::uint64_t limit) {
  const std::uint64_t each = rows_.value_bytes;
  std::vector<detail::KvPair> pairs(index_->listed_at_once());
  std::vector<std::uint32_t> places;
  std::uint64_t all = 0;
  const core::StreamEnd end(stream());
  const auto take = [&](const detail::KvPair* listed, std::uint64_t count) {
    copy_async(stream(), pairs.data(), listed, count * sizeof(*listed));
    stream().synchronize();
    places.clear();
    const std::uint64_t first = all;
    for (const detail::KvPair& pair : std::span(pairs).first(count)) {
      if (pair.key == 0) continue;
      if (all < limit && keys != nullptr) keys[all] = ~pair.key;
      if (all < limit) places.push_back(static_cast<std::uint32_t>(pair.value));
      ++all;
    }
    if (values == nullptr || places.empty()) return;
    const DeviceBuffer<std::uint32_t> of_piece(places.size());
    const core::StreamEnd end_of_piece(stream());
    std::byte* const room = rows(places.size() * each);
    copy_async(stream(), of_piece.data(), places.data(), of_piece.bytes());
    log_map::launch_gather(stream(), rows_, of_piece.data(), nullptr,
                           static_cast<std::uint32_t>(places.size()), room);
    copy_async(stream(), static_cast<std::byte*>(values) + first * each, room,
               places.size() * each);
    stream().synchronize();
  };
  whole([&] { index_->list(take); });
  return all;
}

// ---- All of it ----------------------------------------------------------------------------------

LogMapHost::Used LogMapHost::used_places() const {
  Used used{DeviceBuffer<std::uint32_t>(memory_.used.size()), {}};
  const DeviceBuffer<log_map::Faults> faults(1);
  const core::StreamEnd end(stream());
  index_->list([&](const detail::KvPair* pairs, std::uint64_t count) {
    log_map::launch_mark_used(stream(), pairs, count, places_, used.bits.data(), faults.data());
  });
  copy_async(stream(), &used.faults, faults.data(), sizeof(used.faults));
  stream().synchronize();
  return used;
}

void LogMapHost::survey() {
  log_map::launch_count_up(stream(), memory_.ops.data(),
                           static_cast<std::uint32_t>(memory_.ops.size()));
  Used used = used_places();
  if (used.faults.outside + used.faults.twice != 0) {
    throw Error(Errc::damaged,
                concat(where_, ": ", used.faults.outside, " of its pairs have a place that there ",
                       "is not, and ", used.faults.twice, " the place of another; reopen the ",
                       "region from its last commit"));
  }
  memory_.used = std::move(used.bits);
}

std::string LogMapHost::verify() {
  return whole([&]() -> std::string {
    std::string wrong = index_->verify();
    if (!wrong.empty()) return wrong;
    behind_.synchronize();
    const Used used = used_places();
    if (used.faults.outside + used.faults.twice != 0) {
      return concat(used.faults.outside, " pairs have a place that there is not, and ",
                    used.faults.twice, " the place of another");
    }
    const DeviceBuffer<unsigned long long> differing(1);
    std::vector<std::uint32_t> bits(memory_.used.size()), list(listed_ - taken_);
    unsigned long long apart = 0;
    const core::StreamEnd end(stream());
    log_map::launch_compare(stream(), used.bits.data(), memory_.used.data(),
                            static_cast<std::uint32_t>(memory_.used.size()), differing.data());
    copy_async(stream(), bits.data(), memory_.used.data(), memory_.used.bytes());
    copy_async(stream(), list.data(), memory_.list.data() + taken_, list.size() * sizeof(list[0]));
    copy_async(stream(), &apart, differing.data(), sizeof(apart));
    stream().synchronize();
    if (apart != 0) return concat("of ", 32 * apart, " places it is not known which are used");
    std::uint64_t used_bits = 0;
    for (const std::uint32_t word : bits) used_bits += static_cast<unsigned>(std::popcount(word));
    if (used_bits != index_->stats().records) {
      return concat(index_->stats().records, " pairs have ", used_bits, " places");
    }
    // What is left of the list is free, and there once.
    for (const std::uint32_t place : list) {
      std::uint32_t& word = bits[place / 32];
      if ((word >> place % 32 & 1) != 0) return concat("place ", place, " is free and used");
      word |= 1u << place % 32;
    }
    return "";
  });
}

LogMap::Stats LogMapHost::stats() const {
  LogMap::Stats result;
  result.index = index_->stats();
  result.size = result.index.records;
  result.capacity = result.index.capacity;
  result.places = places_;
  result.free_places = free_places();
  result.value_bytes = rows_.value_bytes;
  result.max_batch = static_cast<std::uint32_t>(index_->max_batch);
  return result;
}

}  // namespace detail
}  // namespace holdfast
