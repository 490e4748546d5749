// What the queue is to do, so that the checker can try every crash.
#include <numeric>

#include "durable_queue/queue.hpp"
#include "holdfast/check_command.hpp"
#include "holdfast/kernel.hpp"

namespace durable_queue {

using holdfast::DeviceBuffer;
using holdfast::Region;
using holdfast::Stream;
using holdfast::check::History;
using holdfast::check::Offer;
using holdfast::check::Program;
using holdfast::check::Session;
using holdfast::check::Sizes;
using holdfast::detail::concat;

namespace {

// Each batch and what is in the queue behind it: the numbers from first on, each its own value.
struct Batch {
  std::uint32_t pushed, popped;
};
constexpr Batch kBatches[] = {{3, 0}, {0, 2}, {2, 0}};  // the last one comes round
constexpr std::uint64_t kPlaces = 4;

Ends ends_after(std::uint64_t batches) {
  Ends ends{};
  for (std::uint64_t i = 0; i < batches; ++i) {
    ends.first += kBatches[i].popped;
    ends.end += kBatches[i].pushed;
  }
  return ends;
}

void run(Region& region, Session& session) {
  Queue queue = Queue::open(region, "queue");
  Stream stream;
  const DeviceBuffer<std::uint64_t> values(8);
  std::uint64_t numbers[8];
  std::uint64_t next = 0;
  for (const Batch& batch : kBatches) {
    std::iota(numbers, numbers + 8, next);
    copy_async(stream, values.data(), numbers, sizeof(numbers));
    session.start();
    if (batch.pushed != 0) queue.push(stream, values.data(), batch.pushed);
    if (batch.popped != 0) queue.pop(stream, values.data(), batch.popped);
    session.acknowledge();
    next += batch.pushed;
  }
}

std::string verify(Region& region, const History& history) {
  const Ends ends = region.find<Ends>("queue.ends")[0];
  for (std::uint64_t batches = history.acknowledged; batches <= history.started; ++batches) {
    const Ends expected = ends_after(batches);
    if (ends.first != expected.first || ends.end != expected.end) continue;
    for (std::uint64_t i = ends.first; i < ends.end; ++i) {
      const std::uint64_t value = region.find<std::uint64_t>("queue.items")[i % kPlaces];
      if (value != i) return concat("item ", i, " is ", value);
    }
    return {};
  }
  return concat("items ", ends.first, " to ", ends.end, " are those of no batch");
}

Program make(const Sizes&) {
  Program program;
  program.name = "durable_queue";
  program.set_up = [](Region& region) { Queue::create(region, "queue", kPlaces); };
  program.run = run;
  program.recover = [](Region& region) { Queue::open(region, "queue"); };
  program.verify = [](Region& region, const History& history, std::uint64_t) {
    return verify(region, history);
  };
  return program;
}

}  // namespace

std::vector<Offer> offers() {
  return {{"durable_queue", "numbers pushed and popped, a batch at a time", true, make, {}}};
}

}  // namespace durable_queue
