// The map of byte strings: insertions, lookups of keys that are there and of others, assignments
// and erasures, in batches from the host. Every answer is compared with what was stored, and every
// status counted, outside of what is timed: the program fails where one is wrong.
//
//   bytes_map_bench [--pairs=N] [--batch=N] [--batches=N] [--key_least=N] [--key_most=N]
//                   [--value_least=N] [--value_most=N] [--growths=N] [--seed=N]
//
// Sizes: of keys, in bytes, uniform from --key_least (8 or more, which say which key it is) to
// --key_most; of values log-uniform from --value_least (1 or more) to --value_most, so that as many
// have 64 to 127 bytes as have 128 to 255. A pair's sizes follow from its number and --seed; an
// assignment draws a value of another size.
//
// --batches: of each kind but insertions, which are as many as --pairs takes; the first batch of a
// kind is not counted. --growths: the room for records is made 2^N times smaller than what is
// needed, and doubled by reserve() where the next batch finds no room, which is not timed; 0: as it
// is needed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "bench.hpp"
#include "holdfast/bytes_map.hpp"
#include "scratch_region.hpp"

namespace {

using holdfast::BytesFound;
using holdfast::BytesMap;
using holdfast::ByteStringVector;
using holdfast::MapStatus;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ b * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
  return x ^ x >> 32;
}

struct Sizes {
  std::uint64_t key_least, key_most, value_least, value_most, seed;

  std::size_t key(std::uint64_t number) const {
    return key_least + mix(seed, 2 * number) % (key_most - key_least + 1);
  }
  std::size_t value(std::uint64_t number, std::uint64_t version) const {
    const double unit =
        static_cast<double>(mix(mix(seed, 2 * number + 1), version) >> 11) * 0x1p-53;
    const double low = std::log(static_cast<double>(value_least));
    const double high = std::log(static_cast<double>(value_most) + 1);
    const auto bytes = static_cast<std::uint64_t>(std::exp(low + unit * (high - low)));
    return std::clamp(bytes, value_least, value_most);
  }
};

// Bytes that follow from two numbers.
void fill(std::byte* to, std::size_t bytes, std::uint64_t a, std::uint64_t b) {
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = mix(a, b + at);
    std::memcpy(to + at, &word, std::min<std::size_t>(8, bytes - at));
  }
}

// Keys begin with their number.
void add_key(ByteStringVector& keys, const Sizes& sizes, std::uint64_t number) {
  const std::size_t first = keys.bytes.size(), bytes = sizes.key(number);
  keys.bytes.resize(first + bytes);
  std::memcpy(&keys.bytes[first], &number, 8);
  fill(&keys.bytes[first] + 8, bytes - 8, number, sizes.seed);
  keys.offsets.push_back(keys.bytes.size());
}
void add_value(ByteStringVector& values, const Sizes& sizes, std::uint64_t number,
               std::uint64_t version) {
  const std::size_t first = values.bytes.size(), bytes = sizes.value(number, version);
  values.bytes.resize(first + bytes);
  fill(&values.bytes[first], bytes, number, version << 32);
  values.offsets.push_back(values.bytes.size());
}

void require(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "bytes_map_bench: wrong: %s\n", what);
  std::exit(1);
}

class Bench {
 public:
  Bench(BytesMap& map, const Sizes& sizes, std::uint64_t pairs, std::size_t batch)
      : map_(map), sizes_(sizes), versions_(pairs), batch_(batch), random_(sizes.seed) {}

  // With the room that it needs, made before.
  void insert_all() {
    Timed timed;
    for (std::uint64_t first = 0; first < versions_.size(); first += batch_) {
      const std::size_t count = std::min<std::uint64_t>(batch_, versions_.size() - first);
      ByteStringVector keys, values;
      std::uint64_t room = 0;
      for (std::uint64_t i = first; i < first + count; ++i) {
        add_key(keys, sizes_, i);
        add_value(values, sizes_, i, 0);
        room += BytesMap::record_bytes_of(sizes_.key(i), sizes_.value(i, 0));
      }
      while (map_.stats().largest_free < room) {
        map_.reserve({.record_bytes = 2 * map_.stats().record_bytes});
        ++growths_;
      }
      timed.run(count, keys, values, [&] {
        require(map_.insert(keys, values).inserted == count, "not all was inserted");
      });
    }
    require(map_.size() == versions_.size(), "the number of pairs");
    print("insert", timed);
  }

  void find(int batches, bool there) {
    Timed timed;
    ByteStringVector found_values;
    std::vector<BytesFound> found(batch_);
    for (int i = 0; i <= batches; ++i) {
      const std::vector<std::uint64_t> numbers = draw();
      ByteStringVector keys;
      for (const std::uint64_t n : numbers) add_key(keys, sizes_, there ? n : n + (1ull << 48));
      found_values.offsets.assign(numbers.size() + 1, 0);
      timed.run(numbers.size(), keys, found_values, [&] {
        map_.find(keys, found_values.offsets.data(), found.data(), [&](std::uint64_t bytes) {
          found_values.bytes.resize(bytes);
          return found_values.bytes.data();
        });
      });
      check(numbers, found_values, found, there);
    }
    print(there ? "find" : "find_absent", timed);
  }

  void assign(int batches) {
    Timed timed;
    for (int i = 0; i <= batches; ++i) {
      std::vector<std::uint64_t> numbers = draw();
      std::sort(numbers.begin(), numbers.end());
      numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
      std::shuffle(numbers.begin(), numbers.end(), random_);
      ByteStringVector keys, values;
      for (const std::uint64_t n : numbers) {
        add_key(keys, sizes_, n);
        add_value(values, sizes_, n, versions_[n] + 1);
      }
      std::vector<MapStatus> status(numbers.size());
      timed.run(numbers.size(), keys, values,
                [&] { map_.insert_or_assign(keys, values, status.data()); });
      for (std::size_t at = 0; at < numbers.size(); ++at) {
        // Room that is in pieces may be too small for one; it has what it had then.
        const bool assigned = status[at] == MapStatus::assigned;
        require(assigned || status[at] == MapStatus::no_value, "an assignment's status");
        versions_[numbers[at]] += assigned ? 1 : 0;
        no_value_ += assigned ? 0 : 1;
      }
    }
    print("assign", timed);
  }

  void erase_all() {
    Timed timed;
    for (std::uint64_t first = 0; first < versions_.size(); first += batch_) {
      const std::size_t count = std::min<std::uint64_t>(batch_, versions_.size() - first);
      ByteStringVector keys;
      for (std::uint64_t i = first; i < first + count; ++i) add_key(keys, sizes_, i);
      timed.run(count, keys, {},
                [&] { require(map_.erase(keys).erased == count, "not all was erased"); });
    }
    print("erase", timed);
    require(map_.size() == 0 && map_.stats().free_bytes == map_.stats().record_bytes,
            "what is left of a map of which all was erased");
    const std::string wrong = map_.verify();
    require(wrong.empty(), wrong.c_str());
  }

 private:
  struct Timed {
    std::vector<double> seconds;
    std::uint64_t operations = 0, bytes = 0;

    // The first batch is not counted, unless there is no other.
    template <class Body>
    void run(std::size_t count, const ByteStringVector& keys, const ByteStringVector& values,
             Body&& body) {
      const double took = bench::seconds(body);
      if (seconds.size() == 1 && !second_) {
        second_ = true;
        seconds.clear();
        operations = bytes = 0;
      }
      seconds.push_back(took);
      operations += count;
      bytes += keys.bytes.size() + values.bytes.size();
    }
    double total() const {
      double sum = 0;
      for (const double each : seconds) sum += each;
      return sum;
    }

   private:
    bool second_ = false;
  };

  std::vector<std::uint64_t> draw() {
    std::vector<std::uint64_t> numbers(std::min<std::uint64_t>(batch_, versions_.size()));
    for (std::uint64_t& each : numbers) each = random_() % versions_.size();
    return numbers;
  }

  void check(const std::vector<std::uint64_t>& numbers, const ByteStringVector& values,
             const std::vector<BytesFound>& found, bool there) const {
    for (std::size_t at = 0; at < numbers.size(); ++at) {
      require(found[at] == (there ? BytesFound::present : BytesFound::absent), "what was found");
      ByteStringVector expected;
      if (there) add_value(expected, sizes_, numbers[at], versions_[numbers[at]]);
      require(!there || values[at] == expected[0], "a value");
    }
  }

  void print(const char* operation, const Timed& timed) {
    const holdfast::BytesMapStats stats = map_.stats();
    const double operations = static_cast<double>(timed.operations);
    bench::Line("bytes_map")
        .text("operation", operation)
        .count("pairs", versions_.size())
        .count("batch", batch_)
        .count("batches", timed.seconds.size())
        .count("key_least", sizes_.key_least)
        .count("key_most", sizes_.key_most)
        .count("value_least", sizes_.value_least)
        .count("value_most", sizes_.value_most)
        .count("seed", sizes_.seed)
        .count("growths", growths_)
        .count("record_bytes", stats.record_bytes)
        .count("free_extents", stats.free_extents)
        .count("no_value", no_value_)
        .number("mean_bytes", static_cast<double>(timed.bytes) / operations)
        .number("million_per_s", operations / timed.total() / 1e6)
        .number("mib_per_s", static_cast<double>(timed.bytes) / timed.total() / 0x1p20)
        .number("batch_ms", bench::median(timed.seconds) * 1e3)
        .print();
    no_value_ = 0;
  }

  BytesMap& map_;
  Sizes sizes_;
  std::vector<std::uint64_t> versions_;  // of each pair's value
  std::size_t batch_;
  std::mt19937_64 random_;
  std::uint64_t growths_ = 0, no_value_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"pairs", 1 << 14},
                                {"batch", 1 << 12},
                                {"batches", 8},
                                {"key_least", 16},
                                {"key_most", 64},
                                {"value_least", 16},
                                {"value_most", 4096},
                                {"growths", 0},
                                {"seed", 1}});
  const Sizes sizes{options["key_least"], options["key_most"], options["value_least"],
                    options["value_most"], options["seed"]};
  const std::uint64_t pairs = options["pairs"], batch = options["batch"];
  const auto batches = static_cast<int>(options["batches"]);
  if (pairs == 0 || batch == 0 || batch > 1u << 24 || batches < 1 || sizes.key_least < 8 ||
      sizes.key_most < sizes.key_least || sizes.key_most > holdfast::kMostBytesOfKey ||
      sizes.value_least < 1 || sizes.value_most < sizes.value_least ||
      sizes.value_most > holdfast::kMostBytesOfValue || options["growths"] > 20) {
    std::fprintf(stderr,
                 "bytes_map_bench: --pairs and --batches are 1 or more, --batch 1 to 2^24, keys of "
                 "8 to 65536 bytes, values of 1 to 16777216, --growths 20 at most\n");
    return 2;
  }
  std::uint64_t room = 0;
  for (std::uint64_t i = 0; i < pairs; ++i) {
    room += BytesMap::record_bytes_of(sizes.key(i), sizes.value(i, 0));
  }
  // Assignments need room for old and new, and leave holes.
  room += room / 2 + 2 * room / pairs * batch;
  holdfast::BytesMapOptions shape;
  shape.capacity = pairs + pairs / 3;
  shape.record_bytes = std::max<std::uint64_t>(room >> options["growths"], 1);
  shape.max_batch = static_cast<std::uint32_t>(batch);
  // Room that doubles, and may be left in pieces before it does.
  const std::uint64_t bytes = BytesMap::region_bytes(shape) + (options["growths"] ? 4 * room : 0);
  bench::ScratchRegion scratch(bytes);
  BytesMap map = BytesMap::create(scratch.get(), "map", shape);
  Bench bench(map, sizes, pairs, batch);
  bench.insert_all();
  bench.find(batches, true);
  bench.find(batches, false);
  bench.assign(batches);
  bench.find(batches, true);
  bench.erase_all();
}
