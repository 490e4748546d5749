// A slot as kernels over the whole table see it. Included by hash_map_kernels.inl alone.
#pragma once

namespace holdfast::detail {

// What a slot has, and whether it can be so. Those of the level that a growing table empties have
// the last numbers.
template <class Key, class Config>
struct MapSlot {
  using Shape = MapShape<Key, Config>;
  static constexpr unsigned kWays = Config::kWays;

  __device__ MapSlot(const MapView& table, std::uint64_t slot)
      : MapSlot(table, slot, slot / kWays, static_cast<unsigned>(slot % kWays)) {}

  __device__ bool holds() const {
    return held != 0 && map_is_value(word) && count_words() == all();
  }
  __device__ bool is_blank() const { return held == 0 && word == kMapNone && count_words() == 0; }
  // What is hashed.
  __device__ MapLabel<Key> label() const {
    return held ^ static_cast<MapLabel<Key>>(view.empty_key);
  }
  __device__ unsigned levels() const { return Config::kLevels + (view.growing ? 1 : 0); }

  // Whether it is where its key can be, with a word that can be.
  __device__ bool is_sound() const {
    const bool tagged = view.values != nullptr || view.value_bytes == 4;
    if (tagged && word >> 32 != kMapTag >> 32) return false;
    if (view.values != nullptr && map_place_of(word) >= view.capacity) return false;
    if constexpr (Shape::kIsLong) {
      bool are_set = true;  // their highest bits, without which no lookup finds the key
      const std::uint64_t of_key =
          map_label_of<typename Config::HashFunctions>(view.key_words, [&](std::uint32_t i) {
            const std::uint64_t stored = map_load(&key_words()[i]);
            are_set = are_set && (stored & kMapWordIsSet) != 0;
            return map_word_of_key(held, stored, i);
          });
      if (of_key != held || !are_set) return false;
    }
    for (unsigned which = 0; which < Config::kHashes; ++which) {
      const std::uint32_t top = Shape::top_bucket(view.buckets, label(), which);
      for (unsigned on = 0; on < levels(); ++on) {
        if (Shape::bucket_at(view.buckets, top, on) != bucket) continue;
        if (on < Config::kLevels) return true;
        const MapLabel<Key> there = map_load(new_spot().label);
        return there == 0 || there == held;
      }
    }
    return false;
  }
  // Whether a slot of a lower number holds its key, too.
  __device__ bool is_duplicate() const {
    for (unsigned which = 0; which < Config::kHashes; ++which) {
      const std::uint32_t top = Shape::top_bucket(view.buckets, label(), which);
      for (unsigned on = 0; on < levels(); ++on) {
        const std::uint64_t other = Shape::bucket_at(view.buckets, top, on);
        for (unsigned i = 0; i < kWays && other * kWays + i < number; ++i) {
          const MapSlot slot_of_it(view, other * kWays + i);
          if (slot_of_it.held == held && slot_of_it.holds() && has_key_of(slot_of_it)) return true;
        }
      }
    }
    return false;
  }
  // Where its key moves, from the level that is emptied.
  __device__ MapSpot<Key> new_spot() const {
    return map_spot_at<Key, Config>(view, 0, new_bucket(), way);
  }
  __device__ std::uint64_t new_number() const { return std::uint64_t{new_bucket()} * kWays + way; }
  // Its key, to element `to` of an array.
  __device__ void take_key(void* keys, std::uint64_t to) const {
    if constexpr (Shape::kIsLong) {
      auto* const words = static_cast<std::uint64_t*>(keys) + to * view.key_words;
      for (std::uint32_t i = 0; i < view.key_words; ++i) words[i] = key_word(i);
    } else {
      static_cast<Key*>(keys)[to] = label();
    }
  }
  // Of its words, as a slot has them, of a key of 16 bytes and more.
  __device__ std::uint64_t* key_words() const {
    return map_key_at<Key, Config>(view, spot.bucket, way);
  }

  const MapView& view;
  std::uint64_t number;
  std::uint64_t bucket;  // of all
  std::uint64_t at;      // of its level
  unsigned way;
  MapSpot<Key> spot;
  MapLabel<Key> held;
  std::uint64_t word;

 private:
  __device__ std::uint32_t new_bucket() const {
    const std::uint32_t part = (view.buckets >> Config::kLevels) / Config::kHashes;
    return Shape::top_bucket(view.buckets, label(), static_cast<unsigned>(at / part));
  }
  __device__ std::uint32_t all() const { return Shape::kIsLong ? view.key_words : 0; }
  // That are stored.
  __device__ std::uint32_t count_words() const {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < all(); ++i) count += map_load(&key_words()[i]) != 0 ? 1 : 0;
    return count;
  }
  __device__ std::uint64_t key_word(std::uint32_t i) const {
    return map_word_of_key(held, map_load(&key_words()[i]), i);
  }
  __device__ bool has_key_of(const MapSlot& other) const {
    bool same = true;
    for (std::uint32_t i = 0; i < all(); ++i) {
      same = same && map_load(&key_words()[i]) == map_load(&other.key_words()[i]);
    }
    return same;
  }
  __device__ MapSlot(const MapView& table, std::uint64_t slot, std::uint64_t bucket_of_all,
                     unsigned way_of_it)
      : view(table), number(slot), bucket(bucket_of_all), at(bucket_of_all), way(way_of_it) {
    unsigned level = 0;
    for (; level < Config::kLevels && at >= view.buckets >> level; ++level) {
      at -= view.buckets >> level;
    }
    spot = map_spot_at<Key, Config>(view, level, at, way);
    held = map_load(spot.label);
    word = map_load(spot.word);
  }
};

}  // namespace holdfast::detail
