#include "check/robust.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "holdfast/error.hpp"

namespace holdfast::check {

namespace {

// The same execution on a machine where every access of a kernel is followed by a fence that
// reaches everyone, and reaches everyone itself: there persist order is happens-before.
Trace fenced(const Trace& trace) {
  Trace result = trace;
  result.ops.clear();
  for (Op op : trace.ops) {
    op.scope = Scope::system;
    result.ops.push_back(op);
    if (op.thread == kHostThread || op.thread == kCopyThread) continue;
    op.kind = OpKind::fence;
    op.strong = false;
    result.ops.push_back(op);
  }
  return result;
}

}  // namespace

Robustness::Robustness(const Order& order) : order_(order) {
  const Trace strict = fenced(order.trace());
  const Order happens(strict, OrderOptions{});
  const auto& threads = order.trace().threads;
  std::map<std::uint32_t, std::uint32_t> first;  // write of a launch
  for (std::uint32_t i = 0; i < order.writes().size(); ++i) {
    const std::uint32_t launch = threads[order.writes()[i].thread].launch;
    Bitset before = happens.down(i);
    // The host and the copy engine come when the kernels before them are over, as kernels do.
    before |= Bitset::below(launch == 0 ? i : first.try_emplace(launch, i).first->second);
    before_.push_back(std::move(before));
  }
  acknowledged_.push_back(0);
  std::uint32_t write = 0;
  for (std::uint32_t i = 0; i < order.trace().ops.size(); ++i) {
    if (order.trace().ops[i].kind != OpKind::acknowledge) continue;
    while (write < order.writes().size() && order.writes()[write].op < i) ++write;
    acknowledged_.push_back(write);
  }
}

// Of versions of the cell; 0 is what it held at first.
bool Robustness::same_value(const Cell& cell, std::uint32_t a, std::uint32_t b) const {
  const std::byte* const first = order_.value(cell, a);
  const std::byte* const second = order_.value(cell, b);
  return first != nullptr && second != nullptr && std::memcmp(first, second, cell.size) == 0;
}

std::string Robustness::violation(const Bitset& durable, const CrashPoint& point,
                                  const std::vector<std::uint32_t>& reads,
                                  const std::function<std::string(std::uint64_t)>& name_of) const {
  // What must have been made: all that was promised, and what leads to the values read.
  Bitset made = Bitset::below(acknowledged_[point.acknowledged]);
  std::uint32_t latest = 0;
  for (const std::uint32_t number : reads) {
    const Cell& cell = order_.cells()[number];
    std::uint32_t version = order_.version(number, durable);
    while (version > 0 && same_value(cell, version - 1, version)) --version;
    if (version == 0) continue;
    const std::uint32_t write = cell.writes[version - 1];
    made |= before_[write];
    made.set(write);
    latest = std::max(latest, write + 1);
  }
  for (const std::uint32_t number : reads) {
    const Cell& cell = order_.cells()[number];
    const std::uint32_t version = order_.version(number, durable);
    std::uint32_t next = version + 1;
    while (next <= cell.writes.size() && same_value(cell, version, next)) ++next;
    if (next > cell.writes.size() || !made.test(cell.writes[next - 1])) continue;
    const bool promised = cell.writes[next - 1] < acknowledged_[point.acknowledged];
    const std::string lost = name_of(cell.address);
    const std::string kept = latest == 0 ? "" : name_of(order_.writes()[latest - 1].address);
    return detail::concat("not robust: recovery reads ", lost, " without a store that ",
                          promised || latest == 0
                              ? "was acknowledged"
                              : detail::concat("comes before what it reads at ", kept),
                          "; no crash of a machine that persists in order leaves that");
  }
  return {};
}

}  // namespace holdfast::check
