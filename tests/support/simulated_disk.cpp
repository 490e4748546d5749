#include "support/simulated_disk.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace holdfast::test {

using core::kPage;
using detail::concat;

namespace {

constexpr std::uint64_t kSectorsOfPage = kPage / kSectorBytes;

std::uint64_t bytes_of(std::span<const iovec> parts) {
  std::uint64_t total = 0;
  for (const iovec& part : parts) total += part.iov_len;
  return total;
}

// Calls body(page, offset in it, to, bytes) for the pieces of a read.
template <class Body>
void by_page(std::uint64_t offset, std::byte* to, std::size_t bytes, Body&& body) {
  while (bytes > 0) {
    const std::uint64_t within = offset % kPage;
    const std::size_t step = std::min<std::uint64_t>(bytes, kPage - within);
    body(offset / kPage, within, to, step);
    offset += step;
    to += step;
    bytes -= step;
  }
}

}  // namespace

// ---- The disk -----------------------------------------------------------------------------------

bool SimulatedDisk::read(std::uint64_t offset, std::byte* to, std::size_t bytes) const {
  if (offset + bytes > size()) return false;
  by_page(offset, to, bytes, [&](std::uint64_t number, auto within, std::byte* at, auto step) {
    const auto found = pages_.find(number);
    if (found == pages_.end()) {
      std::memset(at, 0, step);
    } else {
      std::memcpy(at, found->second.shown.data() + within, step);
    }
  });
  return true;
}

bool SimulatedDisk::read(const CutState& state, std::uint64_t offset, std::byte* to,
                         std::size_t bytes) const {
  if (offset + bytes > state.bytes) return false;
  by_page(offset, to, bytes, [&](std::uint64_t number, auto within, std::byte* at, auto step) {
    const auto other = state.pages.find(number);
    if (other != state.pages.end()) {
      std::memcpy(at, other->second.data() + within, step);
      return;
    }
    const auto found = pages_.find(number);
    if (found == pages_.end()) {
      std::memset(at, 0, step);
    } else {
      std::memcpy(at, found->second.sure.data() + within, step);
    }
  });
  return true;
}

std::byte* SimulatedDisk::sure(std::uint64_t sector) {
  return pages_[sector / kSectorsOfPage].sure.data() + sector % kSectorsOfPage * kSectorBytes;
}

void SimulatedDisk::write_sector(std::uint64_t offset, const std::byte* from, std::size_t bytes) {
  const std::uint64_t sector = offset / kSectorBytes;
  Page& page = pages_[sector / kSectorsOfPage];
  std::memcpy(page.shown.data() + offset % kPage, from, bytes);
  const std::byte* const now = page.shown.data() + sector % kSectorsOfPage * kSectorBytes;
  const auto found = pending_.find(sector);
  if (found == pending_.end() && std::memcmp(now, sure(sector), kSectorBytes) == 0) return;
  Pending& pending = pending_[sector];
  pending.dirty = true;
  if (!pending.versions.empty() &&
      std::memcmp(pending.versions.back().data(), now, kSectorBytes) == 0) {
    return;
  }
  std::memcpy(pending.versions.emplace_back().data(), now, kSectorBytes);
}

void SimulatedDisk::write(std::uint64_t offset, const std::byte* from, std::size_t bytes) {
  if (offset + bytes > size()) resize(offset + bytes);
  while (bytes > 0) {
    const std::size_t step = std::min<std::uint64_t>(bytes, kSectorBytes - offset % kSectorBytes);
    write_sector(offset, from, step);
    offset += step;
    from += step;
    bytes -= step;
  }
}

void SimulatedDisk::resize(std::uint64_t bytes) {
  if (bytes < size()) throw std::logic_error("images do not shrink");
  if (bytes > size()) lengths_.push_back(bytes);
}

void SimulatedDisk::sync() {
  std::erase_if(pending_, [&](const auto& item) {
    const auto& [sector, pending] = item;
    if (!pending.dirty) return false;
    std::memcpy(sure(sector), pending.versions.back().data(), kSectorBytes);
    return true;
  });
  lengths_ = {lengths_.back()};
}

void SimulatedDisk::fail_sync() {
  for (auto& [sector, pending] : pending_) pending.dirty = false;
}

// What a disk shows it may still hold in a cache of its own, so that earlier versions stay
// possible; the next sync that succeeds empties that cache.
void SimulatedDisk::evict(Random& random) {
  for (auto item = pending_.begin(); item != pending_.end();) {
    const std::uint64_t number = item->first / kSectorsOfPage;
    const auto last = pending_.lower_bound((number + 1) * kSectorsOfPage);
    if (std::any_of(item, last, [](const auto& other) { return other.second.dirty; })) {
      item = last;
      continue;
    }
    Page& page = pages_.at(number);
    while (item != last) {
      Pending& pending = item->second;
      pending.versions.resize(below(random, pending.versions.size() + 1));
      std::memcpy(page.shown.data() + item->first % kSectorsOfPage * kSectorBytes,
                  version(item, pending.versions.size()), kSectorBytes);
      pending.dirty = true;  // in the disk's own cache
      item = pending.versions.empty() ? pending_.erase(item) : std::next(item);
    }
  }
}

const std::byte* SimulatedDisk::version(Item item, std::size_t number) const {
  if (number > 0) return item->second.versions[number - 1].data();
  return pages_.at(item->first / kSectorsOfPage).sure.data() +
         item->first % kSectorsOfPage * kSectorBytes;
}

std::vector<SimulatedDisk::Item> SimulatedDisk::items() const {
  std::vector<Item> result;
  result.reserve(pending_.size());
  for (auto item = pending_.begin(); item != pending_.end(); ++item) result.push_back(item);
  return result;
}

void SimulatedDisk::put(CutState& state, std::uint64_t sector, const std::byte* from,
                        std::size_t first, std::size_t last) const {
  const std::uint64_t number = sector / kSectorsOfPage;
  const auto [page, is_new] = state.pages.try_emplace(number);
  if (is_new) page->second = pages_.at(number).sure;
  std::memcpy(page->second.data() + sector % kSectorsOfPage * kSectorBytes + first, from + first,
              last - first);
}

// Files begin with what describes the rest: half of the time it is one of the first sectors.
std::size_t SimulatedDisk::pick(const std::vector<Item>& items, Random& random) const {
  const std::size_t low = std::min<std::size_t>(items.size(), 4);
  return below(random, chance(random, 50) ? low : items.size());
}

// A version for each sector.
std::vector<std::size_t> SimulatedDisk::choose(const std::vector<Item>& items, Random& random,
                                               std::string& how) const {
  std::vector<std::size_t> chosen(items.size(), 0);
  const auto latest = [&](std::size_t i) { return items[i]->second.versions.size(); };
  const auto any = [&](std::size_t i) { return below(random, latest(i) + 1); };
  const auto page = [&](std::size_t i) { return items[i]->first / kSectorsOfPage; };
  const bool whole_pages = chance(random, 50);
  // Of the sector's page, or the sector alone.
  const auto is_one = [&](std::size_t i, std::size_t one) {
    return i == one || (whole_pages && page(i) == page(one));
  };
  const std::uint64_t mode = below(random, 8);
  const std::size_t one = pick(items, random);
  const unsigned percent = static_cast<unsigned>(below(random, 100));
  static constexpr const char* kNames[] = {
      "all old",  "all new",  "all but one",  "one alone",
      "a subset", "a subset", "any versions", "low new, others old"};
  how = concat(kNames[mode],
               mode == 2 || mode == 3 ? concat(" (sector ", items[one]->first, ")") : "",
               whole_pages ? " by page" : " by sector");
  bool keep = false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i == 0 || !whole_pages || page(i) != page(i - 1)) keep = chance(random, percent);
    if (mode == 1) chosen[i] = latest(i);
    if (mode == 2) chosen[i] = is_one(i, one) ? any(i) : latest(i);
    if (mode == 3) chosen[i] = is_one(i, one) ? latest(i) : 0;
    if (mode == 4) chosen[i] = keep ? latest(i) : 0;
    if (mode == 5) chosen[i] = keep ? any(i) : 0;
    if (mode == 6) chosen[i] = any(i);
    if (mode == 7) chosen[i] = i <= one ? latest(i) : 0;
  }
  return chosen;
}

// One version over the one before, as far as the disk came, from the front or from the back.
void SimulatedDisk::tear(CutState& state, const std::vector<Item>& items, Random& random) const {
  const std::uint64_t count = 1 + below(random, 3);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Item item = items[pick(items, random)];
    const std::size_t later = 1 + below(random, item->second.versions.size());
    // The first bytes are those that most sectors use.
    const std::size_t at = 1 + below(random, chance(random, 50) ? 128 : kSectorBytes - 1);
    const bool front = chance(random, 50);
    put(state, item->first, version(item, later - 1), 0, kSectorBytes);
    put(state, item->first, version(item, later), front ? 0 : at, front ? at : kSectorBytes);
    state.choice += concat(", sector ", item->first, " torn at ", at, front ? " from" : " to",
                           front ? " the front" : " the back");
  }
}

CutState SimulatedDisk::sample(Random& random) const {
  CutState state;
  state.named = named_ && (name_is_sure_ || chance(random, 50));
  state.bytes = lengths_[below(random, lengths_.size())];
  if (chance(random, 40)) state.bytes = lengths_.back();
  if (pending_.empty()) {
    state.choice = "what is sure";
    return state;
  }
  const std::vector<Item> all = items();
  const std::vector<std::size_t> chosen = choose(all, random, state.choice);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (chosen[i] > 0) put(state, all[i]->first, version(all[i], chosen[i]), 0, kSectorBytes);
  }
  if (chance(random, 35)) tear(state, all, random);
  return state;
}

void SimulatedDisk::cut(const CutState& state) {
  for (const auto& [number, bytes] : state.pages) pages_[number].sure = bytes;
  pending_.clear();
  lengths_ = {state.bytes};
  named_ = name_is_sure_ = state.named;
  std::erase_if(pages_, [&](const auto& item) { return item.first * kPage >= state.bytes; });
  for (auto& [number, page] : pages_) page.shown = page.sure;
}

// ---- A life -------------------------------------------------------------------------------------

void Life::check_alive() const {
  if (dead_) throw Error(Errc::io, "the process was killed");
}

void Life::die() {
  dead_ = true;
  if (trace) trace("killed");
  if (on_death) on_death();
  check_alive();
  std::abort();
}

int Life::next_fault(Kind kind) {
  const auto strikes = [](Fault& fault, std::uint64_t number) {
    if (number < fault.number || fault.times == 0) return 0;
    --fault.times;
    return fault.error;
  };
  if (const int error = strikes(fail_change_, operations_)) {
    return kind == Kind::sync || kind == Kind::sync_name ? EIO : error;
  }
  return kind == Kind::sync ? strikes(fail_sync_, syncs_) : 0;
}

bool Life::is_omitted(Kind kind, std::uint64_t offset, std::span<const iovec> parts) {
  const bool to_record =
      kind == Kind::write && (offset == core::kRecordOffset[0] || offset == core::kRecordOffset[1]);
  if (to_record && *static_cast<const char*>(parts[0].iov_base) != 0) {
    record_written_ = true;
    return omit.record_while_opening && opening;
  }
  if (kind == Kind::sync_name) return omit.sync_name || (omit.sync_name_while_opening && opening);
  if (kind != Kind::sync) return false;
  const bool after_record = std::exchange(record_written_, false);
  if (omit.sync_while_opening && opening) return true;
  return after_record ? omit.sync_after_record && !opening : omit.sync_before_record;
}

void Life::apply(Kind kind, std::uint64_t offset, std::span<const iovec> parts,
                 std::uint64_t limit) {
  if (kind == Kind::sync) disk.sync();
  if (kind == Kind::sync_name) disk.sync_name();
  if (kind == Kind::resize) disk.resize(offset);
  if (kind != Kind::write) return;
  for (const iovec& part : parts) {
    const std::size_t bytes = std::min<std::uint64_t>(part.iov_len, limit);
    disk.write(offset, static_cast<const std::byte*>(part.iov_base), bytes);
    offset += bytes;
    limit -= bytes;
  }
}

// How far a write came that did not come to its end.
std::uint64_t Life::part_of(std::span<const iovec> parts) {
  const std::uint64_t unit = chance(random, 50) ? kPage : kSectorBytes;
  return below(random, bytes_of(parts) / unit + 1) * unit;
}

void Life::fail(Kind kind, int error, std::uint64_t offset, std::span<const iovec> parts) {
  ++faults_;
  if (trace) trace(concat("  fails: ", std::strerror(error)));
  if (kind == Kind::write && chance(random, 50)) apply(kind, offset, parts, part_of(parts));
  if (kind == Kind::sync) {
    disk.fail_sync();
    if (forgets_at_once) disk.evict(random);
  }
  if (on_done) on_done();
  throw core::system_error(error, kind == Kind::write ? "write to" : "sync", "the simulated disk");
}

void Life::change(Kind kind, std::uint64_t offset, std::span<const iovec> parts) {
  static constexpr const char* kNames[] = {"write", "resize", "sync", "sync of the name"};
  check_alive();
  if (on_begin) on_begin();
  const std::uint64_t all = bytes_of(parts);
  if (trace) {
    trace(concat("  ", operations_, ": ", kNames[static_cast<int>(kind)], " ", offset, " ", all));
  }
  const bool is_last = operations_ == kill_at_;
  if (is_last && kill_when_ == When::before) die();
  if (is_last && kill_when_ == When::within) {
    if (kind == Kind::write) apply(kind, offset, parts, part_of(parts));
    die();
  }
  const int error = next_fault(kind);
  ++operations_;
  if (kind == Kind::sync) ++syncs_;
  if (error != 0) fail(kind, error, offset, parts);
  if (!is_omitted(kind, offset, parts)) apply(kind, offset, parts, all);
  if (on_done) on_done();
  if (is_last) die();
}

// ---- The stores ---------------------------------------------------------------------------------

bool SimulatedStore::read_parts(std::uint64_t offset, std::span<iovec> parts) const {
  life_.check_alive();
  for (const iovec& part : parts) {
    if (!life_.disk.read(offset, static_cast<std::byte*>(part.iov_base), part.iov_len))
      return false;
    offset += part.iov_len;
  }
  return true;
}

void SimulatedStore::write_parts(std::uint64_t offset, std::span<iovec> parts) {
  life_.change(Life::Kind::write, offset, parts);
}

std::uint64_t SimulatedStore::size() const {
  life_.check_alive();
  return life_.disk.size();
}

void SimulatedStore::check_in_place(std::uint64_t bytes) const {
  life_.check_alive();
  if (life_.disk.size() < bytes) throw Error(Errc::damaged, "the simulated disk was cut");
}

bool FrozenStore::read_parts(std::uint64_t offset, std::span<iovec> parts) const {
  for (const iovec& part : parts) {
    auto* const to = static_cast<std::byte*>(part.iov_base);
    const bool whole = state_ != nullptr ? disk_.read(*state_, offset, to, part.iov_len)
                                         : disk_.read(offset, to, part.iov_len);
    if (!whole) return false;
    offset += part.iov_len;
  }
  return true;
}

void FrozenStore::refuse() { throw std::logic_error("this store is for reading"); }

}  // namespace holdfast::test
