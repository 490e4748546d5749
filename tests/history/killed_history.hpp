// What the tests of caches that outlive their process share: checkpoints whose sizes and bytes
// follow from their numbers, and processes that are killed.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <vector>

#include "holdfast/history.hpp"
#include "support/still_fork.hpp"

namespace holdfast::test {

inline constexpr std::uint64_t kUnit = 32 << 10;

inline std::uint8_t value(std::uint64_t step, std::uint64_t i) {
  return static_cast<std::uint8_t>((step * 2654435761u + i * 40503u) >> 7);
}
inline std::uint64_t bytes_of(std::uint64_t step) { return kUnit / 2 + step * 977 % (kUnit / 2); }

inline Ticket save(History& history, Stream& stream, std::vector<std::uint8_t>& field,
                   std::uint64_t step) {
  field.resize(kUnit);
  for (std::uint64_t i = 0; i < bytes_of(step); ++i) field[i] = value(step, i);
  history.protect("field", field.data(), bytes_of(step), BufferMemory::host);
  return history.save(step, stream);
}

inline bool restores(History& history, std::uint64_t step) {
  Stream stream;
  std::vector<std::uint8_t> field(kUnit);
  if (history.size(step, "field") != bytes_of(step)) return false;
  history.protect("field", field.data(), bytes_of(step), BufferMemory::host);
  history.restore(step, stream, true);
  for (std::uint64_t i = 0; i < bytes_of(step); ++i) {
    if (field[i] != value(step, i)) return false;
  }
  return true;
}

// At the end of what is killed(): a history that goes out of scope is closed, and then its caches
// are given back.
[[noreturn]] inline void wait_to_be_killed() {
  for (;;) ::pause();
}

// Runs `body` in a process that is killed when it has told `reports` numbers, or a moment later.
// Returns the numbers.
template <class Body>
std::vector<std::uint64_t> killed(std::size_t reports, unsigned more_microseconds, Body body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    ::close(ends[0]);
    body([&](std::uint64_t step) { (void)!::write(ends[1], &step, sizeof(step)); });
    wait_to_be_killed();
  }
  ::close(ends[1]);
  std::vector<std::uint64_t> told;
  std::uint64_t step = 0;
  while (told.size() < reports && ::read(ends[0], &step, sizeof(step)) == sizeof(step)) {
    told.push_back(step);
  }
  ::usleep(more_microseconds);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (::read(ends[0], &step, sizeof(step)) == sizeof(step)) told.push_back(step);
  ::close(ends[0]);
  return told;
}

// A process that saves the steps [first, last), and tells of each once `tier` has it.
inline std::vector<std::uint64_t> killed_saving(const HistoryOptions& with, Tier tier,
                                                std::uint64_t first, std::uint64_t last,
                                                std::size_t reports, unsigned more_microseconds) {
  return killed(reports, more_microseconds, [&](auto tell) {
    History history = History::open(with);
    Stream stream;
    std::vector<std::uint8_t> field;
    for (std::uint64_t step = first; step < last; ++step) {
      save(history, stream, field, step).wait(tier);
      tell(step);
    }
    wait_to_be_killed();
  });
}

}  // namespace holdfast::test
