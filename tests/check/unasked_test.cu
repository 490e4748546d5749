#include "check/unasked_test.hpp"

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

using check::History;
using check::Program;
using check::Session;

struct Record {
  alignas(64) std::uint64_t payload;
  alignas(64) std::uint64_t valid;
  alignas(64) char name[64];
};
Record* record(Region& region) { return region.find<Record>("record").data(); }

__global__ void store(Record* record) { record->payload = 42; }
__global__ void store_safely(Record* record) {
  record->payload = 42;
  persist();
  record->valid = 1;
  persist();
}
__global__ void store_in_the_wrong_order(Record* record) {
  record->valid = 1;
  record->payload = 42;
}
__global__ void store_and_tell(Record* record, volatile std::uint32_t* flag) {
  record->payload = 42;
  *flag = 1;
}
__global__ void store_as_told(Record* record, volatile std::uint32_t* mode) {
  if (*mode == 1) {
    record->valid = 1;
    record->payload = 42;
  } else {
    record->payload = 42;
    persist();
    record->valid = 1;
  }
}
__global__ void count_who_came_first(std::uint32_t* count, volatile std::uint32_t* flags) {
  flags[32 * blockIdx.x] = 1;
  if (flags[32 * (1 - blockIdx.x)] == 0) atomicAdd(count, 1u);
}
__global__ void name_it(Record* record, const std::uint32_t* count) {
  record->name[0] = static_cast<char>(*count);
}
__global__ void fault_where_torn(Record* record) {
  if (record->valid == 1 && record->payload != 42) *reinterpret_cast<volatile int*>(8) = 1;
}
__global__ void name_and_publish(Record* record) {
  record->name[0] = 'a';
  record->valid = 1;
}

Program program(
    const char* name, std::function<void(Region&, Session&)> run,
    std::function<void(Region&)> recover = [](Region&) {}) {
  Program result;
  result.name = name;
  result.set_up = [](Region& region) { region.allocate<Record>("record", 1); };
  result.run = std::move(run);
  result.recover = std::move(recover);
  result.verify = [](Region& region, const History& history, std::uint64_t) -> std::string {
    const Record& found = *record(region);
    if (history.acknowledged != 0 && found.payload != 42) return "acknowledged and lost";
    return found.valid == 1 && found.payload != 42 ? "valid without payload" : "";
  };
  return result;
}

void store_it(Region& region, Session& session) {
  session.start();
  Stream stream;
  launch(stream, 1, 1, store_safely, record(region));
  stream.synchronize();
  session.acknowledge();
}

struct Flag {
  Flag() { word[0] = 0; }
  volatile std::uint32_t* get() { return word.data(); }
  PinnedBuffer<std::uint32_t> word{1};
};

}  // namespace

Program host_asks_once(bool atomically) {
  return program("host_asks_once", [=](Region& region, Session& session) {
    Flag flag;
    session.start();
    Stream stream;
    launch(stream, 1, 1, store_and_tell, record(region), flag.get());
    const bool is_set =
        (atomically ? std::atomic_ref<std::uint32_t>(flag.word[0]).load() : *flag.get()) != 0;
    if (!is_set) stream.synchronize();
    session.acknowledge();
    stream.synchronize();
  });
}

Program host_is_told_by_its_stream() {
  return program("host_is_told_by_its_stream", [](Region& region, Session& session) {
    std::atomic<int> done{0};
    session.start();
    Stream stream;
    launch(stream, 1, 1, store, record(region));
    stream.enqueue([&done] { done = 1; });
    if (done == 0) stream.synchronize();
    session.acknowledge();
    stream.synchronize();
  });
}

Program host_tells_once() {
  return program("host_tells_once", [](Region& region, Session& session) {
    Flag mode;
    session.start();
    Stream stream;
    launch(stream, 1, 1, store_as_told, record(region), mode.get());
    *mode.get() = 1;
    stream.synchronize();
    session.acknowledge();
  });
}

Program recovery_asks_once() {
  return program("recovery_asks_once", store_it, [](Region& region) {
    Flag flag;
    DeviceBuffer<Record> other(1);
    Stream stream;
    launch(stream, 1, 1, store_and_tell, other.data(), flag.get());
    const bool is_over = *flag.get() != 0;
    stream.synchronize();
    if (is_over) record(region)->payload = 7;
  });
}

Program recovery_buffers_stores() {
  Program result = program("recovery_buffers_stores", store_it, [](Region& region) {
    Stream stream;
    const DeviceBuffer<std::uint32_t> flags(64), count(1);
    fill_async(stream, flags.data(), 0, 64 * sizeof(std::uint32_t));
    fill_async(stream, count.data(), 0, sizeof(std::uint32_t));
    launch(stream, 2, 1, count_who_came_first, count.data(),
           static_cast<volatile std::uint32_t*>(flags.data()));
    launch(stream, 1, 1, name_it, record(region), static_cast<const std::uint32_t*>(count.data()));
    stream.synchronize();
  });
  result.verify = [](Region& region, const History&, std::uint64_t) -> std::string {
    return record(region)->name[0] == 2 ? "both came first" : "";
  };
  return result;
}

Program allocates_in_run() {
  return program(
      "allocates_in_run",
      [](Region& region, Session& session) {
        session.start();
        region.allocate<std::uint64_t>("log", 8);
        session.acknowledge();
      },
      [](Region& region) { region.find<std::uint64_t>("log"); });
}

Program leaves_work_behind() {
  const auto kept = std::make_shared<Stream>();
  return program("leaves_work_behind", [kept](Region& region, Session& session) {
    session.start();
    launch(*kept, 1, 1, store_in_the_wrong_order, record(region));
  });
}

Program recovery_faults_unasked() {
  Program result = program(
      "recovery_faults_unasked",
      [](Region& region, Session& session) {
        session.start();
        Stream stream;
        launch(stream, 1, 1, store_in_the_wrong_order, record(region));
        stream.synchronize();
      },
      [](Region& region) {
        Stream stream;
        launch(stream, 1, 1, fault_where_torn, record(region));
      });
  result.verify = [](Region&, const History&, std::uint64_t) { return std::string(); };
  return result;
}

Program recovery_reads_behind_a_copy() {
  Program result = program(
      "recovery_reads_behind_a_copy",
      [](Region& region, Session& session) {
        session.start();
        Stream stream;
        launch(stream, 1, 1, name_and_publish, record(region));
        stream.synchronize();
      },
      [](Region& region) {
        Stream stream;
        const DeviceBuffer<std::uint64_t> copy(1);
        copy_async(stream, copy.data(), &record(region)->valid, sizeof(std::uint64_t));
        stream.synchronize();
        if (std::strcmp(record(region)->name, "a") == 0) throw std::runtime_error("it has a name");
      });
  result.verify = [](Region&, const History&, std::uint64_t) { return std::string(); };
  return result;
}

}  // namespace holdfast::test
