#include "check/race.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "check/race_order.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

using cpu::Event;
using cpu::EventKind;

namespace {

constexpr std::size_t kGranule = 8;  // bytes that share a list of accesses
constexpr std::size_t kPageGranules = 512;
constexpr unsigned kMaxAccesses = 32;     // of one kind in a list
constexpr std::size_t kMaxCopies = 4096;  // that the host has not waited for

enum class Strength : std::uint8_t { weak, block, device, system };

Strength strength_of(const Event& event) {
  const bool strong = event.is_volatile || event.is_atomic || event.kind == EventKind::atomic ||
                      event.kind == EventKind::acquire || event.kind == EventKind::release;
  return strong ? static_cast<Strength>(1 + static_cast<int>(event.scope)) : Strength::weak;
}

struct Access {
  race::Key thread = 0;
  race::Clock clock = 0;
  std::uint32_t site = 0;
  std::uint32_t kernel = 0;
  std::uint32_t chain = 0;  // of the writes that it belongs to or observes; 0: none
  std::uint32_t time = 0;   // when it observed that chain
  std::uint32_t next = 0;   // in its granule's list
  std::uint8_t mask = 0;    // bytes of the granule
  std::uint8_t whole = 0;   // the same, before some were superseded
  std::uint32_t size = 0;   // of the access, which may reach into other granules
  bool is_write = false;
  bool is_superseded = false;  // for a while
  Strength strength = Strength::weak;

  bool like(const Access& other) const {
    return is_write == other.is_write && strength == other.strength;
  }
};

// Strong accesses may be unordered if they are of the same bytes and each thread is within the
// other's scope (PTX, "morally strong").
bool same_bytes(const Access& a, const Access& b) { return a.whole == b.whole && a.size == b.size; }
bool exempt(const Access& a, const Access& b) {
  if (a.strength == Strength::weak || b.strength == Strength::weak) return false;
  if (!same_bytes(a, b)) return false;
  return race::block_of(a.thread) == race::block_of(b.thread) ||
         (a.strength >= Strength::device && b.strength >= Strength::device);
}

// Whether all that would race with `earlier` later on will race with `access`, which comes after
// it.
bool supersedes(const Access& access, const Access& earlier) {
  if (earlier.is_write && !access.is_write) return false;
  if (earlier.strength == Strength::weak && access.strength != Strength::weak) return false;
  if (access.strength != Strength::weak && !same_bytes(access, earlier)) return false;
  return access.is_write || access.chain == 0 || earlier.chain == 0 ||
         access.chain == earlier.chain;
}

// The accesses that may still race with later ones, by granule.
class Shadow {
 public:
  // 0: the list's end.
  std::uint32_t& first(std::uint64_t granule) {
    const std::uint64_t number = granule / kPageGranules;
    if (last_ == nullptr || number != last_number_) {
      auto& page = pages_[number];
      if (!page) page = std::make_unique<Page>();
      last_ = page.get();
      last_number_ = number;
    }
    return (*last_)[granule % kPageGranules];
  }
  // Without making room for the granule.
  std::uint32_t find(std::uint64_t granule) const {
    const auto page = pages_.find(granule / kPageGranules);
    return page == pages_.end() ? 0 : (*page->second)[granule % kPageGranules];
  }
  Access& operator[](std::uint32_t number) { return accesses_[number - 1]; }
  const Access& operator[](std::uint32_t number) const { return accesses_[number - 1]; }

  std::uint32_t add(const Access& access) {
    if (free_ == 0) {
      accesses_.push_back(access);
      return static_cast<std::uint32_t>(accesses_.size());
    }
    const std::uint32_t number = free_;
    free_ = (*this)[number].next;
    (*this)[number] = access;
    return number;
  }
  void remove(std::uint32_t number) { (*this)[number].next = std::exchange(free_, number); }

  std::size_t bytes() const {
    return pages_.size() * (sizeof(Page) + 64) + accesses_.capacity() * sizeof(Access);
  }
  void clear() {
    pages_.clear();
    accesses_.clear();
    free_ = 0;
    last_ = nullptr;
  }

 private:
  using Page = std::array<std::uint32_t, kPageGranules>;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::vector<Access> accesses_;
  std::uint32_t free_ = 0;
  Page* last_ = nullptr;
  std::uint64_t last_number_ = 0;
};

// Numbers for places.
class Sites {
 public:
  std::uint32_t number(const Event& event) {
    const Site site{event.pc, event.pc ? nullptr : event.file, event.pc ? 0 : event.line};
    if (last_ < sites_.size() && sites_[last_] == site) return last_;
    const auto next = static_cast<std::uint32_t>(sites_.size());
    last_ = site.pc != nullptr
                ? by_pc_.try_emplace(site.pc, next).first->second
                : by_line_.try_emplace({site.file ? site.file : "", site.line}, next).first->second;
    if (last_ == next) sites_.push_back(site);
    return last_;
  }
  const Site& operator[](std::uint32_t number) const { return sites_[number]; }

 private:
  std::vector<Site> sites_;
  std::unordered_map<const void*, std::uint32_t> by_pc_;
  std::map<std::pair<std::string, unsigned>, std::uint32_t> by_line_;
  std::uint32_t last_ = ~0u;
};

// Calls visit(granule, mask) for the bytes [address, address + size).
template <class Visit>
void for_granules(const void* address, std::size_t size, Visit visit) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto end = begin + size;
  for (std::uintptr_t granule = begin / kGranule; granule * kGranule < end; ++granule) {
    const std::uintptr_t start = granule * kGranule;
    const auto low = std::max(begin, start) - start;
    const auto high = std::min(end, start + kGranule) - start;
    visit(granule, static_cast<std::uint8_t>((1u << high) - (1u << low)));
  }
}

}  // namespace

class RaceDetector::Impl {
 public:
  explicit Impl(std::size_t max_bytes) : order_(max_bytes / 2), max_shadow_(max_bytes / 2) {}

  void on_event(const Event& event);

  std::vector<Race> races;
  bool lost_streams = false;
  bool is_complete() const { return !was_short_ && !order_.was_short() && !more_; }

 private:
  struct Placed {
    race::Variable variable;
    std::uint8_t mask;
  };
  struct Copy {
    std::uintptr_t begin, end;
    bool is_write;
    std::uint32_t site;
  };

  void on_kernel_event(const Event& event);
  void on_access(race::Thread& thread, const Event& event);
  void access(const race::Thread& thread, Access access, std::uint64_t granule, bool shared);
  bool ordered(const race::Thread& thread, const Access& earlier) const;
  bool observed(const race::Thread& thread, const Access& earlier, std::uint32_t first) const;
  void limit(std::uint32_t& first, const Access& access);
  std::uint32_t synchronize(race::Thread& thread, const Event& event, bool reads, bool writes,
                            bool shared);
  void overwrite(std::uint64_t granule, std::uint8_t mask);
  void make_room();

  void on_host_event(const Event& event);
  void on_host_access(const Event& event);
  void forget();
  void synchronized(const Event& event);

  void report(const Access& first, const Access& second, std::uint64_t granule, bool shared);
  void add(Race race, std::uint32_t first, std::uint32_t second);
  RaceSide side(const Access& access) const;

  race::Order order_;
  Shadow shadow_;
  std::size_t max_shadow_;
  std::unordered_map<std::uint64_t, std::vector<Placed>> variables_;  // by granule
  std::vector<Copy> copies_;
  Sites sites_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> reported_;
  std::unordered_map<std::uint32_t, std::uint64_t>
      given_;  // by stream that has work: its last task
  std::uint32_t kernel_ = 0;
  std::uint32_t time_ = 0;
  bool was_short_ = false;
  bool more_ = false;
};

void RaceDetector::Impl::on_event(const Event& event) {
  if (lost_streams) return;
  if (event.host) {
    on_host_event(event);
  } else {
    on_kernel_event(event);
  }
}

void RaceDetector::Impl::on_kernel_event(const Event& event) {
  switch (event.kind) {
    case EventKind::kernel_begin:
      ++kernel_;
      time_ = 0;
      order_.begin_kernel(event.extent);
      variables_.clear();
      return;
    case EventKind::kernel_end:
      return;
    case EventKind::block_begin:
      return order_.begin_block(event.block);
    case EventKind::block_end:
      return order_.end_block(event.block);
    default:
      break;
  }
  race::Thread& thread = order_.arrive(event.block, event.thread);
  switch (event.kind) {
    case EventKind::thread_end:
      return order_.end_thread(thread);
    case EventKind::fence:
      return order_.fence(thread, event.scope);
    case EventKind::durability_fence:
      return order_.fence(thread, Scope::system);
    case EventKind::barrier:
      return order_.barrier(thread, event.generation);
    case EventKind::warp_barrier:
      return order_.warp_barrier(thread, event.mask);
    case EventKind::load:
    case EventKind::store:
    case EventKind::atomic:
    case EventKind::acquire:
    case EventKind::release:
      return on_access(thread, event);
    default:
      return;
  }
}

void RaceDetector::Impl::on_access(race::Thread& thread, const Event& event) {
  make_room();
  const bool updates = event.kind == EventKind::atomic && !event.failed;
  const bool shared = cpu::is_shared(event.address);
  Access access;
  access.thread = thread.key;
  access.clock = thread.now;
  access.site = sites_.number(event);
  access.kernel = kernel_;
  access.time = ++time_;
  access.size = static_cast<std::uint32_t>(event.size);
  access.is_write = updates || event.kind == EventKind::store || event.kind == EventKind::release;
  access.strength = strength_of(event);
  if (access.strength != Strength::weak) {
    access.chain = synchronize(thread, event, updates || !access.is_write, access.is_write, shared);
  }
  for_granules(event.address, event.size, [&](std::uint64_t granule, std::uint8_t mask) {
    access.mask = access.whole = mask;
    if (access.is_write && access.strength == Strength::weak) overwrite(granule, mask);
    this->access(thread, access, granule, shared);
  });
}

// A strong access: what is learnt by it, and what it publishes. Returns its chain.
std::uint32_t RaceDetector::Impl::synchronize(race::Thread& thread, const Event& event, bool reads,
                                              bool writes, bool shared) {
  const auto address = reinterpret_cast<std::uintptr_t>(event.address);
  if (address % kGranule + event.size > kGranule) return 0;
  const std::uint64_t granule = address / kGranule;
  const auto mask = static_cast<std::uint8_t>(((1u << event.size) - 1) << address % kGranule);
  auto& placed = variables_[granule];
  std::erase_if(placed, [&](const Placed& other) {
    return (shared && other.variable.writer_block != thread.block()) ||
           (writes && (other.mask & mask) != 0 && other.mask != mask);
  });
  auto found = std::find_if(placed.begin(), placed.end(),
                            [&](const Placed& other) { return other.mask == mask; });
  if (found == placed.end()) {
    if (!writes) return 0;
    found = placed.insert(placed.end(), Placed{{}, mask});
    found->variable.address = address;
  }
  // The orders that std::atomic was given are not known: it passes for sequentially consistent.
  const bool is_std = event.is_atomic || (event.kind == EventKind::atomic && event.pc != nullptr);
  std::uint32_t chain = 0;
  if (reads) {
    chain = order_.read(thread, found->variable, event.scope,
                        is_std || event.kind == EventKind::acquire);
  }
  if (!writes) return chain;
  order_.write(thread, found->variable, event.scope, is_std || event.kind == EventKind::release,
               reads);
  return found->variable.chain;
}

// A weak write publishes nothing and ends what a variable published.
void RaceDetector::Impl::overwrite(std::uint64_t granule, std::uint8_t mask) {
  const auto found = variables_.find(granule);
  if (found == variables_.end()) return;
  std::erase_if(found->second, [&](const Placed& placed) { return (placed.mask & mask) != 0; });
  if (found->second.empty()) variables_.erase(found);
}

bool RaceDetector::Impl::ordered(const race::Thread& thread, const Access& earlier) const {
  return earlier.kernel != kernel_ || order_.ordered(thread, earlier.thread, earlier.clock);
}

// Whether a strong access that is so ordered has read what `earlier` wrote (PTX: causality order
// takes in what was observed). `first`: its granule's list.
bool RaceDetector::Impl::observed(const race::Thread& thread, const Access& earlier,
                                  std::uint32_t first) const {
  if (!earlier.is_write || earlier.chain == 0) return false;
  for (std::uint32_t at = first; at != 0; at = shadow_[at].next) {
    const Access& other = shadow_[at];
    if (other.chain == earlier.chain && other.time > earlier.time && ordered(thread, other)) {
      return true;
    }
  }
  return false;
}

// Reports what races with `access`, and adds it to its granule.
void RaceDetector::Impl::access(const race::Thread& thread, Access access, std::uint64_t granule,
                                bool shared) {
  std::uint32_t& first = shadow_.first(granule);
  for (std::uint32_t at = first; at != 0; at = shadow_[at].next) {
    Access& earlier = shadow_[at];
    earlier.is_superseded = false;
    if ((earlier.mask & access.mask) == 0) continue;
    if (shared && race::block_of(earlier.thread) != thread.block()) {
      earlier.is_superseded = true;  // of other memory, which was at the same address
      continue;
    }
    const bool conflicts = (earlier.is_write || access.is_write) && !exempt(earlier, access);
    if (ordered(thread, earlier) || (conflicts && observed(thread, earlier, first))) {
      earlier.is_superseded = supersedes(access, earlier);
    } else if (conflicts) {
      report(earlier, access, granule, shared);
    }
  }
  unsigned alike = 0;
  for (std::uint32_t* link = &first; *link != 0;) {
    const std::uint32_t number = *link;
    Access& earlier = shadow_[number];
    if (earlier.is_superseded) {
      if (!access.is_write && access.chain == 0) {
        access.chain = earlier.chain;  // it knows what its thread has observed
        access.time = earlier.time;
      }
      earlier.mask = static_cast<std::uint8_t>(earlier.mask & ~access.mask);
    }
    if (earlier.mask == 0) {
      *link = earlier.next;
      shadow_.remove(number);
    } else {
      alike += earlier.like(access);
      link = &earlier.next;
    }
  }
  if (alike >= kMaxAccesses) limit(first, access);
  access.next = first;
  first = shadow_.add(access);
}

// Forgets the oldest access that is like `access`.
void RaceDetector::Impl::limit(std::uint32_t& first, const Access& access) {
  std::uint32_t* oldest = nullptr;
  for (std::uint32_t* link = &first; *link != 0; link = &shadow_[*link].next) {
    if (shadow_[*link].like(access)) oldest = link;
  }
  if (oldest == nullptr) return;
  const std::uint32_t number = *oldest;
  *oldest = shadow_[number].next;
  shadow_.remove(number);
}

void RaceDetector::Impl::make_room() {
  constexpr std::size_t kVariableBytes = 256;
  if (shadow_.bytes() + variables_.size() * kVariableBytes <= max_shadow_) return;
  was_short_ = true;
  shadow_.clear();
  variables_.clear();
}

// The host has waited for everything: what comes now comes after it.
void RaceDetector::Impl::forget() {
  shadow_.clear();
  copies_.clear();
}

void RaceDetector::Impl::synchronized(const Event& event) {
  const auto given = given_.find(event.stream);
  if (event.stream == 0) {
    given_.clear();
  } else if (given != given_.end()) {
    lost_streams = event.task != 0 && event.task < given->second;
    given_.erase(given);
  } else if (!given_.empty()) {
    return;  // of a stream that has nothing underway, beside one that has
  }
  forget();
}

void RaceDetector::Impl::on_host_event(const Event& event) {
  if (event.kind == EventKind::synchronize) return synchronized(event);
  if (event.kind == EventKind::launch) {
    given_[event.stream] = event.task;
    lost_streams = given_.size() > 1;
    return;
  }
  if (event.size == 0) return;
  if (!event.is_copy) return on_host_access(event);
  // Kernels and copies wait for each other.
  const auto begin = reinterpret_cast<std::uintptr_t>(event.address);
  if (copies_.size() == kMaxCopies) {
    was_short_ = true;
    return;
  }
  copies_.push_back(
      {begin, begin + event.size, event.kind == EventKind::store, sites_.number(event)});
}

void RaceDetector::Impl::on_host_access(const Event& event) {
  Access access;
  access.site = sites_.number(event);
  access.is_write = event.kind != EventKind::load;
  access.strength = strength_of(event);
  Race race;
  race.kind = "host does not wait";
  race.second = side(access);
  race.second.host = true;
  race.second.block = race.second.thread = 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(event.address);
  for (const Copy& copy : copies_) {
    if (!(copy.is_write || access.is_write)) continue;
    if (copy.begin >= begin + event.size || begin >= copy.end) continue;
    race.address = reinterpret_cast<const void*>(std::max(begin, copy.begin));
    race.first = {sites_[copy.site], copy.is_write, true, true, 0, 0};
    add(race, copy.site, access.site);
  }
  for_granules(event.address, event.size, [&](std::uint64_t granule, std::uint8_t mask) {
    for (std::uint32_t at = shadow_.find(granule); at != 0; at = shadow_[at].next) {
      const Access& earlier = shadow_[at];
      if ((earlier.mask & mask) == 0 || !(earlier.is_write || access.is_write)) continue;
      if (earlier.strength == Strength::system && access.strength == Strength::system &&
          earlier.whole == mask && earlier.size == event.size) {
        continue;
      }
      race.address = event.address;
      race.first = side(earlier);
      add(race, earlier.site, access.site);
    }
  });
}

RaceSide RaceDetector::Impl::side(const Access& access) const {
  return {
      sites_[access.site],           access.is_write, false, false, race::block_of(access.thread),
      race::thread_of(access.thread)};
}

void RaceDetector::Impl::report(const Access& first, const Access& second, std::uint64_t granule,
                                bool shared) {
  Race race;
  if (first.strength != Strength::weak && second.strength != Strength::weak) {
    race.kind = same_bytes(first, second) ? "scope too narrow: block" : "mixed sizes";
  } else {
    race.kind = first.is_write && second.is_write ? "write-write" : "read-write";
  }
  const auto byte = std::countr_zero(static_cast<unsigned>(first.mask & second.mask));
  race.address =
      reinterpret_cast<const void*>(granule * kGranule + static_cast<std::uintptr_t>(byte));
  race.is_shared = shared;
  race.first = side(first);
  race.second = side(second);
  add(std::move(race), first.site, second.site);
}

void RaceDetector::Impl::add(Race race, std::uint32_t first, std::uint32_t second) {
  if (reported_.contains(std::minmax(first, second))) return;
  if (races.size() == kMaxRaces) {
    more_ = true;
    return;
  }
  reported_.insert(std::minmax(first, second));
  races.push_back(std::move(race));
}

RaceDetector::RaceDetector(std::size_t max_bytes) : impl_(std::make_unique<Impl>(max_bytes)) {}
RaceDetector::~RaceDetector() = default;
void RaceDetector::on_event(const Event& event) { impl_->on_event(event); }
std::vector<Race> RaceDetector::races() const { return impl_->races; }
bool RaceDetector::complete() const { return impl_->is_complete(); }
bool RaceDetector::lost_streams() const { return impl_->lost_streams; }

std::string to_string(const Race& race) {
  const auto text = [](const RaceSide& side) {
    const char* const what = side.is_write ? "a write" : "a read";
    if (side.is_copy) return detail::concat(what, " of a copy");
    if (side.host) return detail::concat(what, " of the host");
    return detail::concat(what, " of block ", side.block, ", thread ", side.thread);
  };
  return detail::concat(race.kind, " at ", race.address, race.is_shared ? " in shared memory" : "",
                        ": ", text(race.first), " and ", text(race.second));
}

}  // namespace holdfast::check
