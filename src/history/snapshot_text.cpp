// A snapshot of a history as text, for other processes.
#include <utility>

#include "history/json.hpp"
#include "holdfast/history.hpp"

namespace holdfast {

using history::append;
using history::json_string;

namespace {

std::string seconds_text(double seconds) {
  return history::microseconds(static_cast<std::int64_t>(seconds * 1e9));
}

template <class Items, class One>
void append_list(std::string& out, std::string_view name, const Items& items, One&& one) {
  append(out, ",\"", name, "\":[");
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) out += ',';
    one(item);
  }
  out += ']';
}

}  // namespace

std::string to_json(const HistorySnapshot& snapshot) {
  std::string out;
  append(out, R"({"holdfast_history_status":1,"pid":)", snapshot.pid, R"(,"unix_ns":)",
         snapshot.unix_ns, R"(,"phase":)", json_string(snapshot.phase), R"(,"prefetching":)",
         snapshot.prefetching ? "true" : "false", R"(,"traced":)", snapshot.traced,
         R"(,"trace_dropped":)", snapshot.trace_dropped);
  append_list(out, "tiers", snapshot.tiers, [&](const HistorySnapshot::OneTier& tier) {
    append(out, R"({"tier":")", to_string(tier.tier), R"(","capacity":)", tier.capacity,
           R"(,"used":)", tier.used, R"(,"checkpoints":)", tier.checkpoints, R"(,"path":)",
           json_string(tier.path), "}");
  });
  append_list(out, "checkpoints", snapshot.checkpoints, [&](const auto& checkpoint) {
    append(out, R"({"step":)", checkpoint.step, R"(,"nbytes":)", checkpoint.bytes,
           R"(,"saved_unix_ns":)", checkpoint.saved_unix_ns, R"(,"discarded":)",
           checkpoint.discarded ? "true" : "false", R"(,"states":{)");
    for (std::size_t i = 0; i < checkpoint.copies.size(); ++i) {
      append(out, i == 0 ? "\"" : ",\"", to_string(checkpoint.copies[i].tier), "\":\"",
             checkpoint.copies[i].state, "\"");
    }
    out += "}}";
  });
  append_list(out, "hints", snapshot.hints, [&](std::uint64_t step) { append(out, step); });
  append_list(out, "transfers", snapshot.transfers, [&](const HistorySnapshot::Transfer& one) {
    append(out, R"({"kind":")", one.kind, R"(","step":)", one.step, R"(,"source":")", one.from,
           R"(","target":")", one.to, R"(","nbytes":)", one.bytes, R"(,"moved":)", one.moved,
           R"(,"us":)", seconds_text(one.seconds), "}");
  });
  append_list(out, "callers", snapshot.callers, [&](const HistorySnapshot::Caller& one) {
    append(out, R"({"call":")", one.call, R"(","step":)", one.step, R"(,"waits_for":)",
           json_string(one.waits_for), R"(,"us":)", seconds_text(one.seconds), "}");
  });
  return out + "}\n";
}

}  // namespace holdfast
