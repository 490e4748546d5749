#include "check/turns_test.hpp"

#include <atomic>
#include <thread>

#include "check/record_program.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

using check::History;
using check::Program;
using check::Session;

using Word = std::uint32_t;
using Shared = volatile Word;

__global__ void set(Shared* flag) { *flag = 1; }
__global__ void store_and_release(Record* record, Word* flag) {
  record->payload = 42;
  prel<Scope::system>(flag, Word{1});
}
__global__ void look(Shared* flag, Word* seen) {
  if (blockIdx.x + 1 < gridDim.x) {
    seen[blockIdx.x] = *flag;
  } else {
    *flag = 1;
  }
}
__global__ void lose_where_all_saw(Record* record, const Word* seen, unsigned count) {
  Word sum = 0;
  for (unsigned i = 0; i < count; ++i) sum += seen[i];
  if (sum == count) record->valid = 1;
}
__global__ void wait_for_all(Record* record, Word* arrived) {
  if (blockIdx.x == 0) {
    record->payload = 42;
    persist();
  }
  __threadfence();
  atomicAdd(arrived, 1u);
  while (*static_cast<Shared*>(arrived) < gridDim.x) {
  }
  __threadfence();
  if (blockIdx.x + 1 == gridDim.x) record->valid = 1;
}
__global__ void poll_by_adding(Record* record, Word* flag) {
  if (blockIdx.x == 1) {
    record->payload = 42;
    persist();
    atomicAdd(flag, 1u);
    return;
  }
  while (atomicAdd(flag, 0u) == 0) {
  }
  __threadfence();
  record->valid = 1;
}
__global__ void lock_and_store(Record* record, Word* lock) {
  while (atomicExch(lock, 1u) != 0) {
  }
  __threadfence();
  record->state = blockIdx.x;
  __threadfence();
  atomicExch(lock, 0u);
}
__global__ void read_beside_a_poll(Record* record, Shared* flags, unsigned reads) {
  if (blockIdx.x == 1) {
    Word sum = 0;
    for (unsigned i = 0; i < reads; ++i) sum += flags[32];
    record->payload = 42 + sum;
    persist();
    flags[0] = 1;
    return;
  }
  while (flags[0] == 0) {
  }
  persist();
  record->valid = 1;
}
__global__ void count_looks(Record* record, Word* words) {
  if (blockIdx.x == 1) {
    record->payload = 42;
    persist();
    atomicExch(words, 1u);
    return;
  }
  while (*static_cast<Shared*>(words) == 0) atomicAdd(words + 32, 1u);
  __threadfence();
  record->valid = 1;
}
__global__ void poll_together(Record* record, Word* flag, Vote vote, unsigned turns) {
  if (blockIdx.x == 0) {
    if (threadIdx.x != 0) return;
    record->payload = 42;
    persist();
    atomicExch(flag, 1u);
    return;
  }
  unsigned counted = 0;
  for (bool leave = false; !leave;) {
    const bool told = threadIdx.x == 0 && *static_cast<Shared*>(flag) != 0;
    const bool tired = threadIdx.x == 1 && ++counted == turns;
    if (vote == Vote::block) leave = __syncthreads_or(told || tired) != 0;
    if (vote == Vote::warp) leave = __any_sync(3u, told || tired) != 0;
    if (vote == Vote::shuffle) {
      leave = (__shfl_sync(3u, told ? 1u : 0u, 0) | __shfl_sync(3u, tired ? 1u : 0u, 1)) != 0;
    }
  }
  __threadfence();
  if (threadIdx.x == 0) record->valid = 1;
}
__global__ void store_state(Record* record) { record->state = 1; }
__global__ void store_and_trap(Record* record) {
  record->payload = 42;
  *reinterpret_cast<volatile int*>(8) = 1;
}
__global__ void answer(std::uint64_t* word) { *word = 42; }
__global__ void store_answer(Record* record, const std::uint64_t* word) { record->payload = *word; }

__global__ void pass_on(const std::uint64_t* from, std::uint64_t* to) { *to = *from; }
template <bool kRace>
__global__ void come_first(Word* first) {
  if (kRace) {
    if (*first == 0) *first = threadIdx.x + 1;
  } else {
    atomicCAS(first, 0u, threadIdx.x + 1);
  }
}

template <bool kShuffle>
__global__ void store_by_lanes(Record* record) {
  if (threadIdx.x == 0) {
    record->payload = 42;
    __threadfence_system();
  }
  if (kShuffle) {
    (void)__shfl_sync(3u, threadIdx.x, 0);
  } else {
    __syncwarp(3u);
  }
  if (threadIdx.x == 1) {
    __threadfence_system();
    record->valid = 1;
  }
}

// A kernel on some words of device memory, all 0.
template <class... Extra>
Program on_words(const char* name, unsigned blocks, void (*kernel)(Record*, Word*, Extra...),
                 Extra... extra) {
  return program(name, [=](Region& region, Session&) {
    const DeviceBuffer<Word> words(64);
    Stream stream;
    fill_async(stream, words.data(), 0, 64 * sizeof(Word));
    launch(stream, blocks, 1, kernel, record(region), words.data(), extra...);
    stream.synchronize();
  });
}

void launch_elsewhere(Record* record) {
  std::thread([record] {
    Stream stream;
    launch(stream, 1, 1, store_state, record);
    stream.synchronize();
  }).join();
}

Word look_elsewhere() {
  Flag flag;
  Stream stream;
  launch(stream, 1, 1, set, flag.get());
  Word seen = 0;
  std::thread([&] { seen = *flag.get(); }).join();
  stream.synchronize();
  return seen;
}

Program with_thread(const char* name, bool in_recovery, std::function<void(Region&)> act) {
  if (in_recovery) return program(name, store_it, std::move(act));
  return program(name, [act](Region& region, Session&) { act(region); });
}

}  // namespace

Program last_block_stores(unsigned blocks) {
  return program("last_block_stores", [=](Region& region, Session&) {
    const DeviceBuffer<Word> words(64), seen(64);
    Stream stream;
    fill_async(stream, words.data(), 0, 64 * sizeof(Word));
    launch(stream, blocks, 1, look, static_cast<Shared*>(words.data()), seen.data());
    launch(stream, 1, 1, lose_where_all_saw, record(region), static_cast<const Word*>(seen.data()),
           blocks - 1);
    stream.synchronize();
  });
}

Program blocks_wait_for_all(unsigned blocks) {
  return on_words("blocks_wait_for_all", blocks, wait_for_all);
}

Program polls_by_adding_nothing() { return on_words("polls_by_adding_nothing", 2, poll_by_adding); }

Program locks_by_exchange() { return on_words("locks_by_exchange", 2, lock_and_store); }

Program reads_beside_a_poll(unsigned reads) {
  return program("reads_beside_a_poll", [=](Region& region, Session&) {
    const DeviceBuffer<Word> words(64);
    Stream stream;
    fill_async(stream, words.data(), 0, 64 * sizeof(Word));
    launch(stream, 2, 1, read_beside_a_poll, record(region), static_cast<Shared*>(words.data()),
           reads);
    stream.synchronize();
  });
}

Program counts_its_looks() { return on_words("counts_its_looks", 2, count_looks); }

Program gives_up_by_vote(Vote vote, unsigned turns, bool in_recovery) {
  return with_thread("gives_up_by_vote", in_recovery, [=](Region& region) {
    const DeviceBuffer<Word> words(64);
    Stream stream;
    fill_async(stream, words.data(), 0, 64 * sizeof(Word));
    launch(stream, 2, 2, poll_together, record(region), words.data(), vote, turns);
    stream.synchronize();
  });
}

Program host_polls_and_counts(Count count, std::uint64_t turns, bool in_recovery) {
  const auto polls = [=](Region& region, Session* session) {
    Flag flag;
    PinnedBuffer<std::uint64_t> counted(1);
    counted[0] = 0;
    Stream stream, other;
    launch(stream, 1, 1, set, flag.get());
    while (*flag.get() == 0) {
      if (count == Count::started) session->start();
      if (count == Count::acknowledged) session->acknowledge();
      if (count == Count::function) other.enqueue([at = counted.data()] { ++*at; });
    }
    stream.synchronize();
    other.synchronize();
    record(region)->state = counted[0];
  };
  Program result =
      in_recovery ? program("host_polls_and_counts", store_it,
                            [=](Region& region) { polls(region, nullptr); })
                  : program("host_polls_and_counts",
                            [=](Region& region, Session& session) { polls(region, &session); });
  result.verify = [=](Region& region, const History& history, std::uint64_t) {
    const std::uint64_t found = count == Count::started        ? history.started
                                : count == Count::acknowledged ? history.acknowledged
                                                               : record(region)->state;
    return found == turns ? "so many turns" : "";
  };
  return result;
}

Program acknowledges_beside_a_kernel() {
  return program("acknowledges_beside_a_kernel", [](Region& region, Session& session) {
    Flag flag;
    Stream stream;
    launch(stream, 1, 1, store_safely, record(region));
    stream.synchronize();
    launch(stream, 1, 1, set, flag.get());
    while (*flag.get() == 0) {
      session.start();
      session.acknowledge();
    }
    stream.synchronize();
  });
}

Program asks_an_event_once() {
  return program("asks_an_event_once", [](Region& region, Session& session) {
    Flag flag;
    session.start();
    Stream stream;
    Event before, behind;
    before.record(stream);
    launch(stream, 1, 1, store_and_tell, record(region), flag.get());
    behind.record(stream);
    bool is_over = true;
    try {
      (void)Event::elapsed_ms(before, behind);
    } catch (const Error&) {
      is_over = false;
    }
    if (!is_over) stream.synchronize();
    session.acknowledge();
    stream.synchronize();
  });
}

Program thread_launches(bool in_recovery) {
  return with_thread("thread_launches", in_recovery,
                     [](Region& region) { launch_elsewhere(record(region)); });
}

Program thread_looks(bool in_recovery) {
  return with_thread("thread_looks", in_recovery, [](Region&) { look_elsewhere(); });
}

Program function_looks() {
  return program("function_looks", [](Region& region, Session&) {
    Flag flag;
    Word seen = 0;
    Stream one, other;
    launch(one, 1, 1, set, flag.get());
    other.enqueue([&] { seen = *flag.get(); });
    one.synchronize();
    other.synchronize();
    if (seen == 0) record(region)->valid = 1;
  });
}

Program function_stores(Reader reader, bool in_recovery) {
  return with_thread("function_stores", in_recovery, [=](Region& region) {
    const auto words = std::make_unique<std::uint64_t[]>(2);
    std::uint64_t& told = words[0];
    std::uint64_t& seen = words[1];
    Stream one, other;
    const auto read = [&] {
      if (reader == Reader::kernel) launch(other, 1, 1, pass_on, &told, &seen);
      if (reader == Reader::copy) copy_async(other, &seen, &told, sizeof told);
      if (reader == Reader::function) other.enqueue([&] { seen = told; });
      if (reader == Reader::host) seen = told;
    };
    one.enqueue([&] { told = 1; });
    read();
    one.synchronize();
    other.synchronize();
    if (reader == Reader::host_later) seen = told;
    if (seen == 0) record(region)->valid = 1;
  });
}

Program verifies_by_turns(bool races) {
  Program result = program("verifies_by_turns", store_it);
  result.verify = [races](Region&, const History&, std::uint64_t) -> std::string {
    const DeviceBuffer<Word> first(1);
    Word who = 0;
    Stream stream;
    fill_async(stream, first.data(), 0, sizeof(Word));
    launch(stream, 1, 2, races ? come_first<true> : come_first<false>, first.data());
    copy_async(stream, &who, first.data(), sizeof who);
    stream.synchronize();
    return who == 2 ? "the second one was first" : "";
  };
  return result;
}

Program leaves_recovery_early() {
  const auto stream = std::make_shared<Stream>();  // ends with the program
  return program("leaves_recovery_early", store_it,
                 [stream](Region& region) { launch(*stream, 1, 1, store_state, record(region)); });
}

Program reads_beside_a_copy() {
  return program("reads_beside_a_copy", [](Region& region, Session& session) {
    const auto found = std::make_unique<std::uint64_t>(0);
    session.start();
    Stream stream;
    launch(stream, 1, 1, store_safely, record(region));
    copy_async(stream, found.get(), &record(region)->payload, sizeof *found);
    if (*found == 0) stream.synchronize();
    session.acknowledge();
    stream.synchronize();
  });
}

Program orders_by_a_relaxed_fence() {
  return program("orders_by_a_relaxed_fence", [](Region& region, Session&) {
    Flag flag;
    Stream stream;
    launch(stream, 1, 1, store_and_release, record(region), flag.word.data());
    while (std::atomic_ref<Word>(flag.word[0]).load(std::memory_order_relaxed) == 0) {
    }
    std::atomic_thread_fence(std::memory_order_relaxed);
    record(region)->valid = 1;
    stream.synchronize();
  });
}

Program goes_on_behind_a_trap() {
  return program("goes_on_behind_a_trap", [](Region& region, Session&) {
    Stream stream;
    launch(stream, 1, 1, store_and_trap, record(region));
    try {
      stream.synchronize();
    } catch (const Error&) {
    }
  });
}

Program recovers_on_streams_behind_a_read() {
  return program("recovers_on_streams_behind_a_read", store_it, [](Region& region) {
    if (record(region)->state == 2 || record(region)->valid == 0) return;
    Flag flag;
    Stream one, other;
    launch(one, 1, 1, store_state, record(region));
    launch(other, 1, 1, set, flag.get());
    one.synchronize();
    other.synchronize();
    record(region)->state = 2;
  });
}

Program lanes_apart(bool by_shuffle) {
  return program("lanes_apart", [=](Region& region, Session&) {
    Stream stream;
    launch(stream, 1, 2, by_shuffle ? store_by_lanes<true> : store_by_lanes<false>, record(region));
    stream.synchronize();
  });
}

Program streams_apart_by_a_wait() {
  return program("streams_apart_by_a_wait", [](Region& region, Session& session) {
    const DeviceBuffer<std::uint64_t> word(1);
    session.start();
    Stream one, other;
    launch(one, 1, 1, answer, word.data());
    one.synchronize();
    launch(other, 1, 1, store_answer, record(region),
           static_cast<const std::uint64_t*>(word.data()));
    other.synchronize();
    session.acknowledge();
  });
}

}  // namespace holdfast::test
