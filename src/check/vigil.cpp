#include "check/vigil.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "backend_cpu/faults.hpp"

namespace holdfast::check {

using detail::concat;

// One line, put together without memory.
class Line {
 public:
  void add(const char* text) {
    while (*text != '\0') add(*text++);
  }
  void add(char c) {
    if (size_ < kMost) text_[size_++] = c;
  }
  void add(std::uint64_t number) {
    char digits[20];
    std::size_t count = 0;
    do {
      digits[count++] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    while (count > 0) add(digits[--count]);
  }
  bool is_full() const { return size_ == kMost; }
  std::size_t size() const { return size_; }
  void cut(std::size_t size) { size_ = size; }

  void write_to(int fd) {
    for (std::size_t done = 0; fd >= 0 && done < size_;) {
      const ssize_t count = ::write(fd, text_ + done, size_ - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      done += static_cast<std::size_t>(count);
    }
  }

 private:
  static constexpr std::size_t kMost = 16 * 1024;
  char text_[kMost] = {};
  std::size_t size_ = 0;
};

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kLimit = 30;       // seconds, where none is given
constexpr double kRunLimit = 300;   // of set_up() and run()
constexpr double kLongestTick = 1;  // of the watch
// The handler's answer, before the watch itself ends the process.
constexpr auto kGrace = std::chrono::seconds(2);
constexpr std::size_t kSignalStackBytes = 64 * 1024;
// More stores than that are not looked through for those that nothing follows.
constexpr std::size_t kMostNamed = 20'000;

std::atomic<Vigil*> g_vigil{nullptr};
std::atomic<int> g_also{-1};
std::atomic<bool> g_said{false};

constexpr std::array<int, 6> kFatal = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
constexpr std::array<const char*, 6> kFatalNames = {"SIGSEGV", "SIGBUS",  "SIGFPE",
                                                    "SIGILL",  "SIGTRAP", "SIGABRT"};
std::array<struct sigaction, 6> g_before;

int overdue_signal() { return SIGRTMAX - 2; }

std::size_t index_of(int signal) {
  return static_cast<std::size_t>(std::find(kFatal.begin(), kFatal.end(), signal) - kFatal.begin());
}

constinit Line g_line{};

// As name_state() does.
bool add_state(Line& line, const Level& level, const Schedules* schedules) {
  if (level.schedule != nullptr && !level.schedule->empty()) {
    line.add('r');
    line.add(level.schedule->c_str());
    line.add('@');
  } else if (schedules != nullptr) {
    line.add('r');
    if (!schedules->spell([&](char c) { line.add(c); })) return false;
    line.add('@');
  }
  line.add(std::uint64_t{level.point});
  line.add(':');
  const Bitset& promised = level.order->points()[level.point].durable;
  const auto for_rest = [&](auto&& visit) {
    level.durable->for_each([&](std::size_t write) {
      if (!promised.test(write)) visit(static_cast<std::uint32_t>(write));
    });
  };
  std::size_t count = 0;
  for_rest([&](std::uint32_t) { ++count; });
  if (count > kMostNamed) return false;
  bool first = true;
  for_rest([&](std::uint32_t write) {
    bool is_top = true;
    for_rest([&](std::uint32_t later) {
      if (later > write && is_top) is_top = !level.order->down(later).test(write);
    });
    if (!is_top) return;
    if (!std::exchange(first, false)) line.add('.');
    line.add(std::uint64_t{write});
  });
  return !line.is_full();
}

void on_fatal(int signal, siginfo_t* info, void* context) {
  Vigil::say_crashed(signal);
  cpu::pass_on(g_before[index_of(signal)], signal, info, context);
}

void on_overdue(int) { Vigil::say_overdue(); }

// Handlers that are there before the watch over the host's pages, and mostly before that of the CPU
// backend: what those take care of does not arrive here. Where the backend was first, it tells.
void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    cpu::tell_of_fatal_faults(&Vigil::say_crashed);
    for (std::size_t i = 0; i < kFatal.size(); ++i) {
      ::sigaction(kFatal[i], nullptr, &g_before[i]);
      const bool is_free =
          (g_before[i].sa_flags & SA_SIGINFO) == 0 && g_before[i].sa_handler == SIG_DFL;
      if (!is_free && kFatal[i] != SIGABRT) continue;
      struct sigaction action {};
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigemptyset(&action.sa_mask);
      action.sa_sigaction = &on_fatal;
      ::sigaction(kFatal[i], &action, nullptr);
    }
  });
}

// A stack for the handlers, so that one that overflowed can be named; for the process's life.
void install_stack() {
  stack_t now{};
  if (::sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  void* const memory = ::mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kSignalStackBytes;
  ::sigaltstack(&stack, nullptr);
}

double limit_of(const Options& options, double otherwise) {
  if (options.recovery_seconds > 0) return options.recovery_seconds;
  return std::max(otherwise, options.max_seconds);
}
std::string describe_overdue(double limit) {
  return concat(" has run for ", limit, " s: it may never end");
}

}  // namespace

void tell_also(int fd) { g_also = fd; }

Vigil::Vigil(const std::string& program, const Options& options)
    : program_(program),
      limit_(limit_of(options, kLimit)),
      run_limit_(limit_of(options, kRunLimit)),
      overdue_(describe_overdue(limit_)),
      run_overdue_(describe_overdue(run_limit_)) {
  install();
  install_stack();
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  action.sa_handler = &on_overdue;
  ::sigaction(overdue_signal(), &action, &before_);
  g_vigil = this;
  sigset_t all, mask;  // signals are the program's own threads' to handle
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask);
  watcher_ = std::thread([this] { watch(); });
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

Vigil::~Vigil() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  watcher_.join();
  g_vigil = nullptr;
  ::sigaction(overdue_signal(), &before_, nullptr);
}

void Vigil::set_mutation(const Mutation& mutation) {
  mutation_ = mutation.kind == Mutation::Kind::none ? "" : to_string(mutation);
}

// Time in which the whole process stood still, in a debugger or stopped, does not count.
void Vigil::watch() {
  const double tick = std::min(kLongestTick, limit_ / 4);
  std::uint64_t seen = 0;
  double lasted = 0;
  Clock::time_point before = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, Seconds(tick), [this] { return over_; })) {
    const Clock::time_point now = Clock::now();
    lasted += std::min(Seconds(now - before).count(), 2 * tick);
    before = now;
    const std::uint64_t number = number_.load(std::memory_order_acquire);
    if (number != std::exchange(seen, number) || number % 2 == 0) lasted = 0;
    if (lasted < (is_recovery_ ? limit_ : run_limit_)) continue;
    give_up(number);
    wake_.wait_for(lock, kGrace, [this] { return over_; });
    if (!over_ && !g_said && number_.load() == number) {  // the signal did not get through
      say(overdue().c_str(), nullptr, false);
      ::_exit(1);
    }
  }
}

// The checker's own thread says it, since what names the state is its.
void Vigil::give_up(std::uint64_t number) {
  given_up_ = number;
  ::pthread_kill(checker_, overdue_signal());
}

bool Vigil::add_name(Line& line) const noexcept {
  if (!is_recovery_ && mutation_.empty()) return true;
  line.add("; repeat it with");
  if (!mutation_.empty()) {
    line.add(" --mutation ");
    line.add(mutation_.c_str());
  }
  if (!is_recovery_) return true;
  line.add(" --replay ");
  line.add(execution_.c_str());
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    if (i > 0) line.add('/');
    const bool is_last = i + 1 == levels_.size();
    if (!add_state(line, levels_[i], is_last ? schedules_ : nullptr)) return false;
  }
  return true;
}

void Vigil::say(const char* what, const char* remedy, bool name) const noexcept {
  if (g_said.exchange(true)) return;
  Line& line = g_line;
  line.add("check: ");
  line.add(function_);
  line.add(" of program '");
  line.add(program_.c_str());
  line.add('\'');
  line.add(what);
  const std::size_t size = line.size();
  if (name && !add_name(line)) {
    line.cut(size);
    line.add(", from a crash state whose name cannot be told");
  }
  if (remedy != nullptr) line.add(remedy);
  line.add('\n');
  line.write_to(STDERR_FILENO);
  line.write_to(g_also);
}

void Vigil::say_crashed(int signal) noexcept {
  const Vigil* const vigil = g_vigil;
  const std::size_t index = index_of(signal);
  if (vigil == nullptr || !vigil->is_under_way() || index == kFatal.size()) return;
  char what[32] = " crashed (";
  std::strcat(what, kFatalNames[index]);
  std::strcat(what, ")");
  vigil->say(what, nullptr);
}

void Vigil::say_overdue() noexcept {
  const Vigil* const vigil = g_vigil;
  if (vigil == nullptr || vigil->number_ != vigil->given_up_) return;
  vigil->say(vigil->overdue().c_str(), ", or give it more with --recovery-seconds");
  ::_exit(1);
}

}  // namespace holdfast::check
