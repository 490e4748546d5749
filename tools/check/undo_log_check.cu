// Transactions over a log: each thread logs what its words hold, overwrites them, and persists.
#include <memory>

#include "checking/sized_offer.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/undo.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

constexpr std::uint32_t kTransactions = 2;
constexpr std::uint32_t kPartitions = 2;

struct Undone {
  std::uint32_t cell;
  std::uint32_t unused;
  std::uint64_t value;
};

struct Shape {
  LogLayout layout;
  std::uint32_t blocks;
  std::uint32_t threads;
  std::uint32_t words;  // of each thread
  std::uint32_t all_threads() const { return blocks * threads; }
  // The last cell counts the transactions; it is logged and stored like the others.
  std::uint32_t counter() const { return all_threads() * words; }
  LogShape log() const {
    const std::uint32_t slots = layout == LogLayout::coalesced ? all_threads() + 1 : kPartitions;
    const std::uint32_t sharers = layout == LogLayout::coalesced ? 1 : all_threads() / slots + 2;
    return {layout, slots, static_cast<std::uint32_t>(sharers * words * sizeof(Undone))};
  }
};

// What a cell holds once `transactions` are committed.
__host__ __device__ std::uint64_t value_of(std::uint32_t transactions, std::uint32_t cell) {
  return transactions == 0 ? 0 : std::uint64_t{transactions} << 32 | (cell + 1);
}

template <class Log>
__device__ void overwrite(const Log& log, std::uint32_t slot, std::uint64_t* cells,
                          std::uint32_t cell, std::uint64_t value, const PageMarks& marks) {
  if (log.insert(Undone{cell, 0, cells[cell]}, slot) != LogStatus::ok) return;
  cells[cell] = value;
  marks.mark(&cells[cell], sizeof(cells[cell]));
  persist();
}

template <class Log>
__global__ void overwrite_words(Log log, std::uint64_t* cells, std::uint32_t words,
                                std::uint32_t transaction, PageMarks marks) {
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::uint32_t cell = thread * words; cell < (thread + 1) * words; ++cell) {
    overwrite(log, log.own_slot(), cells, cell, value_of(transaction, cell), marks);
  }
}

template <class Log>
__global__ void overwrite_counter(Log log, std::uint64_t* cells, std::uint32_t counter,
                                  std::uint32_t transaction, PageMarks marks) {
  overwrite(log, log.slots - 1, cells, counter, transaction, marks);
}

struct UndoCell {
  using Entry = Undone;
  std::uint64_t* cells;
  std::uint32_t count;
  PageMarks marks;
  __device__ bool operator()(const Undone& entry) const {
    if (entry.cell >= count) return false;
    cells[entry.cell] = entry.value;
    marks.mark(&cells[entry.cell], sizeof(std::uint64_t));
    return true;
  }
};

void set_up(Region& region, const Shape& shape) {
  Transaction::create(region, "tx").create_log(region, "log", shape.log());
  region.allocate<std::uint64_t>("cells", shape.counter() + 1, Tracking::marked);
}

void run(Region& region, Session& session, const Shape& shape) {
  Transaction transaction = Transaction::open(region, "tx");
  const UndoLog log = transaction.log("log");
  std::uint64_t* const cells = region.find<std::uint64_t>("cells").data();
  Stream stream;
  for (std::uint32_t number = 1; number <= kTransactions; ++number) {
    session.start();
    transaction.begin(stream);
    log.visit([&](auto view) {
      launch(stream, dim3(shape.blocks), dim3(shape.threads), overwrite_words<decltype(view)>, view,
             cells, shape.words, number, region.marks());
      launch(stream, dim3(1), dim3(1), overwrite_counter<decltype(view)>, view, cells,
             shape.counter(), number, region.marks());
    });
    transaction.commit(stream);
    transaction.finish(stream, undo(log, UndoCell{cells, shape.counter() + 1, region.marks()}));
    session.acknowledge();
  }
}

// Returns how many transactions the counter then says were committed. Verification has it from
// here, since a word that every item reads would tie them together.
std::uint64_t recover(Region& region, const Shape& shape) {
  std::uint64_t* const cells = region.find<std::uint64_t>("cells").data();
  Stream stream;
  Transaction transaction = Transaction::open(region, "tx");
  transaction.recover(
      stream, undo(transaction.log("log"), UndoCell{cells, shape.counter() + 1, region.marks()}));
  return cells[shape.counter()];
}

// An item is a thread: its words are of the same transaction as the counter.
std::string verify(const std::uint64_t* cells, std::uint64_t done, const History& history,
                   std::uint64_t item, const Shape& shape) {
  if (done < history.acknowledged || done > history.started) {
    return detail::concat("the counter says that ", done, " transactions were committed; ",
                          history.acknowledged, " were acknowledged and ", history.started,
                          " begun");
  }
  for (std::uint32_t k = 0; k < shape.words; ++k) {
    const auto cell = static_cast<std::uint32_t>(item) * shape.words + k;
    const std::uint64_t expected = value_of(static_cast<std::uint32_t>(done), cell);
    if (cells[cell] == expected) continue;
    return detail::concat("cell ", cell, " holds ", cells[cell] & 0xffffffff, " of transaction ",
                          cells[cell] >> 32, ", and the counter says ", done);
  }
  return {};
}

Program make(const Shape& shape) {
  Program program;
  program.region_bytes = UndoLog::object_bytes(shape.log()) +
                         (shape.counter() + 1) * sizeof(std::uint64_t) + (1u << 18);
  program.set_up = [shape](Region& region) { set_up(region, shape); };
  program.run = [shape](Region& region, Session& session) { run(region, session, shape); };
  const auto done = std::make_shared<std::uint64_t>(0);
  program.recover = [shape, done](Region& region) { *done = recover(region, shape); };
  program.items = shape.all_threads();
  program.verify = [shape, done](Region& region, const History& history, std::uint64_t item) {
    return verify(region.find<std::uint64_t>("cells").data(), *done, history, item, shape);
  };
  return program;
}

std::function<Program(const Sizes&)> logged(LogLayout layout) {
  return [layout](const Sizes& sizes) {
    return make({layout, sizes.blocks, sizes.threads, sizes.persists});
  };
}

}  // namespace

std::vector<Offer> undo_log_programs() {
  // The most threads with which every mutant is explored to its end.
  const Sizes usual{6, 1, 1};
  return {
      sized_offer("undo_log",
                  "two transactions in which every thread logs and overwrites words of its own",
                  usual, logged(LogLayout::coalesced), {{2, 1, 1}, {3, 2, 1}, {6, 1, 1}}),
      sized_offer("undo_log_conventional",
                  "the same with a log of a few partitions, which threads share under locks", usual,
                  logged(LogLayout::conventional), {{2, 1, 1}, {3, 1, 1}}),
  };
}

}  // namespace holdfast::check
