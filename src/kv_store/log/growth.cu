// A log with more room: another one beside it, which takes its name once it has all that is there.
#include <algorithm>
#include <utility>

#include "core/growth.hpp"
#include "core/region_access.hpp"
#include "core/stream_end.hpp"
#include "durable/creation.hpp"
#include "durable/removal.hpp"
#include "kv_store/log/log_store.hpp"
#include "kv_store/log/rules.hpp"

namespace holdfast::kv::log {

using detail::concat;

namespace {

constexpr const char* kParts[] = {Part::kHeader, kRecords, kSnapshots, kCommit};

std::string grown_name(std::string_view name) { return concat(name, ".grown"); }

}  // namespace

void drop_growth(Region& region, std::string_view name) {
  drop_remains<LogObject>(region, grown_name(name));
}

KvStore::Options LogStore::options_with(std::uint64_t capacity, std::uint64_t log_records) const {
  KvStore::Options options;
  options.capacity = std::max(capacity, shape_.capacity);
  options.max_batch = shape_.max_batch;
  options.layout = KvStore::Layout::log;
  options.log_records = log_records;
  options.index = asked_;
  if (capacity > shape_.capacity && log_records == 0) {
    if (shape_of(options).records() < shape_.records()) options.log_records = shape_.records();
  } else {
    options.log_records = std::max(log_records, shape_.records());
  }
  return options;
}

// What was counted before goes on: the last run says what all of them did.
void LogStore::set_counted(LogStore& other, const std::uint64_t* keys, const std::uint64_t* values,
                           std::size_t count) {
  counts_.batches = other.counts_.batches - 1;
  update(keys, values, count, nullptr);
}

void LogStore::take_over(LogStore& other) {
  counts_.inserted = other.counts_.inserted - other.pairs_;
  counts_.updated = other.counts_.updated;
  removed_ = other.removed_;
  const PinnedBuffer<KvPair> listed(other.listed_at_once());
  const std::size_t most = std::min<std::uint64_t>(max_batch, listed.size());
  const PinnedBuffer<std::uint64_t> keys(most);
  const PinnedBuffer<std::uint64_t> values(most);
  const core::StreamEnd end(stream);
  std::size_t count = 0;
  // By this one's stream: what fails there is no failure of the other.
  other.list(stream, [&](const KvPair* pairs, std::uint64_t there) {
    copy_async(stream, listed.data(), pairs, there * sizeof(KvPair));
    stream.synchronize();
    for (std::uint64_t i = 0; i < there; ++i) {
      if (listed[i].key == 0) continue;
      keys[count] = ~listed[i].key;
      values[count++] = listed[i].value;
      if (count < most) continue;
      set_counted(other, keys.data(), values.data(), std::exchange(count, 0));
    }
  });
  if (count != 0) set_counted(other, keys.data(), values.data(), count);
  if (other.pairs_ == 0 && other.counts_.batches != 0) {
    keys[0] = 0;  // an ERASE of what is not there, for a run that has the counts
    set_counted(other, keys.data(), nullptr, 1);
  }
  batch_records_ = copied_records_ = bytes_stored_ = snapshot_bytes_ = 0;  // as where it is opened
}

std::shared_ptr<LogStore> LogStore::copy_beside(std::uint64_t capacity, std::uint64_t log_records) {
  check_whole();
  if (capacity <= shape_.capacity && log_records <= shape_.records()) return nullptr;
  drop_growth(region, name_);
  const KvStore::Options options = options_with(capacity, log_records);
  const std::string grown = grown_name(name_);
  for (const char* const part : kParts) {
    core::refuse_foreign(region, where, name_, concat(grown, ".", part));
  }
  std::shared_ptr<LogStore> copy = create_store(region, grown, where, options, Room::enlarged);
  return finish_creation(
      [&] {
        copy->take_over(*this);
        copy->order = order;
        return copy;
      },
      [&] { drop_copy(copy); });
}

void LogStore::drop_copy(std::shared_ptr<LogStore>& copy) const {
  copy.reset();
  drop_growth(region, name_);
}

void LogStore::hand_over(LogStore& copy, std::vector<core::Renaming> names) {
  for (const char* const part : kParts) {
    names.push_back({concat(copy.name_, ".", part), concat(name_, ".", part)});
  }
  core::Use ended = core::RegionAccess::take_over(region, concat(name_, ".", kRecords));
  try {
    core::RegionAccess::rename(region, names);
  } catch (const std::exception&) {
    use = std::move(ended);  // it is this one's again
    throw;
  }
  copy.name_ = name_;
}

std::shared_ptr<KvStore::Impl> LogStore::grown(std::uint64_t capacity, std::uint64_t log_records) {
  std::shared_ptr<LogStore> copy = copy_beside(capacity, log_records);
  if (!copy) return nullptr;
  return finish_creation(
      [&] {
        hand_over(*copy, {});
        return copy;
      },
      [&] { drop_copy(copy); });
}

}  // namespace holdfast::kv::log
