// A file on a disk that can lose power, in memory: what reads see, what the disk holds for sure,
// and what it may hold. It outlives the processes that use it.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/block_store.hpp"
#include "core/format.hpp"

namespace holdfast::test {

using Random = std::mt19937_64;
inline std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }
inline bool chance(Random& random, unsigned percent) { return random() % 100 < percent; }

inline constexpr std::uint64_t kSectorBytes = 512;
using SectorBytes = std::array<std::byte, kSectorBytes>;
using PageBytes = std::array<std::byte, core::kPage>;

// What a power cut leaves of a disk. It refers to the disk, which must not change meanwhile.
struct CutState {
  bool named = true;
  std::uint64_t bytes = 0;
  std::unordered_map<std::uint64_t, PageBytes> pages;  // that differ from what is there for sure
  std::string choice;                                  // how it was chosen, for people
};

// The rules:
// - A write shows at once and reaches the disk at any time, each sector by itself, whichever of its
//   versions since the last sync was written last; or half of one over the one before.
// - A sync that succeeds makes the latest version of what was dirty sure.
// - A sync that fails leaves every version possible and nothing dirty: a later sync that succeeds
//   writes only what has been written again. What shows may be forgotten (evict()): then what the
//   disk has shows.
// - The length is metadata: any since the last sync that succeeded may be on the disk. Journals
//   keep it through a sync that failed. Behind the end there is nothing.
// - The name is there for sure from a sync_name() on.
//
// Thread safety: read() from any number of threads while nothing else runs.
class SimulatedDisk {
 public:
  bool read(std::uint64_t offset, std::byte* to, std::size_t bytes) const;
  void write(std::uint64_t offset, const std::byte* from, std::size_t bytes);
  void resize(std::uint64_t bytes);
  void sync();
  void fail_sync();
  void link() { named_ = true; }
  void sync_name() { name_is_sure_ = true; }
  std::uint64_t size() const { return lengths_.back(); }
  bool has_name() const { return named_; }

  // Forgets pages that are not dirty.
  void evict(Random& random);

  // More than one state is possible.
  bool is_uncertain() const {
    return !pending_.empty() || lengths_.size() > 1 || named_ != name_is_sure_;
  }
  // One of the possible states; those that differ least, or most, or in one place, are likely.
  CutState sample(Random& random) const;
  bool read(const CutState& state, std::uint64_t offset, std::byte* to, std::size_t bytes) const;
  // The power goes and comes back.
  void cut(const CutState& state);

 private:
  struct Page {
    PageBytes shown{};
    PageBytes sure{};
  };
  struct Pending {
    std::vector<SectorBytes> versions;  // later than the sure one
    bool dirty = true;
  };
  using Item = std::map<std::uint64_t, Pending>::const_iterator;

  void write_sector(std::uint64_t offset, const std::byte* from, std::size_t bytes);
  std::byte* sure(std::uint64_t sector);
  const std::byte* version(Item item, std::size_t number) const;  // 0: the sure one
  std::vector<Item> items() const;
  std::vector<std::size_t> choose(const std::vector<Item>& items, Random& random,
                                  std::string& how) const;
  std::size_t pick(const std::vector<Item>& items, Random& random) const;
  void tear(CutState& state, const std::vector<Item>& items, Random& random) const;
  void put(CutState& state, std::uint64_t sector, const std::byte* from, std::size_t first,
           std::size_t last) const;

  std::unordered_map<std::uint64_t, Page> pages_;
  std::map<std::uint64_t, Pending> pending_;  // by sector
  std::vector<std::uint64_t> lengths_{0};     // [0] is sure, the last one shows
  bool named_ = false;
  bool name_is_sure_ = false;
};

// A process's view of the disk, and what befalls it. One per life; the store that the code under
// test owns refers to it.
class Life {
 public:
  enum class Kind { write, resize, sync, sync_name };
  // Where in an operation a kill comes.
  enum class When { before, within, after };
  // What the store leaves out, as faulty code under test would.
  struct Omissions {
    bool sync_while_opening = false;
    bool record_while_opening = false;
    bool sync_name_while_opening = false;
    bool sync_name = false;
    bool sync_before_record = false;
    bool sync_after_record = false;
  };

  Life(SimulatedDisk& disk_of, std::uint64_t seed) : disk(disk_of), random(seed) {}

  void kill_at(std::uint64_t operation, When when) {
    kill_at_ = operation;
    kill_when_ = when;
  }
  // The n-th change, or sync, from the first on fails; so does the next one `times - 1` times.
  void fail_change(std::uint64_t number, int error, int times) {
    fail_change_ = {number, error, times};
  }
  void fail_sync(std::uint64_t number, int times) { fail_sync_ = {number, EIO, times}; }

  bool dead() const { return dead_; }
  std::uint64_t faults() const { return faults_; }

  SimulatedDisk& disk;
  Random random;
  Omissions omit;
  bool opening = true;             // open() has not returned
  bool forgets_at_once = false;    // a failed sync's pages
  std::function<void()> on_begin;  // of each operation
  std::function<void()> on_done;   // after it has changed the disk
  std::function<void()> on_death;  // at the moment of the kill
  std::function<void(const std::string&)> trace;

  // For the store.
  void change(Kind kind, std::uint64_t offset, std::span<const iovec> parts);
  void check_alive() const;

 private:
  struct Fault {
    std::uint64_t number = ~std::uint64_t{0};
    int error = 0;
    int times = 0;
  };
  int next_fault(Kind kind);
  bool is_omitted(Kind kind, std::uint64_t offset, std::span<const iovec> parts);
  // Of a write, the first `limit` bytes.
  void apply(Kind kind, std::uint64_t offset, std::span<const iovec> parts, std::uint64_t limit);
  std::uint64_t part_of(std::span<const iovec> parts);
  [[noreturn]] void die();
  void fail(Kind kind, int error, std::uint64_t offset, std::span<const iovec> parts);

  std::uint64_t operations_ = 0;
  std::uint64_t syncs_ = 0;
  std::uint64_t kill_at_ = ~std::uint64_t{0};
  When kill_when_ = When::before;
  Fault fail_change_;
  Fault fail_sync_;
  std::uint64_t faults_ = 0;
  bool record_written_ = false;  // since the last sync
  bool dead_ = false;
};

// Over what a living process sees. Holds the real file, and its lock, open.
class SimulatedStore : public core::BlockStore {
 public:
  SimulatedStore(Life& life, core::UniqueFd fd, std::string path)
      : life_(life), file_(std::move(fd)), path_(std::move(path)) {}

  bool read_parts(std::uint64_t offset, std::span<iovec> parts) const override;
  void write_parts(std::uint64_t offset, std::span<iovec> parts) override;
  void sync() override { life_.change(Life::Kind::sync, 0, {}); }
  void sync_name() override { life_.change(Life::Kind::sync_name, 0, {}); }
  void resize(std::uint64_t bytes) override { life_.change(Life::Kind::resize, bytes, {}); }
  std::uint64_t size() const override;
  void check_in_place(std::uint64_t bytes) const override;
  unsigned writers() const override { return 1; }  // runs repeat from their seed
  const std::string& path() const override { return path_; }

 private:
  Life& life_;
  core::UniqueFd file_;
  const std::string path_;
};

// Over what a power cut left, or (without a state) over what shows. Nothing can be written.
class FrozenStore : public core::BlockStore {
 public:
  explicit FrozenStore(const SimulatedDisk& disk, const CutState* state = nullptr)
      : disk_(disk), state_(state) {}

  bool read_parts(std::uint64_t offset, std::span<iovec> parts) const override;
  void write_parts(std::uint64_t, std::span<iovec>) override { refuse(); }
  void sync() override { refuse(); }
  void sync_name() override { refuse(); }
  void resize(std::uint64_t) override { refuse(); }
  std::uint64_t size() const override { return state_ ? state_->bytes : disk_.size(); }
  void check_in_place(std::uint64_t) const override {}
  const std::string& path() const override { return path_; }

 private:
  [[noreturn]] static void refuse();
  const SimulatedDisk& disk_;
  const CutState* state_;
  const std::string path_ = "what a power cut left";
};

}  // namespace holdfast::test
