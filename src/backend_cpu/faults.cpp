#include "backend_cpu/faults.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "backend_cpu/run.hpp"

namespace holdfast::cpu {
namespace {

constexpr std::array<int, 4> kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr std::size_t kSignalStackBytes = 64 * 1024;

constexpr bool kSanitized = HOLDFAST_FIBER_ASAN != 0;

struct FaultState {
  sigjmp_buf landing;
  bool armed = false;
  int signal = 0;
  void* address = nullptr;
  const std::byte* stack_pointer = nullptr;  // null: not known
};
constinit thread_local FaultState t_fault{};

std::array<struct sigaction, 65> g_previous;
std::atomic<void (*)(int) noexcept> g_tell{nullptr};

// The signal stack of an OS thread, for the thread's life.
class SignalStack {
 public:
  SignalStack() {
    memory_ = mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (memory_ == MAP_FAILED) return;
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = kSignalStackBytes;
    sigaltstack(&stack, nullptr);
  }
  ~SignalStack() {
    if (memory_ == MAP_FAILED) return;
    stack_t stack{};
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
    munmap(memory_, kSignalStackBytes);
  }

 private:
  void* memory_ = MAP_FAILED;
};

const std::byte* stack_pointer_of(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const std::byte*>(machine.gregs[REG_RSP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const std::byte*>(machine.sp);
#else
  (void)machine;
  return nullptr;
#endif
}

bool is_handled(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const bool raised_here = info->si_code > 0;  // by an instruction, not by kill()
  if (t_current == nullptr || !t_fault.armed || !raised_here) {
    const struct sigaction& before = g_previous[static_cast<unsigned>(signal)];
    if (const auto tell = g_tell.load(); tell != nullptr && !is_handled(before)) tell(signal);
    pass_on(before, signal, info, context);
    return;
  }
  t_fault.signal = signal;
  t_fault.address = info->si_addr;
  t_fault.stack_pointer = stack_pointer_of(context);
  siglongjmp(t_fault.landing, 1);
}

}  // namespace

void pass_on(const struct sigaction& before, int signal, siginfo_t* info, void* context) noexcept {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (is_handled(before)) {
    before.sa_handler(signal);
  } else {
    // What raised it runs again on return, and the default action ends the process.
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
    if (info->si_code <= 0) ::raise(signal);  // sent by kill() or abort(): not raised again
  }
}

void tell_of_fatal_faults(void (*tell)(int) noexcept) { g_tell = tell; }

void install_fault_handlers() {
  if (kSanitized) return;
  static std::once_flag once;
  std::call_once(once, [] {
    for (const int signal : kSignals) {
      struct sigaction action {};
      action.sa_sigaction = &on_fault;
      // Without SA_NODEFER the jump would have to restore the mask, a system call per landing.
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigemptyset(&action.sa_mask);
      sigaction(signal, &action, &g_previous[static_cast<unsigned>(signal)]);
    }
  });
}

FaultScope::FaultScope() {
  if (kSanitized) return;
  static thread_local SignalStack stack;
  (void)stack;
}

FaultScope::~FaultScope() { t_fault.armed = false; }

sigjmp_buf& FaultScope::landing() { return t_fault.landing; }

void FaultScope::arm() { t_fault.armed = true; }

std::string FaultScope::describe(const std::byte* stack, const StackPool& stacks) const {
  const std::byte* const sp = t_fault.stack_pointer;
  const bool left = sp != nullptr && (sp < stack || sp > stack + stacks.stack_bytes());
  if (left || stacks.any_overflow() || stacks.contains(t_fault.address)) {
    return concat("a thread's stack of ", stacks.stack_bytes(),
                  " bytes overflowed: raise HOLDFAST_CPU_STACK or Schedule::stack_bytes");
  }
  char address[32];
  std::snprintf(address, sizeof address, "%p", t_fault.address);
  switch (t_fault.signal) {
    case SIGFPE:
      return "integer division by zero or overflow";
    case SIGILL:
      return "illegal instruction";
    case SIGBUS:
      return concat("bus error at address ", address,
                    ": the mapped file is shorter than the memory used, or misaligned");
    default:
      return concat("access to memory that is not the kernel's, at address ", address,
                    ": check pointers and indices; a build with -DHOLDFAST_SANITIZE=ON "
                    "(preset asan) names the access");
  }
}

}  // namespace holdfast::cpu

// assert() of a kernel. glibc's would end the process; outside a kernel this one does the same.
extern "C" __attribute__((noreturn)) void __assert_fail(const char* expression, const char* file,
                                                        unsigned line,
                                                        const char* function) noexcept {
  using namespace holdfast::cpu;
  if (Thread* const thread = t_current) {
    thread->standing = {"assert", file, line, nullptr};
    thread->slot->note_failure(
        *thread, holdfast::Errc::kernel_fault,
        concat("assertion `", expression, "' failed in ", function ? function : "a kernel"));
    thread->slot->abandon(*thread);
  }
  std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function ? function : "?",
               expression);
  std::abort();
}
