#include "kv_store/log/rules.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "kv_store/impl.hpp"
#include "kv_store/log/format.hpp"

namespace holdfast::kv::log {

using detail::concat;

std::atomic<std::uint64_t> g_most_device_memory{~std::uint64_t{0}};

std::vector<Part> LogParameters::parts() const {
  const bool shaped = std::has_single_bit(segment_records) && segment_records >= kLeastSegment &&
                      segment_records <= kMostSegment && segments >= kLeastSegments &&
                      records() <= kMostRecords;
  if (!shaped || reserved != 0) {
    throw Error(Errc::invalid_argument,
                concat("store: a log of ", segments, " segments of ", segment_records,
                       " records; there are none of such a shape"));
  }
  if (capacity == 0 || capacity > kMostPairs) {
    throw Error(Errc::invalid_argument, concat("store: a log for ", capacity, " pairs; give 1 to ",
                                               kMostPairs, ", or the layout in_place"));
  }
  if (max_batch == 0 || max_batch > kMaxBatch) {
    throw Error(Errc::invalid_argument,
                concat("store: max_batch ", max_batch, "; give 1 to ", kMaxBatch, " operations"));
  }
  if (most_live(*this) < capacity + max_batch) {
    throw Error(Errc::invalid_argument,
                concat("store: a log of ", records(), " records holds ", most_live(*this),
                       " that are live, which is too few for ", capacity, " pairs and a batch of ",
                       max_batch, " operations: give more log_records"));
  }
  return {Part::array<Record>(kRecords, records()),
          Part::array<SnapshotWord>(kSnapshots,
                                    std::uint64_t{segments} * snapshot_words(segment_records)),
          Part::array<Commit>(kCommit, 1)};
}

LogParameters shape_of(const KvStore::Options& options) {
  if (options.capacity == 0 || options.capacity > kMostPairs) {
    throw Error(Errc::invalid_argument,
                concat("store: capacity ", options.capacity, "; with the layout log give 1 to ",
                       kMostPairs, " pairs, or the layout in_place"));
  }
  if (options.log != LogLayout::coalesced) {
    throw Error(Errc::invalid_argument,
                "store: the layout log has no undo log that could be a conventional one: leave "
                "`log` coalesced, or give the layout in_place");
  }
  LogParameters shape{};
  shape.capacity = options.capacity;
  shape.max_batch = options.max_batch;
  const std::uint64_t needed =
      std::min<std::uint64_t>(options.max_batch, kMaxBatch) * 2 + shape.capacity * 2;
  const bool by_default = options.log_records == 0;
  const std::uint64_t records = by_default ? needed : options.log_records;
  if (records > kMostRecords) {
    throw Error(Errc::invalid_argument, concat("store: a log of ", records, " records; there are ",
                                               kMostRecords, " at most"));
  }
  constexpr std::uint64_t kSegments = 1024;  // about as many, where segments can be of that size
  const std::uint64_t segment =
      std::clamp<std::uint64_t>(std::bit_floor(records / kSegments), kLeastSegment, kMostSegment);
  const std::uint64_t spare = by_default ? kReservedSegments + 2 : 0;
  shape.segment_records = static_cast<std::uint32_t>(segment);
  shape.segments = static_cast<std::uint32_t>(
      std::min(std::max<std::uint64_t>((records + segment - 1) / segment + spare, kLeastSegments),
               kMostRecords / segment));
  return shape;
}

KvStore::Index choose_index(KvStore::Index asked, const IndexNeeds& needs, std::uint64_t free) {
  using Form = KvStore::Index;
  const bool whole = asked == Form::whole;
  if (asked == Form::automatic && needs.whole <= free - free / 8) return Form::whole;
  if (whole && needs.whole <= free) return Form::whole;
  if (!whole && needs.fingerprints <= free) return Form::fingerprints;
  const std::string takes =
      whole ? concat(needs.whole, " bytes of device memory whole")
            : concat(needs.fingerprints,
                     " bytes of device memory as fingerprints, the form that takes the least");
  const std::string other =
      whole ? concat("take the index fingerprints, which takes ", needs.fingerprints, ", ") : "";
  throw Error(Errc::no_memory,
              concat("store: the index of a log for ", needs.pairs, " pairs and ", needs.records,
                     " records takes ", takes, ", and ", free, " are free: free some, ", other,
                     "give a smaller capacity, or make the store of the layout in_place, which "
                     "needs none"));
}

std::uint64_t most_live(const LogParameters& shape) {
  const std::uint64_t usable =
      std::uint64_t{shape.segments - kReservedSegments} * (shape.segment_records - kHeaderRecords);
  return usable - usable / 20;
}

std::uint32_t oldest_of(const std::vector<SegmentState>& segments, std::uint32_t tail) {
  std::uint32_t oldest = ~0u;
  for (std::uint32_t i = 0; i < segments.size(); ++i) {
    if (i == tail || segments[i].newest == 0) continue;
    const auto age = [&](std::uint32_t segment) {
      return std::pair(segments[segment].oldest, segments[segment].oldest_piece);
    };
    if (oldest == ~0u || age(i) < age(oldest)) oldest = i;
  }
  return oldest;
}

bool contains(const Victims& victims, std::uint32_t segment) {
  return std::find(victims.segments.begin(), victims.segments.end(), segment) !=
         victims.segments.end();
}

namespace {

// Something to copy, so that the tail can go. None: it stays, too.
void add_least_live(Victims& victims, const std::vector<SegmentState>& segments, std::uint32_t tail,
                    std::uint64_t most) {
  std::uint32_t least = ~0u;
  for (std::uint32_t i = 0; i < segments.size(); ++i) {
    if (i == tail || segments[i].live == 0 || segments[i].live > most) continue;
    if (least == ~0u || segments[i].live < segments[least].live) least = i;
  }
  if (least == ~0u) {
    std::erase(victims.segments, tail);
    return;
  }
  victims.segments.push_back(least);
  victims.live += segments[least].live;
}

}  // namespace

Victims choose_victims(const std::vector<SegmentState>& segments, std::uint32_t tail,
                       std::uint32_t segment_records, std::uint64_t run, std::uint64_t wanted,
                       std::uint64_t most, Choice choice) {
  struct Candidate {
    double score;
    std::uint32_t segment;
  };
  const std::uint32_t oldest = choice == Choice::oldest ? oldest_of(segments, tail) : ~0u;
  std::vector<Candidate> candidates;
  candidates.reserve(segments.size());
  for (std::uint32_t i = 0; i < segments.size(); ++i) {
    const SegmentState& segment = segments[i];
    if ((i == tail && choice != Choice::least) || segment.newest == 0) continue;
    if (i == oldest) {
      candidates.push_back({1e300, i});
      continue;
    }
    // A copy needs a header, too.
    const std::uint32_t kept = segment.live + segment.spare;
    if (kept + 2 * kHeaderRecords >= segment_records) continue;
    if (choice == Choice::least) {
      candidates.push_back({-static_cast<double>(kept), i});
      continue;
    }
    const double used = static_cast<double>(segment.live) / segment_records;
    const double age = static_cast<double>(run - segment.newest) + 1;
    candidates.push_back({(1 - used) * age / (1 + used), i});
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.segment < b.segment;
  };
  // A heap: of thousands of segments a few dozen are taken.
  const auto worse = [&](const Candidate& a, const Candidate& b) { return better(b, a); };
  std::make_heap(candidates.begin(), candidates.end(), worse);
  Victims victims;
  std::uint64_t gained = 0;
  while (!candidates.empty()) {
    std::pop_heap(candidates.begin(), candidates.end(), worse);
    const Candidate candidate = candidates.back();
    candidates.pop_back();
    const SegmentState& segment = segments[candidate.segment];
    if (victims.live + segment.live > most && (!victims.segments.empty() || segment.live > most)) {
      break;
    }
    victims.segments.push_back(candidate.segment);
    victims.live += segment.live;
    gained += segment_records - segment.live - segment.spare;
    if (gained >= wanted) break;
  }
  if (victims.live == 0 && contains(victims, tail)) add_least_live(victims, segments, tail, most);
  return victims;
}

}  // namespace holdfast::kv::log
