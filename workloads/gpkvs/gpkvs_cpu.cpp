// Mode cpu: the same table, updated by OpenMP threads that log, store and flush.
#include <algorithm>
#include <atomic>
#include <utility>

#include "gpkvs/engine.hpp"

namespace gpkvs {
namespace {

using workload::Array;
using workload::Backing;

// As the kernels have it: keys inverted, 0 an empty way.
struct alignas(16) Way {
  std::uint64_t key;
  std::uint64_t value;
};
struct alignas(128) WayGroup {
  Way ways[kWays];
};

// What a SET overwrites. `batch` is stored last; an entry is in one cache line, which reaches the
// medium as it is at some moment, so that an entry that says its batch is whole.
struct alignas(32) Undo {
  std::uint64_t batch;  // 1 or more
  std::uint64_t key;
  std::uint64_t value;
  std::uint32_t bucket;
  std::uint32_t way;
};

// Operations are dealt out by bucket into this many parts, each of which one thread does in order.
// Fixed, so that an operation's log entry is the same one however many threads there are.
constexpr std::uint64_t kParts = 256;
constexpr std::uint32_t kNoWay = kWays;

class CpuEngine : public Engine {
 public:
  CpuEngine(Backing& backing, const EngineOptions& options)
      : backing_(backing),
        table_(backing.array<WayGroup>("table", options.buckets)),
        undo_(backing.array<Undo>("undo", options.max_sets)),
        order_(options.max_batch) {}

  void load(const std::uint64_t* keys, const std::uint64_t* values, std::uint64_t count) override {
    apply(keys, values, count, nullptr, 0);
  }
  void end_set_up() override { backing_.set_progress(1); }

  std::uint64_t resume(std::uint64_t) override {
    const std::uint64_t done = backing_.progress() - 1;
    undo(done + 1);
    return done;
  }
  void set(std::uint64_t step, const std::uint64_t* keys, const std::uint64_t* values,
           std::uint64_t count) override {
    apply(keys, values, count, undo_.data, step + 1);
    backing_.set_progress(step + 2);
  }

  void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
           std::uint64_t count) override {
#pragma omp parallel for num_threads(backing_.cpu_threads())
    for (std::uint64_t i = 0; i < count; ++i) {
      const WayGroup& bucket = table_.data[bucket_of(keys[i])];
      const std::uint32_t way = find(bucket, ~keys[i]);
      found[i] = way != kNoWay;
      values[i] = way != kNoWay ? bucket.ways[way].value : 0;
    }
  }

  Pairs pairs() override {
    Pairs all;
    for (std::uint64_t bucket = 0; bucket < table_.count; ++bucket) {
      for (const Way& way : table_.data[bucket].ways) {
        if (way.key == 0) continue;
        all.keys.push_back(~way.key);
        all.values.push_back(way.value);
      }
    }
    return all;
  }
  std::uint64_t bytes_stored() const override { return 0; }

 private:
  static std::uint64_t scatter(std::uint64_t key) {
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
    return key ^ key >> 33;
  }
  std::uint32_t bucket_of(std::uint64_t key) const {
    return static_cast<std::uint32_t>(scatter(key) & (table_.count - 1));
  }
  static std::uint32_t find(const WayGroup& bucket, std::uint64_t key) {
    for (std::uint32_t way = 0; way < kWays; ++way) {
      if (bucket.ways[way].key == key) return way;
    }
    return kNoWay;
  }

  // The positions of operations, part by part, in each in the order of the batch. Returns where the
  // parts begin.
  std::vector<std::uint64_t> deal_out(const std::uint64_t* keys, std::uint64_t count) {
    const std::uint64_t threads = backing_.cpu_threads();
    std::vector<std::uint64_t> begin(kParts + 1);
    std::vector<std::uint64_t> place(threads * kParts);  // counts, then where to put the next
    const auto first_of = [&](std::uint64_t thread) { return count * thread / threads; };
#pragma omp parallel for num_threads(threads)
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      for (std::uint64_t i = first_of(thread); i < first_of(thread + 1); ++i) {
        ++place[thread * kParts + bucket_of(keys[i]) % kParts];
      }
    }
    std::uint64_t sum = 0;
    for (std::uint64_t part = 0; part < kParts; ++part) {
      begin[part] = sum;
      for (std::uint64_t thread = 0; thread < threads; ++thread) {
        sum += std::exchange(place[thread * kParts + part], sum);
      }
    }
    begin[kParts] = sum;
#pragma omp parallel for num_threads(threads)
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      for (std::uint64_t i = first_of(thread); i < first_of(thread + 1); ++i) {
        order_[place[thread * kParts + bucket_of(keys[i]) % kParts]++] =
            static_cast<std::uint32_t>(i);
      }
    }
    return begin;
  }

  // log: null where nothing needs to be undone.
  void apply(const std::uint64_t* keys, const std::uint64_t* values, std::uint64_t count, Undo* log,
             std::uint64_t batch) {
    const std::vector<std::uint64_t> begin = deal_out(keys, count);
#pragma omp parallel for schedule(dynamic) num_threads(backing_.cpu_threads())
    for (std::uint64_t part = 0; part < kParts; ++part) {
      for (std::uint64_t at = begin[part]; at < begin[part + 1]; ++at) {
        set_one(keys[order_[at]], values[order_[at]], log == nullptr ? nullptr : log + at, batch);
      }
    }
  }

  void set_one(std::uint64_t key, std::uint64_t value, Undo* entry, std::uint64_t batch) {
    const std::uint32_t number = bucket_of(key);
    WayGroup& bucket = table_.data[number];
    std::uint32_t chosen = find(bucket, ~key);
    if (chosen == kNoWay) chosen = find(bucket, 0);
    if (chosen == kNoWay) chosen = static_cast<std::uint32_t>(scatter(~key) % kWays);
    Way& way = bucket.ways[chosen];
    if (entry != nullptr) {
      entry->key = way.key;
      entry->value = way.value;
      entry->bucket = number;
      entry->way = chosen;
      __atomic_store_n(&entry->batch, batch, __ATOMIC_RELEASE);
      Backing::flush(entry, sizeof(*entry));
    }
    way = {~key, value};
    Backing::flush(&way, sizeof(way));
  }

  // Newest first. Entries of one bucket are one thread's.
  void undo(std::uint64_t batch) {
    std::atomic<std::uint64_t> bad{0};
    const unsigned threads = backing_.cpu_threads();
#pragma omp parallel for num_threads(threads)
    for (unsigned thread = 0; thread < threads; ++thread) {
      for (std::uint64_t i = undo_.count; i-- > 0;) {
        const Undo& entry = undo_.data[i];
        if (entry.batch != batch || entry.bucket % kParts % threads != thread) continue;
        if (entry.bucket >= table_.count || entry.way >= kWays) {
          ++bad;
          continue;
        }
        Way& way = table_.data[entry.bucket].ways[entry.way];
        way = {entry.key, entry.value};
        Backing::flush(&way, sizeof(way));
      }
    }
    if (bad != 0) {
      throw holdfast::Error(holdfast::Errc::damaged,
                            holdfast::detail::concat("gpkvs: ", bad.load(),
                                                     " undo log entries point outside the table: "
                                                     "remove the region and begin anew"));
    }
  }

  Backing& backing_;
  Array<WayGroup> table_;
  Array<Undo> undo_;
  std::vector<std::uint32_t> order_;
};

}  // namespace

std::unique_ptr<Engine> make_cpu_engine(Backing& backing, const EngineOptions& options) {
  return std::make_unique<CpuEngine>(backing, options);
}

std::uint64_t cpu_undo_bytes(const EngineOptions& options) {
  return std::uint64_t{options.max_sets} * sizeof(Undo);
}

}  // namespace gpkvs
