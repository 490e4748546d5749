#include "history/life_cycle.hpp"

namespace holdfast::history {

namespace {

constexpr std::uint8_t kNo = kStates;
constexpr std::uint8_t kAbsent = static_cast<std::uint8_t>(State::absent);
constexpr std::uint8_t kWriting = static_cast<std::uint8_t>(State::writing);
constexpr std::uint8_t kWrittenAlone = static_cast<std::uint8_t>(State::written_alone);
constexpr std::uint8_t kFlushed = static_cast<std::uint8_t>(State::flushed);
constexpr std::uint8_t kReading = static_cast<std::uint8_t>(State::reading);
constexpr std::uint8_t kReadyAlone = static_cast<std::uint8_t>(State::ready_alone);
constexpr std::uint8_t kReady = static_cast<std::uint8_t>(State::ready);
constexpr std::uint8_t kConsumedAlone = static_cast<std::uint8_t>(State::consumed_alone);
constexpr std::uint8_t kConsumed = static_cast<std::uint8_t>(State::consumed);

// clang-format off
constexpr LifeCycleTable kLifeCycle = {{
  //                 write     fetch     arrived        failed   backed     unbacked        want         unwant         restore         keep           evict    discard
  /* absent         */ {kWriting, kReading, kNo,           kNo,     kNo,       kNo,            kNo,         kNo,           kNo,            kNo,           kNo,     kNo},
  /* writing        */ {kNo,      kNo,      kWrittenAlone, kAbsent, kNo,       kNo,            kNo,         kNo,           kNo,            kNo,           kNo,     kNo},
  /* written alone  */ {kNo,      kNo,      kNo,           kAbsent, kFlushed,  kNo,            kReadyAlone, kNo,           kConsumedAlone, kWrittenAlone, kNo,     kAbsent},
  /* flushed        */ {kNo,      kNo,      kNo,           kAbsent, kNo,       kWrittenAlone,  kReady,      kNo,           kConsumed,      kFlushed,      kAbsent, kAbsent},
  /* reading        */ {kNo,      kNo,      kReady,        kAbsent, kNo,       kNo,            kNo,         kNo,           kNo,            kNo,           kNo,     kNo},
  /* ready alone    */ {kNo,      kNo,      kNo,           kAbsent, kReady,    kNo,            kNo,         kWrittenAlone, kConsumedAlone, kWrittenAlone, kNo,     kAbsent},
  /* ready          */ {kNo,      kNo,      kNo,           kAbsent, kNo,       kReadyAlone,    kNo,         kFlushed,      kConsumed,      kFlushed,      kNo,     kAbsent},
  /* consumed alone */ {kNo,      kNo,      kNo,           kAbsent, kConsumed, kNo,            kReadyAlone, kNo,           kConsumedAlone, kWrittenAlone, kNo,     kAbsent},
  /* consumed       */ {kNo,      kNo,      kNo,           kAbsent, kNo,       kConsumedAlone, kReady,      kNo,           kConsumed,      kFlushed,      kAbsent, kAbsent},
}};
// clang-format on

}  // namespace

const LifeCycleTable& life_cycle() noexcept { return kLifeCycle; }

std::optional<State> next_state(State state, Input input, const LifeCycleTable& table) noexcept {
  const std::uint8_t next =
      table.next[static_cast<std::size_t>(state)][static_cast<std::size_t>(input)];
  if (next >= kStates) return std::nullopt;
  return static_cast<State>(next);
}

bool is_whole(State state) noexcept {
  return state != State::absent && state != State::writing && state != State::reading;
}

bool is_alone(State state) noexcept {
  return state == State::written_alone || state == State::ready_alone ||
         state == State::consumed_alone;
}

bool is_ready(State state) noexcept { return state == State::ready_alone || state == State::ready; }

const char* to_string(State state) noexcept {
  constexpr const char* kNames[kStates] = {"absent",  "writing",        "written alone",
                                           "flushed", "reading",        "ready alone",
                                           "ready",   "consumed alone", "consumed"};
  return kNames[static_cast<std::size_t>(state)];
}

const char* to_string(Input input) noexcept {
  constexpr const char* kNames[kInputs] = {"write",   "fetch",    "arrived", "failed",
                                           "backed",  "unbacked", "want",    "unwant",
                                           "restore", "keep",     "evict",   "discard"};
  return kNames[static_cast<std::size_t>(input)];
}

}  // namespace holdfast::history
