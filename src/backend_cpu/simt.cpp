// The functions behind CUDA's names: built-in variables, barriers, collectives, timing.
#include "holdfast/cpu/simt.hpp"

#include <atomic>
#include <chrono>

#include "backend_cpu/events.hpp"
#include "backend_cpu/run.hpp"
#include "backend_cpu/sync.hpp"

namespace holdfast::cpu {

namespace {

std::atomic<const std::function<bool(const char*, unsigned)>*> g_left_out{nullptr};

bool is_left_out(const char* file, unsigned line) {
  if (!kEvents) return false;
  const auto* const left_out = g_left_out.load(std::memory_order_relaxed);
  return left_out != nullptr && (*left_out)(file, line);
}

}  // namespace

void leave_out_barriers(const std::function<bool(const char* file, unsigned line)>* left_out) {
  g_left_out.store(left_out);
}

Thread& require_thread(const char* operation, const char* file, unsigned line) {
  if (t_current == nullptr) {
    throw Error(Errc::invalid_argument,
                concat(operation, " at ", file, ":", line,
                       " is called outside a kernel: it is for device code"));
  }
  t_current->standing = {operation, file, line, nullptr};
  return *t_current;
}

void enter_kernel() noexcept {
  if (!kEvents || t_current == nullptr) return;
  t_current->in_kernel = true;
  set_hook(t_current);
}

bool in_kernel() noexcept { return t_current != nullptr; }

void* dynamic_shared_base() {
  return require_thread("dynamic_shared", "a kernel", 0).slot->shared_base();
}

namespace detail {

constinit thread_local Builtins builtins{};

namespace apart {
uint3 thread_index() noexcept { return builtins.thread; }
uint3 block_index() noexcept { return builtins.block; }
dim3 block_extent() noexcept { return builtins.block_dim; }
dim3 grid_extent() noexcept { return builtins.grid_dim; }
}  // namespace apart

int block_barrier(BarrierOp op, int predicate, const char* file, unsigned line) {
  Thread& self = require_thread(name_of(op), file, line);
  if (is_left_out(file, line)) {
    settle(self);
    return op == BarrierOp::sync ? 0 : predicate != 0;
  }
  if constexpr (kEvents) {
    settle(self);
    if (listened(self)) {
      Event event;
      event.kind = EventKind::barrier;
      event.scope = Scope::block;
      event.generation = self.slot->barrier_generation();
      event.exchanges = op != BarrierOp::sync;
      event.file = file;
      event.line = line;
      deliver_now(self, event);
    }
  }
  return self.slot->block_barrier(self, op, predicate);
}

std::uint64_t warp_collective(WarpOp op, unsigned mask, std::uint64_t value, unsigned argument,
                              int width, const char* file, unsigned line) {
  Thread& self = require_thread(name_of(op), file, line);
  if (op == WarpOp::sync && is_left_out(file, line)) {
    settle(self);
    return 0;
  }
  if constexpr (kEvents) {
    settle(self);
    if (listened(self)) {
      Event event;
      event.kind = EventKind::warp_barrier;
      event.scope = Scope::block;
      event.mask = mask;
      event.exchanges = op != WarpOp::sync;
      event.file = file;
      event.line = line;
      deliver_now(self, event);
    }
  }
  return self.slot->warp_collective(self, op, mask, value, argument, width);
}

void pause_thread(const char* file, unsigned line) {
  if (t_current == nullptr) return;
  Thread& self = require_thread("__nanosleep", file, line);
  self.slot->yield(self);
}

void trap(const char* file, unsigned line) {
  Thread& self = require_thread("__trap", file, line);
  self.slot->note_failure(self, Errc::kernel_fault, "the kernel trapped");
  self.slot->abandon(self);
}

long long clock_ticks() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace detail
}  // namespace holdfast::cpu

unsigned __activemask() {
  return 1u << holdfast::cpu::require_thread("__activemask", "a kernel", 0).lane();
}
