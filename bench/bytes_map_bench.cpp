// The map of byte strings: insertions, lookups of keys that are there and of others, assignments
// and erasures, in batches from the host, and then by a kernel with a ref, a group of threads for
// each operation, whose strings are in device memory. Every answer is compared with what was
// stored, and every status counted, outside of what is timed: the program fails where one is wrong.
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
#include <memory>
#include <optional>
#include <random>

#include "bench.hpp"
#include "bytes_map_refs.hpp"
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

// How a batch's operations are made. Not timed: prepare(), take() and end().
class Way {
 public:
  virtual ~Way() = default;
  virtual const char* name() const = 0;
  // A batch. Of one that finds, `values` are those that are there; they are not given away.
  virtual void prepare(bench::RefCall call, const ByteStringVector& keys,
                       const ByteStringVector& values) = 0;
  virtual void run() = 0;
  virtual void take(std::vector<MapStatus>& status) = 0;
  virtual void take(ByteStringVector& values, std::vector<BytesFound>& found) = 0;
  virtual void end() {}
};

class ByBatch final : public Way {
 public:
  explicit ByBatch(BytesMap& map) : map_(map) {}
  const char* name() const override { return "batch"; }
  void prepare(bench::RefCall call, const ByteStringVector& keys,
               const ByteStringVector& values) override {
    call_ = call, keys_ = &keys, values_ = &values;
    status_.assign(keys.size(), MapStatus{});
    found_.assign(keys.size(), BytesFound::absent);
    found_values_.offsets.assign(keys.size() + 1, 0);
  }
  void run() override {
    switch (call_) {
      case bench::RefCall::insert:
        map_.insert(*keys_, *values_, status_.data());
        return;
      case bench::RefCall::insert_or_assign:
        map_.insert_or_assign(*keys_, *values_, status_.data());
        return;
      case bench::RefCall::erase:
        map_.erase(*keys_, status_.data());
        return;
      case bench::RefCall::find:
        map_.find(*keys_, found_values_.offsets.data(), found_.data(), [&](std::uint64_t bytes) {
          found_values_.bytes.resize(bytes);
          return found_values_.bytes.data();
        });
    }
  }
  void take(std::vector<MapStatus>& status) override { status = status_; }
  void take(ByteStringVector& values, std::vector<BytesFound>& found) override {
    values = found_values_;
    found = found_;
  }

 private:
  BytesMap& map_;
  bench::RefCall call_{};
  const ByteStringVector* keys_ = nullptr;
  const ByteStringVector* values_ = nullptr;
  std::vector<MapStatus> status_;
  std::vector<BytesFound> found_;
  ByteStringVector found_values_;
};

class ByRef final : public Way {
 public:
  explicit ByRef(BytesMap& map) : map_(map) {}
  const char* name() const override { return "ref"; }
  void prepare(bench::RefCall call, const ByteStringVector& keys,
               const ByteStringVector& values) override {
    std::uint64_t room = 0;
    const bool writes = call == bench::RefCall::insert || call == bench::RefCall::insert_or_assign;
    for (std::size_t i = 0; writes && i < keys.size(); ++i) {
      room += BytesMap::record_bytes_of(keys[i].size(), values[i].size());
    }
    ref_.emplace(map_.ref(std::min(room, map_.stats().largest_free)));
    keys_ = std::make_unique<OnDevice>(keys, map_.stream());
    values_ = std::make_unique<OnDevice>(values, map_.stream());
    offsets_ = values.offsets;
    status_ = holdfast::DeviceBuffer<MapStatus>(keys.size());
    found_ = holdfast::DeviceBuffer<BytesFound>(keys.size());
    if (!writes)
      holdfast::fill_async(map_.stream(), values_->bytes.data(), 0, values_->bytes.bytes());
    map_.stream().synchronize();
    batch_ = {call,           static_cast<std::uint32_t>(keys.size()),
              keys_->view(),  values_->view(),
              status_.data(), found_.data()};
  }
  void run() override {
    bench::apply(map_.stream(), *ref_, batch_);
    map_.stream().synchronize();
  }
  void take(std::vector<MapStatus>& status) override { fetch(status_, status); }
  void take(ByteStringVector& values, std::vector<BytesFound>& found) override {
    fetch(found_, found);
    fetch(values_->bytes, values.bytes);
    values.offsets = offsets_;
  }
  void end() override { map_.quiesce(); }

 private:
  struct OnDevice {
    OnDevice(const ByteStringVector& strings, holdfast::Stream& stream)
        : bytes(strings.bytes.size() + 1), offsets(strings.offsets.size()) {
      holdfast::copy_async(stream, bytes.data(), strings.bytes.data(), strings.bytes.size());
      holdfast::copy_async(stream, offsets.data(), strings.offsets.data(), offsets.bytes());
    }
    bench::RefStrings view() const { return {bytes.data(), offsets.data()}; }
    holdfast::DeviceBuffer<std::byte> bytes;
    holdfast::DeviceBuffer<std::uint64_t> offsets;
  };
  template <class T>
  void fetch(const holdfast::DeviceBuffer<T>& from, std::vector<T>& to) {
    to.resize(from.size());
    holdfast::copy_async(map_.stream(), to.data(), from.data(), from.bytes());
    map_.stream().synchronize();
  }

  BytesMap& map_;
  std::optional<holdfast::BytesMapRef> ref_;
  std::unique_ptr<OnDevice> keys_, values_;
  std::vector<std::uint64_t> offsets_;
  holdfast::DeviceBuffer<MapStatus> status_;
  holdfast::DeviceBuffer<BytesFound> found_;
  bench::RefBatch batch_{};
};

class Bench {
 public:
  Bench(BytesMap& map, Way& way, const Sizes& sizes, std::uint64_t pairs, std::size_t batch)
      : map_(map), way_(way), sizes_(sizes), versions_(pairs), batch_(batch), random_(sizes.seed) {}

  void run(int batches) {
    insert_all();
    find(batches, true);
    find(batches, false);
    assign(batches);
    find(batches, true);
    erase_all();
  }

 private:
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
      const auto status = change(timed, RefCall::insert, keys, values);
      require(all_are(status, MapStatus::inserted), "not all was inserted");
    }
    require(map_.size() == versions_.size(), "the number of pairs");
    print("insert", timed);
  }

  void find(int batches, bool there) {
    Timed timed;
    ByteStringVector values;
    std::vector<BytesFound> found;
    for (int i = 0; i <= batches; ++i) {
      const std::vector<std::uint64_t> numbers = draw();
      ByteStringVector keys, expected;
      for (const std::uint64_t n : numbers) {
        add_key(keys, sizes_, there ? n : n + (1ull << 48));
        if (there) add_value(expected, sizes_, n, versions_[n]);
        if (!there) expected.push_back("");
      }
      way_.prepare(RefCall::find, keys, expected);
      timed.run(keys, expected, [&] { way_.run(); });
      way_.take(values, found);
      way_.end();
      for (std::size_t at = 0; at < numbers.size(); ++at) {
        require(found[at] == (there ? BytesFound::present : BytesFound::absent), "what was found");
        require(values[at] == expected[at], "a value");
      }
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
      const auto status = change(timed, RefCall::insert_or_assign, keys, values);
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
      ByteStringVector keys, none;
      for (std::uint64_t i = first; i < first + count; ++i) {
        add_key(keys, sizes_, i);
        none.push_back("");
      }
      const auto status = change(timed, RefCall::erase, keys, none);
      require(all_are(status, MapStatus::erased), "not all was erased");
    }
    print("erase", timed);
    require(map_.size() == 0 && map_.stats().free_bytes == map_.stats().record_bytes,
            "what is left of a map of which all was erased");
    const std::string wrong = map_.verify();
    require(wrong.empty(), wrong.c_str());
  }

  using RefCall = bench::RefCall;
  struct Timed {
    std::vector<double> seconds;
    std::uint64_t operations = 0, bytes = 0;

    // The first batch is not counted, unless there is no other.
    template <class Body>
    void run(const ByteStringVector& keys, const ByteStringVector& values, Body&& body) {
      const double took = bench::seconds(body);
      if (seconds.size() == 1 && !second_) {
        second_ = true;
        seconds.clear();
        operations = bytes = 0;
      }
      seconds.push_back(took);
      operations += keys.size();
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

  std::vector<MapStatus> change(Timed& timed, RefCall call, const ByteStringVector& keys,
                                const ByteStringVector& values) {
    way_.prepare(call, keys, values);
    timed.run(keys, values, [&] { way_.run(); });
    std::vector<MapStatus> status;
    way_.take(status);
    way_.end();
    return status;
  }
  static bool all_are(const std::vector<MapStatus>& status, MapStatus one) {
    return std::all_of(status.begin(), status.end(), [&](MapStatus each) { return each == one; });
  }

  void print(const char* operation, const Timed& timed) {
    const holdfast::BytesMapStats stats = map_.stats();
    const double operations = static_cast<double>(timed.operations);
    bench::Line("bytes_map")
        .text("operation", operation)
        .text("how", way_.name())
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
  Way& way_;
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
  ByBatch by_batch(map);
  ByRef by_ref(map);
  Bench(map, by_batch, sizes, pairs, batch).run(batches);
  Bench(map, by_ref, sizes, pairs, batch).run(batches);
}
