// Scores, and batches that evict.
#include <utility>

#include "hash_map/host.hpp"

namespace holdfast {

using detail::concat;

namespace map {
namespace {

std::size_t bits_for(std::uint64_t slots) { return static_cast<std::size_t>((slots + 31) / 32); }

}  // namespace

Scores::Scores(MapScores of, std::uint64_t slots)
    : policy(of), of_slot(static_cast<std::size_t>(slots)) {}

void Scores::extend(Stream& stream, DeviceBuffer<unsigned long long> larger, std::uint64_t added) {
  fill_async(stream, larger.data(), 0, added * sizeof(unsigned long long));
  copy_async(stream, larger.data() + added, of_slot.data(),
             (larger.size() - added) * sizeof(unsigned long long));
  stream.synchronize();
  of_slot = std::move(larger);
  taken.reset();
}

void Scores::make_room_for_batch(std::uint32_t max_batch, std::uint32_t key_bytes) {
  if (taken.size() == 0) taken = DeviceBuffer<unsigned>(bits_for(of_slot.size()));
  if (went_host.size() != 0) return;
  given = DeviceBuffer<unsigned long long>(max_batch);
  rank = DeviceBuffer<std::uint32_t>(max_batch);
  row = DeviceBuffer<std::uint32_t>(max_batch);
  went_keys = DeviceBuffer<std::byte>(std::size_t{max_batch} * key_bytes);
  went_scores = DeviceBuffer<unsigned long long>(max_batch);
  went = DeviceBuffer<unsigned>(1);
  went_host = PinnedBuffer<unsigned>(1);
}

std::unique_ptr<Scores> make_scores(MapScores policy, std::uint64_t slots) {
  if (policy != MapScores::none && policy != MapScores::lru && policy != MapScores::lfu &&
      policy != MapScores::custom) {
    throw Error(Errc::invalid_argument,
                concat("hash map: scores ", static_cast<int>(policy),
                       " are none that there are; give MapScores::none, lru, lfu or custom"));
  }
  if (policy == MapScores::none) return nullptr;
  const std::uint64_t bytes = slots * sizeof(unsigned long long);
  const std::uint64_t free = backend::free_device_memory();
  if (bytes > free) {
    throw Error(Errc::no_memory,
                concat("hash map: its scores take ", bytes, " bytes of device memory, and ", free,
                       " are free: free some, or open it without scores"));
  }
  return std::make_unique<Scores>(policy, slots);
}

}  // namespace map

namespace detail {

map::Scores& MapHost::scored(const char* what) const {
  if (memory_.scores) return *memory_.scores;
  throw Error(Errc::invalid_argument,
              concat(where, ": ", what,
                     " takes scores, and it was opened without: give `scores` as it is made or "
                     "opened (MapOptions, MapOpenOptions)"));
}

// Accesses of what a batch has found, or left with a value.
void MapHost::score(const MapView& view, const MapBatch& batch, const std::uint64_t* given,
                    bool evicts) {
  if (!batch.alone || memory_.scores == nullptr) return;
  map::Scores& scores = *memory_.scores;
  if (scores.policy == MapScores::custom && given == nullptr) return;
  ++scores.now;
  if (evicts) fill_async(stream, scores.taken.data(), 0, scores.taken.bytes());
  const MapScoring scoring{scores.policy, scores.now,
                           given != nullptr ? scores.given.data() : nullptr,
                           evicts ? scores.taken.data() : nullptr};
  types_.kernels->score(stream, view, batch, scoring);
}

// What is not done goes, or has another pair go.
void MapHost::evict(MapView view, const MapBatch& batch, Evicting& evicting) {
  map::Scores& scores = *memory_.scores;
  const MapScoring scoring{scores.policy, scores.now,
                           evicting.scores != nullptr ? scores.given.data() : nullptr, nullptr};
  const MapVictims victims{scores.taken.data(), scores.rank.data(),      scores.row.data(),
                           scores.went.data(),  scores.went_keys.data(), scores.went_scores.data(),
                           evicting.values};
  end_places(memory_.report_host[0]);  // what has come free in this batch is there for the rest
  view.limit = limit_;
  fill_async(stream, scores.went.data(), 0, sizeof(unsigned));
  types_.kernels->choose_victims(stream, view, batch, scoring, victims);
  copy_async(stream, scores.went_host.data(), scores.went.data(), sizeof(unsigned));
  if (changes) {
    stream.synchronize();
    MapBatch gone = batch;
    gone.keys = scores.went_keys.data();
    gone.count = scores.went_host[0];
    changes->recorded(batch.count);
    changes->record(stream, gone);
  }
  types_.kernels->replace_victims(stream, view, batch, scoring, victims);
  report_again(view, batch);
  const auto not_done = [&](MapStatus status) {
    return memory_.report_host[0].counts[static_cast<unsigned>(status)];
  };
  evicting.went = scores.went_host[0];
  evicting.evicted = evicting.went - not_done(MapStatus::full) - not_done(MapStatus::no_value);
}

void MapHost::check_evicts(const void* values, const std::uint64_t* given, std::size_t count,
                           const MapWent& went) const {
  const auto refuse = [&](const char* what) {
    throw Error(Errc::invalid_argument, concat(where, ": insert_and_evict() ", what));
  };
  const map::Scores& scores = scored("insert_and_evict()");
  refuse_refs("insert_and_evict()");
  if (table_.growing) {
    refuse("while the table grows, which has slots that are kept: migrate() to its end first");
  }
  if (went.keys == nullptr || went.values == nullptr) {
    refuse(
        "was given no place for the keys and values that go: give room for one of each for "
        "each operation");
  }
  if (overlap(went.values, values, count * shape().value_bytes)) {
    refuse("was given a place for the values that go which meets `values`: give it one of its own");
  }
  if (scores.policy == MapScores::custom && given == nullptr) {
    refuse("without scores, and the map's are `custom`: give one for each operation");
  }
  if (scores.policy == MapScores::lru && given != nullptr) {
    refuse("with scores, and the map's are `lru`, made of the number of the batch: give none");
  }
}

MapEviction MapHost::insert_and_evict(const void* keys, const void* values,
                                      const std::uint64_t* given, std::size_t count,
                                      const MapWent& went, MapStatus* status) {
  check_count(count);
  if (count != 0) check_evicts(values, given, count, went);
  Evicting evicting;
  evicting.scores = given;
  MapEviction eviction;
  constexpr MapOperation kPut = MapOperation::insert_or_assign;
  eviction.result = run_batch(kPut, keys, values, nullptr, count, [&] {
    map::Scores& scores = *memory_.scores;
    scores.make_room_for_batch(max_batch_, shape().key_bytes);
    copy_async(stream, scores.given.data(), given, given != nullptr ? count * sizeof(*given) : 0);
    evicting.values = reach_out(went.values, count * shape().value_bytes);
    const MapResult result = apply(kPut, keys, values, nullptr, static_cast<std::uint32_t>(count),
                                   status, nullptr, &evicting);
    const std::uint64_t rows = evicting.went;
    copy_async(stream, went.keys, scores.went_keys.data(), rows * shape().key_bytes);
    if (evicting.values != went.values) {
      copy_async(stream, went.values, evicting.values, rows * shape().value_bytes);
    }
    if (went.scores != nullptr) {
      copy_async(stream, went.scores, scores.went_scores.data(), rows * sizeof(*went.scores));
    }
    stream.synchronize();
    return result;
  });
  eviction.evicted = evicting.evicted;
  return eviction;
}

void MapHost::scores(const void* keys, std::uint64_t* scores, std::uint8_t* found,
                     std::size_t count) {
  (void)scored("scores()");
  refuse_refs("scores()");
  check_count(count);
  if (count == 0) return;
  MapBatch batch = lookups(keys, found, count);
  if (scores == nullptr) {
    throw Error(Errc::invalid_argument,
                where + ": scores() was given no place for scores: give it one for each key");
  }
  const DeviceBuffer<unsigned long long> out(count);
  const core::StreamEnd end(stream);
  take_keys(batch, keys);
  types_.kernels->scores_of(stream, view(true), batch, out.data());
  copy_async(stream, scores, out.data(), out.bytes());
  copy_async(stream, found, memory_.found.data(), count);
  stream.synchronize();
}

}  // namespace detail
}  // namespace holdfast
