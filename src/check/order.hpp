// Persist memory order of one execution, and its legal crash states: docs/model.md made
// executable.
//
// Source: SBRP (ASPLOS '23) section 5, Box 2; GPM (ASPLOS '22) section 5.1 for the epoch model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "check/bitset.hpp"
#include "check/trace.hpp"
#include "holdfast/check.hpp"

namespace holdfast::check {

// The axioms of docs/model.md, each of which tests can take away.
struct Axioms {
  bool fence_order = true;      // A1: W po f po W' gives W pmo W'
  bool release_acquire = true;  // A2: W po Rel sw Acq po W'
  bool fence_sync = true;       // A3: the same through fences around strong accesses
  bool barrier_sync = true;     // A4: the same through fences around a barrier
  bool coherence = true;        // A5: W co W'
  bool release_write = true;    // A6: W po Rel(x), x persistent: W pmo Rel's write
  bool durability = true;       // A7: what a dF or the host has waited for is durable
  bool inclusion = true;        // A8: synchronisation needs each thread in the other's scope
  bool streams = true;          // A9: to wait for a stream is to wait for its work alone
  bool events = true;           // A10: ... and for that of the events that it has waited for
  bool barrier_alone = false;   // not an axiom: a barrier without fences orders persists
};

// Of which moments the crash points are.
enum class Moments : std::uint8_t {
  prefixes,  // of this one order of the operations: just before `durable` grows
  // Of all orders that are equivalent (happens.hpp): one crash point for each number of starts and
  // acknowledgements. What has been waited for before a write in every such order is ordered before
  // it, so that a set of writes is legal exactly if some consistent cut of the execution leaves it:
  // the least cut that holds the set has waited for nothing outside of it. See docs/model.md.
  cuts,
};

struct OrderOptions {
  Model model = Model::sbrp;
  Axioms axioms{};
  Moments moments = Moments::prefixes;
};

// A persist: at most 8 aligned bytes of one store.
struct Write {
  std::uint32_t op = 0;  // index into Trace::ops
  std::uint32_t thread = 0;
  std::uint64_t address = 0;
  std::uint32_t size = 0;
  std::size_t value = 0;  // from Trace::bytes
};

// Bytes that every write covers whole or not at all.
struct Cell {
  std::uint64_t address = 0;
  std::uint32_t size = 0;
  std::vector<std::uint32_t> writes;  // in coherence order
};

// A moment at which the machine may stop.
struct CrashPoint {
  std::uint32_t op = 0;        // before this one
  std::uint32_t executed = 0;  // writes [0, executed) may have reached the medium
  Bitset durable;              // these have; down-closed
  std::uint32_t started = 0;
  std::uint32_t acknowledged = 0;
};

// Invariants: writes are numbered in the order of execution; down(w) is transitively closed, does
// not hold w, and holds only numbers below w. A set of writes is a legal crash state of a point if
// it holds the point's `durable`, only numbers below `executed`, and with each write its down().
class Order {
 public:
  // `trace` outlives it. Moments::cuts REQUIRES: as from late_host().
  Order(const Trace& trace, const OrderOptions& options);

  const Trace& trace() const { return *trace_; }
  const std::vector<Write>& writes() const { return writes_; }
  const std::vector<Cell>& cells() const { return cells_; }
  const std::vector<CrashPoint>& points() const { return points_; }
  const Bitset& down(std::uint32_t write) const { return down_[write]; }
  // Whether `before` is durable whenever `after` is.
  bool ordered(std::uint32_t before, std::uint32_t after) const {
    return down_[after].test(before);
  }

  // The cells that overlap [address, address + size), as a range of indices.
  std::pair<std::uint32_t, std::uint32_t> cells_of(std::uint64_t address, std::uint64_t size) const;
  // How many of the cell's writes come before or are the last one that `durable` holds.
  std::uint32_t version(std::uint32_t cell, const Bitset& durable) const;
  // How many of the cell's writes have been executed at the point.
  std::uint32_t versions(std::uint32_t cell, const CrashPoint& point) const;

  // Finds the cells that hold the same whichever of their writes are durable. `base`: what the
  // range, which begins at `begin`, held before all of them; it outlives this.
  void find_constant(std::span<const std::byte> base, std::uint64_t begin);
  // What a cell holds in one of its versions. 0, what it held before all of its writes, is null
  // until find_constant() has been told of it.
  const std::byte* value(const Cell& cell, std::uint32_t version) const;
  // Whether it is known to be one: which of its writes are durable makes no other state.
  bool is_constant(std::uint32_t cell) const { return !constant_.empty() && constant_[cell]; }

  // Calls visit(D) for every legal crash state of a point, until it returns false.
  void for_each_state(const CrashPoint& point,
                      const std::function<bool(const Bitset&)>& visit) const;

  // What the ordering and durability fences of a site did: performance hints.
  struct FenceUse {
    std::uint64_t executed = 0;
    std::uint64_t useful = 0;  // waited for something, or stood between two persists
  };
  const std::vector<FenceUse>& fence_uses() const { return fence_uses_; }
  // By site of a release: how far away its acquirers were at most, as a scope.
  struct ReleaseUse {
    bool acquired = false;
    bool other_block = false;
  };
  const std::vector<ReleaseUse>& release_uses() const { return release_uses_; }

 private:
  friend class OrderBuilder;
  const Trace* trace_;
  std::vector<Write> writes_;
  std::vector<Bitset> down_;
  std::vector<Cell> cells_;     // by address
  std::vector<bool> constant_;  // by cell; empty: nobody has looked
  std::span<const std::byte> base_;
  std::uint64_t base_begin_ = 0;
  std::vector<CrashPoint> points_;
  std::vector<FenceUse> fence_uses_;
  std::vector<ReleaseUse> release_uses_;
};

}  // namespace holdfast::check
