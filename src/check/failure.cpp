#include "check/failure.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace holdfast::check {

using detail::concat;

std::string name_state(const Order& order, const StateName& name, const Bitset& durable) {
  Bitset rest = durable;
  rest -= order.points()[name.point].durable;
  Bitset below;
  rest.for_each([&](std::size_t write) { below |= order.down(static_cast<std::uint32_t>(write)); });
  rest -= below;
  const std::string schedule = name.schedule.empty() ? "" : concat("r", name.schedule, "@");
  std::string text = concat(schedule, name.point, ":");
  const char* separator = "";
  rest.for_each([&](std::size_t write) {
    text += concat(separator, write);
    separator = ".";
  });
  return text;
}

std::string printable(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\t') {
      shown += c;
    } else {
      shown.append("\\x") += kDigits[byte >> 4];
      shown += kDigits[byte & 15];
    }
  }
  return shown;
}

void bad_form(const std::string& text) {
  throw OptionError(concat(
      "--replay is '", text, "', which names no crash state as reports do: [EXECUTION@][MODEL@]",
      "POINT:STORES[/POINT:STORES], such as 12:345.350, epoch@12: or x102@epoch@r1@12:345/3:7"));
}

namespace {

[[noreturn]] void bad_state(const std::string& text) {
  throw OptionError(concat("'", text, "' names no crash state of this program: take it from a ",
                           "report of the same program with the same options"));
}

// As it is printed: without zeros before it.
std::uint64_t take_number(const char*& at, const char* end, const std::string& text) {
  std::uint64_t value = 0;
  const auto [next, error] = std::from_chars(at, end, value);
  const bool has_zeros = error == std::errc() && *at == '0' && next != at + 1;
  if (error != std::errc() || has_zeros || value > 0xffffffffu) bad_form(text);
  at = next;
  return value;
}

// The stores of a state: in order, with a dot between two.
std::vector<std::uint32_t> take_stores(const char*& at, const char* end, const std::string& text) {
  std::vector<std::uint32_t> stores;
  while (at != end && *at != '/') {
    if (!stores.empty() && *at++ != '.') bad_form(text);
    const auto store = static_cast<std::uint32_t>(take_number(at, end, text));
    if (!stores.empty() && store <= stores.back()) bad_form(text);
    stores.push_back(store);
  }
  return stores;
}

}  // namespace

std::vector<StateName> parse_state(const std::string& state, const std::string& text) {
  std::vector<StateName> result;
  const char* at = state.data();
  const char* const end = at + state.size();
  for (;;) {
    StateName name;
    if (at != end && *at == 'r') {
      const char* const mark = std::find(at, end, '@');
      if (mark == end || mark == at + 1) bad_form(text);
      name.schedule.assign(at + 1, mark);
      at = mark + 1;
    }
    name.point = take_number(at, end, text);
    if (at == end || *at != ':') bad_form(text);
    ++at;
    name.top = take_stores(at, end, text);
    result.push_back(std::move(name));
    if (at == end) break;
    ++at;
  }
  if (result.size() > 2) bad_form(text);
  return result;
}

Bitset state_of(const Order& order, const StateName& name) {
  const auto text = [&] { return concat(name.point, ":..."); };
  if (name.point >= order.points().size()) bad_state(text());
  const CrashPoint& point = order.points()[name.point];
  Bitset durable = point.durable;
  for (const std::uint32_t write : name.top) {
    if (write >= point.executed) bad_state(text());
    durable |= order.down(write);
    durable.set(write);
  }
  return durable;
}

namespace {

std::string thread_name(const Trace& trace, std::uint32_t thread) {
  if (thread == kHostThread) return "host";
  if (thread == kCopyThread) return "copy";
  const TraceThread& who = trace.threads[thread];
  return concat("kernel ", who.launch, ", block ", who.block, ", thread ", who.thread);
}

PersistInfo info_of(const Order& order, std::uint32_t number, const Bitset& durable,
                    const Machine& machine, Places& places) {
  const Write& write = order.writes()[number];
  PersistInfo info;
  info.place = places.place(order.trace().sites[order.trace().ops[write.op].site]);
  info.thread = thread_name(order.trace(), write.thread);
  info.object = machine.name_of(write.address);
  std::memcpy(&info.value, order.trace().bytes.data() + write.value, write.size);
  info.bytes = write.size;
  info.durable = durable.test(number);
  info.number = number;
  return info;
}

std::string advice_for(const Failure& failure, const std::string& fix) {
  const std::string lost = to_string(failure.lost.place);
  const std::string kept = to_string(failure.kept.place);
  const bool one_thread = failure.lost.thread == failure.kept.thread;
  switch (failure.cause) {
    case CauseKind::missing_order:
      if (one_thread) {
        return concat("put ofence() between the store at ", lost, " and the one at ", kept,
                      ", or persist() where it must also be durable before the thread goes on");
      }
      return concat("order the two threads: persist() after the store at ", lost,
                    " before the other thread can learn of it, or prel() behind it and pacq() "
                    "before the store at ",
                    kept);
    case CauseKind::narrow_scope:
      return concat("widen the scope at ", fix,
                    ": its threads are in different blocks, and "
                    "block scope orders nothing between them; use Scope::device");
    case CauseKind::barrier_only:
      return concat(
          "a barrier orders what threads see, not what is durable: put persist() after "
          "the store at ",
          lost, ", before the barrier");
    case CauseKind::torn_store:
      return concat("the store at ", lost,
                    " is wider than 8 bytes and persists in pieces, in no "
                    "order: publish it by one store of at most 8 bytes behind a fence");
    case CauseKind::lost_acknowledged:
      return concat("the store at ", lost,
                    " may still be lost where its loss is no longer "
                    "allowed: put persist() after it");
    case CauseKind::not_idempotent:
      return concat(
          "recovery fails on what it left behind when it was cut off: make each of its "
          "steps safe to do again, and forget what it recovers from last",
          failure.has_pair ? "" : concat("; the last store that matters is at ", kept));
    case CauseKind::not_atomic:
      return concat("the store at ", kept, " is durable before the one at ", lost,
                    " is made: let it come last, behind a fence, or log what it overwrites");
    case CauseKind::not_a_crash_matter:
      return "this fails with every store durable: the program or its verification is wrong, "
             "whatever the medium does";
  }
  return {};
}

}  // namespace

void describe(Failure& failure, const Cause& cause, const Order& order, std::size_t point,
              const Machine& machine, Places& places) {
  failure.cause = cause.kind;
  const CrashPoint& where = order.points()[point];
  const auto info = [&](std::uint32_t write) {
    return info_of(order, write, cause.smallest, machine, places);
  };
  if (cause.lost) failure.lost = info(*cause.lost);
  if (cause.kept) failure.kept = info(*cause.kept);
  failure.has_pair = cause.lost && cause.kept;
  if (cause.fix) {
    failure.fix = places.place(order.trace().sites[order.trace().ops[*cause.fix].site]);
  }
  failure.advice = advice_for(failure, to_string(failure.fix));
  constexpr std::size_t kMost = 2'000;
  for (std::uint32_t write = 0; write < where.executed; ++write) {
    const bool named = write == cause.lost || write == cause.kept;
    if (named || failure.persists.size() < kMost) failure.persists.push_back(info(write));
  }
}

}  // namespace holdfast::check
