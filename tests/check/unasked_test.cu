#include "check/unasked_test.hpp"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "check/record_program.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

using check::History;
using check::Program;
using check::Session;

__global__ void store(Record* record) { record->payload = 42; }
__global__ void store_in_the_wrong_order(Record* record) {
  record->valid = 1;
  record->payload = 42;
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
__global__ void store_at(std::uint64_t* word) { *word = 42; }
__global__ void name_and_publish(Record* record) {
  record->name[0] = 'a';
  record->valid = 1;
}

__global__ void store_word(Record* record, bool by_memcpy) {
  const std::uint64_t word = 0x0202020202020202;
  if (by_memcpy) {
    memcpy(&record->state, &word, sizeof word);
  } else {
    record->state = word;
  }
}

__global__ void store_and_release(Record* record, std::uint64_t* flag) {
  record->payload = 42;
  prel<Scope::system>(flag, std::uint64_t{1});
}
__global__ void read_valid(const Record* record, std::uint64_t* found) { *found = record->valid; }
__global__ void read_payload(const Record* record, std::uint64_t* found) {
  *found = record->payload;
}
__global__ void who_comes_first(std::uint32_t* turn) {
  if (atomicAdd(turn, 1u) == 0) turn[1] = threadIdx.x;
}

// `access` is made where nobody hears it.
void unheard(Unheard how, Stream& stream, const std::function<void()>& access) {
  if (how == Unheard::thread) {
    std::thread(access).join();
  } else {
    stream.enqueue(access);
    stream.synchronize();
  }
}

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

Program host_asks_plainly() {
  return program("host_asks_plainly", [](Region& region, Session& session) {
    Flag flag;
    session.start();
    Stream stream;
    launch(stream, 1, 1, store_and_tell, record(region), flag.get());
    if (flag.word[0] == 0) stream.synchronize();
    session.acknowledge();
    stream.synchronize();
  });
}

Program host_gives_up_waiting() {
  return program("host_gives_up_waiting", [](Region& region, Session& session) {
    Flag flag;
    const auto looks = std::make_unique<int>(0);
    session.start();
    Stream stream;
    launch(stream, 1, 1, store_and_tell, record(region), flag.get());
    while (*flag.get() == 0 && *looks < 4) ++*looks;
    if (*looks < 4) stream.synchronize();
    session.acknowledge();
    stream.synchronize();
  });
}

Program host_stores_behind_a_message(bool fenced) {
  return program("host_stores_behind_a_message", [=](Region& region, Session&) {
    PinnedBuffer<std::uint64_t> flag(1);
    flag[0] = 0;
    Stream stream;
    launch(stream, 1, 1, store_and_release, record(region), flag.data());
    while (std::atomic_ref<std::uint64_t>(flag[0]).load() == 0) {
    }
    if (fenced) std::atomic_thread_fence(std::memory_order_seq_cst);
    record(region)->valid = 1;
    stream.synchronize();
  });
}

Program stores_unheard_in_run(Unheard how) {
  Program result = program("stores_unheard_in_run", [=](Region& region, Session& session) {
    Record* const it = record(region);
    session.start();
    Stream stream;
    launch(stream, 1, 1, store_safely, it);
    stream.synchronize();
    session.acknowledge();
    if (how == Unheard::library) {
      std::strcpy(it->name, "a");
    } else {
      unheard(how, stream, [it] { it->name[0] = 'a'; });
    }
  });
  result.verify = [](Region& region, const History& history, std::uint64_t) -> std::string {
    return history.acknowledged != 0 && record(region)->name[0] == 0 ? "without a name" : "";
  };
  return result;
}

Program unheard_in_recovery(Unheard how, bool reads) {
  return program("unheard_in_recovery", store_it, [=](Region& region) {
    Record* const it = record(region);
    if (it->valid == 0) return;
    Stream stream;
    bool is_torn = false;
    unheard(how, stream, [&] {
      if (reads) is_torn = it->payload != 42;
      if (!reads) it->name[0] = 'a';
    });
    if (is_torn) throw std::runtime_error("valid without payload");
  });
}

Program acknowledges_from_its_stream() {
  return program("acknowledges_from_its_stream", [](Region& region, Session& session) {
    session.start();
    Stream stream;
    launch(stream, 1, 1, store_safely, record(region));
    stream.enqueue([&] { session.acknowledge(); });
    stream.synchronize();
  });
}

Program stores_astray(bool before_all, bool in_recovery) {
  const auto stray = [=](Region& region) {
    auto* const first = static_cast<std::byte*>(region.base());
    Stream stream;
    launch(stream, 1, 1, store_at,
           before_all ? reinterpret_cast<std::uint64_t*>(first + 64)
                      : reinterpret_cast<std::uint64_t*>(record(region) + 1));
    stream.synchronize();
  };
  if (in_recovery) return program("stores_astray", store_it, stray);
  return program("stores_astray", [=](Region& region, Session&) { stray(region); });
}

Program stores_a_word(bool by_memcpy) {
  Program result = program("stores_a_word", [=](Region& region, Session&) {
    Stream stream;
    launch(stream, 1, 1, store_word, record(region), by_memcpy);
    stream.synchronize();
  });
  result.verify = [](Region& region, const History&, std::uint64_t) {
    const std::uint64_t word = record(region)->state;
    return word == 0 || word == 0x0202020202020202 ? "" : "half a word";
  };
  return result;
}

Program recovery_allocates() {
  return program("recovery_allocates", store_it, [](Region& region) {
    if (!region.contains("again")) region.allocate<std::uint64_t>("again", 1);
  });
}

Program verification_writes_to_a_pipe() {
  Program result = program("verification_writes_to_a_pipe", store_it);
  result.verify = [](Region& region, const History&, std::uint64_t) -> std::string {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    const auto written = ::write(ends[1], record(region), sizeof(Record));
    ::close(ends[0]);
    ::close(ends[1]);
    return written == sizeof(Record) ? "" : "write() fails";
  };
  return result;
}

Program recovery_reads_on_two_streams() {
  return program("recovery_reads_on_two_streams", store_it, [](Region& region) {
    PinnedBuffer<std::uint64_t> found(32);
    Stream first, second;
    launch(first, 1, 1, read_valid, static_cast<const Record*>(record(region)), &found[0]);
    launch(second, 1, 1, read_payload, static_cast<const Record*>(record(region)), &found[16]);
    first.synchronize();
    second.synchronize();
    if (found[0] == 1 && found[16] != 42) throw std::runtime_error("valid without payload");
  });
}

Program recovery_reads_in_a_library_under_one_schedule() {
  Program result = program(
      "recovery_reads_in_a_library_under_one_schedule",
      [](Region& region, Session&) {
        Stream stream;
        launch(stream, 1, 1, name_and_publish, record(region));
        stream.synchronize();
      },
      [](Region& region) {
        Stream stream;
        const DeviceBuffer<std::uint32_t> turn(2);
        fill_async(stream, turn.data(), 0, 2 * sizeof(std::uint32_t));
        launch(stream, 1, 2, who_comes_first, turn.data());
        std::uint32_t first = 0;
        copy_async(stream, &first, turn.data() + 1, sizeof first);
        stream.synchronize();
        if (first == 1 && std::strcmp(record(region)->name, "a") == 0) {
          throw std::runtime_error("it has a name");
        }
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
