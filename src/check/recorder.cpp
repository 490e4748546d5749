#include "check/recorder.hpp"

#include <algorithm>
#include <cstring>

#include "holdfast/cpu/executor.hpp"

namespace holdfast::check {

Footprint::Footprint(PersistentRange range)
    : range_(range),
      known_((range.end - range.begin + 7) / 8),
      variable_(known_.size()),
      word_written_(known_.size()),
      flows_(2 * known_.size()) {
  for (Plane& plane : planes_) plane.first_cell.resize(word_written_.size());
}

void Footprint::Plane::set(const Order* next, std::uint64_t begin) {
  reads.clear();
  for (const std::uint32_t word : words) first_cell[word] = 0;
  words.clear();
  order = next;
  if (order == nullptr) return;
  const auto& cells = order->cells();
  cell_seen.assign(cells.size(), 0);
  cell_presumed.assign(cells.size(), 0);
  for (auto i = static_cast<std::uint32_t>(cells.size()); i-- > 0;) {
    const auto word = static_cast<std::uint32_t>((cells[i].address - begin) / 8);
    first_cell[word] = i + 1;
    if (words.empty() || words.back() != word) words.push_back(word);
  }
}

template <class Visit>
void Footprint::Plane::for_cells(std::uint64_t word, std::uint64_t address, std::uint64_t end,
                                 Visit&& visit) {
  std::uint32_t cell = first_cell[word];
  if (cell == 0) return;
  const auto& cells = order->cells();
  const std::uint64_t base = cells[cell - 1].address / 8 * 8;
  for (--cell; cell < cells.size() && cells[cell].address < std::min(end, base + 8); ++cell) {
    if (cells[cell].address + cells[cell].size > address) visit(cell);
  }
}

void Footprint::Plane::read(std::uint32_t cell, std::uint32_t run, bool presumed) {
  if (!presumed && cell_presumed[cell] == run) cell_presumed[cell] = 0;
  if (cell_seen[cell] == run) return;
  cell_seen[cell] = run;
  if (presumed) cell_presumed[cell] = run;
  reads.push_back(cell);
}

std::vector<std::uint32_t> Footprint::sure_reads() const {
  const Plane& plane = planes_[0];
  std::vector<std::uint32_t> sure;
  for (const std::uint32_t cell : plane.reads) {
    if (plane.cell_presumed[cell] != run_) sure.push_back(cell);
  }
  return sure;
}

template <class Visit>
void Footprint::for_words(std::uint64_t address, std::uint64_t size, Visit&& visit) {
  const std::uint64_t end = std::min(address + size, range_.end);
  for (std::uint64_t word = (address - range_.begin) / 8; range_.begin + word * 8 < end; ++word) {
    visit(word, end);
  }
}

void Footprint::begin(const Order* first, const Order* second) {
  written_.clear();
  readings_.clear();
  ++run_;
  flows_.begin();
  notes_actors_ = follows_;
  planes_[0].set(first, range_.begin);
  planes_[1].set(second, range_.begin);
}

void Footprint::begin_program() {
  begin(nullptr, nullptr);
  notes_actors_ = false;
}

void Footprint::touch(std::uint64_t actor, std::uint64_t word, std::uint8_t bytes, bool writes) {
  if (actor == kNobody || !notes_actors_) return;
  for (unsigned half = 0; half < 2; ++half) {
    if ((bytes >> (4 * half) & 0xf) == 0) continue;
    flows_.learn(actor, word * 2 + half);
    if (writes) flows_.tell(actor, word * 2 + half);
  }
}

// Which bytes of a word lie in [address, end).
static std::uint8_t bytes_within(std::uint64_t word_address, std::uint64_t address,
                                 std::uint64_t end) {
  const std::uint64_t first = address > word_address ? address - word_address : 0;
  const std::uint64_t last = std::min<std::uint64_t>(end - word_address, 8);
  return static_cast<std::uint8_t>((0xffu << first) & (0xffu >> (8 - last)));
}

void Footprint::set_variable(std::uint64_t word) {
  if (variable_[word]) return;
  variable_[word] = true;
  ++variable_count_;
}

std::uint64_t Footprint::word_at(std::uint64_t word) const {
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(range_.begin + word * 8), 8);
  return value;
}

std::uint64_t Footprint::masked(std::uint64_t value, std::uint64_t bytes) {
  std::uint64_t mask = 0;
  for (unsigned byte = 0; byte < 8; ++byte) {
    if ((bytes >> byte & 1) != 0) mask |= std::uint64_t{0xff} << (8 * byte);
  }
  return value & mask;
}

std::uint8_t Footprint::note_reading(std::uint64_t word, std::uint8_t bytes, std::uint64_t now,
                                     bool presumed) {
  Known& known = known_[word];
  if (known.run != run_) known = {run_, 0};
  const auto fresh = static_cast<std::uint8_t>(bytes & ~known.bytes);
  if (fresh == 0) return 0;
  known.bytes |= fresh;
  const std::uint64_t what = (presumed ? kPresumed : 0) | word << 8 | fresh;
  readings_.push_back({what, masked(now, what)});
  return fresh;
}

void Footprint::replay(std::uint64_t what) {
  const std::uint64_t word = word_of(what);
  const std::uint64_t address = range_.begin + word * 8;
  for (Plane& plane : planes_) {
    plane.for_cells(word, address, address + 8, [&](std::uint32_t number) {
      const Cell& cell = plane.order->cells()[number];
      if ((bytes_within(address, cell.address, cell.address + cell.size) & what) == 0) return;
      plane.read(number, run_, (what & kPresumed) != 0);
    });
  }
}

void Footprint::read(std::uint64_t address, std::uint64_t size, std::uint64_t actor,
                     const void* value, bool presumed) {
  for_words(address, size, [&](std::uint64_t word, std::uint64_t end) {
    if (!variable_[word]) return;
    const std::uint8_t bytes = bytes_within(range_.begin + word * 8, address, end);
    std::uint64_t now = word_at(word);
    if (value != nullptr) {
      const std::uint64_t begin = range_.begin + word * 8;
      const std::uint64_t first = std::max(begin, address);
      std::memcpy(reinterpret_cast<std::byte*>(&now) + (first - begin),
                  static_cast<const std::byte*>(value) + (first - address),
                  std::min(begin + 8, end) - first);
    }
    const std::uint8_t fresh = note_reading(word, bytes, now, presumed);
    touch(actor, word, bytes, false);
    for (Plane& plane : planes_) {
      plane.for_cells(word, address, end, [&](std::uint32_t number) {
        // Of a cell that the run has overwritten piece by piece nothing is read, as in replay().
        const Cell& cell = plane.order->cells()[number];
        const std::uint64_t begin = range_.begin + word * 8;
        const bool first =
            (bytes_within(begin, cell.address, cell.address + cell.size) & fresh) != 0;
        if (first || plane.cell_seen[number] == run_) plane.read(number, run_, presumed);
      });
    }
  });
}

void Footprint::tell(std::uint64_t address, std::uint64_t size, std::uint64_t actor) {
  for_words(address, size, [&](std::uint64_t word, std::uint64_t end) {
    if (!variable_[word]) return;
    touch(actor, word, bytes_within(range_.begin + word * 8, address, end), false);
  });
}

void Footprint::write(std::uint64_t address, std::uint64_t size, std::uint64_t actor) {
  for_words(address, size, [&](std::uint64_t word, std::uint64_t end) {
    const std::uint8_t bytes = bytes_within(range_.begin + word * 8, address, end);
    set_variable(word);
    touch(actor, word, bytes, true);
    Known& known = known_[word];
    if (known.run != run_) known = {run_, 0};
    known.bytes |= bytes;
    if (word_written_[word] != run_) {
      word_written_[word] = run_;
      written_.push_back(static_cast<std::uint32_t>(word));
    }
    // Only what is overwritten whole is the run's own from here on.
    for (Plane& plane : planes_) {
      plane.for_cells(word, address, end, [&](std::uint32_t number) {
        const Cell& cell = plane.order->cells()[number];
        if (cell.address >= address && cell.address + cell.size <= end) {
          plane.cell_seen[number] = run_;
        }
      });
    }
  });
}

void Footprint::add_to(Noted& all) const {
  // A word's number has 32 bits at most, and so has a cell's.
  constexpr std::uint64_t kCell = std::uint64_t{1} << 62;
  for (const Reading& reading : readings_) {
    if (all.known.insert(reading.what).second) all.readings.push_back(reading);
  }
  for (unsigned order = 0; order < 2; ++order) {
    for (const std::uint32_t cell : planes_[order].reads) {
      if (all.known.insert(kCell << order | cell).second) all.reads[order].push_back(cell);
    }
  }
}

void Footprint::show(const Noted& all) {
  readings_ = all.readings;
  for (unsigned order = 0; order < 2; ++order) planes_[order].reads = all.reads[order];
}

void Recorder::begin(Trace* trace, Footprint* footprint) {
  trace_ = trace;
  footprint_ = footprint;
  actor_ = kNoActor;
  kernels_.clear();
  task_ = 0;
  kernel_ = &kernels_[0];
  launches_ = host_ops_ = 0;
  copies_.clear();
  copying_ = Copy{};
  stray_.reset();
  first_allocation_ = cpu::device_allocations();
  if (trace_ != nullptr) {
    trace_->persistent = range_;
    sites_.clear();
    recent_sites_.fill({});
    groups_.clear();
    warp_arrivals_.clear();
    std::fill(sync_filter_.begin(), sync_filter_.end(), std::uint8_t{0});
  }
}

void Recorder::add_host_op(OpKind kind) {
  if (trace_ == nullptr) return;
  Op op;
  op.kind = kind;
  op.thread = kHostThread;
  trace_->ops.push_back(op);
  ++host_ops_;
}

void Recorder::begin_kernel(const cpu::Event& event) {
  kernel_->launch = ++launches_;
  kernel_->block_threads = std::uint64_t{event.extent.x} * event.extent.y * event.extent.z;
  const std::uint64_t blocks = std::uint64_t{event.grid.x} * event.grid.y * event.grid.z;
  kernel_->numbers.assign(blocks * kernel_->block_threads, 0);
  if (!follows_flows()) return;
  std::fill(places_.begin(), places_.end(), Known{});
  kernel_->phases.assign(kernel_->numbers.size(), 0);
}

std::uint32_t Recorder::thread_of(const cpu::Event& event) {
  if (event.host) return event.is_copy ? kCopyThread : kHostThread;
  std::uint32_t& number = kernel_->numbers[event.block * kernel_->block_threads + event.thread];
  if (number == 0) {
    number = static_cast<std::uint32_t>(trace_->threads.size());
    trace_->threads.push_back(
        {kernel_->launch, event.block, event.thread, static_cast<std::uint32_t>(event.task)});
  }
  return number;
}

std::uint64_t Recorder::actor_of(const cpu::Event& event) const {
  if (actor_ != kNoActor) return actor_;
  if (event.host) return kHostActor;
  return std::uint64_t{kernel_->launch} << 40 |
         (event.block * kernel_->block_threads + event.thread);
}

std::uint32_t Recorder::number_of_site(const cpu::Event& event) {
  const Site site = site_of(event);
  // A kernel's threads pass the same few places over and over.
  RecentSite& recent = recent_sites_[(reinterpret_cast<std::uintptr_t>(site.pc) ^ site.line) % 64];
  if (recent.number != 0 && recent.site == site) return recent.number;
  recent = {site, find_site(site)};
  return recent.number;
}

std::uint32_t Recorder::find_site(const Site& site) {
  const std::uint64_t key = reinterpret_cast<std::uintptr_t>(site.pc) +
                            reinterpret_cast<std::uintptr_t>(site.file) * 31 +
                            site.line * 0x9e3779b97f4a7c15u;
  for (const std::uint32_t known : sites_[key]) {
    if (trace_->sites[known] == site) return known;
  }
  const auto number = static_cast<std::uint32_t>(trace_->sites.size());
  trace_->sites.push_back(site);
  sites_[key].push_back(number);
  return number;
}

// Block barriers come with their number. The lanes of a warp meet once for each time that each of
// them arrives with the same mask.
std::uint32_t Recorder::group_of(const cpu::Event& event, std::uint32_t thread) {
  std::uint64_t key = (std::uint64_t{kernel_->launch} << 40) + event.block;
  if (event.kind == cpu::EventKind::warp_barrier) {
    const std::uint32_t turn = warp_arrivals_[std::uint64_t{thread} << 32 | event.mask]++;
    key = (key * 0x9e3779b97f4a7c15u + event.warp + 1) * 0xff51afd7ed558ccdu + event.mask;
    key = key * 0xc4ceb9fe1a85ec53u + turn;
  } else {
    key = key * 0x9e3779b97f4a7c15u + event.generation * 0x100000001b3u;
  }
  return groups_.try_emplace(key, static_cast<std::uint32_t>(groups_.size() + 1)).first->second;
}

void Recorder::add(const cpu::Event& event, OpKind kind, const void* value) {
  Op op;
  op.kind = kind;
  op.scope = event.scope;
  op.by_bytes = event.by_bytes;
  op.thread = thread_of(event);
  op.stream = event.stream;
  op.site = number_of_site(event);
  op.address = reinterpret_cast<std::uintptr_t>(event.address);
  op.size = static_cast<std::uint32_t>(event.size);
  op.strong = event.is_volatile || event.is_atomic || kind == OpKind::update ||
              kind == OpKind::release || kind == OpKind::acquire;
  // A volatile access reaches every thread; the event says so of the others.
  if (event.is_volatile) op.scope = Scope::system;
  if (value != nullptr && range_.contains(op.address)) op.value = trace_->keep(value, event.size);
  if (kind == OpKind::barrier || kind == OpKind::exchange) {
    op.group = group_of(event, op.thread);
  }
  if (op.thread == kCopyThread) op.task = static_cast<std::uint32_t>(event.task);
  if (op.thread == kHostThread) ++host_ops_;
  trace_->ops.push_back(op);
}

// What is copied into device memory is read by those threads that read it there; what is copied
// elsewhere, or from device memory, is read by the host.
void Recorder::on_copy(const cpu::Event& event) {
  const auto address = reinterpret_cast<std::uintptr_t>(event.address);
  if (footprint_ == nullptr) return;
  if (event.kind == cpu::EventKind::load) {
    copying_ = Copy{};
    if (!range_.contains(address)) {
      const auto memory = cpu::device_allocation(event.address);
      if (!memory || !follows_flows()) return;
      footprint_->flows().learn_range(
          actor_of(event), device_place(address, memory->start, memory->number),
          device_place(address + event.size - 1, memory->start, memory->number));
      tell_copied(address, event.size, actor_of(event));
      return;
    }
    copying_ = {address, address + event.size, address};
    footprint_->read(address, event.size, Footprint::kNobody);
    return;
  }
  // What is overwritten is no copy any more.
  const std::uint64_t end = address + event.size;
  std::vector<Copy> kept;
  for (const Copy& copy : copies_) {
    const std::uint64_t left = std::min(copy.end, address);
    const std::uint64_t right = std::max(copy.begin, end);
    if (copy.begin < left) kept.push_back({copy.begin, left, copy.from});
    if (right < copy.end) kept.push_back({right, copy.end, copy.from + (right - copy.begin)});
  }
  copies_ = std::move(kept);
  if (copying_.end == 0) return;
  if (actor_ == kNoActor && cpu::is_device_memory(event.address)) {
    copies_.push_back({address, end, copying_.from});
  } else {
    footprint_->tell(copying_.from, copying_.end - copying_.begin, actor_of(event));
  }
  copying_ = Copy{};
}

// Who reads device memory learns of the persistent bytes that were copied there.
void Recorder::tell_copied(std::uint64_t address, std::uint64_t size, std::uint64_t actor) {
  for (const Copy& copy : copies_) {
    if (address >= copy.end || address + size <= copy.begin) continue;
    const std::uint64_t from = copy.from + (std::max(address, copy.begin) - copy.begin);
    footprint_->tell(from, std::min(address + size, copy.end) - std::max(address, copy.begin),
                     actor);
  }
}

// Allocations are counted from the run's start, so that the same one has the same places in each.
Item Recorder::device_place(std::uint64_t address, std::uint64_t start,
                            std::uint64_t number) const {
  const bool fresh = number > first_allocation_;
  const std::uint64_t counted =
      (fresh ? number - first_allocation_ : number) << 1 | (fresh ? 1 : 0);
  return kDevicePlace | (counted & 0xfffff) << 40 | (address - start) / 4;
}

Item Recorder::place_of(std::uint64_t address, const cpu::Event& event) {
  const std::uint64_t granule = address >> 4;
  Known& known = places_[granule % places_.size()];
  const auto* const first = reinterpret_cast<const void*>(granule << 4);
  if (known.granule != granule) {
    known.granule = granule;
    if (const auto memory = cpu::device_allocation(first)) {
      known.place = device_place(granule << 4, memory->start, memory->number);
    } else {
      known.place = cpu::shared_offset(first) ? kSharedPlace : kHostPlace;
    }
  }
  if (known.place == kHostPlace) return kHostPlace;
  if (known.place != kSharedPlace) return known.place + (address & 15) / 4;
  // Another block has it at another time.
  const std::uint64_t offset = cpu::shared_offset(first).value_or(0) + (address & 15);
  const std::uint64_t key =
      ((std::uint64_t{kernel_->launch} << 40) + event.block) * 0x9e3779b97f4a7c15u;
  return kSharedPlace | ((key ^ offset / 4) * 0xff51afd7ed558ccdu) >> (64 - kPlaceShift);
}

// A kernel's thread reads or writes memory that a crash does not leave behind. What it stores to
// the host's memory the host may read, unseen.
void Recorder::on_volatile(const cpu::Event& event) {
  using cpu::EventKind;
  const auto address = reinterpret_cast<std::uintptr_t>(event.address);
  const bool reads = event.kind != EventKind::store && event.kind != EventKind::release;
  const bool writes = event.kind != EventKind::load && event.kind != EventKind::acquire;
  const std::uint64_t actor = actor_of(event);
  Flows& flows = footprint_->flows();
  for (std::uint64_t at = address & ~std::uint64_t{3}; at < address + event.size; at += 4) {
    const Item place = place_of(at, event);
    if (place == kHostPlace) {
      if (!writes) continue;
      flows.tell(actor, place);
      flows.learn(kHostActor, place);
      continue;
    }
    if (reads) flows.learn(actor, place);
    if (writes) flows.tell(actor, place);
  }
}

// A barrier or a collective that gives its threads values of each other.
void Recorder::on_meeting(const cpu::Event& event) {
  const std::uint64_t warp = event.kind == cpu::EventKind::warp_barrier
                                 ? std::uint64_t{event.warp + 1} << 32 | event.mask
                                 : 0;
  const std::uint64_t key =
      ((std::uint64_t{kernel_->launch} << 40) + event.block) * 0x9e3779b97f4a7c15u;
  const Item place = kMeetingPlace | ((key ^ warp) * 0xff51afd7ed558ccdu) >> (64 - kPlaceShift);
  Flows& flows = footprint_->flows();
  flows.tell(actor_of(event), place);
  flows.learn(actor_of(event), place);
}

void Recorder::look_for_stray(std::uint64_t address, const cpu::Event& event) {
  const auto holds = [&](const PersistentRange& object) {
    return object.contains(address) && event.size <= object.end - address;
  };
  if (stray_ || (last_object_ < objects_.size() && holds(objects_[last_object_]))) return;
  const auto next = std::upper_bound(
      objects_.begin(), objects_.end(), address,
      [](std::uint64_t at, const PersistentRange& object) { return at < object.begin; });
  if (next == objects_.begin() || !holds(*std::prev(next))) {
    stray_ = {address, site_of(event)};
  } else {
    last_object_ = static_cast<std::size_t>(std::prev(next) - objects_.begin());
  }
}

void Recorder::on_access(const cpu::Event& event) {
  using cpu::EventKind;
  const auto address = reinterpret_cast<std::uintptr_t>(event.address);
  const bool persistent = range_.contains(address);
  const bool strong = event.is_volatile || event.is_atomic || event.kind == EventKind::atomic ||
                      event.kind == EventKind::acquire || event.kind == EventKind::release;
  const bool reads = event.kind == EventKind::load || event.kind == EventKind::acquire ||
                     event.kind == EventKind::atomic;
  if (!persistent && !strong && (reads || !is_sync_variable(address))) return;
  const bool writes =
      event.kind != EventKind::load && event.kind != EventKind::acquire && !event.failed;
  if (persistent && writes) look_for_stray(address, event);
  if (persistent && footprint_ != nullptr) {
    if (reads && !event.is_copy) {
      footprint_->read(address, event.size, actor_of(event),
                       event.kind == EventKind::atomic || event.presumed ? event.value : nullptr,
                       event.presumed);
    }
    if (writes) footprint_->write(address, event.size, actor_of(event));
  }
  if (trace_ == nullptr) return;
  if (strong && !persistent) sync_filter_[address >> 2 & 0xffff] = 1;
  if (event.kind == EventKind::release) {
    add(event, OpKind::release, event.value);
  } else if (event.kind == EventKind::acquire) {
    add(event, OpKind::acquire, nullptr);
  } else if (event.kind == EventKind::atomic) {
    add(event, writes ? OpKind::update : OpKind::read, event.new_value);
    trace_->ops.back().strong = true;
  } else if (event.kind == EventKind::store) {
    add(event, OpKind::write, event.value);
  } else if (strong) {
    add(event, OpKind::read, nullptr);
  }
}

void Recorder::on_order(const cpu::Event& event) {
  if (trace_ == nullptr) return;
  switch (event.kind) {
    case cpu::EventKind::fence:
      add(event, OpKind::fence, nullptr);
      break;
    case cpu::EventKind::ordering_fence:
      add(event, OpKind::ordering_fence, nullptr);
      break;
    case cpu::EventKind::durability_fence:
      add(event, OpKind::durability_fence, nullptr);
      break;
    case cpu::EventKind::barrier:
    case cpu::EventKind::warp_barrier:
      add(event,
          event.kind == cpu::EventKind::warp_barrier && event.exchanges ? OpKind::exchange
                                                                        : OpKind::barrier,
          nullptr);
      break;
    case cpu::EventKind::synchronize:
      add_host_op(OpKind::synchronize);
      trace_->ops.back().stream = event.stream;
      trace_->ops.back().task = static_cast<std::uint32_t>(event.task);
      break;
    case cpu::EventKind::launch:
      trace_->tasks.push_back(
          {event.stream, host_ops_, static_cast<std::uint32_t>(event.generation)});
      break;
    default:
      break;
  }
}

void Recorder::on_event(const cpu::Event& event) {
  if (event.task != task_ && !event.host) {
    task_ = event.task;
    kernel_ = &kernels_[task_];
  }
  const auto address = reinterpret_cast<std::uintptr_t>(event.address);
  if (event.presumed && (footprint_ == nullptr || !range_.contains(address))) return;
  if (follows_flows() && event.host) {
    footprint_->flows().stand({});
  } else if (follows_flows() && event.kind >= cpu::EventKind::load) {
    std::uint32_t& phase = kernel_->phases[event.block * kernel_->block_threads + event.thread];
    if (event.kind == cpu::EventKind::barrier) {
      phase = static_cast<std::uint32_t>(event.generation + 1);
    }
    // An item of the verification is one actor, whatever kernels it launches.
    footprint_->flows().stand({actor_ == kNoActor ? kernel_->launch : 0, phase, event.block});
    if (event.exchanges) on_meeting(event);
    if (event.address != nullptr && !range_.contains(address)) on_volatile(event);
  }
  switch (event.kind) {
    case cpu::EventKind::load: {
      // By far the most frequent, and mostly of no interest.
      if (event.is_copy) on_copy(event);
      if (!copies_.empty() && !event.host) tell_copied(address, event.size, actor_of(event));
      if (!event.is_volatile && !event.is_atomic &&
          (footprint_ == nullptr || !range_.contains(address))) {
        return;
      }
      on_access(event);
      break;
    }
    case cpu::EventKind::atomic:
    case cpu::EventKind::acquire:
      if (!copies_.empty() && !event.host) tell_copied(address, event.size, actor_of(event));
      on_access(event);
      break;
    case cpu::EventKind::store:
      if (event.is_copy) on_copy(event);
      [[fallthrough]];
    case cpu::EventKind::release:
      on_access(event);
      break;
    case cpu::EventKind::kernel_begin:
      begin_kernel(event);
      break;
    default:
      on_order(event);
  }
}

}  // namespace holdfast::check
