// A checkpoint of two tiny buffers, saved again and again, and restored.
#include <array>
#include <memory>

#include "checking/sized_offer.hpp"
#include "holdfast/checkpoint.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

constexpr std::uint64_t kSaves = 3;  // that a crash may cut off
constexpr std::uint64_t kWords = 4;  // more than one thread copies
constexpr std::uint64_t kBytes = 2;

// What the buffers hold at a save.
struct Values {
  std::array<std::uint64_t, kWords> words;
  std::array<std::uint8_t, kBytes> bytes;
  bool operator==(const Values&) const = default;
};

Values values_of(std::uint64_t number) {
  Values values{};
  for (std::uint64_t i = 0; i < kWords; ++i) values.words[i] = number << 32 | (i + 1);
  for (std::uint64_t i = 0; i < kBytes; ++i) {
    values.bytes[i] = static_cast<std::uint8_t>(16 * number + i);
  }
  return values;
}

struct Saved {
  Stream stream;
  DeviceBuffer<std::uint64_t> words{kWords};
  DeviceBuffer<std::uint8_t> bytes{kBytes};
  Checkpoint checkpoint;

  explicit Saved(Region& region) : checkpoint(region, "checkpoint") {
    checkpoint.add("group", "words", words.data(), kWords);
    checkpoint.add("group", "bytes", bytes.data(), kBytes);
  }
  void set(const Values& values) {
    copy_async(stream, words.data(), values.words.data(), words.bytes());
    copy_async(stream, bytes.data(), values.bytes.data(), bytes.bytes());
    stream.synchronize();
  }
  Values get() {
    Values values{};
    copy_async(stream, values.words.data(), words.data(), words.bytes());
    copy_async(stream, values.bytes.data(), bytes.data(), bytes.bytes());
    stream.synchronize();
    return values;
  }
};

void set_up(Region& region) {
  Saved saved(region);
  saved.set(values_of(1));
  saved.checkpoint.save(saved.stream, "group", 1);
  saved.stream.synchronize();
}

// Operation number n makes save number n + 1: the first directly, the next by way of memory aside.
// Buffers of this size are copied by kernels. What the copy engine writes is ordered by its stream,
// of which the model knows nothing.
void run(Region& region, Session& session) {
  Saved saved(region);
  for (std::uint64_t number = 2; number <= 1 + kSaves; ++number) {
    saved.set(values_of(number));
    session.start();
    if (number % 2 == 0) {
      saved.checkpoint.save(saved.stream, "group", number);
      saved.stream.synchronize();
    } else {
      saved.checkpoint.save_async(saved.stream, "group", number).wait();
    }
    session.acknowledge();
  }
}

struct Found {
  std::uint64_t number = 0;
  Values values{};
};

Found restore(Region& region) {
  Saved saved(region);
  const std::uint64_t number = saved.checkpoint.restore(saved.stream, "group").value_or(0);
  return {number, saved.get()};
}

std::string verify(const Found& found, const History& history) {
  if (found.number < 1 + history.acknowledged || found.number > 1 + history.started) {
    return detail::concat("save ", found.number, " was restored; ", 1 + history.acknowledged,
                          " were acknowledged and ", 1 + history.started, " begun");
  }
  if (found.values == values_of(found.number)) return {};
  return detail::concat("the buffers do not hold what save ", found.number, " saved");
}

Program make(const Sizes&) {
  Program program;
  program.region_bytes =
      Checkpoint::region_bytes(kWords * sizeof(std::uint64_t) + kBytes, 2) + (1u << 18);
  program.set_up = set_up;
  program.run = run;
  const auto found = std::make_shared<Found>();
  program.recover = [found](Region& region) { *found = restore(region); };
  program.verify = [found](Region&, const History& history, std::uint64_t) {
    return verify(*found, history);
  };
  return program;
}

}  // namespace

std::vector<Offer> checkpoint_programs() {
  return {sized_offer("checkpoint", "a checkpoint of two buffers: saved twice, and restored", {},
                      make)};
}

}  // namespace holdfast::check
