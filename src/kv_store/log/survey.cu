#include "kv_store/log/survey.hpp"

#include <algorithm>

#include "undo_log/medium_store.hpp"

namespace holdfast::kv::log {
namespace {

using detail::concat;

constexpr const char* kRemedy = "; reopen the region from its last commit";

class Surveyor {
 public:
  Surveyor(const Region& region, Stream& stream, const LogParameters& shape, const Record* records,
           const SnapshotWord* snapshots, const std::string& where)
      : on_device_(region.domain() == Domain::device),
        stream_(stream),
        shape_(shape),
        records_(records),
        snapshots_(snapshots),
        where_(where) {}

  Survey run(const Commit* commit) {
    Commit word{};
    read(&word, commit, sizeof(word));
    survey_.run = run_of_word(word.word);
    survey_.openings = word.openings;
    if (commit_word(survey_.run) != word.word) {
      throw damaged("its commit word is none that a store writes");
    }
    survey_.segments.resize(shape_.segments);
    survey_.taken.resize(shape_.segments);
    for (std::uint32_t segment = 0; segment < shape_.segments; ++segment) read_segment(segment);
    find_tail();
    rank();
    return std::move(survey_);
  }

 private:
  void read(void* to, const void* from, std::size_t bytes) {
    if (on_device_) {
      read_back(stream_, to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  Error damaged(const std::string& what) const {
    return Error(Errc::damaged, concat(where_, ": ", what, kRemedy));
  }

  static std::string place(std::uint64_t run, std::uint32_t segment, std::uint32_t used) {
    return concat("run ", run, " (segment ", segment, ", record ", used, ")");
  }

  void read_segment(std::uint32_t segment) {
    if (snapshots_ != nullptr && go_by_snapshot(segment)) return;
    std::uint64_t chain = 0;
    for (std::uint32_t used = 0; used + kHeaderRecords < shape_.segment_records;) {
      const std::uint32_t position = segment * shape_.segment_records + used;
      const auto* const at = reinterpret_cast<const RunHeader*>(records_ + position);
      if (is_none(at)) return;
      RunHeader header;
      read(&header, at, sizeof(header));
      if (header.check == 0 || header.check != header_check(header, chain, position)) {
        suspect(header, segment, used);
        return;
      }
      if (!is_sound(header, used)) {
        throw damaged(concat("the header of ", place(header.number, segment, used),
                             " is none that a store writes"));
      }
      if (header.number > survey_.run) {
        // The run behind the last one that is committed: a crash cut it off.
        if (header.number > survey_.run + 1 || is_torn_in(segment)) {
          throw damaged(concat(place(header.number, segment, used),
                               " is there, and the commit word", " says that run ", survey_.run,
                               " is the last"));
        }
        survey_.torn.push_back(position);
        survey_.torn_records += header.records;
        used += kHeaderRecords + header.records;
        chain = header.check;
        continue;  // what follows it is none, or the word is wrong
      }
      SegmentState& state = survey_.segments[segment];
      if (header.number <= state.newest || is_torn_in(segment)) {
        throw damaged(concat(place(header.number, segment, used), " is behind run ", state.newest));
      }
      if (state.newest == 0) {
        state.oldest = header.number;
        state.oldest_piece = header.piece;
      }
      state.newest = header.number;
      survey_.pieces.push_back({position + kHeaderRecords, 0, false, header});
      used += kHeaderRecords + header.records;
      chain = header.check;
      if (header.number == survey_.run && header.piece == header.pieces - 1) {
        survey_.tail = segment;
        survey_.tail_used = used;
        survey_.last = header;
      }
    }
  }

  // Whether the segment's snapshot counts, which then stands for all that it has.
  bool go_by_snapshot(std::uint32_t segment) {
    const auto* const at = reinterpret_cast<const SnapshotHeader*>(
        snapshots_ + snapshot_offset(segment, shape_.segment_records));
    if (is_none(at)) return false;
    SnapshotHeader snapshot;
    read(&snapshot, at, sizeof(snapshot));
    if (snapshot.check == 0 || snapshot.check != snapshot_check(snapshot, segment)) return false;
    const std::uint32_t position = segment * shape_.segment_records;
    RunHeader first;
    read(&first, records_ + position, sizeof(first));
    const bool whole = first.check != 0 && first.check == header_check(first, 0, position);
    if (!whole || !is_sound(first, 0) || first.check != snapshot.life) return false;
    if (first.number != snapshot.oldest || first.piece != snapshot.oldest_piece) return false;
    if (snapshot.newest < snapshot.oldest || snapshot.run < snapshot.newest ||
        snapshot.run > survey_.run) {
      return false;
    }
    SegmentState& state = survey_.segments[segment];
    state.oldest = snapshot.oldest;
    state.oldest_piece = snapshot.oldest_piece;
    state.newest = snapshot.newest;
    survey_.taken[segment] = snapshot.run;
    ++survey_.snapshots;
    Piece piece{position, 0, true, {}};
    piece.header.number = snapshot.run;
    piece.header.records = shape_.segment_records;
    piece.header.sum = snapshot.bits;
    survey_.pieces.push_back(piece);
    return true;
  }

  // By one word, so that a crash state in which it is none is one, whatever else it has of a
  // header. Over the link each read is a trip, and one is enough.
  template <class Header>
  bool is_none(const Header* header) {
    if (on_device_) return false;
    std::uint64_t check = 0;
    read(&check, &header->check, sizeof(check));
    return check == 0;
  }

  // Whether a piece of a run that does not count was found in this segment: a run has one there.
  bool is_torn_in(std::uint32_t segment) const {
    return !survey_.torn.empty() && survey_.torn.back() / shape_.segment_records == segment;
  }

  bool is_sound(const RunHeader& header, std::uint32_t used) const {
    return header.number != 0 && header.number <= kMostRuns && header.records != 0 &&
           header.records <= shape_.segment_records - used - kHeaderRecords &&
           header.tombstones <= header.records && header.piece < header.pieces &&
           header.pieces <= shape_.segments;
  }

  // Every segment ends with something that is no header: what was there before, as a rule.
  void suspect(const RunHeader& header, std::uint32_t segment, std::uint32_t used) {
    const bool plausible = header.check != 0 && header.number != 0 &&
                           header.number <= survey_.run && header.piece < header.pieces &&
                           header.pieces <= shape_.segments;
    if (!plausible || !survey_.suspect.empty()) return;
    survey_.suspect = concat(", such as the header of ", place(header.number, segment, used));
  }

  // The last piece of the last run is in the tail, which is never cleaned. Others may have been
  // cleaned away, if all of them was dead.
  void find_tail() {
    if (survey_.run == 0) return;
    std::uint32_t there = 0;
    for (const Piece& piece : survey_.pieces) {
      there += !piece.snapshot && piece.header.number == survey_.run;
    }
    if (survey_.tail == ~0u) {
      throw damaged(concat("run ", survey_.run,
                           ", the last that was committed, has no whole header ",
                           "of its last piece", survey_.suspect));
    }
    // Snapshots stand for pieces of any runs.
    if (there == survey_.last.pieces || survey_.snapshots != 0 || !survey_.suspect.empty()) return;
    survey_.suspect = concat(", such as run ", survey_.run, ", of whose ", survey_.last.pieces,
                             " pieces ", there, " have a whole header");
  }

  // A record that a snapshot has was live when its run was the last, and so is newer than any other
  // that was there then. No two such of a key are of one run.
  void rank() {
    std::vector<Piece*> order;
    order.reserve(survey_.pieces.size());
    for (Piece& piece : survey_.pieces) order.push_back(&piece);
    std::sort(order.begin(), order.end(), [](const Piece* a, const Piece* b) {
      const RunHeader& x = a->header;
      const RunHeader& y = b->header;
      if (x.number != y.number) return x.number < y.number;
      return a->snapshot != b->snapshot ? b->snapshot : x.piece < y.piece;
    });
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const RunHeader& header = order[i]->header;
      if (i > 0 && !order[i]->snapshot && !order[i - 1]->snapshot &&
          order[i - 1]->header.number == header.number &&
          order[i - 1]->header.piece == header.piece) {
        throw damaged(concat("run ", header.number, " has piece ", header.piece, " twice"));
      }
      order[i]->rank = rank;
      rank += header.records;
    }
  }

  bool on_device_;
  Stream& stream_;
  const LogParameters& shape_;
  const Record* records_;
  const SnapshotWord* snapshots_;
  const std::string& where_;
  Survey survey_;
};

}  // namespace

Survey survey_log(const Region& region, Stream& stream, const LogParameters& shape,
                  const Record* records, const Commit* commit, const SnapshotWord* snapshots,
                  const std::string& where) {
  return Surveyor(region, stream, shape, records, snapshots, where).run(commit);
}

}  // namespace holdfast::kv::log
