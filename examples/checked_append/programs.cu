// Says what the kernels are to do, so that the checker can try every crash.
#include <functional>
#include <string>

#include "checked_append/append.hpp"
#include "checked_append/kernels.hpp"
#include "holdfast/error.hpp"
#include "holdfast/region.hpp"

namespace checked_append {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Error;
using holdfast::launch;
using holdfast::Region;
using holdfast::Stream;
using holdfast::check::History;
using holdfast::check::Offer;
using holdfast::check::Program;
using holdfast::check::Session;
using holdfast::check::Sizes;
using holdfast::detail::concat;

namespace {

constexpr unsigned kAppends = 2;

Head* head_of(Region& region) { return region.find<Head>("head").data(); }
std::uint64_t* records_of(Region& region) { return region.find<std::uint64_t>("records").data(); }

// [verify]
// After a crash and recovery: what was promised is there, and all that the log says it holds.
std::string verify_records(Region& region, const History& history, unsigned threads) {
  const std::uint64_t count = head_of(region)->count;
  const std::uint64_t promised = history.acknowledged * threads;
  if (count < promised) return concat(count, " records, and ", promised, " were promised");
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t value = records_of(region)[i];
    if (value != record(i)) return concat("record ", i, " is ", value, ", not ", record(i));
  }
  return "";
}
// [end]

std::string verify_total(Region& region) {
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < head_of(region)->count; ++i) expected += record(i);
  const std::uint64_t total = head_of(region)->total;
  return total == expected ? "" : concat("the total is ", total, ", not ", expected);
}

using Kernel = void (*)(Head*, std::uint64_t*);

// [program]
Program append_program(const std::string& name, unsigned threads, Kernel kernel) {
  Program program;
  program.name = name;
  program.set_up = [=](Region& region) {
    region.allocate<Head>("head", 1);
    region.allocate<std::uint64_t>("records", kAppends * threads);
  };
  program.run = [=](Region& region, Session& session) {
    Stream stream;
    for (unsigned i = 0; i < kAppends; ++i) {
      session.start();
      launch(stream, 1, threads, kernel, head_of(region), records_of(region));
      stream.synchronize();
      session.acknowledge();  // from here on the records are promised
    }
  };
  program.recover = [](Region&) {};  // the count alone says what is in the log
  program.verify = [=](Region& region, const History& history, std::uint64_t) {
    return verify_records(region, history, threads);
  };
  return program;
}
// [end]

using BlocksKernel = void (*)(Head*, std::uint64_t*, std::uint32_t*, std::uint32_t);

Program blocks_program(const std::string& name, unsigned blocks, unsigned threads,
                       BlocksKernel kernel) {
  Program program = append_program(name, blocks * threads, append);
  program.run = [=](Region& region, Session& session) {
    Stream stream;
    const DeviceBuffer<std::uint32_t> done(std::size_t{blocks} * threads);
    for (unsigned i = 0; i < kAppends; ++i) {
      session.start();
      launch(stream, blocks, threads, kernel, head_of(region), records_of(region), done.data(),
             i + 1);
      stream.synchronize();
      session.acknowledge();
    }
  };
  return program;
}

using SumKernel = void (*)(Head*, const std::uint64_t*);

Program sum_program(const std::string& name, unsigned threads, SumKernel kernel) {
  const Program records = append_program(name, threads, append);
  const auto add_up = [=](Region& region) {
    Stream stream;
    launch(stream, 1, 1, kernel, head_of(region),
           static_cast<const std::uint64_t*>(records_of(region)));
    stream.synchronize();
  };
  Program program = records;
  program.run = [=](Region& region, Session& session) {
    records.run(region, session);
    add_up(region);
  };
  program.recover = add_up;
  program.verify = [=](Region& region, const History& history, std::uint64_t item) {
    const std::string wrong = records.verify(region, history, item);
    return wrong.empty() ? verify_total(region) : wrong;
  };
  return program;
}

[[noreturn]] void refuse(const char* message) { throw Error(Errc::invalid_argument, message); }

unsigned threads_of(const Sizes& sizes) {
  if (sizes.persists != 0) refuse("--persists does not apply: a thread appends one record");
  if (sizes.threads > 1024) refuse("--threads is over 1,024, which is what a block may have");
  return sizes.threads == 0 ? 4 : sizes.threads;
}

unsigned one_block(const Sizes& sizes) {
  if (sizes.blocks > 1) refuse("--blocks does not apply: this kernel has one block");
  return threads_of(sizes);
}

unsigned blocks_of(const Sizes& sizes) {
  if (sizes.blocks > 8) refuse("--blocks is over 8: these blocks wait for one another");
  return sizes.blocks == 0 ? 2 : sizes.blocks;
}

}  // namespace

std::vector<Offer> offers() {
  const auto block = [](const std::string& name, const char* summary, bool correct, Kernel kernel) {
    return Offer{name,
                 summary,
                 correct,
                 [=](const Sizes& sizes) { return append_program(name, one_block(sizes), kernel); },
                 {{1}, {4}}};
  };
  const auto blocks = [](const std::string& name, const char* summary, bool correct,
                         BlocksKernel kernel) {
    return Offer{name,
                 summary,
                 correct,
                 [=](const Sizes& sizes) {
                   return blocks_program(name, blocks_of(sizes), threads_of(sizes), kernel);
                 },
                 {{1, 2}, {4, 2}}};
  };
  const auto summed = [](const std::string& name, const char* summary, bool correct,
                         SumKernel kernel) {
    return Offer{name,
                 summary,
                 correct,
                 [=](const Sizes& sizes) { return sum_program(name, one_block(sizes), kernel); },
                 {{1}, {4}}};
  };
  return {
      block("append", "a block appends records to a log", true, append),
      block("append_naive", "the same, with a barrier alone before the count", false, append_naive),
      blocks("append_blocks", "several blocks append, and one thread counts", true, append_blocks),
      blocks("append_blocks_naive", "the same, with flags of block scope", false,
             append_blocks_naive),
      summed("append_sum", "recovery adds the records up", true, sum),
      summed("append_sum_naive", "the same, where doing it twice counts twice", false, sum_naive),
  };
}

}  // namespace checked_append
