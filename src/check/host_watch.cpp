#include "check/host_watch.hpp"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>

#include "backend_cpu/events.hpp"
#include "backend_cpu/faults.hpp"

namespace holdfast::check {

namespace {

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::atomic<HostWatch*> g_watch{nullptr};
thread_local HostWatch* t_watch = nullptr;  // of the thread that made it

struct sigaction g_fault_before;
struct sigaction g_trap_before;

}  // namespace

#if defined(__x86_64__)

bool can_watch_host() noexcept { return true; }

namespace {

// How many bytes the instruction reads at most. Of vector instructions the widest of their kind:
// what is noted too much is explored for nothing, what is noted too little is not explored.
std::uint64_t bytes_read_by(const unsigned char* code) {
  constexpr unsigned char kPrefixes[] = {0x66, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65};
  unsigned char prefix = 0;  // one that says how wide
  while (std::find(std::begin(kPrefixes), std::end(kPrefixes), *code) != std::end(kPrefixes)) {
    if (*code == 0x66 || *code == 0xf2 || *code == 0xf3) prefix = *code;
    ++code;
  }
  const bool has_rex = (*code & 0xf0) == 0x40;
  const std::uint64_t word = has_rex && (*code & 8) != 0 ? 8 : prefix == 0x66 ? 2 : 4;
  if (has_rex) ++code;
  if (*code == 0x62) return 64;                   // EVEX
  if (*code == 0xc4 || *code == 0xc5) return 32;  // VEX
  if (*code == 0xff) return 8;                    // call, jump or push through memory
  if (*code >= 0xd8 && *code <= 0xdf) return 16;  // x87
  // Of the one-byte opcodes, even ones of these are of bytes: arithmetic, and test, xchg, mov, not.
  const bool arithmetic = *code < 0x40 && (*code & 7) < 4;
  const bool bytes = *code == 0x80 || *code == 0x84 || *code == 0x86 || *code == 0x8a ||
                     *code == 0xf6 || *code == 0xfe || (arithmetic && (*code & 1) == 0);
  if (bytes) return 1;
  if (*code != 0x0f) return word;
  if (code[1] == 0xb6 || code[1] == 0xbe) return 1;  // movzx, movsx of a byte ...
  if (code[1] == 0xb7 || code[1] == 0xbf) return 2;  // ... and of two
  const bool scalar = code[1] == 0x10 || code[1] == 0x51 || (code[1] >= 0x58 && code[1] <= 0x5f);
  if (scalar && prefix == 0xf3) return 4;  // float
  if (scalar && prefix == 0xf2) return 8;  // double
  const unsigned group = code[1] >> 4;     // cmov, setcc, bt, cmpxchg, xadd: plain words
  return group == 4 || (group >= 9 && group <= 12) ? word : 16;
}

}  // namespace

struct WatchSignals {
  static constexpr greg_t kTrapFlag = 0x100;
  static constexpr greg_t kWriteFault = 2;

  static void on_segv(int signal, siginfo_t* info, void* context) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const auto address = reinterpret_cast<std::uint64_t>(info->si_addr);
    HostWatch* const watch = g_watch.load();
    if (watch == nullptr || info->si_code <= 0 || !watch->range_.contains(address)) {
      cpu::pass_on(g_fault_before, signal, info, context);
    } else if (t_watch != watch) {
      watch->on_other_thread({address, reinterpret_cast<const void*>(registers[REG_RIP] + 1),
                              (registers[REG_ERR] & kWriteFault) != 0, true});
    } else if (watch->on_fault(address, (registers[REG_ERR] & kWriteFault) != 0,
                               static_cast<std::uint64_t>(registers[REG_RIP]))) {
      registers[REG_EFL] |= kTrapFlag;
    }
  }

  static void on_trap(int signal, siginfo_t* info, void* context) {
    if (t_watch == nullptr || t_watch->steps_ == 0) {
      cpu::pass_on(g_trap_before, signal, info, context);
      return;
    }
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
    t_watch->on_step();
  }

  static void install() {
    static std::once_flag once;
    std::call_once(once, [] {
      struct sigaction action {};
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigemptyset(&action.sa_mask);
      action.sa_sigaction = &on_segv;
      ::sigaction(SIGSEGV, &action, &g_fault_before);
      action.sa_sigaction = &on_trap;
      ::sigaction(SIGTRAP, &action, &g_trap_before);
    });
  }
};

#else

bool can_watch_host() noexcept { return false; }

namespace {
std::uint64_t bytes_read_by(const unsigned char*) { return 8; }
}  // namespace

struct WatchSignals {
  static void install() {}
};

#endif

HostWatch::HostWatch(cpu::Listener& next, Footprint& footprint, PersistentRange range)
    : next_(next), footprint_(footprint), range_(range) {
  WatchSignals::install();
  t_watch = this;
  g_watch = this;
  protect();
}

HostWatch::~HostWatch() { end(); }

void HostWatch::end() {
  open();
  ended_ = true;
  g_watch = nullptr;
  t_watch = nullptr;
}

void HostWatch::protect() {
  if (ended_ || protected_) return;
  protected_ = true;
  ::mprotect(reinterpret_cast<void*>(range_.begin), range_.end - range_.begin, PROT_NONE);
}

void HostWatch::open() {
  protected_ = false;
  ::mprotect(reinterpret_cast<void*>(range_.begin), range_.end - range_.begin,
             PROT_READ | PROT_WRITE);
}

void HostWatch::set_actor(std::uint64_t actor) {
  actor_ = actor;
  running_ = 0;  // a schedule of recovery may be given up within a kernel
  protect();
}

void HostWatch::on_event(const cpu::Event& event) {
  using cpu::EventKind;
  if (event.kind == EventKind::kernel_begin) {
    ++running_;
    open();
  }
  next_.on_event(event);
  if (event.kind == EventKind::kernel_end && running_ > 0) --running_;
  // A copy has opened the pages where it ran into them: they are closed when it was waited for.
  const bool is_end = event.kind == EventKind::kernel_end || event.kind == EventKind::synchronize;
  if (is_end && running_ == 0) protect();
}

// It is let through. What copies do is announced; kernels find the pages open.
void HostWatch::on_other_thread(const UnseenAccess& access) {
  if (!cpu::t_hook.copies && !has_other_.exchange(true)) other_ = access;
  open();
}

// Opens the page for one instruction. Returns whether it is to be stepped.
bool HostWatch::on_fault(std::uint64_t address, bool is_store, std::uint64_t pc) {
  if (steps_ == stepping_.size()) {
    open();
    return false;
  }
  ++faults_;
  const std::uint64_t page = address / page_bytes() * page_bytes();
  ::mprotect(reinterpret_cast<void*>(page), page_bytes(), PROT_READ | PROT_WRITE);
  stepping_[steps_++] = page;
  // Within a hook or the listener it is not the program that accesses.
  if (cpu::t_hook.host == nullptr || cpu::t_hook.thread != nullptr) return true;
  const UnseenAccess access{address, reinterpret_cast<const void*>(pc + 1), is_store};
  if (is_store) {
    note_store(access);
    return true;
  }
  const std::uint64_t width = bytes_read_by(reinterpret_cast<const unsigned char*>(pc));
  const std::uint64_t end = std::min({address + width, page + page_bytes(), range_.end});
  for (std::uint64_t byte = address; byte < end; ++byte) {
    if (footprint_.knows(byte) || !footprint_.may_differ(byte)) continue;
    if (!read_) read_ = access;
    footprint_.read(byte, 1, actor_);
  }
  return true;
}

// Those that a hook has delivered since are none to judge.
void HostWatch::note_store(const UnseenAccess& access) {
  if (store_count_ == stores_.size()) {
    const auto end = std::remove_if(stores_.begin(), stores_.end(), [&](const UnseenAccess& one) {
      return footprint_.wrote(one.address);
    });
    store_count_ = static_cast<std::size_t>(end - stores_.begin());
  }
  if (store_count_ < stores_.size()) stores_[store_count_++] = access;
}

void HostWatch::on_step() {
  for (unsigned i = 0; i < steps_ && protected_; ++i) {
    ::mprotect(reinterpret_cast<void*>(stepping_[i]), page_bytes(), PROT_NONE);
  }
  steps_ = 0;
}

std::optional<UnseenAccess> HostWatch::unseen() const {
  for (std::size_t i = 0; i < store_count_; ++i) {
    if (!footprint_.wrote(stores_[i].address)) return stores_[i];
  }
  if (has_other_) return other_;
  return read_;
}

}  // namespace holdfast::check
