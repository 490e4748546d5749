// Exploring the crash states of one execution lazily, through what recovery reads.
//
// A state is chosen as recovery reads it: a cell's version is fixed when it is first read, and with
// it go all writes that are ordered before that version. Every run of recovery meets another
// combination of versions, so none is wasted. Source: Jaaru (ASPLOS '21) for the idea, on cache
// lines; here generalised to the down-closed sets of persist memory order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "check/order.hpp"

namespace holdfast::check {

// What one run of recovery did with a crash state.
struct Outcome {
  std::vector<std::uint32_t> reads;  // cells, in the order in which it first read them
  std::uint32_t verdict = 0;         // 0: as it should be; else the caller's number for what is not
};

// Runs recovery on the crash state `durable` of `point`. The same versions of the cells that it
// reads must give the same outcome.
using RunState = std::function<Outcome(const Bitset& durable, const CrashPoint& point)>;

struct StateSeen {
  std::size_t point;  // index into Order::points()
  const Bitset& durable;
  const Outcome& outcome;
};

class Explorer {
 public:
  // `order` outlives it. Outcomes are remembered, so exploring again costs no runs.
  Explorer(const Order& order, RunState run);
  ~Explorer();

  // Stops exploring, with false, once this returns true. Asked before every run.
  void stop_when(std::function<bool()> stop) { stop_ = std::move(stop); }
  // Called for every state that is met; false stops exploring.
  void on_state(std::function<bool(const StateSeen&)> visit) { visit_ = std::move(visit); }

  // All states that recovery can tell apart; with `cells`, only those that differ from the least
  // in these cells, at the points where that makes a difference. Returns whether it came to an end.
  bool explore(const std::function<bool(std::uint32_t cell)>& cells = nullptr);

  // The outcome of one state, from memory if it is known. Lasts until the next call.
  const Outcome& outcome(std::size_t point, const Bitset& durable);
  std::uint32_t verdict(std::size_t point, const Bitset& durable) {
    return outcome(point, durable).verdict;
  }

  std::uint64_t runs() const;  // of recovery
  const Order& order() const { return order_; }

 private:
  class Memory;
  struct Choice;
  bool descend(std::size_t point, Choice& choice, const std::function<bool(std::uint32_t)>& cells);

  const Order& order_;
  RunState run_;
  std::unique_ptr<Memory> memory_;
  Outcome unfinished_;
  std::function<bool()> stop_;
  std::function<bool(const StateSeen&)> visit_;
};

}  // namespace holdfast::check
