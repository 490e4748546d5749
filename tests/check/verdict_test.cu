#include "check/verdict_test.hpp"

#include "check/bugs/bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

struct Record {
  alignas(64) std::uint64_t payload;
  alignas(64) std::uint64_t valid;
};

enum class Fences { durable, thread, both };

template <Fences kFences>
__global__ void publish(Record* records) {
  Record& record = records[threadIdx.x];
  record.payload = 42;
  if (kFences == Fences::durable) persist();
  if (kFences != Fences::durable) __threadfence();
  if (kFences == Fences::both) ofence();
  record.valid = 1;
}

template <Fences kFences>
void run(Stream& stream, Record* record) {
  launch(stream, dim3(1), dim3(1), publish<kFences>, record);
}

std::string verify(const Record& record, const check::History& history) {
  if (record.valid == 0) return history.acknowledged == 0 ? "" : "the record is gone";
  return record.payload == 42 ? "" : "a valid record without its payload";
}

__global__ void write_all(std::uint64_t* words, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) words[i] = 1;
}

struct Pair {
  Record records[2];
};

void run_two(Stream& stream, Pair* pair) {
  launch(stream, dim3(1), dim3(2), publish<Fences::durable>, &pair->records[0]);
}

std::string verify_two(const Pair& pair, const check::History& history) {
  const std::string first = verify(pair.records[0], history);
  return first.empty() ? verify(pair.records[1], history) : first;
}

__global__ void publish_again(Record* record) {
  if (threadIdx.x == 0) record->payload = 42;
}

}  // namespace

check::Program published() {
  return make_program<Record>("published", {run<Fences::durable>, nullptr, verify});
}

check::Program published_behind_thread_fence() {
  return make_program<Record>("published_behind_thread_fence",
                              {run<Fences::thread>, nullptr, verify});
}

check::Program published_behind_both_fences() {
  return make_program<Record>("published_behind_both_fences", {run<Fences::both>, nullptr, verify});
}

check::Program unordered_words(std::uint32_t words, std::uint32_t pattern) {
  const auto words_of = [](Region& region) { return region.find<std::uint64_t>("words").data(); };
  check::Program program;
  program.name = "unordered_words";
  program.set_up = [=](Region& region) { region.allocate<std::uint64_t>("words", words); };
  program.run = [=](Region& region, check::Session&) {
    Stream stream;
    launch(stream, dim3(1), dim3(1), write_all, words_of(region), words);
    stream.synchronize();
  };
  program.recover = [](Region&) {};
  program.verify = [=](Region& region, const check::History&, std::uint64_t) {
    std::uint32_t durable = 0;
    for (std::uint32_t i = 0; i < words; ++i) {
      if (words_of(region)[i] != 0) durable ^= 1u << i % 32;
    }
    return words == 24 && durable == pattern ? "the pattern" : "";
  };
  return program;
}

check::Program two_threads() {
  return make_program<Pair>("two_threads", {run_two, nullptr, verify_two});
}

check::Program acknowledged_early() {
  check::Program program = published();
  program.run = [](Region& region, check::Session& session) {
    auto* const record = static_cast<Record*>(region.address(region.object("state")));
    session.start();
    Stream stream;
    launch(stream, dim3(1), dim3(1), publish<Fences::durable>, record);
    session.acknowledge();
    stream.synchronize();
  };
  return program;
}

check::Program recovered_by_two() {
  check::Program program = published();
  program.recover = [](Region& region) {
    auto* const record = static_cast<Record*>(region.address(region.object("state")));
    Stream stream;
    launch(stream, dim3(1), dim3(2), publish_again, record);
    stream.synchronize();
  };
  return program;
}

}  // namespace holdfast::test
