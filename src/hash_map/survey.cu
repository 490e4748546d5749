// Looking at the whole table: opening, quiescent points, export.
#include <algorithm>

#include "hash_map/host.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::detail {

MapSurvey MapHost::look() {
  const MapView seen = view(!refs_out_);
  fill_async(stream, memory_.used.data(), 0, memory_.used.bytes());
  MapSurvey& survey = memory_.survey_host[0];
  survey = MapSurvey{};
  survey.first_damage = MapSurvey::kNowhere;
  copy_async(stream, memory_.survey.data(), &survey, sizeof(survey));
  types_.kernels->survey(stream, seen, memory_.used.data(), memory_.survey.data());
  copy_async(stream, &survey, memory_.survey.data(), sizeof(survey));
  stream.synchronize();
  return survey;
}

void MapHost::load_directory() {
  for (std::size_t i = 0; i < memory_.directory.size(); ++i) {
    const DeviceBuffer<std::byte>& copy = memory_.directory[i];
    copy_async(stream, copy.data(), table_.levels[i], copy.bytes());
  }
}

// REQUIRES: no ref is out.
MapRecovery MapHost::survey() {
  load_directory();
  const MapSurvey found = look();
  if (found.damaged != 0) {
    const std::uint64_t bucket = found.first_damage / types_.ways;
    throw Error(Errc::damaged,
                concat(where, ": ", found.damaged, " slot(s) are damaged, the first in bucket ",
                       bucket, ", slot ", found.first_damage % types_.ways,
                       ": a key that cannot be there, or a value's place that is none or another's "
                       "too; nothing was changed. Reopen the region from its last commit"));
  }
  const bool unclean = found.cleared + found.gone + found.loose != 0;
  const DeviceBuffer<std::uint8_t> duplicate(found.duplicates != 0 ? this->slots() : 0);
  const unsigned long long ends[2] = {0, 0};
  unsigned long long tail = 0;
  const core::StreamEnd end(stream);
  if (found.duplicates != 0) {
    types_.kernels->find_duplicates(stream, view(true), duplicate.data());
    types_.kernels->mend(stream, view(true), duplicate.data());
  }
  if (unclean) types_.kernels->mend(stream, view(true), nullptr);
  if (unclean || found.duplicates != 0) {
    stream.synchronize();
    load_directory();
  }
  if (shape().places != 0) {
    copy_async(stream, memory_.ends.data(), ends, sizeof(ends));
    map::launch_list_free(stream, view(true), memory_.used.data());
    copy_async(stream, &tail, memory_.ends.data() + 1, sizeof(tail));
    if (memory_.cache) memory_.cache->reconcile(stream, view(true), memory_.used.data());
  }
  stream.synchronize();
  map::tidy(region, table_);
  head_ = 0;
  sorted_until_ = 0;
  limit_ = tail;
  size_ = found.pairs;
  return {found.pairs, found.cleared + found.loose, found.gone, found.duplicates};
}

void MapHost::quiesce() {
  region.check_writable("quiesce()");
  use.lend(false);  // whatever follows: where it fails, the map has to be opened again
  whole([&] {
    stream.synchronize();
    refs_out_ = false;
    return survey();
  });
}

std::uint64_t MapHost::export_batch(std::uint64_t first, std::uint64_t slots, void* keys,
                                    void* values, const MapCollect& collect) {
  constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20;
  const std::uint64_t all = this->slots();
  if (first >= all || slots == 0) return 0;
  if (keys == nullptr) {
    throw Error(Errc::invalid_argument, where + ": export_batch() was given no place for keys");
  }
  slots = std::min(slots, all - first);
  const std::uint64_t key_bytes = shape().key_bytes;
  const std::uint64_t value_bytes = shape().value_bytes;
  const std::uint64_t piece = std::min(slots, kPieceBytes / value_bytes);
  const DeviceBuffer<std::byte> keys_out(piece * key_bytes);
  const DeviceBuffer<std::byte> values_out(values != nullptr ? piece * value_bytes : 0);
  const DeviceBuffer<unsigned long long> counter(1);
  std::uint64_t pairs = 0;
  unsigned long long found = 0;
  const core::StreamEnd end(stream);
  for (std::uint64_t from = first; from < first + slots; from += piece) {
    fill_async(stream, counter.data(), 0, sizeof(unsigned long long));
    const std::uint64_t some = std::min(piece, first + slots - from);
    if (collect) {
      collect(stream, view(!refs_out_), from, some, keys_out.data(), values_out.data(),
              counter.data());
    } else {
      types_.kernels->collect(stream, view(!refs_out_), from, some, keys_out.data(),
                              values_out.data(), counter.data());
    }
    copy_async(stream, &found, counter.data(), sizeof(found));
    stream.synchronize();
    copy_async(stream, static_cast<std::byte*>(keys) + pairs * key_bytes, keys_out.data(),
               found * key_bytes);
    if (values != nullptr) {
      copy_async(stream, static_cast<std::byte*>(values) + pairs * value_bytes, values_out.data(),
                 found * value_bytes);
    }
    stream.synchronize();
    pairs += found;
  }
  return pairs;
}

}  // namespace holdfast::detail
