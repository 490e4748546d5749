#include "kv_store/log/log_store.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "core/growth.hpp"
#include "core/kernel_memory.hpp"
#include "core/stream_end.hpp"
#include "durable/creation.hpp"
#include "durable/removal.hpp"
#include "holdfast/kernel.hpp"
#include "kv_store/log/append.hpp"
#include "kv_store/rules.hpp"
#include "undo_log/medium_store.hpp"

namespace holdfast::kv::log {

using detail::concat;

LogStore::LogStore(Region& r, std::string_view name, LogObject object, core::Use user,
                   Memory memory, KvStore::Index asked, std::string what)
    : Impl(r, std::move(user), object.parameters().max_batch, std::move(what)),
      name_(name),
      asked_(asked),
      object_(std::move(object)),
      memory_(std::move(memory)),
      shift_(base_.shift),
      most_entries_(std::min(most_live(shape_), (base_.mask + 1) / 4 * 3)),
      segments_(shape_.segments),
      taken_(shape_.segments) {
  for (std::uint32_t segment = 0; segment < shape_.segments; ++segment) free_.push_back(segment);
}

Survey LogStore::survey(const SnapshotWord* snapshots) {
  return survey_log(region, stream, shape_, medium_.records, medium_.commit, snapshots, where);
}

// By the snapshots; where they are not as the log, by the log alone, which is what decides.
Census LogStore::fill_index(Survey& by) {
  const auto load = [&](const SnapshotWord* snapshots) {
    return with_index([&](const auto& index) {
      return load_index(stream, index, by, medium_.records, snapshots);
    });
  };
  Loaded loaded = load(snapshots_);
  if (!loaded.wrong.empty() && by.snapshots != 0) {
    snapshots_refused_ = true;
    memory_.clear_index(stream);
    by = survey(nullptr);
    loaded = load(nullptr);
  }
  if (!loaded.wrong.empty()) {
    throw Error(Errc::damaged,
                concat(where, ": ", loaded.wrong, "; reopen the region from its last commit"));
  }
  if (snapshots_refused_) {
    launch_forget(stream, medium_, snapshots_, shape_);
    stream.synchronize();
  }
  return loaded.census;
}

void LogStore::load() {
  Survey survey = this->survey(snapshots_);
  recovery.needed = !survey.torn.empty();
  recovery.undone = survey.torn_records;
  opening_ = survey.openings + 1;
  store_durably(region, stream, &medium_.commit->openings, &opening_, sizeof(opening_));
  drop_headers(stream, medium_, survey.torn);
  const Census census = fill_index(survey);
  counts_ = survey.last;
  chain_ = survey.last.check;
  tail_ = survey.tail;
  tail_used_ = survey.tail_used;
  segments_ = survey.segments;
  std::erase_if(free_, [&](std::uint32_t segment) { return segments_[segment].newest != 0; });
  pairs_ = census.pairs;
  tombstones_ = census.tombstones;
  used_slots_ = census.slots;
  removed_ = counts_.inserted - pairs_;
  taken_ = survey.taken;
  snapshots_used_ = survey.snapshots;
  opened_run_ = counts_.number;
  for (const Piece& piece : survey.pieces) tail_pieces_ += piece.first >> shift_ == tail_;
}

void LogStore::check_whole() const {
  if (broken_.empty()) return;
  throw Error(Errc::device,
              concat(where, ": an earlier call failed (", broken_, "): open it again"));
}

Work LogStore::work() const {
  std::byte* const memory = memory_.work.data();
  return {reinterpret_cast<Outcome*>(memory),
          reinterpret_cast<unsigned long long*>(memory + sizeof(Outcome))};
}

void LogStore::begin_work(std::uint32_t pieces) {
  fill_async(stream, memory_.work.data(), 0, sizeof(Outcome) + pieces * sizeof(std::uint64_t));
}

Outcome LogStore::await_outcome() {
  copy_async(stream, memory_.outcome.data(), work().outcome, sizeof(Outcome));
  stream.synchronize();
  return memory_.outcome[0];
}

// ---- A batch ------------------------------------------------------------------------------------

// What kernels can read they take from where it is, as they go. Of what is copied keys come first;
// values come beside what needs the keys alone.
Batch LogStore::begin_batch(const std::uint64_t* keys, const std::uint64_t* values,
                            std::uint32_t count) {
  counts_come_ = false;
  Batch batch{memory_.keys.data(),
              values,
              count,
              {memory_.claims.data(), static_cast<std::uint32_t>(memory_.claims.size() - 1), 0},
              memory_.claim_of.data(),
              memory_.slots.data()};
  values_beside_ = false;
  if (count <= kSmallBatch) {
    stage(batch, keys, values);
    keys_at_ = batch.keys;
    return batch;
  }
  const std::size_t bytes = count * sizeof(*keys);
  keys_at_ = keys;
  if (core::in_device_memory(keys, bytes)) {
    batch.keys = keys;
  } else if (!core::readable_by_kernels(keys, bytes)) {
    copy_async(stream, memory_.keys.data(), keys, bytes);
    keys_at_ = batch.keys;
  }
  if (values != nullptr && !core::readable_by_kernels(values, bytes)) {
    values_beside_ = true;
    keys_in_.record(stream);
    keys_in_.wait(beside_);
    copy_async(beside_, memory_.values.data(), values, bytes);
    values_in_.record(beside_);
    batch.values = memory_.values.data();
  }
  return batch;
}

// A kernel reads it where it is, or else from pinned memory: a copy by the stream takes as long as
// the batch.
void LogStore::stage(Batch& batch, const std::uint64_t* keys, const std::uint64_t* values) {
  const auto within_reach = [&](const std::uint64_t* words, std::uint64_t* staged) {
    const std::size_t bytes = batch.count * sizeof(*words);
    if (core::readable_by_kernels(words, bytes)) return words;
    std::memcpy(staged, words, bytes);
    return static_cast<const std::uint64_t*>(staged);
  };
  batch.keys = within_reach(keys, memory_.staged.data());
  if (values != nullptr) batch.values = within_reach(values, memory_.staged.data() + kSmallBatch);
}

// Of a large one all comes into device memory, where it is read in another order.
void LogStore::begin_mixed(Batch& batch, const Mixed& mixed) {
  const std::uint32_t sets = batch.count - static_cast<std::uint32_t>(mixed.erases);
  Memory::Mixed& memory = *memory_.mixed;
  if (batch.count <= kSmallBatch) {
    std::uint32_t next[2] = {0, sets};
    for (std::uint32_t op = 0; op < batch.count; ++op) {
      memory.order_in[next[static_cast<unsigned>(mixed.operations[op])]++] = op;
    }
    batch.kinds = mixed.operations;
    batch.order = memory.order_in.data();
    return;
  }
  const std::size_t bytes = batch.count * sizeof(*batch.keys);
  if (keys_at_ != batch.keys) copy_async(stream, memory_.keys.data(), keys_at_, bytes);
  keys_at_ = batch.keys;
  if (!values_beside_ && !core::in_device_memory(batch.values, bytes)) {
    copy_async(stream, memory_.values.data(), batch.values, bytes);
    batch.values = memory_.values.data();
  }
  copy_async(stream, memory.kinds.data(), mixed.operations, batch.count);
  fill_async(stream, memory.cursors.data(), 0, memory.cursors.bytes());
  launch_order(stream, memory.kinds.data(), batch.count, sets, memory.order.data(),
               memory.cursors.data());
  batch.kinds = memory.kinds.data();
  batch.order = memory.order.data();
}

KvStore::BatchResult LogStore::update(const std::uint64_t* keys, const std::uint64_t* values,
                                      std::size_t count, const Mixed* mixed) {
  region.check_writable("a batch");
  check_whole();
  check_count(count);
  if (count == 0) return {};
  if (mixed != nullptr && mixed->erases == 0) mixed = nullptr;  // it is as any other
  const auto operations = static_cast<std::uint32_t>(count);
  if (mixed != nullptr && !memory_.mixed) {
    memory_.mixed.emplace(static_cast<std::uint32_t>(max_batch));
  }
  try {
    make_room(operations);
    const bool small = operations <= kSmallBatch;
    timed_ = false;
    if (!small) marks[0].record(stream);
    Batch batch = begin_batch(keys, values, operations);
    if (!small) marks[1].record(stream);
    if (mixed != nullptr) begin_mixed(batch, *mixed);
    // Which SETs of a mixed batch have a record is known once all of its keys are claimed.
    const bool sure = batch.erases() || (is_sure(operations) && (small || mixed == nullptr));
    if (!sure) check_counts(batch);
    const std::size_t erases = mixed != nullptr ? mixed->erases : batch.erases() ? count : 0;
    RunPlan run = plan(operations, erases);
    run.before.batches += 1;
    const Outcome done = small ? run_small(batch, run) : run_large(batch, run, sure);
    const KvStore::BatchResult result = finish(batch, run, done);
    clean_behind(operations);
    return result;
  } catch (const Error& error) {
    if (error.code() != Errc::no_space && error.code() != Errc::invalid_argument) {
      broken_ = error.what();
    }
    throw;
  } catch (const std::exception& error) {
    broken_ = error.what();
    throw;
  }
}

Outcome LogStore::run_small(const Batch& batch, const RunPlan& run) {
  ++ticket_;
  with_index([&](const auto& index) {
    launch_small(stream, medium_, index, batch, run, memory_.report.data(), ticket_);
  });
  core::await_word(stream, &memory_.report[0].ticket, ticket_);
  return memory_.report[0].outcome;
}

KeysIn LogStore::begin_claims(Batch& batch, std::uint32_t pieces) {
  batch.claims.tag = tag_ = next_tag(stream, tag_, memory_.claims);
  begin_work(pieces);
  const KeysIn in{keys_at_, keys_at_ == batch.keys ? nullptr : memory_.keys.data()};
  keys_at_ = batch.keys;
  if (in.to != nullptr) fill_async(stream, in.to, 0xff, batch.count * sizeof(*in.to));
  return in;
}

Outcome LogStore::run_large(Batch batch, const RunPlan& run, bool sure) {
  // Of fingerprints lookups wait for the link, too: beside stores that do, they would wait for
  // them. The append of an ERASE needs what they found.
  const bool whole = memory_.form() == KvStore::Index::whole;
  const bool looks = sure && whole && !batch.erases();
  Ahead ahead;
  if (sure) {  // or else they were claimed, and looked up, by check_counts()
    const KeysIn keys = begin_claims(batch, run.pieces);
    if (looks && !values_beside_) {
      const bool here = core::in_device_memory(batch.values, batch.count * sizeof(*batch.values));
      ahead = {Ahead::part_of(pages_of(run)), here ? nullptr : memory_.values.data()};
      launch_claim_ahead(stream, medium_, keys, batch, run, ahead, work());
    } else {
      launch_claim(stream, keys, batch, work().outcome);
    }
  }
  marks[2].record(stream);
  if (sure && !looks) look_up(batch);
  if (sure && values_beside_) values_in_.wait(stream);
  with_index([&](const auto& index) {
    launch_step(stream, medium_, index, batch, run, ahead, looks, work());
  });
  marks[3].record(stream);
  marks[4].record(stream);
  timed_ = true;
  if (room() < 2 * std::uint64_t{batch.count} + room_kept(batch.count)) bring_counts();
  return await_outcome();
}

bool LogStore::ordered(std::size_t count, bool updates) const {
  if (memory_.form() == KvStore::Index::whole) return false;
  if (order != KvStore::Order::automatic) return order == KvStore::Order::ordered;
  return ordering_pays(shape_.records() * sizeof(Record), false, count, updates);
}

void LogStore::look_up(const Batch& batch) {
  if (ordered(batch.count, true)) {
    memory_.order->look(stream, std::get<FingerprintIndex>(index_), batch, work().outcome);
    return;
  }
  with_index([&](const auto& index) { launch_look(stream, index, batch, work().outcome); });
}

// Where there may be too many pairs, they are counted before anything is written. Each count is of
// the whole batch: so twice as many tombstones go each time, should more have to than there are too
// many, since the batch would have revived some of those that went.
void LogStore::check_counts(Batch batch) {
  for (std::uint64_t drop = 1;; drop *= 2) {
    const KeysIn keys = begin_claims(batch, shape_.segments);  // a run has no more pieces
    launch_claim(stream, keys, batch, work().outcome);
    if (values_beside_) values_in_.wait(stream);
    look_up(batch);
    const Outcome found = await_outcome();
    if (found.reserved_keys != 0) return;  // it is refused for that
    const std::uint64_t pairs = pairs_ + found.inserted;
    if (pairs - found.removed > shape_.capacity) {
      throw Error(Errc::no_space,
                  concat("store: a batch with ", found.inserted, " new keys, and ", pairs_,
                         " pairs are there; its capacity is ", shape_.capacity,
                         ": erase some, or make a store of a larger capacity. Nothing of this "
                         "batch was stored"));
    }
    const std::uint64_t entries = pairs + tombstones_ - found.revived;
    if (entries > most_entries_) {
      drop = std::max(drop, entries - most_entries_);
      if (drop_tombstones(drop)) continue;
      throw Error(Errc::no_space,
                  concat("store: a batch with ", found.inserted, " new keys beside ", pairs_,
                         " pairs, of which those that it erases stay as tombstones, and ",
                         tombstones_ - found.revived,
                         " other tombstones; the index and the log hold ", most_entries_,
                         " together: erase in a batch of its own first, split the batch, or make "
                         "a store of a larger capacity. Nothing of this batch was stored"));
    }
    // Slots that were given up and that searches still pass by can be taken again: without others
    // searches are longer, and that is all.
    if (used_slots_ + found.inserted <= most_slots() || gone_slots_ == 0) return;
    sweep();
  }
}

KvStore::BatchResult LogStore::finish(const Batch& batch, const RunPlan& run, const Outcome& done) {
  if (done.reserved_keys != 0) {
    throw Error(Errc::invalid_argument, concat("store: ", done.reserved_keys,
                                               " operation(s) have the key ", KvStore::kReservedKey,
                                               ", which marks an empty place and cannot be "
                                               "stored; nothing of this batch was"));
  }
  if (done.committed == 0 || done.lost != 0) {
    throw Error(Errc::device, concat(where,
                                     ": a batch was not committed, or its index has no slot "
                                     "for ",
                                     done.lost, " keys"));
  }
  counts_.batches += 1;
  counts_.inserted += done.inserted;
  counts_.updated += done.updated;
  counts_.digest += done.digest;
  pairs_ += done.inserted - done.removed;
  removed_ += done.removed;
  tombstones_ += done.removed - done.revived;
  used_slots_ += done.slots;
  batch_records_ += batch.count;
  advance(run, done);
  return {done.inserted, done.updated, 0, done.removed};
}

void LogStore::get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
                   std::size_t count) {
  check_whole();
  check_count(count);
  if (count == 0) return;
  if (memory_.values_out.size() == 0) {
    DeviceBuffer<std::uint64_t> values_out(max_batch);
    memory_.found_out = DeviceBuffer<std::uint8_t>(max_batch);
    memory_.values_out = std::move(values_out);
  }
  timed_ = true;
  core::StreamEnd end(stream);  // what is queued uses the caller's arrays
  marks[0].record(stream);
  copy_async(stream, memory_.keys.data(), keys, count * sizeof(*keys));
  marks[1].record(stream);
  marks[2].record(stream);
  find(static_cast<std::uint32_t>(count));
  marks[3].record(stream);
  copy_async(stream, values, memory_.values_out.data(), count * sizeof(*values));
  copy_async(stream, found, memory_.found_out.data(), count);
  marks[4].record(stream);
  stream.synchronize();
  end.has_come();
}

// Of the keys that came into device memory.
void LogStore::find(std::uint32_t count) {
  const std::uint64_t* const keys = memory_.keys.data();
  std::uint64_t* const values = memory_.values_out.data();
  std::uint8_t* const found = memory_.found_out.data();
  if (ordered(count, false)) {
    memory_.order->get(stream, std::get<FingerprintIndex>(index_), keys, values, found, count);
    return;
  }
  with_index([&](const auto& index) { launch_get(stream, index, keys, values, found, count); });
}

detail::KvView LogStore::view() {
  check_whole();
  return with_index([](const auto& index) { return index.view(); });
}

std::uint64_t LogStore::listed_at_once() const {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 18;
  return std::min(kPiece, with_index([](const auto& index) { return index.listed(); }));
}

void LogStore::list(const Take& take) { list(stream, take); }

void LogStore::list(Stream& on, const Take& take) {
  check_whole();
  const std::uint64_t all = with_index([](const auto& index) { return index.listed(); });
  const DeviceBuffer<KvPair> listed(listed_at_once());
  const core::StreamEnd end(on);
  for (std::uint64_t first = 0; first < all; first += listed.size()) {
    const std::uint64_t count = std::min<std::uint64_t>(listed.size(), all - first);
    with_index([&](const auto& index) { launch_list(on, index, first, count, listed.data()); });
    take(listed.data(), count);
  }
  on.synchronize();
}

std::uint64_t LogStore::scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit) {
  std::vector<KvPair> pairs(listed_at_once());
  std::uint64_t records = 0;
  const core::StreamEnd end(stream);
  list([&](const KvPair* listed, std::uint64_t count) {
    copy_async(stream, pairs.data(), listed, count * sizeof(KvPair));
    stream.synchronize();
    for (const KvPair& pair : std::span(pairs).first(count)) {
      if (pair.key == 0) continue;
      if (records < limit && keys != nullptr) keys[records] = ~pair.key;
      if (records < limit && values != nullptr) values[records] = pair.value;
      ++records;
    }
  });
  return records;
}

std::string LogStore::verify() {
  check_whole();
  const Survey survey = this->survey(nullptr);
  if (survey.run != counts_.number) {
    return concat("run ", counts_.number, " is the last, and the medium has ", survey.run);
  }
  if (survey.last.digest != counts_.digest) return "the last run is of other pairs";
  for (std::uint32_t i = 0; i < shape_.segments; ++i) {
    const bool is_free = std::find(free_.begin(), free_.end(), i) != free_.end();
    if (is_free == (survey.segments[i].newest != 0)) {
      return concat("segment ", i, is_free ? " is free, and has runs" : " is not free, and empty");
    }
  }
  const std::string wrong = with_index([&](const auto& index) {
    return audit_log(stream, index, survey, medium_.records, shape_.segments);
  });
  if (!wrong.empty()) return wrong;
  const std::vector<std::uint64_t> taken = this->survey(snapshots_).taken;
  const std::uint64_t missing = with_index(
      [&](const auto& index) { return count_missing(stream, index, snapshots_, taken); });
  return missing == 0 ? std::string() : concat("the snapshots lack ", missing, " live records");
}

KvStore::Stats LogStore::stats() {
  KvStore::Stats result;
  result.records = pairs_;
  result.capacity = shape_.capacity;
  result.max_batch = max_batch;
  result.batches = counts_.batches;
  result.index = memory_.form();
  result.cached = result.index == KvStore::Index::whole;
  result.total = {counts_.inserted, counts_.updated, 0, removed_};
  result.layout = KvStore::Layout::log;
  result.log_records = shape_.records();
  result.live_records = pairs_ + tombstones_;
  result.tombstones = tombstones_;
  result.segment_records = shape_.segment_records;
  result.segments = shape_.segments;
  result.free_segments = free_.size();
  result.batch_records = batch_records_;
  result.copied_records = copied_records_;
  result.bytes_stored = bytes_stored_ + snapshot_bytes_;
  add_snapshot_stats(result);
  return result;
}

KvStore::Timing LogStore::timing() { return timed_ ? Impl::timing() : KvStore::Timing{}; }

namespace {

core::Use take_over(const Region& region, std::string_view name) {
  return core::RegionAccess::take_over(region, concat(name, ".", kRecords));
}

}  // namespace

std::shared_ptr<LogStore> create_store(Region& region, std::string_view name,
                                       const std::string& what, const KvStore::Options& options,
                                       Room room) {
  const LogParameters shape = shape_of(options);
  (void)LogObject::bytes(shape);  // refuses parameters before there is memory for them
  drop_growth(region, name);
  Memory memory = Memory::make(shape, options.index);
  // Behind device memory, which may be wanting: a region that was enlarged stays so.
  const auto create = [&] { return LogObject::create(region, name, shape); };
  LogObject object = room == Room::as_it_is ? create()
                                            : core::make_enlarging(region, what, std::string(name),
                                                                   LogObject::bytes(shape), create);
  return finish_creation(
      [&] {
        return std::make_shared<LogStore>(region, name, std::move(object), take_over(region, name),
                                          std::move(memory), options.index, what);
      },
      [&] { LogObject::remove(region, name); });
}

std::shared_ptr<LogStore> open_store(Region& region, std::string_view name, const std::string& what,
                                     KvStore::Index index) {
  LogObject object = LogObject::open(region, name);
  core::Use use = take_over(region, name);
  Memory memory = Memory::make(object.parameters(), index);
  auto store = std::make_shared<LogStore>(region, name, std::move(object), std::move(use),
                                          std::move(memory), index, what);
  store->load();
  if (!region.read_only()) drop_growth(region, name);
  return store;
}

void remove_store(Region& region, std::string_view name) {
  remove_in_use<LogObject>(region, name, kRecords);
  drop_growth(region, name);
}

}  // namespace holdfast::kv::log

namespace holdfast::kv {

bool is_log(const Region& region) {
  const auto has = [&](const char* part) {
    return region.contains(detail::concat(kName, ".", part));
  };
  return has("header") && (has(log::kRecords) || has(log::kCommit));
}

std::shared_ptr<KvStore::Impl> create_log(Region& region, const KvStore::Options& options) {
  return log::create_store(region, kName, where_of(region), options);
}

std::shared_ptr<KvStore::Impl> open_log(Region& region, KvStore::Index index) {
  return log::open_store(region, kName, where_of(region), index);
}

void remove_log(Region& region) { log::remove_store(region, kName); }

void drop_log_growth(Region& region) { log::drop_growth(region, kName); }

std::uint64_t log_region_bytes(const KvStore::Options& options) {
  return log::LogObject::region_bytes(log::shape_of(options));
}

}  // namespace holdfast::kv
