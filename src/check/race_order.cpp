#include "check/race_order.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace holdfast::check::race {
namespace {

constexpr unsigned kBarrierShift = 32;  // in a Clock
constexpr unsigned kLanes = 32;

bool by_key(const Bound& bound, Key key) { return bound.key < key; }

// Says of each block what is known of any of its threads: more than is true, in less space.
void coarsen(std::vector<Bound>& bounds) {
  std::size_t kept = 0;
  for (const Bound& bound : bounds) {
    const Key block = block_key(block_of(bound.key));
    if (kept > 0 && bounds[kept - 1].key == block) {
      bounds[kept - 1].clock = std::max(bounds[kept - 1].clock, bound.clock);
    } else {
      bounds[kept++] = {block, bound.clock};
    }
  }
  bounds.resize(kept);
}

}  // namespace

// Lanes that meet at a warp collective.
struct WarpGroup {
  std::uint32_t mask = 0;
  std::uint32_t arrived = 0;
  bool open = true;
  std::vector<KnownPtr> parts;
  std::vector<Bound> lanes;
  KnownPtr known;  // to each of them, once it is closed
};

struct Order::Block {
  struct Warp {
    std::uint32_t alive = 0;
    std::vector<std::shared_ptr<WarpGroup>> open;
  };
  // Threads leave one barrier while others are at the next already.
  struct Barrier {
    std::uint64_t generation = 0;
    KnownPtr known;  // of other blocks
  };
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier barriers[2];  // by generation, even and odd
};

Known::Known(Memory& memory, std::vector<Bound> bounds)
    : memory_(memory), bounds_(std::move(bounds)) {
  memory_.used += sizeof(Known) + bounds_.capacity() * sizeof(Bound);
}

Known::~Known() { memory_.used -= sizeof(Known) + bounds_.capacity() * sizeof(Bound); }

bool Known::covers(Key thread, Clock clock) const {
  const Key block = block_key(block_of(thread));
  auto at = std::lower_bound(bounds_.begin(), bounds_.end(), block, by_key);
  if (at != bounds_.end() && at->key == block && clock < at->clock) return true;
  at = std::lower_bound(at, bounds_.end(), thread, by_key);
  return at != bounds_.end() && at->key == thread && clock < at->clock;
}

Order::Order(std::size_t max_bytes) {
  memory_.limit = max_bytes;
  host_.key = thread_key(kHostBlock, 0);
}
Order::~Order() = default;

KnownPtr Order::merge(const KnownPtr& known, std::span<const Bound> more) {
  const auto is_known = [&](const Bound& bound) {
    return bound.clock == 0 || (known && known->covers(bound.key, bound.clock - 1));
  };
  if (std::all_of(more.begin(), more.end(), is_known)) return known;
  std::vector<Bound> all;
  all.reserve(more.size() + (known ? known->bounds().size() : 0));
  const std::span<const Bound> before = known ? known->bounds() : std::span<const Bound>{};
  std::merge(before.begin(), before.end(), more.begin(), more.end(), std::back_inserter(all),
             [](const Bound& a, const Bound& b) { return a.key < b.key; });
  // One bound for each key, and none for a thread of whose block as much is known.
  std::size_t kept = 0;
  Bound whole_block{~Key{0}, 0};
  for (const Bound& bound : all) {
    if (kept > 0 && all[kept - 1].key == bound.key) {
      all[kept - 1].clock = std::max(all[kept - 1].clock, bound.clock);
    } else if (block_of(whole_block.key) != block_of(bound.key) ||
               bound.clock > whole_block.clock) {
      all[kept++] = bound;
    } else {
      continue;
    }
    if (bound.key == block_key(block_of(bound.key))) whole_block = all[kept - 1];
  }
  all.resize(kept);
  if (memory_.used > memory_.limit) {
    coarsen(all);
    memory_.was_short = true;
  }
  return std::make_shared<const Known>(memory_, std::move(all));
}

KnownPtr Order::merge(const KnownPtr& a, const KnownPtr& b) {
  if (a == b || !b) return a;
  if (!a) return b;
  return a->bounds().size() >= b->bounds().size() ? merge(a, b->bounds()) : merge(b, a->bounds());
}

KnownPtr Order::others_than(const KnownPtr& known, std::uint64_t block) {
  if (!known) return known;
  const auto& bounds = known->bounds();
  const auto first = std::lower_bound(bounds.begin(), bounds.end(), block_key(block), by_key);
  const auto last = std::lower_bound(first, bounds.end(), block_key(block + 1), by_key);
  if (first == last) return known;
  std::vector<Bound> rest(bounds.begin(), first);
  rest.insert(rest.end(), last, bounds.end());
  if (rest.empty()) return nullptr;
  return std::make_shared<const Known>(memory_, std::move(rest));
}

// What a reader learns that synchronises with `fence`; nothing if there was none.
KnownPtr Order::publish(const Thread& thread, const Thread::Fence& fence) {
  if (fence.bound == 0) return nullptr;
  const Bound own[] = {{block_key(thread.block()), fence.floor}, {thread.key, fence.bound}};
  return merge(fence.known, std::span(own).subspan(fence.floor == 0 ? 1 : 0));
}

std::uint64_t Order::begin_kernel(std::uint64_t blocks, std::uint32_t block_threads,
                                  KnownPtr start) {
  const std::uint64_t first = std::exchange(next_block_, next_block_ + blocks);
  kernels_[first] = {next_block_, block_threads, std::move(start)};
  return first;
}

void Order::end_kernel(std::uint64_t first_block) {
  const auto kernel = kernels_.find(first_block);
  std::erase_if(blocks_, [&](const auto& entry) {  // of one that failed
    return entry.first >= first_block && entry.first < kernel->second.end;
  });
  last_ = nullptr;
  kernels_.erase(kernel);
}

void Order::begin_block(std::uint64_t number) {
  const Kernel& kernel = std::prev(kernels_.upper_bound(number))->second;
  auto made = std::make_unique<Block>();
  made->threads.resize(kernel.block_threads);
  for (std::uint32_t i = 0; i < kernel.block_threads; ++i) {
    made->threads[i].key = thread_key(number, i);
    made->threads[i].known = kernel.start;
  }
  made->warps.resize((kernel.block_threads + kLanes - 1) / kLanes);
  for (std::uint32_t i = 0; i < made->warps.size(); ++i) {
    const std::uint32_t lanes = std::min(kLanes, kernel.block_threads - i * kLanes);
    made->warps[i].alive = lanes == kLanes ? ~0u : (1u << lanes) - 1;
  }
  blocks_[number] = std::move(made);
  last_ = nullptr;
}

void Order::end_block(std::uint64_t number) {
  blocks_.erase(number);
  last_ = nullptr;
}

Order::Block& Order::block(std::uint64_t number) {
  if (last_ != nullptr && last_->threads[0].block() == number) return *last_;
  auto found = blocks_.find(number);
  if (found == blocks_.end()) {
    begin_block(number);
    found = blocks_.find(number);
  }
  last_ = found->second.get();
  return *last_;
}

void Order::end_thread(Thread& thread) {
  const std::uint32_t number = thread_of(thread.key);
  block(thread.block()).warps[number / kLanes].alive &= ~(1u << number % kLanes);
}

Thread& Order::arrive(std::uint64_t number, std::uint32_t thread_number) {
  Block& block = this->block(number);
  Thread& thread = block.threads[thread_number];
  if (thread.at_barrier) {
    thread.at_barrier = false;
    thread.known = block.barriers[thread.generation % 2].known;
    thread.floor = thread.now;
    // Like a fence of the block: __syncthreads() orders as much.
    thread.block_fence = {thread.known, thread.floor, thread.now};
  }
  if (thread.waits_for) {
    WarpGroup& group = *thread.waits_for;
    if (group.open) {
      close(group);
      std::erase(block.warps[thread_number / kLanes].open, thread.waits_for);
    }
    thread.known = group.known;
    thread.waits_for.reset();
  }
  return thread;
}

void Order::fence(Thread& thread, Scope scope) {
  thread.known = merge(thread.known, std::exchange(thread.seen.near, nullptr));
  if (scope != Scope::block) {
    thread.known = merge(thread.known, std::exchange(thread.seen.far, nullptr));
  }
  if (scope == Scope::system) {
    thread.known = merge(thread.known, std::exchange(thread.seen.wide, nullptr));
  }
  thread.block_fence = {thread.known, thread.floor, ++thread.now};
  if (scope != Scope::block) thread.device_fence = thread.block_fence;
  if (scope == Scope::system) thread.system_fence = thread.block_fence;
}

// The barrier is complete when a thread that has arrived does something else. All that the block's
// threads have done before it is known then by one number.
void Order::barrier(Thread& thread, std::uint64_t generation) {
  fence(thread, Scope::block);
  Block::Barrier& barrier = block(thread.block()).barriers[generation % 2];
  if (barrier.generation != generation) barrier = {generation, nullptr};
  barrier.known = merge(barrier.known, others_than(thread.known, thread.block()));
  thread.now = (generation + 1) << kBarrierShift;
  thread.at_barrier = true;
  thread.generation = generation;
}

void Order::close(WarpGroup& group) {
  group.open = false;
  for (const KnownPtr& part : group.parts) group.known = merge(group.known, part);
  std::sort(group.lanes.begin(), group.lanes.end(),
            [](const Bound& a, const Bound& b) { return a.key < b.key; });
  group.known = merge(group.known, group.lanes);
  group.parts.clear();
}

void Order::warp_barrier(Thread& thread, std::uint32_t mask) {
  const std::uint32_t number = thread_of(thread.key);
  const std::uint32_t lane = 1u << number % kLanes;
  Block::Warp& warp = block(thread.block()).warps[number / kLanes];
  auto found = std::find_if(warp.open.begin(), warp.open.end(), [&](const auto& group) {
    return group->mask == mask && (group->arrived & lane) == 0;
  });
  if (found == warp.open.end()) {
    found = warp.open.insert(found, std::make_shared<WarpGroup>());
    (*found)->mask = mask;
  }
  WarpGroup& group = **found;
  group.arrived |= lane;
  if (thread.known && (group.parts.empty() || group.parts.back() != thread.known)) {
    group.parts.push_back(thread.known);
  }
  group.lanes.push_back({thread.key, ++thread.now});
  thread.waits_for = *found;
  if (group.arrived == (mask & warp.alive)) {
    close(group);
    warp.open.erase(found);
  }
}

namespace {

bool inclusive(const Variable& variable, const Thread& reader, Scope scope) {
  if (variable.writer_block == reader.block()) return true;
  if (variable.writer_block == kHostBlock || reader.is_host()) {
    return variable.writer_scope == Scope::system && scope == Scope::system;
  }
  return variable.writer_scope != Scope::block && scope != Scope::block;
}

const KnownPtr& for_block(const Variable& variable, std::uint64_t block) {
  static const KnownPtr kNothing;
  for (const auto& [number, known] : variable.blocks) {
    if (number == block) return known;
  }
  return kNothing;
}

}  // namespace

void Order::learn(Lesson& lesson, const Lesson& more) {
  lesson.near = merge(lesson.near, more.near);
  lesson.far = merge(lesson.far, more.far);
  lesson.wide = merge(lesson.wide, more.wide);
}

// An acquire pattern is an acquire, or a strong read with a fence or with an acquire of the same
// variable behind it.
std::uint32_t Order::read(Thread& thread, const Variable& variable, Scope scope, bool is_acquire) {
  const bool is_seen = variable.chain != 0 && inclusive(variable, thread, scope);
  if (thread.last_read != variable.address) thread.last_lesson = {};
  thread.last_read = variable.address;
  if (is_seen) {
    const Lesson lesson{for_block(variable, thread.block()),
                        thread.is_host() ? nullptr : variable.device,
                        scope == Scope::system ? variable.system : nullptr};
    learn(thread.last_lesson, lesson);
    learn(thread.seen, lesson);
  }
  if (is_acquire) {
    const Lesson& lesson = thread.last_lesson;
    thread.known = merge(thread.known, lesson.near);
    if (scope != Scope::block) thread.known = merge(thread.known, lesson.far);
    if (scope == Scope::system) thread.known = merge(thread.known, lesson.wide);
  }
  return is_seen ? variable.chain : 0;
}

// A release pattern is a release, or a strong write with a fence or with a release of the same
// variable before it.
void Order::write(Thread& thread, Variable& variable, Scope scope, bool is_release,
                  bool is_update) {
  if (!is_update || variable.chain == 0 || !inclusive(variable, thread, scope)) {
    variable.device = variable.system = nullptr;
    variable.blocks.clear();
    variable.chain = ++chains_;
  }
  variable.writer_block = thread.block();
  variable.writer_scope = scope;
  Thread::Fence near = thread.block_fence, far = thread.device_fence, wide = thread.system_fence;
  if (is_release) {
    near = {thread.known, thread.floor, ++thread.now};
    if (scope != Scope::block) far = near;
    if (scope == Scope::system) wide = near;
  }
  Lesson lesson{publish(thread, near), nullptr, nullptr};
  lesson.far = far.bound == near.bound ? lesson.near : publish(thread, far);
  lesson.wide = wide.bound == far.bound ? lesson.far : publish(thread, wide);
  if (is_release) {
    variable.released_by = thread.key;
    variable.released = lesson;
  } else if (variable.released_by == thread.key) {
    learn(lesson, variable.released);
  }
  if (!thread.is_host()) variable.device = merge(variable.device, lesson.far);
  variable.system = merge(variable.system, lesson.wide);
  if (!lesson.near) return;
  auto own = std::find_if(variable.blocks.begin(), variable.blocks.end(),
                          [&](const auto& entry) { return entry.block == thread.block(); });
  if (own == variable.blocks.end()) {
    own = variable.blocks.insert(own, {thread.block(), nullptr});
  }
  own->known = merge(own->known, lesson.near);
}

}  // namespace holdfast::check::race
