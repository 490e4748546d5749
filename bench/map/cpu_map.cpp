// A map in the CPU's hands: pairs in records on the medium, an index of them in memory, which
// opening makes anew; in shards, each with records of its own.
#include <immintrin.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "bench.hpp"
#include "keys.hpp"
#include "link_copies.hpp"
#include "medium.hpp"

namespace maps {
namespace {

constexpr unsigned kShardBits = 8, kShards = 1u << kShardBits;
constexpr std::uint32_t kGroup = 64;  // operations between two fences, of whoever has a shard alone
constexpr std::uint32_t kAhead = 16;  // operations that the index is asked for before their turn
constexpr std::uint64_t kChunk = 256;  // operations that a thread takes at a time
constexpr std::size_t kLine = 64;

// Counts once its number is there, which is stored when everything else is durable. Of two records
// of one key the one of the higher number counts.
template <unsigned Words>
struct alignas(kLine) Record {
  static constexpr const char* kTypeName =
      Words == 1 ? "map_rival_record_8" : "map_rival_record_32";
  std::uint64_t number;  // of the change, in its shard; 0: free
  Key<Words> key;
  std::byte value[kValueBytes];
};
static_assert(sizeof(Record<1>) == sizeof(Record<4>) && sizeof(Record<1>) == 3 * kLine);

// By the upper half of a hash: its first bits say the shard, and those behind them the place in the
// shard's index, so that what is sorted by it walks through both.
std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
std::uint32_t shard_of(std::uint32_t tag) { return tag >> (32 - kShardBits); }

// Open addressing without gravestones. Entries are read by prefetches beside their changes.
class Index {
 public:
  struct Entry {
    std::uint32_t tag;
    std::uint32_t record;  // + 1; 0: empty
  };

  explicit Index(std::uint64_t records)
      : bits_(static_cast<unsigned>(std::bit_width(records * 3 / 2 | 15))),
        entries_(std::size_t{1} << bits_) {}

  void prefetch(std::uint32_t tag) const { __builtin_prefetch(&entries_[home(tag)]); }
  // The first of this tag; whatever it is, to be asked for.
  std::uint32_t guess(std::uint32_t tag) const { return load(home(tag)).record; }

  // The first entry from `at` on for which same(record) holds, or the empty one that ends the
  // search.
  template <class Same>
  std::size_t find(std::uint32_t tag, const Same& same) const {
    std::size_t at = home(tag);
    for (;; at = next(at)) {
      const Entry entry = load(at);
      if (entry.record == 0 || (entry.tag == tag && same(entry.record - 1))) return at;
    }
  }
  Entry operator[](std::size_t at) const { return load(at); }
  void set(std::size_t at, Entry entry) {
    std::atomic_ref(entries_[at])
        .store(std::bit_cast<std::uint64_t>(entry), std::memory_order_relaxed);
  }
  // What stands behind it moves up.
  void remove(std::size_t hole) {
    for (std::size_t at = next(hole); load(at).record != 0; at = next(at)) {
      const std::size_t wants = home(load(at).tag);
      // Whether `wants` is behind the hole, up to `at`, around the end.
      if (((at - wants) & mask()) < ((at - hole) & mask())) continue;
      set(hole, load(at));
      hole = at;
    }
    set(hole, {});
  }

 private:
  std::size_t mask() const { return entries_.size() - 1; }
  std::size_t next(std::size_t at) const { return (at + 1) & mask(); }
  std::size_t home(std::uint32_t tag) const {
    return static_cast<std::size_t>(std::uint32_t{tag << kShardBits} >> (32 - bits_));
  }
  Entry load(std::size_t at) const {
    return std::bit_cast<Entry>(std::atomic_ref(entries_[at]).load(std::memory_order_relaxed));
  }
  unsigned bits_;
  mutable std::vector<std::uint64_t> entries_;
};

struct alignas(kLine) Shard {
  explicit Shard(std::uint64_t records) : index(records) {}
  Index index;
  std::vector<std::uint32_t> free;
  std::uint64_t number = 0;  // of its last change
};

class SpinLock {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire)) _mm_pause();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  alignas(kLine) std::atomic<bool> held_{false};
};

// Thread safety: one thread for each shard.
template <unsigned Words>
class Shards {
 public:
  static std::uint32_t records_of_shard(std::uint64_t keys) {
    const double mean = static_cast<double>(keys) / kShards;
    return static_cast<std::uint32_t>(mean + 6 * std::sqrt(mean)) + kGroup + 64;
  }

  // Of what is on the medium. Throws std::runtime_error if that cannot be.
  Shards(Record<Words>* records, std::uint32_t per_shard) : records_(records) {
    shards_.reserve(kShards);
    for (std::uint32_t s = 0; s < kShards; ++s) {
      Shard& shard = shards_.emplace_back(per_shard);
      const std::uint32_t first = s * per_shard;
      for (std::uint32_t r = first; r < first + per_shard; ++r) {
        if (records[r].number != 0) take_in(shard, s, r);
      }
      for (std::uint32_t r = first + per_shard; r-- > first;) {
        if (records[r].number == 0) shard.free.push_back(r);
      }
    }
  }

  std::uint32_t tag(const RequestsAtCpu& requests, std::uint64_t i) const {
    return tag_of(key_of(requests, i).hash());
  }
  void prefetch_index(std::uint32_t tag) const { shards_[shard_of(tag)].index.prefetch(tag); }
  void prefetch_record(std::uint32_t tag) const {
    const std::uint32_t guess = shards_[shard_of(tag)].index.guess(tag);
    if (guess == 0) return;
    const auto* const lines = reinterpret_cast<const std::byte*>(&records_[guess - 1]);
    for (std::size_t at = 0; at < sizeof(Record<Words>); at += kLine) {
      __builtin_prefetch(lines + at);
    }
  }

  // Operations [first, first + count), one after the other; kGroup at most. Durable on return.
  void carry_out(const RequestsAtCpu& requests, std::uint64_t first, std::uint32_t count) {
    std::uint32_t made[kGroup], gone[kGroup];
    std::uint64_t numbers[kGroup];
    std::uint32_t makings = 0, goings = 0;
    for (std::uint64_t i = first; i < first + count; ++i) {
      const Key<Words> key = key_of(requests, i);
      const std::uint32_t tag = tag_of(key.hash());
      Shard& shard = shards_[shard_of(tag)];
      const Op op = requests.ops[i];
      const std::size_t at =
          shard.index.find(tag, [&](std::uint32_t r) { return records_[r].key == key; });
      const std::uint32_t old = shard.index[at].record;
      const bool there = old != 0;
      requests.outcomes[i] = there ? Outcome::present : Outcome::absent;
      if (there && returns_value(op)) {
        std::memcpy(requests.found + i * kValueBytes, records_[old - 1].value, kValueBytes);
      }
      if (op == Op::erase) {
        if (!there) continue;
        shard.index.remove(at);
        gone[goings++] = old - 1;
      } else if (takes_value(op) && there != (op == Op::insert)) {
        // Of updates that follow each other the last alone.
        if (there && i + 1 < first + count && takes_value(requests.ops[i + 1]) &&
            requests.ops[i + 1] != Op::insert && key_of(requests, i + 1) == key) {
          continue;
        }
        if (shard.free.empty()) {
          requests.outcomes[i] = Outcome::failed;
          continue;
        }
        const std::uint32_t record = shard.free.back();
        shard.free.pop_back();
        write(records_[record], key, requests.values + i * kValueBytes);
        shard.index.set(at, {tag, record + 1});
        made[makings] = record;
        numbers[makings++] = ++shard.number;
        if (there) gone[goings++] = old - 1;
      }
    }
    make_durable(made, numbers, makings, gone, goings);
  }

 private:
  static Key<Words> key_of(const RequestsAtCpu& requests, std::uint64_t i) {
    Key<Words> key;
    std::memcpy(&key, requests.keys + i * sizeof(key), sizeof(key));
    return key;
  }

  // All but the number, whose line is written back with it.
  static void write(Record<Words>& record, const Key<Words>& key, const std::byte* value) {
    record.key = key;
    std::memcpy(record.value, value, kValueBytes);
    const auto* const lines = reinterpret_cast<const std::byte*>(&record);
    for (std::size_t at = kLine; at < sizeof(record); at += kLine) {
      workload::write_line_back(lines + at);
    }
  }

  void set_number(std::uint32_t record, std::uint64_t number) {
    std::atomic_ref(records_[record].number).store(number, std::memory_order_release);
    workload::write_line_back(&records_[record].number);
  }

  void make_durable(const std::uint32_t* made, const std::uint64_t* numbers, std::uint32_t makings,
                    const std::uint32_t* gone, std::uint32_t goings) {
    if (makings != 0) {
      _mm_sfence();
      for (std::uint32_t i = 0; i < makings; ++i) set_number(made[i], numbers[i]);
      _mm_sfence();
    }
    if (goings == 0) return;
    for (std::uint32_t i = 0; i < goings; ++i) set_number(gone[i], 0);
    _mm_sfence();
    for (std::uint32_t i = 0; i < goings; ++i) {
      const Key<Words>& key = records_[gone[i]].key;
      shards_[shard_of(tag_of(key.hash()))].free.push_back(gone[i]);
    }
  }

  void take_in(Shard& shard, std::uint32_t s, std::uint32_t r) {
    const Key<Words> key = records_[r].key;
    const std::uint32_t tag = tag_of(key.hash());
    if (shard_of(tag) != s) throw std::runtime_error("cpu-assisted: a record of another shard");
    const std::size_t at =
        shard.index.find(tag, [&](std::uint32_t other) { return records_[other].key == key; });
    const std::uint32_t other = shard.index[at].record;
    shard.number = std::max(shard.number, records_[r].number);
    if (other == 0 || records_[other - 1].number < records_[r].number) {
      shard.index.set(at, {tag, r + 1});
    }
    if (other == 0) return;
    const bool older = records_[other - 1].number < records_[r].number;
    set_number(older ? other - 1 : r, 0);
    _mm_sfence();
  }

  Record<Words>* records_;
  std::vector<Shard> shards_;
};

template <unsigned Words>
class CpuMap : public Contestant {
 public:
  explicit CpuMap(const Setting& setting)
      : setting_(setting),
        per_shard_(Shards<Words>::records_of_shard(setting.keys)),
        team_(std::max(setting.threads, 1u)),
        copies_(setting.key_bytes, setting.batch, setting.ordered) {
    promise_ = {
        "cpu-assisted",
        setting.ordered ? "gathered by shard on the device" : "as given",
        "process",
        "operations",
        "each operation of a batch is there once run() has returned, and before that whole or "
        "not at all",
        team_.threads()};
    open();
  }
  ~CpuMap() override { let_go(); }

  const Promise& promise() const override { return promise_; }
  std::uint64_t places() const override { return std::uint64_t{per_shard_} * kShards; }

  Phases run(const Batch& batch) override {
    check(batch, setting_);
    Phases phases;
    const RequestsAtCpu& requests = copies_.to_cpu(batch, phases);
    phases.operations = bench::seconds([&] {
      if (setting_.ordered) {
        run_by_shard(requests, batch.count);
      } else {
        run_as_given(requests, batch.count);
      }
    });
    copies_.to_gpu(batch, phases);
    return phases;
  }

  void crash_and_reopen() override {
    let_go();
    open();
  }

 private:
  void let_go() {
    if (!region_) return;
    region_->abandon();
    region_.reset();
  }

  void open() {
    bool fresh = false;
    const std::uint64_t records = places();
    region_ = open_or_create(setting_.path, records * sizeof(Record<Words>), fresh);
    shards_.emplace(array_in<Record<Words>>(*region_, fresh, "records", records), per_shard_);
  }

  // Any thread comes to any shard, and has it alone for one operation.
  void run_as_given(const RequestsAtCpu& requests, std::uint32_t count) {
    team_.for_chunks(count, kChunk, [&](unsigned, std::uint64_t first, std::uint64_t operations) {
      const std::uint64_t end = first + operations;
      ask_ahead(requests, first, std::min(first + kAhead, end), end);
      for (std::uint64_t i = first; i < end; ++i) {
        if (i + kAhead < end) ask_ahead(requests, i + kAhead, i + kAhead + 1, end);
        if (i + kAhead / 2 < end) {
          shards_->prefetch_record(shards_->tag(requests, i + kAhead / 2));
        }
        SpinLock& lock = locks_[shard_of(shards_->tag(requests, i))];
        lock.lock();
        shards_->carry_out(requests, i, 1);
        lock.unlock();
      }
    });
  }
  void ask_ahead(const RequestsAtCpu& requests, std::uint64_t first, std::uint64_t behind,
                 std::uint64_t end) {
    for (std::uint64_t i = first; i < std::min(behind, end); ++i) {
      shards_->prefetch_index(shards_->tag(requests, i));
    }
  }

  // Every thread has shards of its own: a share of the positions, up to where a shard ends.
  void run_by_shard(const RequestsAtCpu& requests, std::uint32_t count) {
    const unsigned parts = team_.threads();
    std::vector<std::uint64_t> cuts{0};
    for (unsigned part = 1; part <= parts; ++part) {
      std::uint64_t cut = std::max(cuts.back(), std::uint64_t{count} * part / parts);
      while (cut > 0 && cut < count &&
             shard_of(shards_->tag(requests, cut)) == shard_of(shards_->tag(requests, cut - 1))) {
        ++cut;
      }
      cuts.push_back(cut);
    }
    team_.for_chunks(parts, 1, [&](unsigned, std::uint64_t first, std::uint64_t some) {
      for (std::uint64_t part = first; part < first + some; ++part) {
        run_part(requests, cuts[part], cuts[part + 1]);
      }
    });
  }
  void run_part(const RequestsAtCpu& requests, std::uint64_t first, std::uint64_t end) {
    ask_ahead(requests, first, first + kGroup, end);
    for (std::uint64_t at = first; at < end; at += kGroup) {
      const std::uint64_t count = std::min<std::uint64_t>(kGroup, end - at);
      for (std::uint64_t i = at; i < at + count; ++i) {
        shards_->prefetch_record(shards_->tag(requests, i));
      }
      ask_ahead(requests, at + count, at + count + kGroup, end);
      shards_->carry_out(requests, at, static_cast<std::uint32_t>(count));
    }
  }

  Setting setting_;
  Promise promise_;
  std::uint32_t per_shard_;
  workload::Team team_;
  LinkCopies copies_;
  std::optional<holdfast::Region> region_;
  std::optional<Shards<Words>> shards_;
  SpinLock locks_[kShards];
};

}  // namespace

std::unique_ptr<Contestant> make_cpu_map(const Setting& setting) {
  check(setting);
  if (setting.key_bytes == 8) return std::make_unique<CpuMap<1>>(setting);
  return std::make_unique<CpuMap<4>>(setting);
}

}  // namespace maps
