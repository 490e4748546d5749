// The schedule, and the way from launch() to the executor.
#include <cstdlib>
#include <mutex>
#include <utility>

#include "backend_cpu/engine.hpp"
#include "backend_cpu/host_events.hpp"
#include "backend_cpu/stream_impl.hpp"
#include "backend_cpu/team.hpp"
#include "holdfast/launch.hpp"

namespace holdfast {
namespace {

std::mutex g_mutex;

void check(const cpu::Schedule& schedule) {
  if (schedule.resident_blocks < 1 || schedule.resident_blocks > 1024) {
    throw Error(Errc::invalid_argument,
                detail::concat("resident_blocks is ", schedule.resident_blocks, ": use 1 to 1024"));
  }
  if (schedule.livelock_rounds < 1) {
    throw Error(Errc::invalid_argument, "livelock_rounds is 0: use 1 or more");
  }
  if (schedule.stack_bytes < (16u << 10) || schedule.stack_bytes > (64u << 20)) {
    throw Error(Errc::invalid_argument,
                detail::concat("stack_bytes is ", schedule.stack_bytes, ": use 16 KiB to 64 MiB"));
  }
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 0);
  if (*end != '\0' || *text == '-') {
    throw Error(Errc::invalid_argument,
                detail::concat(name, " is \"", text, "\": use a whole number"));
  }
  return value;
}

cpu::Schedule& current() {
  static cpu::Schedule schedule = [] {
    cpu::Schedule initial;
    initial.seed = from_environment("HOLDFAST_CPU_SEED", initial.seed);
    initial.resident_blocks = static_cast<unsigned>(
        from_environment("HOLDFAST_CPU_RESIDENT_BLOCKS", initial.resident_blocks));
    initial.livelock_rounds =
        from_environment("HOLDFAST_CPU_LIVELOCK_ROUNDS", initial.livelock_rounds);
    initial.stack_bytes = from_environment("HOLDFAST_CPU_STACK", initial.stack_bytes);
    check(initial);
    return initial;
  }();
  return schedule;
}

void check_limit(const char* what, unsigned long long value, unsigned long long limit) {
  if (value == 0 || value > limit) {
    throw Error(Errc::invalid_argument,
                detail::concat("launch: ", what, " is ", value, "; it must be 1 to ", limit));
  }
}

}  // namespace

void detail::check_launch_shape(const LaunchShape& shape) {
  check_limit("grid.x", shape.grid.x, 0x7fffffff);
  check_limit("grid.y", shape.grid.y, 65535);
  check_limit("grid.z", shape.grid.z, 65535);
  check_limit("block.x", shape.block.x, 1024);
  check_limit("block.y", shape.block.y, 1024);
  check_limit("block.z", shape.block.z, 64);
  check_limit("the number of threads in a block",
              1ull * shape.block.x * shape.block.y * shape.block.z, 1024);
  if (shape.shared_bytes > 227 * 1024) {
    throw Error(Errc::invalid_argument,
                concat("launch: dynamic shared memory is ", shape.shared_bytes,
                       " bytes; a block has at most ", 227 * 1024));
  }
}

namespace cpu {

Schedule schedule() {
  const std::lock_guard lock(g_mutex);
  return current();
}

void set_schedule(const Schedule& schedule) {
  check(schedule);
  const std::lock_guard lock(g_mutex);
  current() = schedule;
}

void launch(Stream& stream, const Shape& shape, std::function<void()> body) {
  if (Engine* const engine = Engine::of_host()) {
    settle_host();
    engine->launch(stream.impl(), shape, schedule(), std::move(body));
    return;
  }
  stream.impl().push([shape, schedule = schedule(), body = std::move(body)] {
    if (std::optional<Error> error = execute(shape, schedule, body)) throw *error;
  });
}

}  // namespace cpu
}  // namespace holdfast
