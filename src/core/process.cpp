#include "core/process.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "core/files.hpp"

namespace holdfast::core {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kExiting = 4;                           // PF_EXITING of Linux
constexpr std::uint64_t kKilled = std::uint64_t{1} << (9 - 1);  // SIGKILL in a mask of signals

struct Stat {
  char state = 0;
  std::uint64_t flags = 0;
  std::uint64_t start = 0;
};

// Of /proc/PID/stat, behind the command, which may hold anything.
bool read_stat(const std::string& folder, Stat& stat) {
  std::ifstream file(folder + "/stat");
  if (!file.is_open()) return false;
  std::string text;
  std::getline(file, text, '\0');  // nothing of a process that has ended since
  const std::size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) return false;
  std::istringstream words(text.substr(command_end + 1));
  words.exceptions(std::ios::badbit);  // half a number would be that of another process
  std::string word;
  words >> stat.state;
  for (int field = 4; field <= 22 && words >> word; ++field) {
    if (field == 9) stat.flags = std::stoull(word);
    if (field == 22) stat.start = std::stoull(word);
  }
  return stat.start != 0;
}

// Whether there is such a process, of which the file tells. Throws what keeps from asking.
bool is_there(const std::string& folder, Stat& stat) {
  errno = 0;
  if (read_stat(folder, stat)) return true;
  if (is_shortage(errno)) throw system_error(errno, "open", folder + "/stat");
  return false;
}

bool kill_is_pending(const std::string& folder) {
  std::ifstream file(folder + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("SigPnd:", 0) != 0 && line.rfind("ShdPnd:", 0) != 0) continue;
    if ((std::strtoull(line.c_str() + 7, nullptr, 16) & kKilled) != 0) return true;
  }
  if (file.bad() && is_shortage(errno)) throw system_error(errno, "read", folder + "/status");
  return false;  // or it has ended since
}

std::uint64_t pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

std::string folder_of_process(std::uint64_t pid) { return "/proc/" + std::to_string(pid); }

}  // namespace

Maker::Maker() : process_(::getpid()) {}

bool Maker::is_this_process() const noexcept { return process_ == ::getpid(); }

void Maker::refuse(const std::string& what, const char* remedy) const {
  throw Error(Errc::in_use, detail::concat(what, " belongs to process ", process_,
                                           ", of which this one is a fork; ", remedy));
}

ProcessName this_process() {
  ProcessName name;
  name.pid = static_cast<std::uint64_t>(::getpid());
  Stat stat;
  if (read_stat("/proc/self", stat)) name.start = stat.start;
  name.pid_namespace = pid_namespace();
  return name;
}

char state_letter(std::uint64_t pid) {
  Stat stat;
  return read_stat(folder_of_process(pid), stat) ? stat.state : '\0';
}

Life life_of(const ProcessName& process) {
  if (process.pid == 0) return Life::ended;
  if (process.start == 0 || process.pid_namespace == 0 ||
      process.pid_namespace != pid_namespace()) {
    return Life::unknown;
  }
  const std::string folder = folder_of_process(process.pid);
  Stat stat;
  if (!is_there(folder, stat) || stat.start != process.start) return Life::ended;
  if (stat.state == 'Z' || stat.state == 'X' || (stat.flags & kExiting) != 0) {
    // Its first thread has ended. The others may not have: only a descriptor of it tells.
    return wait_for_end(process, Clock::now()) ? Life::ended : Life::ending;
  }
  return kill_is_pending(folder) ? Life::ending : Life::running;
}

bool wait_for_end(const ProcessName& process, Clock::time_point deadline) {
  if (process.pid == 0 || process.pid_namespace != pid_namespace()) return true;
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  Stat stat;
  // Asked behind pidfd_open(): the descriptor is that of the process meant, or the process is gone.
  if (!is_there(folder_of_process(process.pid), stat) || stat.start != process.start) return true;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (fd) {
      pollfd wanted{fd.get(), POLLIN, 0};
      const int ready = ::poll(&wanted, 1, left > 0 ? static_cast<int>(left) : 0);
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    } else {  // Linux before 5.3: a zombie has ended, unless its other threads have not
      if (!is_there(folder_of_process(process.pid), stat) || stat.start != process.start) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace holdfast::core
