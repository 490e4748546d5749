// Contexts and stacks of the fibers that stand for a kernel's threads.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <vector>

#include "holdfast/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define HOLDFAST_FIBER_ASAN 1
#include <sanitizer/common_interface_defs.h>
#else
#define HOLDFAST_FIBER_ASAN 0
#endif

namespace holdfast::cpu {

using holdfast::detail::concat;

// A place that control can leave and come back to: a fiber, or the OS thread that started it.
struct Context {
  boost::context::detail::fcontext_t where = nullptr;
#if HOLDFAST_FIBER_ASAN
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  std::size_t size = 0;
#endif
};

// Runs on arrival in a context: notes where the context that was left stands.
inline void arrive(boost::context::detail::transfer_t transfer, [[maybe_unused]] Context* self) {
  auto* from = static_cast<Context*>(transfer.data);
  from->where = transfer.fctx;
#if HOLDFAST_FIBER_ASAN
  __sanitizer_finish_switch_fiber(self ? self->fake_stack : nullptr, &from->bottom, &from->size);
#endif
}

// Leaves `from` for `to`; returns once something switches back to `from`.
// `ends`: nothing will come back to `from`.
inline void switch_context(Context& from, Context& to, [[maybe_unused]] bool ends = false) {
#if HOLDFAST_FIBER_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.bottom, to.size);
#endif
  arrive(boost::context::detail::jump_fcontext(to.where, &from), &from);
}

// Stacks of equal size, in one mapping.
//
// Invariants:
// - A stack's lowest words are a canary; below the lowest stack lies unused room, and below that
//   pages that fault. None per stack: 8 x 1024 of them would come near the map count.
// - Tops of neighbours differ in their cache set, so that switching does not thrash one set.
class StackPool {
 public:
  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  // Makes room for `count` stacks of `bytes` each. REQUIRES: no stack is taken.
  // Throws Errc::no_memory.
  void configure(std::size_t count, std::size_t bytes);

  // Returns the lowest byte of a free stack. REQUIRES: fewer than `count` are taken.
  std::byte* take();
  void give(std::byte* stack) { free_.push_back(stack); }
  // Takes back all stacks. REQUIRES: what ran on them has ended, with its canary whole.
  void reset();
  // Takes back all stacks, whatever runs on them and however it has left them.
  void forget();

  std::size_t stack_bytes() const { return bytes_; }
  bool contains(const void* address) const;
  // Whether the canary is whole, as far as a quick look tells.
  static bool intact(const std::byte* stack);
  // Whether any stack ever in use has lost part of its canary.
  bool any_overflow() const;

 private:
  static bool intact(const std::byte* stack, std::size_t stride);

  std::byte* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::byte* first_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t stride_ = 0;
  std::size_t count_ = 0;
  std::size_t touched_ = 0;  // stacks ever taken since configure()
  std::vector<std::byte*> free_;
};

}  // namespace holdfast::cpu
