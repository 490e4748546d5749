// Taking a transaction back: the layer reads the entries and removes them, a structure says what
// undoing one means. For files with kernels.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "holdfast/kernel.hpp"
#include "holdfast/undo_log.hpp"

namespace holdfast {

// A log and what undoes its entries. Function: trivially copyable, with
//   using Entry = ...;  // of all entries of the log
//   __device__ bool operator()(const Entry& entry) const;
// which puts back what the entry holds and marks the page, if that is called for; or returns false,
// and changes nothing, if the entry points outside. Doing it twice must be as doing it once.
template <class Function>
struct Undo {
  UndoLog log;
  Function function;
};
template <class Function>
Undo<Function> undo(UndoLog log, Function function) {
  return {std::move(log), std::move(function)};
}

// Undoes a log whose entries are what one struct was.
template <class T>
struct PutBack {
  using Entry = T;
  T* place = nullptr;
  PageMarks marks;
  __device__ bool operator()(const T& before) const {
    *place = before;
    marks.mark(place, sizeof(T));
    return true;
  }
};

namespace detail {

// A thread for each slot. What an entry put back is durable before the entry is gone.
template <class Log, class Function>
__global__ void undo_entries(Log log, Function function, UndoTally* tallies) {
  const std::uint32_t slot = blockIdx.x * blockDim.x + threadIdx.x;
  if (slot >= log.slots) return;
  typename Function::Entry entry;
  while (log.read_bytes(&entry, sizeof(entry), slot) == LogStatus::ok) {
    if (!function(entry)) {
      atomicAdd(&tallies->bad, 1u);
      return;
    }
    persist();
    if (log.remove(sizeof(entry), slot) != LogStatus::ok) return;
    tally(&tallies->undone, 1u);
  }
  // What is less than an entry is none.
  if (!log.is_empty(slot)) atomicAdd(&tallies->bad, 1u);
}

template <class Function>
void launch_undo(Stream& stream, const Undo<Function>& undo, UndoTally* tally) {
  constexpr std::uint32_t kMostThreads = 256;
  undo.log.visit([&](auto ref) {
    const std::uint32_t threads = ref.slots < kMostThreads ? ref.slots : kMostThreads;
    launch(stream, dim3((ref.slots + threads - 1) / threads), dim3(threads),
           undo_entries<decltype(ref), Function>, ref, undo.function, tally);
  });
}

}  // namespace detail

template <class... Undos>
std::uint64_t Transaction::take_back(Stream& stream, const Undos&... undos) {
  const std::vector<const UndoLog*> logs{&undos.log...};
  [[maybe_unused]] detail::UndoTally* tally = begin_undo(stream, logs);
  (detail::launch_undo(stream, undos, tally++), ...);
  return end_undo(stream, logs);
}

template <class... Undos>
Recovery Transaction::recover(Stream& stream, const Undos&... undos) {
  await_batch(stream);
  if (!is_open()) return {};
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t undone = take_back(stream, undos...);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  return {true, undone, took.count()};
}

template <class... Undos>
void Transaction::finish(Stream& stream, const Undos&... undos) {
  const Batch batch = await_batch(stream);
  if (batch == Batch::none) check_nothing_open();
  if (batch != Batch::taken_back) return;
  if (is_open()) take_back(stream, undos...);
  throw_taken_back();
}

}  // namespace holdfast
