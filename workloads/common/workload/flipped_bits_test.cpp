// A bit of the durable state that is not as it should be: every workload's digest sees it in every
// mode, whatever the size, and its oracle does where it is more than rounding.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/scratch.hpp"
#include "workload/registry.hpp"
#include "workload/step.hpp"
#include "workload_checks.hpp"

namespace {

using workload::Backing;
using workload::Mode;
using workload::Settings;
using workload::Size;

// Small inputs, which are the same at every size.
std::map<std::string, std::string> small_input(const std::string& name) {
  if (name.starts_with("gpkvs"))
    return {{"capacity", "8192"}, {"keys", "900"}, {"operations", "300"}};
  if (name.starts_with("gpdb")) return {{"rows", "2000"}};
  if (name == "lenet") {
    return {{"digits", "50"},   {"batch", "4"},   {"channels1", "2"},
            {"channels2", "3"}, {"hidden", "16"}, {"passes", "1"}};
  }
  if (name == "cfd") return {{"cells", "200"}, {"iterations", "2"}};
  if (name == "black_scholes") return {{"count", "1000"}, {"scenarios", "2"}};
  if (name == "hotspot") return {{"grid", "32"}, {"iterations", "2"}};
  if (name == "bfs") return {{"width", "40"}, {"height", "20"}};
  if (name == "srad") return {{"rows", "64"}, {"columns", "60"}};
  return {{"rows", "32"}, {"length", "64"}};  // prefix_sum
}

bool has_real_numbers(const std::string& name) {
  return name == "lenet" || name == "cfd" || name == "black_scholes" || name == "hotspot" ||
         name == "srad";
}

// A run that has ended, and flips bits of what it left on the medium.
class Ended {
 public:
  Ended(const std::string& name, Mode mode, Size size, const std::string& path) : path_(path) {
    Settings settings;
    settings.mode = mode;
    settings.size = size;
    settings.steps = 4;
    settings.options = small_input(name);
    const workload::Info& info = workload::find_workload(name);
    work_ = info.make(settings);
    workload::BackingOptions options;
    options.mode = mode;
    options.path = path;
    options.capacity = work_->medium_bytes();
    options.cpu_threads = 2;
    backing_ = std::make_unique<Backing>(options);
    work_->prepare(*backing_);
    for (std::uint64_t step = work_->resume(); step < work_->steps(); ++step) {
      workload::run_step(*work_, *backing_, info.kernel_access, step);
    }
  }
  ~Ended() {
    work_.reset();
    backing_.reset();
    Backing::destroy(path_);
  }

  workload::Workload& work() { return *work_; }
  Backing& backing() { return *backing_; }

  // Whether the digest, or the oracle, tells that something is wrong. What cannot even be read is.
  bool digest_sees(const workload::Digest& right) {
    try {
      return !(work_->digest() == right);
    } catch (const holdfast::Error&) {
      return true;
    }
  }
  bool oracle_sees() {
    try {
      return !work_->verify().empty();
    } catch (const holdfast::Error&) {
      return true;
    }
  }

 private:
  std::string path_;
  std::unique_ptr<workload::Workload> work_;
  std::unique_ptr<Backing> backing_;
};

// What holds a workload's result in modes that keep it in one of the backing's arrays or targets.
std::uint32_t array_of_result(const std::string& name, Backing& backing) {
  // Behind the array that says which kernels train, and of a pair of saves.
  if (name == "lenet") return 1 + static_cast<std::uint32_t>(backing.progress() & 1);
  if (name == "cfd" || name == "black_scholes" || name == "hotspot") {
    return static_cast<std::uint32_t>(backing.progress() & 1);
  }
  return 0;  // of srad the image after an even number of steps
}

bool keeps_arrays(const std::string& name, Mode mode) {
  const bool own_layout = name.starts_with("gpkvs") || name.starts_with("gpdb") ||
                          (has_real_numbers(name) && name != "srad");
  return !(own_layout && workload::kernel_persists(mode));
}

void flip(Backing& backing, std::uint32_t array, std::uint64_t place, unsigned bit) {
  unsigned char byte = 0;
  backing.copy_from_target(array, place, &byte, 1);
  byte ^= static_cast<unsigned char>(1u << bit);
  const Backing::Piece piece[] = {{place, &byte, 1}};
  backing.store(array, piece);
}

// The largest object of a region: the table, or both copies of a checkpoint.
std::span<unsigned char> largest_object(Backing& backing) {
  std::span<unsigned char> largest;
  for (const holdfast::ObjectInfo& info : backing.region().objects()) {
    if (info.bytes() <= largest.size()) continue;
    largest = {static_cast<unsigned char*>(backing.region().address(info)), info.bytes()};
  }
  return largest;
}

class FlippedBits : public ::testing::TestWithParam<std::tuple<std::string, Size>> {
 protected:
  // Of one flipped bit, which is flipped back by the caller.
  void expect_seen(Ended& run, const workload::Digest& right, bool beyond_rounding) {
    EXPECT_TRUE(run.digest_sees(right));
    if (beyond_rounding) {
      EXPECT_TRUE(run.oracle_sees());
    }
  }

  void flip_in_array(Ended& run, const std::string& name, const workload::Digest& right) {
    Backing& backing = run.backing();
    const std::uint32_t array = array_of_result(name, backing);
    std::uint64_t place = 400;
    if (name.starts_with("gpkvs")) {  // a pair that is there
      std::uint64_t key = 0;
      for (place = 0; key == 0; place += 16) backing.copy_from_target(array, place, &key, 8);
      place -= 8;  // its value
    }
    // The lowest bit of a number, and the exponent's highest of a real one.
    for (const auto& [byte, bit] : {std::pair{0u, 0u}, {3u, 6u}}) {
      SCOPED_TRACE(::testing::Message() << "byte " << place + byte << ", bit " << bit);
      flip(backing, array, place + byte, bit);
      expect_seen(run, right, bit == 6 || !has_real_numbers(name));
      flip(backing, array, place + byte, bit);
    }
  }

  // The last value of mode cap_log's input log, which the table of the medium lags behind.
  void flip_in_log(Ended& run, const workload::Digest& right) {
    constexpr std::uint32_t kLog = 1;  // behind the table
    std::uint64_t last = 0;
    try {
      for (std::uint64_t place = 0;; place += 8) {
        std::uint64_t word = 0;
        run.backing().copy_from_target(kLog, place, &word, 8);
        if (word != 0) last = place;
      }
    } catch (const holdfast::Error&) {  // the end of the log
    }
    flip(run.backing(), kLog, last, 0);
    expect_seen(run, right, true);
    flip(run.backing(), kLog, last, 0);
  }

  // Where the layout is the library's own: a part of the places is not of the result, and what is
  // there does not matter.
  void flip_in_object(Ended& run, bool real, const workload::Digest& right) {
    const std::span<unsigned char> object = largest_object(run.backing());
    constexpr unsigned kPlaces = 64;
    unsigned seen = 0;
    for (unsigned i = 0; i < kPlaces; ++i) {
      unsigned char& byte = object[object.size() * i / kPlaces / 4 * 4 + (real ? 3 : 0)];
      const unsigned char flipped = real ? 0x40 : 0x01;
      byte ^= flipped;
      if (run.digest_sees(right)) {
        ++seen;
        EXPECT_TRUE(run.oracle_sees()) << "place " << i;
      } else {
        EXPECT_FALSE(run.oracle_sees()) << "place " << i;
      }
      byte ^= flipped;
    }
    EXPECT_GE(seen, kPlaces / 8);
  }
};

TEST_P(FlippedBits, AreSeenAndEqualStatesHaveEqualDigests) {
  const auto& [name, size] = GetParam();
  const holdfast::test::ScratchFolders scratch;
  std::string first;
  for (const Mode mode : workload::all_modes()) {
    SCOPED_TRACE(workload::to_string(mode));
    Ended run(name, mode, size, scratch.path("run"));
    const workload::Digest right = run.work().digest();
    EXPECT_EQ(run.work().digest().text(), right.text());
    EXPECT_EQ(run.work().verify(), "");
    if (mode != Mode::cpu || !has_real_numbers(name)) {
      const std::string state = right.text() + run.work().answers();
      if (first.empty()) first = state;
      EXPECT_EQ(state, first);
    }
    if (mode == Mode::cap_log && name.starts_with("gpkvs")) {
      flip_in_log(run, right);
    } else if (keeps_arrays(name, mode)) {
      flip_in_array(run, name, right);
    } else {
      flip_in_object(run, has_real_numbers(name), right);
    }
    EXPECT_FALSE(run.digest_sees(right));
    EXPECT_EQ(run.work().verify(), "");
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const workload::Info& info : workload::workloads()) all.push_back(info.name);
  return all;
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, Size>>& of) {
  static const char* const sizes[] = {"test", "real", "paper"};
  return std::get<0>(of.param) + "_" + sizes[static_cast<int>(std::get<1>(of.param))];
}

INSTANTIATE_TEST_SUITE_P(All, FlippedBits,
                         ::testing::Combine(::testing::ValuesIn(names()),
                                            ::testing::Values(Size::test, Size::real, Size::paper)),
                         name_of);

TEST(Digests, DependOnEveryPartAndOnTheOrderUnlessOfPairs) {
  const std::vector<std::uint64_t> numbers = {1, 2, 3, 4};
  workload::Digester parts;
  parts.add(numbers.data(), 8);
  parts.add(numbers.data() + 1, 24);
  EXPECT_EQ(parts.finish(), workload::digest_of(numbers));
  EXPECT_EQ(workload::digest_of(numbers).text().size(), 32u);
  EXPECT_FALSE(workload::digest_of(numbers) ==
               workload::digest_of(std::vector<std::uint64_t>{2, 1, 3, 4}));
  workload::PairDigester one, other, more, changed;
  one.add(1, 2);
  one.add(3, 4);
  other.add(3, 4);
  other.add(1, 2);
  more.add(1, 2);
  changed.add(1, 2);
  changed.add(3, 5);
  EXPECT_EQ(one.finish(), other.finish());
  EXPECT_FALSE(one.finish() == more.finish());
  EXPECT_FALSE(one.finish() == changed.finish());
}

}  // namespace
