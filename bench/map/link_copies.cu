#include "link_copies.hpp"

#include "device_parts.hpp"

namespace maps {
namespace {

// A thread for each chunk of a value.
struct Position {
  std::uint32_t at, number;
  unsigned chunk;
  bool there;
  __device__ Position(const Batch& batch, const std::uint32_t* order) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    at = static_cast<std::uint32_t>(thread / kChunks);
    chunk = thread % kChunks;
    there = at < batch.count;
    number = there && order != nullptr ? order[at] : at;
  }
};

template <unsigned Words>
__global__ void send_requests(Batch batch, const std::uint32_t* order, RequestsAtCpu to) {
  const Position mine(batch, order);
  if (!mine.there) return;
  const Op op = batch.ops[mine.number];
  if (mine.chunk == 0) to.ops[mine.at] = op;
  if (mine.chunk < Words) {
    reinterpret_cast<std::uint64_t*>(to.keys)[std::uint64_t{mine.at} * Words + mine.chunk] =
        reinterpret_cast<const std::uint64_t*>(
            batch.keys)[std::uint64_t{mine.number} * Words + mine.chunk];
  }
  if (op == Op::insert || op == Op::update || op == Op::read_modify_write) {
    chunks_of(to.values, mine.at)[mine.chunk] = chunks_of(batch.values, mine.number)[mine.chunk];
  }
}

__global__ void fetch_answers(Batch batch, const std::uint32_t* order, RequestsAtCpu from) {
  const Position mine(batch, order);
  if (!mine.there) return;
  const Op op = batch.ops[mine.number];
  const Outcome outcome = from.outcomes[mine.at];
  if (mine.chunk == 0) batch.outcomes[mine.number] = outcome;
  if (outcome == Outcome::present && (op == Op::find || op == Op::read_modify_write)) {
    chunks_of(batch.found, mine.number)[mine.chunk] = chunks_of(from.found, mine.at)[mine.chunk];
  }
}

struct UpperHalf {
  template <unsigned Words>
  __device__ std::uint32_t operator()(const Key<Words>& key) const {
    return static_cast<std::uint32_t>(key.hash() >> 32);
  }
};

}  // namespace

struct LinkCopies::Impl {
  Impl(std::uint32_t key_bytes, std::uint32_t most, bool ordered)
      : key_bytes(key_bytes),
        ordered(ordered),
        ops(most),
        outcomes(most),
        keys(std::size_t{most} * key_bytes),
        values(std::size_t{most} * kValueBytes),
        found(std::size_t{most} * kValueBytes) {
    if (ordered) order = BatchOrder(most);
    at_cpu = {ops.data(), keys.data(), values.data(), found.data(), outcomes.data()};
  }

  template <unsigned Words>
  void send(const Batch& batch) {
    order_of_batch = ordered ? order.by<Words>(stream, batch, UpperHalf{}, 32) : nullptr;
    times[1].record(stream);
    launch(stream, grid(batch), kBlock, send_requests<Words>, batch, order_of_batch, at_cpu);
  }
  static unsigned grid(const Batch& batch) {
    return holdfast::blocks_for(std::uint64_t{batch.count} * kChunks, kBlock);
  }
  double between(unsigned i) const {
    return holdfast::Event::elapsed_ms(times[i], times[i + 1]) / 1e3;
  }

  std::uint32_t key_bytes;
  bool ordered;
  holdfast::PinnedBuffer<Op> ops;
  holdfast::PinnedBuffer<Outcome> outcomes;
  holdfast::PinnedBuffer<std::byte> keys, values, found;
  BatchOrder order;
  const std::uint32_t* order_of_batch = nullptr;
  RequestsAtCpu at_cpu;
  holdfast::Stream stream;
  holdfast::Event times[3];
};

LinkCopies::LinkCopies(std::uint32_t key_bytes, std::uint32_t most, bool ordered)
    : impl_(std::make_unique<Impl>(key_bytes, most, ordered)) {}
LinkCopies::~LinkCopies() = default;

const RequestsAtCpu& LinkCopies::to_cpu(const Batch& batch, Phases& phases) {
  Impl& my = *impl_;
  my.times[0].record(my.stream);
  if (my.key_bytes == 8) {
    my.send<1>(batch);
  } else {
    my.send<4>(batch);
  }
  my.times[2].record(my.stream);
  my.stream.synchronize();
  phases.order += my.between(0);
  phases.to_cpu += my.between(1);
  return my.at_cpu;
}

void LinkCopies::to_gpu(const Batch& batch, Phases& phases) {
  Impl& my = *impl_;
  my.times[0].record(my.stream);
  launch(my.stream, Impl::grid(batch), kBlock, fetch_answers, batch, my.order_of_batch, my.at_cpu);
  my.times[1].record(my.stream);
  my.stream.synchronize();
  phases.to_gpu += my.between(0);
}

}  // namespace maps
