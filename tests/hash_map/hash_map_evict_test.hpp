// What tests of eviction share: a map with scores, and an oracle of its pairs and their scores.
#pragma once

#include <algorithm>
#include <map>

#include "hash_map/map_test.hpp"

namespace holdfast::test {

template <class Map>
struct ShapeOf;
template <class K, class C>
struct ShapeOf<HashMap<K, C>> {
  using Config = C;
  using Table = detail::MapShape<detail::MapKernelKey<K>, C>;
};

template <class Map>
class ScoredMap {
 public:
  using Key = typename MapOpened<Map>::Key;
  using U64 = std::uint64_t;
  using U32 = std::uint32_t;
  struct Pair {
    U64 number;  // of its value
    U64 score;
    bool operator==(const Pair&) const = default;
  };
  using Held = std::unordered_map<Key, Pair>;
  struct Went {
    Key key;
    Pair pair;
  };
  struct Batch {
    std::vector<Key> keys;
    std::vector<U64> numbers, scores;  // no scores: none are given
  };

  ScoredMap(const std::string& path, const MapOptions& shape)
      : opened(MapOpened<Map>::create(path, shape)), path_(path), policy_(shape.scores) {}

  // As after a crash, or as it is closed: no pair has a score then.
  void reopen(const MapOpenOptions& how, bool abandons = true) {
    abandons ? opened.abandon() : opened.close();
    opened = MapOpened<Map>::open(path_, how);
    policy_ = how.scores;
    now_ = 0;
    for (auto& [key, pair] : held) pair.score = 0;
  }

  // A batch that evicts; compares all that the map says with the oracle.
  MapEviction evict(const Batch& batch) {
    const std::size_t count = batch.keys.size();
    const U32 bytes = opened.map->value_bytes();
    // Larger tables would take many small exports.
    const bool was_full = held.size() == opened.map->capacity() && held.size() <= 128;
    const std::vector<Key> before = was_full ? slots() : std::vector<Key>();
    std::vector<Key> keys(count);
    std::vector<U32> values(count * bytes / 4);
    std::vector<U64> scores(count);
    status.assign(count, MapStatus{});
    const MapEviction said =
        opened.map->insert_and_evict(batch.keys.data(), opened.values_of(batch.numbers).data(),
                                     batch.scores.empty() ? nullptr : batch.scores.data(), count,
                                     keys.data(), values.data(), scores.data(), status.data());
    went.clear();
    for (U64 i = 0; i < said.count(); ++i) {
      went.push_back({keys[i], {read_value(values.data() + i * bytes / 4, bytes), scores[i]}});
    }
    ++now_;
    const Held old = held;
    expect_statuses(batch);
    expect_went(batch, old, said);
    if (was_full) expect_least(batch, old, before);
    return said;
  }

  // A batch of another kind; what is full only the map knows.
  void update(detail::MapOperation kind, const Batch& batch) {
    const std::size_t count = batch.keys.size();
    const auto values = opened.values_of(batch.numbers);
    std::vector<U32> out(values.size());
    status.assign(count, MapStatus{});
    using enum detail::MapOperation;
    const Key* const keys = batch.keys.data();
    switch (kind) {
      case insert:
        opened.map->insert(keys, values.data(), count, status.data());
        break;
      case insert_or_assign:
        opened.map->insert_or_assign(keys, values.data(), count, status.data());
        break;
      case assign:
        opened.map->assign(keys, values.data(), count, status.data());
        break;
      case find_or_insert:
        opened.map->find_or_insert(keys, values.data(), out.data(), count, status.data());
        break;
      case erase:
        opened.map->erase(keys, count, status.data());
        break;
    }
    if (!refs_out) ++now_;
    std::unordered_set<Key> later;
    for (std::size_t i = count; i-- > 0;) {
      if (!later.insert(batch.keys[i]).second) continue;
      if (status[i] == MapStatus::erased) held.erase(batch.keys[i]);
      if (!sets_or_keeps(status[i])) continue;
      Pair& pair = held.emplace(batch.keys[i], Pair{batch.numbers[i], 0}).first->second;
      if (status[i] == MapStatus::assigned) pair.number = batch.numbers[i];
      touch(pair, nullptr);
    }
  }

  void find(const std::vector<Key>& keys) {
    typename MapOpened<Map>::Oracle numbers;
    for (const auto& [key, pair] : held) numbers[key] = pair.number;
    opened.expect_found(keys, numbers);  // find() once, contains() once
    if (!refs_out) ++now_;
    for (const Key& key : keys) {
      const auto at = held.find(key);
      if (at != held.end()) touch(at->second, nullptr);
    }
  }

  void expect_holds() {
    typename MapOpened<Map>::Oracle numbers;
    std::vector<Key> keys;
    for (const auto& [key, pair] : held) numbers[key] = pair.number, keys.push_back(key);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(numbers));
    const MapStats stats = opened.map->stats();
    if (!refs_out) {
      ASSERT_EQ(stats.free_places, stats.value_places == 0 ? 0 : stats.value_places - held.size());
    }
    if (refs_out || policy_ == MapScores::none) return;
    for (std::size_t first = 0; first < keys.size(); first += stats.max_batch) {
      const std::size_t count = std::min<std::size_t>(stats.max_batch, keys.size() - first);
      std::vector<U64> scores(count, 7);
      std::vector<std::uint8_t> found(count, 7);
      opened.map->scores(keys.data() + first, scores.data(), found.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(found[i], 1);
        ASSERT_EQ(scores[i], held.at(keys[first + i]).score) << "key " << keys[first + i];
      }
    }
  }

  // Numbers of slots, as export_batch() has them.
  std::vector<U64> slots_of(const Key& key) const {
    using Config = typename ShapeOf<Map>::Config;
    using Table = typename ShapeOf<Map>::Table;
    const U64 buckets = opened.map->capacity() / Config::kWays;
    U32 top = 1;
    while (Table::bucket_count(top) != buckets) ++top;
    const U64 label = detail::map_key_of<Config>(key).label;
    std::vector<U64> all;
    for (unsigned which = 0; which < Config::kHashes; ++which) {
      for (unsigned level = 0; level < Config::kLevels; ++level) {
        const U64 bucket =
            Table::bucket_at(top, Table::top_bucket(top, label, which), level) * Config::kWays;
        for (U64 way = 0; way < Config::kWays; ++way) all.push_back(bucket + way);
      }
    }
    return all;
  }

  MapOpened<Map> opened;
  Held held;
  std::vector<MapStatus> status;  // of the last batch
  std::vector<Went> went;         // in the last batch
  bool refs_out = false;
  U64 judged = 0;  // choices that could be compared with all others

 private:
  static bool sets_or_keeps(MapStatus of) {
    return of == MapStatus::inserted || of == MapStatus::assigned || of == MapStatus::kept;
  }
  void touch(Pair& pair, const U64* given) {
    if (refs_out) return;
    if (policy_ == MapScores::lru) pair.score = now_;
    if (policy_ == MapScores::lfu) {
      const U64 more = given != nullptr ? *given : 1;
      pair.score = more > ~pair.score ? ~U64{0} : pair.score + more;
    }
    if (policy_ == MapScores::custom && given != nullptr) pair.score = *given;
  }
  const U64* given(const Batch& batch, std::size_t i) const {
    return batch.scores.empty() ? nullptr : &batch.scores[i];
  }

  // Each operation's status; makes in `held` what was done.
  void expect_statuses(const Batch& batch) {
    std::unordered_set<Key> later;
    for (std::size_t i = batch.keys.size(); i-- > 0;) {
      const Key& key = batch.keys[i];
      if (!later.insert(key).second) {
        EXPECT_EQ(status[i], MapStatus::superseded) << "operation " << i;
        continue;
      }
      const bool there = held.count(key) != 0;
      const bool done = status[i] == (there ? MapStatus::assigned : MapStatus::inserted);
      EXPECT_TRUE(done || status[i] == MapStatus::no_value ||
                  (!there && status[i] == MapStatus::full))
          << "operation " << i << " has the status " << static_cast<int>(status[i]);
      if (!done) continue;
      Pair& pair = held[key];
      pair.number = batch.numbers[i];
      touch(pair, given(batch, i));
    }
  }

  // What went is what was there, or what the batch could not store; of the first nothing is left.
  void expect_went(const Batch& batch, const Held& old, const MapEviction& said) {
    std::unordered_map<Key, std::size_t> counts;  // operations that count
    for (std::size_t i = 0; i < batch.keys.size(); ++i) counts[batch.keys[i]] = i;
    std::unordered_set<Key> seen;
    U64 evicted = 0, not_done = 0;
    for (const Went& one : went) {
      EXPECT_TRUE(seen.insert(one.key).second) << "key " << one.key << " went twice";
      const auto own = counts.find(one.key);
      if (own == counts.end()) {
        ++evicted;
        const auto at = old.find(one.key);
        ASSERT_NE(at, old.end()) << "key " << one.key << " went, and was not there";
        EXPECT_EQ(one.pair.number, at->second.number);
        EXPECT_EQ(one.pair.score, at->second.score);
        held.erase(one.key);
        continue;
      }
      ++not_done;
      const std::size_t i = own->second;
      EXPECT_TRUE(status[i] == MapStatus::full || status[i] == MapStatus::no_value)
          << "key " << one.key << " went, and is there";
      EXPECT_EQ(one.pair.number, batch.numbers[i]);
      EXPECT_EQ(one.pair.score, first_score(batch, i));
    }
    EXPECT_EQ(said.evicted, evicted);
    EXPECT_EQ(said.result.not_done(), not_done);
    EXPECT_EQ(static_cast<U64>(std::count(status.begin(), status.end(), MapStatus::full) +
                               std::count(status.begin(), status.end(), MapStatus::no_value)),
              not_done);
  }
  U64 first_score(const Batch& batch, std::size_t i) const {
    Pair pair{0, 0};
    ScoredMap* const self = const_cast<ScoredMap*>(this);
    self->touch(pair, given(batch, i));
    return pair.score;
  }

  // By slot, of a table without a free one.
  std::vector<Key> slots() const {
    std::vector<Key> all(opened.map->capacity());
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(opened.map->export_batch(i, 1, &all[i], nullptr), 1u);
    }
    return all;
  }
  // Nothing could move. A pair that stayed, and the batch had not set, was there to be chosen all
  // along: it has no less a score than the one that went in its stead, and a greater one than a new
  // pair that was turned away.
  void expect_least(const Batch& batch, const Held& old, const std::vector<Key>& before) {
    const std::vector<Key> after = slots();
    std::unordered_map<Key, U64> slot_of;
    for (U64 slot = 0; slot < after.size(); ++slot) slot_of[after[slot]] = slot;
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      const bool is_full = status[i] == MapStatus::full;
      if (status[i] != MapStatus::inserted && !is_full) continue;
      const Key& victim = is_full ? batch.keys[i] : before[slot_of.at(batch.keys[i])];
      const U64 least = is_full ? first_score(batch, i) : old.at(victim).score;
      EXPECT_GE(first_score(batch, i), least);
      for (const U64 slot : slots_of(batch.keys[i])) {
        const auto stayed = old.find(after[slot]);
        const bool set =
            std::find(batch.keys.begin(), batch.keys.end(), after[slot]) != batch.keys.end();
        if (stayed == old.end() || set) continue;
        ++judged;
        if (is_full) {
          EXPECT_GT(stayed->second.score, least) << "key " << batch.keys[i] << " was turned away";
        } else {
          EXPECT_GE(stayed->second.score, least) << "key " << victim << " went";
        }
      }
    }
  }

  std::string path_;
  MapScores policy_;
  U64 now_ = 0;
};

}  // namespace holdfast::test
