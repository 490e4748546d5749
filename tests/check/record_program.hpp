// The programs of unasked_test.cu and turns_test.cu: a record whose payload comes before its mark.
// For kernel files.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "holdfast/check.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {

struct Record {
  static constexpr const char* kTypeName = "record";
  alignas(64) std::uint64_t payload;
  alignas(64) std::uint64_t valid;
  alignas(64) char name[64];
  alignas(64) std::uint64_t state;
};
inline Record* record(Region& region) { return region.find<Record>("record").data(); }

static __global__ void store_safely(Record* record) {
  record->payload = 42;
  persist();
  record->valid = 1;
  persist();
}
static __global__ void store_and_tell(Record* record, volatile std::uint32_t* flag) {
  record->payload = 42;
  *flag = 1;
}

// run() of a record that is stored and acknowledged.
inline void store_it(Region& region, check::Session& session) {
  session.start();
  Stream stream;
  launch(stream, 1, 1, store_safely, record(region));
  stream.synchronize();
  session.acknowledge();
}

inline check::Program program(
    const char* name, std::function<void(Region&, check::Session&)> run,
    std::function<void(Region&)> recover = [](Region&) {}) {
  check::Program result;
  result.name = name;
  result.set_up = [](Region& region) { region.allocate<Record>("record", 1); };
  result.run = std::move(run);
  result.recover = std::move(recover);
  result.verify = [](Region& region, const check::History& history, std::uint64_t) -> std::string {
    const Record& found = *record(region);
    if (history.acknowledged != 0 && found.payload != 42) return "acknowledged and lost";
    return found.valid == 1 && found.payload != 42 ? "valid without payload" : "";
  };
  return result;
}

// A word that the host and kernels share, 0 at first.
struct Flag {
  Flag() { word[0] = 0; }
  volatile std::uint32_t* get() { return word.data(); }
  PinnedBuffer<std::uint32_t> word{1};
};

}  // namespace holdfast::test
