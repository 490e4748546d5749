#include "batches.hpp"

#include <stdexcept>

#include "draws.hpp"
#include "holdfast/kernel.hpp"

namespace maps {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWords = kValueBytes / 8;
constexpr unsigned kTallies = 4;

__host__ __device__ std::uint64_t word_of_key(std::uint64_t number, unsigned word) {
  return scrambled(number + 1 + word * 0x9e3779b97f4a7c15ull);
}
__host__ __device__ std::uint64_t word_of_value(std::uint64_t key, std::uint64_t operation,
                                                unsigned word) {
  if (word == 0) return key;
  if (word == 1) return operation;
  return scrambled(scrambled(key ^ 0x6a09e667f3bcc908ull) + operation * kWords + word);
}

// A thread for each word of a value.
__global__ void fill(const std::uint64_t* numbers, std::uint64_t first, std::uint32_t count,
                     unsigned key_words, std::uint64_t* keys, ValueWords* values) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t i = thread / kWords;
  const unsigned word = thread % kWords;
  if (i >= count) return;
  const std::uint64_t number = numbers[i];
  if (word < key_words) keys[i * key_words + word] = word_of_key(number, word);
  values[i].word[word] = word_of_value(number, first + i, word);
}

__global__ void check_answers(const std::uint64_t* numbers, std::uint64_t end, Batch batch,
                              unsigned long long* tally) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch.count) return;
  const Outcome outcome = batch.outcomes[i];
  atomicAdd(&tally[static_cast<unsigned>(outcome) % (kTallies - 1)], 1ull);
  const Op op = batch.ops[i];
  if (outcome != Outcome::present || (op != Op::find && op != Op::read_modify_write)) return;
  const ValueWords& found = reinterpret_cast<const ValueWords*>(batch.found)[i];
  bool right = found.word[0] == numbers[i] && found.word[1] < end;
  for (unsigned word = 2; word < kWords; ++word) {
    right &= found.word[word] == word_of_value(found.word[0], found.word[1], word);
  }
  if (!right) atomicAdd(&tally[kTallies - 1], 1ull);
}

}  // namespace

ValueWords value_of(std::uint64_t key, std::uint64_t operation) {
  ValueWords value;
  for (unsigned word = 0; word < kWords; ++word) {
    value.word[word] = word_of_value(key, operation, word);
  }
  return value;
}

void key_of(std::uint64_t number, std::uint32_t key_bytes, std::uint64_t* words) {
  for (unsigned word = 0; word < key_bytes / 8; ++word) words[word] = word_of_key(number, word);
}

BatchRoom::BatchRoom(std::uint32_t key_bytes, std::uint32_t most)
    : key_bytes_(key_bytes),
      host_numbers_(most),
      host_ops_(most),
      numbers_(most),
      keys_(std::size_t{most} * (key_bytes / 8)),
      ops_(most),
      values_(most),
      found_(most),
      outcomes_(most),
      tally_(kTallies) {}

Batch BatchRoom::make(const std::vector<Request>& requests, std::uint64_t first) {
  if (requests.size() > numbers_.size()) {
    throw std::invalid_argument("a batch of " + std::to_string(requests.size()) +
                                " requests; there is room for " + std::to_string(numbers_.size()));
  }
  first_ = first;
  batch_ = {ops_.data(),
            reinterpret_cast<const std::byte*>(keys_.data()),
            reinterpret_cast<const std::byte*>(values_.data()),
            reinterpret_cast<std::byte*>(found_.data()),
            outcomes_.data(),
            static_cast<std::uint32_t>(requests.size())};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& [key, op] = requests[i];
    host_numbers_[i] = key;
    host_ops_[i] = op;
    batch_.returns_values |= returns_value(op);
    batch_.takes_values |= takes_value(op);
    batch_.changes |= op != Op::find;
    ++batch_.of_each[static_cast<unsigned>(op)];
  }
  holdfast::copy_async(stream_, numbers_.data(), host_numbers_.data(),
                       requests.size() * sizeof(std::uint64_t));
  holdfast::copy_async(stream_, ops_.data(), host_ops_.data(), requests.size() * sizeof(Op));
  holdfast::launch(stream_, holdfast::blocks_for(std::uint64_t{batch_.count} * kWords, kThreads),
                   kThreads, fill, numbers_.data(), first, batch_.count, key_bytes_ / 8,
                   keys_.data(), values_.data());
  stream_.synchronize();
  return batch_;
}

Answers BatchRoom::check() {
  holdfast::fill_async(stream_, tally_.data(), 0, tally_.bytes());
  holdfast::launch(stream_, holdfast::blocks_for(batch_.count, kThreads), kThreads, check_answers,
                   numbers_.data(), first_ + batch_.count, batch_, tally_.data());
  unsigned long long tally[kTallies];
  holdfast::copy_async(stream_, tally, tally_.data(), sizeof(tally));
  stream_.synchronize();
  return {tally[0], tally[1], tally[2], tally[3]};
}

}  // namespace maps
