// fork() for tests whose process has threads. A child has the caller's thread alone, and whatever
// lock another thread held it holds for ever: under the address sanitizer the allocator's, since
// that sanitizer does not take its locks around fork().
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>

namespace holdfast::test {

// How often each other thread of this process has run; `asleep` says whether none runs now.
inline std::map<long, std::string> runs_of_other_threads(bool& asleep) {
  std::map<long, std::string> runs;
  asleep = true;
  DIR* tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return runs;
  while (const dirent* entry = ::readdir(tasks)) {
    const long thread = std::strtol(entry->d_name, nullptr, 10);
    if (thread == 0 || thread == ::gettid()) continue;
    const std::string folder = "/proc/self/task/" + std::to_string(thread) + "/";
    std::string stat, ran;
    std::getline(std::ifstream(folder + "stat"), stat);
    if (stat.empty()) continue;  // it has ended
    std::getline(std::ifstream(folder + "schedstat"), ran);
    const std::size_t name_end = stat.rfind(") ");
    asleep &= name_end != std::string::npos && stat[name_end + 2] == 'S';
    runs[thread] = ran;
  }
  ::closedir(tasks);
  return runs;
}

// Forks once no other thread has run for two milliseconds, or after five seconds of waiting for it.
inline pid_t fork_when_still() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  bool asleep = false;
  auto before = runs_of_other_threads(asleep);
  while (!before.empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    bool asleep_now = false;
    auto now = runs_of_other_threads(asleep_now);
    if (asleep && asleep_now && now == before) break;
    asleep = asleep_now;
    before = std::move(now);
  }
  return ::fork();
}

}  // namespace holdfast::test
