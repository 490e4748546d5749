#include "workload/step.hpp"

#include <chrono>

namespace workload {
namespace {

using Clock = std::chrono::steady_clock;
using holdfast::testing::Throttle;

// What reached the medium without the backing's doing.
std::uint64_t stored_directly(const Workload& work, Mode mode) {
  if (mode == Mode::cpu) return Backing::flushed_bytes();
  return stores_directly(mode) ? work.kernel_bytes() : 0;
}

std::uint64_t streamed_directly(const Workload& work, Mode mode) {
  return stores_directly(mode) ? work.streamed_bytes() : 0;
}

std::uint64_t unchanged_directly(const Workload& work, Mode mode) {
  return stores_directly(mode) ? work.unchanged_bytes() : 0;
}

}  // namespace

StepCost run_step(Workload& work, Backing& backing, holdfast::testing::Access access,
                  std::uint64_t number) {
  Throttle& medium = backing.throttle();
  const std::uint64_t stored_before = stored_directly(work, backing.mode());
  const std::uint64_t streamed_before = streamed_directly(work, backing.mode());
  const std::uint64_t unchanged_before = unchanged_directly(work, backing.mode());
  const std::uint64_t written_before = backing.bytes_written();
  const double persist_before = backing.persist_seconds();
  const double waited_before = medium.waited_seconds();
  const Clock::time_point start = Clock::now();  // no later than the mark, from which media count
  const Throttle::Mark begun = medium.mark();
  work.step(number);
  backing.stream().synchronize();
  Clock::time_point end = Clock::now();
  const std::uint64_t stored = stored_directly(work, backing.mode()) - stored_before;
  const std::uint64_t streamed = streamed_directly(work, backing.mode()) - streamed_before;
  const std::uint64_t unchanged = unchanged_directly(work, backing.mode()) - unchanged_before;
  if (medium.active() && stored > 0) {
    backing.timed([&] {
      medium.write(begun, stored - streamed - unchanged, access);
      medium.write(begun, streamed, holdfast::testing::Access::aligned);
      medium.wait();
    });
    end = Clock::now();
  }
  StepCost cost;
  cost.seconds = std::chrono::duration<double>(end - start).count();
  cost.persist_seconds = backing.persist_seconds() - persist_before;
  cost.medium_seconds = medium.waited_seconds() - waited_before;
  cost.bytes = stored + backing.bytes_written() - written_before;
  cost.streamed_bytes = streamed;
  cost.unchanged_bytes = unchanged;
  work.note_step(number);
  return cost;
}

}  // namespace workload
