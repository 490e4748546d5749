#include "undo_log/log_kernels.hpp"

#include "holdfast/kernel.hpp"
#include "holdfast/undo.hpp"

namespace holdfast::test {
namespace {

constexpr std::uint32_t kBlock = 128;

__device__ void note(LogTally* tally, LogStatus status) {
  std::uint32_t* const counters[] = {&tally->ok, &tally->full, &tally->empty, &tally->bad_size,
                                     &tally->bad_slot};
  atomicAdd(counters[static_cast<int>(status)], 1u);
}

__device__ std::uint32_t this_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

__device__ std::uint8_t expected_byte(std::uint32_t thread, std::uint32_t n, std::uint32_t i) {
  return static_cast<std::uint8_t>(thread * 7 + n * 31 + i * 3 + 1);
}

template <class Log>
__global__ void insert_kernel(Log log, std::uint32_t threads, std::uint32_t entries,
                              std::uint32_t bytes, LogTally* tally) {
  const std::uint32_t thread = this_thread();
  if (thread >= threads) return;
  alignas(8) std::uint8_t entry[kMaxEntryBytes];
  for (std::uint32_t n = 0; n < entries; ++n) {
    for (std::uint32_t i = 0; i < bytes && i < kMaxEntryBytes; ++i) {
      entry[i] = expected_byte(thread, n, i);
    }
    note(tally, log.insert_bytes(entry, bytes, thread));
  }
}

template <class Log>
__global__ void drain_kernel(Log log, std::uint32_t threads, std::uint32_t entries,
                             std::uint32_t newest, std::uint32_t bytes, LogTally* tally) {
  const std::uint32_t thread = this_thread();
  if (thread >= threads) return;
  alignas(8) std::uint8_t entry[kMaxEntryBytes];
  for (std::uint32_t k = 0; k < entries; ++k) {
    const LogStatus status = log.read_bytes(entry, bytes, thread);
    note(tally, status);
    if (status != LogStatus::ok) continue;
    bool same = true;
    for (std::uint32_t i = 0; i < bytes; ++i) {
      same = same && entry[i] == expected_byte(thread, newest - k, i);
    }
    if (!same) atomicAdd(&tally->wrong_bytes, 1u);
    if (log.remove(bytes, thread) != LogStatus::ok) atomicAdd(&tally->wrong_bytes, 1u);
  }
}

template <class Log>
__global__ void count_kernel(Log log, std::uint32_t* count) {
  if (this_thread() < log.slots && !log.is_empty(this_thread())) atomicAdd(count, 1u);
}

template <class Log>
__global__ void clear_kernel(Log log, std::uint32_t threads) {
  if (this_thread() < threads) log.clear(this_thread());
}

struct Shared {
  std::uint32_t thread, n;
};

__global__ void insert_shared_kernel(ConventionalLogRef log, std::uint32_t threads,
                                     std::uint32_t entries, LogTally* tally) {
  const std::uint32_t thread = this_thread();
  if (thread >= threads) return;
  for (std::uint32_t n = 0; n < entries; ++n) note(tally, log.insert(Shared{thread, n}));
}

__global__ void pop_shared_kernel(ConventionalLogRef log, std::uint32_t threads,
                                  std::uint32_t entries, std::uint32_t* seen) {
  const std::uint32_t slot = this_thread();
  if (slot >= log.slots) return;
  Shared entry;
  while (log.read_bytes(&entry, sizeof(entry), slot) == LogStatus::ok) {
    if (entry.thread < threads && entry.n < entries) {
      atomicAdd(&seen[entry.thread * entries + entry.n], 1u);
    }
    if (log.remove(sizeof(entry), slot) != LogStatus::ok) return;
  }
}

struct Cell {
  std::uint32_t index;
  std::uint32_t unused;
  std::uint64_t value;
};

__global__ void add_one_kernel(CoalescedLogRef log, std::uint64_t* cells, std::uint32_t count,
                               PageMarks marks) {
  const std::uint32_t i = this_thread();
  if (i >= count) return;
  if (log.insert(Cell{i, 0, cells[i]}) != LogStatus::ok) return;
  cells[i] += 1;
  marks.mark(&cells[i], sizeof(cells[i]));
  persist();
}

__global__ void add_one_too_early_kernel(CoalescedLogRef log, std::uint64_t* cells,
                                         std::uint32_t count, PageMarks marks) {
  const std::uint32_t i = this_thread();
  if (i >= count) return;
  const Cell cell{i, 0, cells[i]};
  cells[i] += 1;
  marks.mark(&cells[i], sizeof(cells[i]));
  if (log.insert(cell) != LogStatus::ok) return;
  persist();
}

struct UndoCell {
  using Entry = Cell;
  std::uint64_t* cells;
  std::uint32_t count;
  PageMarks marks;
  __device__ bool operator()(const Cell& cell) const {
    if (cell.index >= count) return false;
    cells[cell.index] = cell.value;
    marks.mark(&cells[cell.index], sizeof(std::uint64_t));
    return true;
  }
};

Undo<UndoCell> undo_of(const Cells& cells) {
  return undo(cells.log, UndoCell{cells.first, cells.count, cells.marks});
}

dim3 grid_for(std::uint32_t threads) { return dim3(blocks_for(threads, kBlock)); }

}  // namespace

void insert_entries(Stream& stream, const UndoLog& log, std::uint32_t threads,
                    std::uint32_t entries, std::uint32_t bytes, LogTally* tally) {
  log.visit([&](auto ref) {
    launch(stream, grid_for(threads), dim3(kBlock), insert_kernel<decltype(ref)>, ref, threads,
           entries, bytes, tally);
  });
}

void drain_entries(Stream& stream, const UndoLog& log, std::uint32_t threads, std::uint32_t entries,
                   std::uint32_t newest, std::uint32_t bytes, LogTally* tally) {
  log.visit([&](auto ref) {
    launch(stream, grid_for(threads), dim3(kBlock), drain_kernel<decltype(ref)>, ref, threads,
           entries, newest, bytes, tally);
  });
}

void count_used_slots(Stream& stream, const UndoLog& log, std::uint32_t* count) {
  log.visit([&](auto ref) {
    launch(stream, grid_for(log.shape().slots + 32), dim3(kBlock), count_kernel<decltype(ref)>, ref,
           count);
  });
}

void clear_slots(Stream& stream, const UndoLog& log, std::uint32_t threads) {
  log.visit([&](auto ref) {
    launch(stream, grid_for(threads), dim3(kBlock), clear_kernel<decltype(ref)>, ref, threads);
  });
}

void insert_shared(Stream& stream, const UndoLog& log, std::uint32_t threads, std::uint32_t entries,
                   LogTally* tally) {
  launch(stream, grid_for(threads), dim3(kBlock), insert_shared_kernel, log.conventional(), threads,
         entries, tally);
}

void pop_shared(Stream& stream, const UndoLog& log, std::uint32_t threads, std::uint32_t entries,
                std::uint32_t* seen) {
  launch(stream, grid_for(log.shape().slots), dim3(kBlock), pop_shared_kernel, log.conventional(),
         threads, entries, seen);
}

void add_one(Stream& stream, const UndoLog& log, std::uint64_t* cells, std::uint32_t count,
             PageMarks marks) {
  launch(stream, grid_for(count), dim3(kBlock), add_one_kernel, log.coalesced(), cells, count,
         marks);
}

void add_one_too_early(Stream& stream, const UndoLog& log, std::uint64_t* cells,
                       std::uint32_t count, PageMarks marks) {
  launch(stream, grid_for(count), dim3(kBlock), add_one_too_early_kernel, log.coalesced(), cells,
         count, marks);
}

void finish(Stream& stream, Transaction& transaction, const std::vector<Cells>& all) {
  if (all.empty()) return transaction.finish(stream);
  if (all.size() == 2) {
    transaction.finish(stream, undo_of(all[0]), undo_of(all[1]));
  } else {
    transaction.finish(stream, undo_of(all.at(0)));
  }
}

Recovery recover(Stream& stream, Transaction& transaction, const std::vector<Cells>& all) {
  if (all.empty()) return transaction.recover(stream);
  if (all.size() == 2) return transaction.recover(stream, undo_of(all[0]), undo_of(all[1]));
  return transaction.recover(stream, undo_of(all.at(0)));
}

void undo_cells(Stream& stream, const Cells& cells) {
  const DeviceBuffer<detail::UndoTally> tally(1);
  detail::launch_undo(stream, undo_of(cells), tally.data());
  stream.synchronize();
}

}  // namespace holdfast::test
