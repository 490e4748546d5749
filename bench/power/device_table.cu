#include "device_table.hpp"

#include "disk.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/sort.hpp"
#include "kv_store/batch.hpp"
#include "kv_store/kernels.hpp"
#include "kv_store/replacement.hpp"

namespace power {
namespace {

namespace kv = holdfast::kv;

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kBucketsOfPage = kTablePage / sizeof(kv::Bucket);
constexpr std::uint64_t kPairsOfPage = kTablePage / sizeof(kv::Pair);
static_assert(kPairsOfPage == kThreads, "a thread copies a pair");
constexpr unsigned kWordsOfThread = 16;  // of a checksum

__device__ std::uint32_t thread_in_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void store_and_mark(kv::Table table, kv::Batch batch, const kv::Outcome* outcome,
                               std::uint8_t* dirty) {
  const kv::Replacement mine = kv::replacement_of_thread(batch, outcome);
  kv::store_in_table(table, mine);
  if (mine.needed) dirty[mine.change.bucket / kBucketsOfPage] = 1;
}

__global__ void number_pages(const std::uint8_t* dirty, std::uint32_t pages, std::uint32_t* clean,
                             std::uint32_t* number, std::uint32_t* count) {
  const std::uint32_t page = thread_in_row();
  if (page >= pages) return;
  clean[page] = dirty[page] != 0 ? 0 : 1;
  number[page] = page;
  if (dirty[page] != 0) atomicAdd(count, 1u);
}

// A block for each page.
__global__ void copy_pages(const kv::Bucket* buckets, const std::uint32_t* numbers, kv::Pair* to) {
  const auto* const from = reinterpret_cast<const kv::Pair*>(buckets);
  to[std::uint64_t{blockIdx.x} * kPairsOfPage + threadIdx.x] =
      from[std::uint64_t{numbers[blockIdx.x]} * kPairsOfPage + threadIdx.x];
}

__host__ __device__ std::uint64_t mixed(std::uint64_t word, std::uint64_t place) {
  word ^= (place + 1) * 0x9e3779b97f4a7c15ull;
  word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93ull;
  return word ^ (word >> 32);
}

__global__ void sum_words(const std::uint64_t* words, std::uint64_t count, std::uint64_t first,
                          unsigned long long* sum) {
  std::uint64_t mine = 0;
  const std::uint64_t begin = std::uint64_t{blockIdx.x} * kThreads * kWordsOfThread + threadIdx.x;
  for (unsigned i = 0; i < kWordsOfThread; ++i) {
    const std::uint64_t at = begin + std::uint64_t{i} * kThreads;
    if (at < count) mine += mixed(words[at], first + at);
  }
  if (mine != 0) atomicAdd(sum, static_cast<unsigned long long>(mine));
}

}  // namespace

struct DeviceTable::Impl {
  explicit Impl(const Shape& shape)
      : buckets(shape.table_bytes / sizeof(kv::Bucket)),
        table{buckets.data(), buckets.size() - 1, {}},
        planner(shape.batch),
        pages(static_cast<std::uint32_t>(shape.table_bytes / kTablePage)),
        dirty(pages),
        clean(pages),
        sorted_clean(pages),
        number(pages),
        sorted_number(pages),
        sorter(pages) {}

  // For gather() alone: made when it is first called.
  void make_room() {
    if (gathered.size() != 0) return;
    gathered = holdfast::DeviceBuffer<std::byte>(table.bytes());
    gathered_host = PinnedMemory(table.bytes());
    numbers_host = holdfast::PinnedBuffer<std::uint32_t>(pages);
    count_host = holdfast::PinnedBuffer<std::uint32_t>(1);
  }

  holdfast::DeviceBuffer<kv::Bucket> buckets;
  kv::Table table;
  kv::BatchPlanner planner;
  holdfast::DeviceBuffer<kv::Outcome> outcome{1};

  std::uint32_t pages;
  holdfast::DeviceBuffer<std::uint8_t> dirty;
  holdfast::DeviceBuffer<std::uint32_t> clean, sorted_clean, number, sorted_number, count{1};
  holdfast::PairSorter sorter;
  holdfast::DeviceBuffer<std::byte> gathered;
  PinnedMemory gathered_host;
  holdfast::PinnedBuffer<std::uint32_t> numbers_host, count_host;
};

DeviceTable::DeviceTable(const Shape& shape) : impl_(std::make_unique<Impl>(shape)) {}
DeviceTable::~DeviceTable() = default;

std::uint64_t DeviceTable::bytes() const { return impl_->table.bytes(); }

void DeviceTable::set(holdfast::Stream& stream, const std::uint64_t* keys,
                      const std::uint64_t* values, std::uint32_t count) {
  Impl& my = *impl_;
  my.planner.load(stream, keys, values, count);
  holdfast::fill_async(stream, my.outcome.data(), 0, my.outcome.bytes());
  // Not ordered by bucket: device memory has no wall that this would take away.
  const kv::Batch batch = my.planner.plan(stream, my.table, false, true, my.outcome.data());
  my.planner.choose(stream, my.table, batch, my.outcome.data());
  holdfast::launch(stream, holdfast::blocks_for(count, kv::kBlock), kv::kBlock, store_and_mark,
                   my.table, batch, my.outcome.data(), my.dirty.data());
}

DeviceTable::Pages DeviceTable::gather(holdfast::Stream& stream) {
  Impl& my = *impl_;
  my.make_room();
  holdfast::fill_async(stream, my.count.data(), 0, my.count.bytes());
  holdfast::launch(stream, holdfast::blocks_for(my.pages, kThreads), kThreads, number_pages,
                   my.dirty.data(), my.pages, my.clean.data(), my.number.data(), my.count.data());
  // A stable sort by one bit: the changed ones come first, in rising order, so that neighbours are
  // written in one piece.
  my.sorter.sort(stream, my.clean.data(), my.sorted_clean.data(), my.number.data(),
                 my.sorted_number.data(), my.pages, 1);
  holdfast::copy_async(stream, my.count_host.data(), my.count.data(), my.count.bytes());
  stream.synchronize();
  const std::uint32_t count = my.count_host[0];
  if (count > 0) {
    holdfast::launch(stream, count, kThreads, copy_pages, my.buckets.data(),
                     my.sorted_number.data(), reinterpret_cast<kv::Pair*>(my.gathered.data()));
    holdfast::copy_async(stream, my.gathered_host.data(), my.gathered.data(), count * kTablePage);
    holdfast::copy_async(stream, my.numbers_host.data(), my.sorted_number.data(),
                         count * sizeof(std::uint32_t));
    holdfast::fill_async(stream, my.dirty.data(), 0, my.dirty.bytes());
    stream.synchronize();
  }
  return {my.numbers_host.data(), my.gathered_host.data(), count};
}

void DeviceTable::load(holdfast::Stream& stream, const std::byte* bytes) {
  holdfast::copy_async(stream, impl_->buckets.data(), bytes, this->bytes());
  stream.synchronize();
}

void DeviceTable::save(holdfast::Stream& stream, std::byte* bytes) const {
  holdfast::copy_async(stream, bytes, impl_->buckets.data(), this->bytes());
  stream.synchronize();
}

void for_each_pair(const std::byte* bytes, std::uint64_t size,
                   const std::function<void(std::uint64_t key, std::uint64_t value)>& pair) {
  const auto* const pairs = reinterpret_cast<const kv::Pair*>(bytes);
  for (std::uint64_t i = 0; i < size / sizeof(kv::Pair); ++i) {
    if (pairs[i].key != 0) pair(~pairs[i].key, pairs[i].value);
  }
}

void launch_checksum(holdfast::Stream& stream, const std::uint64_t* words, std::uint64_t count,
                     std::uint64_t first, unsigned long long* sum) {
  holdfast::launch(stream, holdfast::blocks_for(count, kThreads * kWordsOfThread), kThreads,
                   sum_words, words, count, first, sum);
}

std::uint64_t checksum(const std::uint64_t* words, std::uint64_t count, std::uint64_t first) {
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < count; ++at) sum += mixed(words[at], first + at);
  return sum;
}

}  // namespace power
