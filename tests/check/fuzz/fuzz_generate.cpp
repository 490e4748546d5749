// Generators of cases: some at random, most aimed at what a checker may get wrong.
#include <random>
#include <sstream>

#include "check/fuzz/fuzz_case.hpp"

namespace holdfast::test {
namespace {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  FuzzCase make() {
    switch (below(7)) {
      case 0:
      case 1:
        log();
        break;
      case 2:
      case 3:
        talk();
        break;
      case 4:
        messages();
        break;
      case 5:
        common_word();
        break;
      default:
        anything();
    }
    return std::move(fuzz_);
  }

 private:
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  bool chance(unsigned percent) { return below(100) < percent; }

  FuzzOp device(FuzzOp result) {
    result.space = Space::device;
    return result;
  }
  FuzzOp fence() {
    constexpr Code kFences[] = {Code::ofence,      Code::persist,      Code::persist,
                                Code::fence_block, Code::fence_device, Code::fence_system};
    return op(kFences[below(6)], 0);
  }
  void maybe_fence(std::vector<FuzzOp>& code, unsigned percent) {
    if (chance(percent)) code.push_back(fence());
  }
  Scope scope() { return static_cast<Scope>(below(3)); }

  // A kernel of `threads` threads in all, in one block or several.
  FuzzKernel kernel(unsigned threads) {
    FuzzKernel result;
    result.blocks = chance(25) ? threads : threads % 2 == 0 && chance(25) ? 2 : 1;
    result.threads = threads / result.blocks;
    result.code.resize(threads);
    return result;
  }
  std::uint32_t add(FuzzKernel made) {
    fuzz_.kernels.push_back(std::move(made));
    return static_cast<std::uint32_t>(fuzz_.kernels.size() - 1);
  }
  FuzzStep step(FuzzStep::Kind kind, unsigned place = 0, std::uint64_t value = 0) {
    FuzzStep result;
    result.kind = kind;
    result.place = static_cast<std::uint8_t>(place);
    result.value = value;
    return result;
  }
  FuzzStep launch(std::uint32_t number) {
    FuzzStep result;
    result.kernel = number;
    return result;
  }
  // One operation of the host, which may promise too early. What it does while a kernel runs has no
  // place of its own in a trace, so it waits before it says something.
  void operate(const std::vector<std::uint32_t>& kernels) {
    fuzz_.run.push_back(step(FuzzStep::Kind::start));
    const bool early = chance(15);
    for (const std::uint32_t number : kernels) {
      if (early && number == kernels.back()) {
        fuzz_.run.push_back(step(FuzzStep::Kind::synchronize));
        fuzz_.run.push_back(step(FuzzStep::Kind::acknowledge));
      }
      fuzz_.run.push_back(launch(number));
      if (chance(50)) fuzz_.run.push_back(step(FuzzStep::Kind::synchronize));
    }
    if (early || chance(30)) return;
    fuzz_.run.push_back(step(FuzzStep::Kind::synchronize));
    fuzz_.run.push_back(step(FuzzStep::Kind::acknowledge));
  }

  // Each thread logs what it overwrites; a fence is missing here and there. Only recovery reads the
  // valid flags, and the verification only the data.
  void log() {
    fuzz_.kind = "log";
    const unsigned threads = 1 + below(4);
    const bool dense = chance(30);  // all of a thread's in neighbouring words, or kind by kind
    const auto word = [&](unsigned thread, unsigned what) {
      return dense ? 3 * thread + what : what * threads + thread;
    };
    fuzz_.words = 3 * threads + 1;
    const unsigned fenced = 30 + below(70);
    FuzzKernel work = kernel(threads);
    FuzzKernel undo = kernel(threads);
    const bool early = chance(40);  // the flag is cleared in a kernel of its own
    FuzzKernel clear = kernel(threads);
    for (unsigned t = 0; t < threads; ++t) {
      auto& code = work.code[t];
      if (chance(50)) code.push_back(op(Code::store, word(t, 1), 100));
      maybe_fence(code, fenced);
      code.push_back(op(chance(20) ? Code::release : Code::store, word(t, 2), 1));
      maybe_fence(code, fenced);
      code.push_back(op(Code::store, word(t, 0), 7));
      maybe_fence(code, fenced / 2);
      auto& last = early ? clear.code[t] : code;
      last.push_back(op(Code::store, word(t, 2), 0));
      maybe_fence(last, 50);
      auto& back = undo.code[t];
      const unsigned other = chance(10) ? below(threads) : t;
      back.push_back(op(Code::load, word(other, 2)));
      back.push_back(unless(0, 1, 4));
      back.push_back(op(Code::load, word(t, 1), 0, 1));
      back.push_back(op(Code::store, word(t, 0), 0, 1));
      back.back().adds = true;
      back.push_back(fence());
      back.push_back(op(Code::store, word(t, 2), 0));
      if (chance(20)) back.erase(back.end() - 2);  // no fence: recovery may forget too early
      fuzz_.items.push_back({read(word(t, 0))});
      if (chance(15)) fuzz_.items.back().push_back(read(word(t, 2)));
    }
    std::vector<std::uint32_t> kernels{add(std::move(work))};
    if (early) kernels.push_back(add(std::move(clear)));
    operate(kernels);
    fuzz_.recover.push_back(launch(add(std::move(undo))));
  }

  // What a thread tells the others of the same launch, or of a later one, in recovery.
  struct Channel {
    enum Kind { word_each, mask, barrier, ballot, persistent } kind = mask;
    bool shared = false;
    bool is_volatile = false;
  };

  // Threads of recovery, each of which looks at a word of its own, tell each other what they saw.
  void talk() {
    fuzz_.kind = "talk";
    const unsigned threads = 2 + below(5);
    fuzz_.words = 2 * threads + 2;
    FuzzKernel work = kernel(threads);
    for (unsigned t = 0; t < threads; ++t) {
      if (chance(70)) work.code[t].push_back(op(Code::store, t, 1));
      maybe_fence(work.code[t], 30);
      if (chance(15)) work.code[t].push_back(op(Code::store, t, 2));
    }
    operate({add(std::move(work))});
    Channel channel;
    channel.kind = static_cast<Channel::Kind>(below(5));
    channel.is_volatile = chance(40);
    const bool one_kernel =
        channel.kind == Channel::barrier || channel.kind == Channel::ballot || chance(60);
    FuzzKernel tell = kernel(threads);
    channel.shared = one_kernel && tell.blocks == 1 && chance(50);
    tell.shares = channel.shared;
    FuzzKernel hear = tell;
    const bool only_if = chance(50);
    const bool hears_if = chance(50);
    for (unsigned t = 0; t < threads; ++t) {
      speak(tell.code[t], channel, t, threads, only_if);
      auto& code = one_kernel ? tell.code[t] : hear.code[t];
      if (one_kernel && channel.kind <= Channel::mask) code.push_back(op(Code::barrier, 0));
      listen(code, channel, t, threads, hears_if);
      fuzz_.items.push_back({read(threads + t)});
      if (chance(20)) fuzz_.items.back().push_back(read(t));
    }
    fuzz_.recover.push_back(launch(add(std::move(tell))));
    if (one_kernel) return;
    if (channel.kind != Channel::persistent && chance(15)) {
      fuzz_.recover.push_back(step(FuzzStep::Kind::copy_out, 0, chance(50) ? 0 : 1));
    }
    fuzz_.recover.push_back(launch(add(std::move(hear))));
  }

  FuzzOp through(const Channel& channel, FuzzOp result) {
    result.space = channel.kind == Channel::persistent ? Space::persistent
                   : channel.shared                    ? Space::shared
                                                       : Space::device;
    return result;
  }

  void speak(std::vector<FuzzOp>& code, const Channel& channel, unsigned t, unsigned threads,
             bool only_if) {
    code.push_back(op(Code::load, t));
    const Code store = channel.is_volatile ? Code::store_volatile : Code::store;
    std::vector<FuzzOp> said;
    switch (channel.kind) {
      case Channel::word_each:
        said.push_back(through(channel, op(store, t, only_if ? 1 : 0)));
        said.back().adds = !only_if;
        break;
      case Channel::mask:
        said.push_back(through(channel, op(Code::atomic_or, 0, only_if ? 1u << t : 0, only_if)));
        said.back().adds = !only_if;
        break;
      case Channel::barrier:
        code.push_back(op(Code::barrier_or, 0));
        return;
      case Channel::ballot:
        code.push_back(op(Code::ballot, 0));
        return;
      case Channel::persistent:
        said.push_back(through(channel, op(store, 2 * threads + below(2), 1)));
        break;
    }
    if (only_if) code.push_back(unless(0, 1, 1));
    code.push_back(said[0]);
  }

  void listen(std::vector<FuzzOp>& code, const Channel& channel, unsigned t, unsigned threads,
              bool hears_if) {
    const Code load = channel.is_volatile ? Code::load_volatile : Code::load;
    const unsigned partner = chance(50) ? (t + 1) % threads : below(threads);
    if (channel.kind == Channel::barrier || channel.kind == Channel::ballot) {
      code.push_back(op(Code::load, t, 0, 1));
      code.push_back(unless(1, 1, 1));
    } else {
      const unsigned place = channel.kind == Channel::word_each    ? partner
                             : channel.kind == Channel::persistent ? 2 * threads + below(2)
                                                                   : 0;
      if (hears_if) {
        code.push_back(op(Code::load, t, 0, 1));
        code.push_back(unless(1, 1, 2));
      }
      code.push_back(through(channel, op(load, place, 0, 0)));
    }
    code.push_back(op(Code::store, threads + t, 0, 0));
    code.back().adds = true;
  }

  // Threads of the program pass each other flags; recovery has little to do.
  void messages() {
    fuzz_.kind = "messages";
    const unsigned threads = 2 + below(3);
    fuzz_.words = 2 * threads + 2;
    FuzzKernel work = kernel(threads);
    for (unsigned t = 0; t < threads; ++t) {
      auto& code = work.code[t];
      code.push_back(op(chance(15) ? Code::store_wide : Code::store, 2 * (t % threads), 5 + t));
      maybe_fence(code, 40);
      const bool persistent = chance(30);
      FuzzOp flag = op(chance(60) ? Code::release : Code::exchange, 2 * t + 1, 1);
      flag.scope = scope();
      code.push_back(persistent ? flag : device(flag));
      if (t > 0) {
        FuzzOp wait = op(chance(70) ? Code::acquire : Code::load_volatile, 2 * t - 1);
        wait.scope = scope();
        code.push_back(persistent ? wait : device(wait));
        maybe_fence(code, 30);
      }
      code.push_back(op(Code::store, 2 * below(threads), 9));
      if (chance(30)) code.back().size = 4;
    }
    operate({add(std::move(work))});
    FuzzKernel undo = kernel(threads);
    for (unsigned t = 0; t < threads; ++t) {
      undo.code[t] = {op(Code::load, 2 * t), unless(0, 5 + t, 1), op(Code::store, 2 * t, 50)};
      fuzz_.items.push_back({read(2 * t)});
      if (chance(40)) fuzz_.items.back().push_back(read(2 * below(threads)));
      if (chance(30)) fuzz_.items.back().push_back(read(2 * t + 1));
    }
    if (chance(60)) fuzz_.recover.push_back(launch(add(std::move(undo))));
  }

  // One word that all look at beside their own, and that some of them write.
  void common_word() {
    fuzz_.kind = "common";
    const unsigned threads = 5 + below(2);
    const unsigned common = threads;
    fuzz_.words = threads + 2;
    FuzzKernel work = kernel(threads);
    for (unsigned t = 0; t < threads; ++t) work.code[t].push_back(op(Code::store, t, 1));
    FuzzKernel state = kernel(1);
    state.code[0].push_back(op(Code::store, common, 1));
    maybe_fence(state.code[0], 50);
    std::vector<std::uint32_t> kernels{add(std::move(work))};
    if (chance(70)) kernels.insert(kernels.begin() + below(2), add(std::move(state)));
    operate(kernels);
    FuzzKernel undo = kernel(threads);
    const unsigned writer = below(threads);
    const bool before = chance(50);
    const bool reads_if = chance(50);
    for (unsigned t = 0; t < threads; ++t) {
      auto& code = undo.code[t];
      const bool writes = t == writer && chance(70);
      if (writes && before) {
        code.push_back(op(Code::load, t));
        code.push_back(unless(0, 1, 1));
        code.push_back(op(Code::store, common, 5));
      }
      if (reads_if) {
        code.push_back(op(Code::load, t, 0, 1));
        code.push_back(unless(1, 1, 3));
      }
      code.push_back(op(Code::load, common));
      code.push_back(unless(0, chance(50) ? 5 : 1, 1));
      code.push_back(op(Code::store, t, 30));
      if (writes && !before) {
        code.push_back(op(Code::load, t, 0, 2));
        code.push_back(unless(2, 1, 1));
        code.push_back(op(Code::store, common, 5));
      }
      fuzz_.items.push_back({read(t)});
      if (chance(40)) fuzz_.items.back().push_back(read(common));
    }
    if (chance(30)) fuzz_.recover.push_back(step(FuzzStep::Kind::only_if, common, below(2)));
    fuzz_.recover.push_back(launch(add(std::move(undo))));
  }

  void anything() {
    fuzz_.kind = "anything";
    fuzz_.words = 3 + below(4);
    const auto stores = [&](unsigned threads, unsigned most) {
      FuzzKernel made = kernel(threads);
      made.shares = chance(30);
      for (auto& code : made.code) {
        const unsigned length = 1 + below(most);
        for (unsigned i = 0; i < length; ++i) code.push_back(any_op(made.shares));
      }
      return made;
    };
    std::vector<std::uint32_t> kernels;
    for (unsigned i = 0; i <= below(2); ++i) kernels.push_back(add(stores(1 + below(3), 4)));
    operate(kernels);
    for (unsigned i = 0; i <= below(2); ++i) {
      if (chance(30)) {
        fuzz_.recover.push_back(step(FuzzStep::Kind::copy_in, below(fuzz_.words - 1)));
        fuzz_.recover.back().to = static_cast<std::uint8_t>(below(fuzz_.words - 1));
        fuzz_.recover.back().count = 2;
      }
      fuzz_.recover.push_back(launch(add(stores(1 + below(3), 5))));
    }
    if (chance(20)) {
      fuzz_.recover.push_back(step(FuzzStep::Kind::synchronize));
      fuzz_.recover.push_back(step(FuzzStep::Kind::store, below(fuzz_.words), 4));
    }
    for (unsigned word = 0; word < fuzz_.words; word += 1 + below(2)) {
      fuzz_.items.push_back({read(word)});
      if (chance(30)) {
        fuzz_.items.back()[0].ends = true;
        fuzz_.items.back().push_back(read(below(fuzz_.words)));
      }
      if (chance(15)) fuzz_.items.back()[0].size = 4;
    }
  }

  FuzzOp any_op(bool shares) {
    constexpr Code kCodes[] = {
        Code::load,        Code::load,           Code::load,          Code::store,
        Code::store,       Code::store,          Code::store,         Code::load_volatile,
        Code::store_wide,  Code::atomic_add,     Code::atomic_or,     Code::exchange,
        Code::acquire,     Code::release,        Code::ofence,        Code::persist,
        Code::fence_block, Code::fence_device,   Code::fence_system,  Code::skip_unless,
        Code::skip_unless, Code::store_volatile, Code::clear_and_add, Code::copy_to_itself};
    FuzzOp result = op(kCodes[below(24)], below(fuzz_.words), below(4), below(kRegisters));
    result.scope = scope();
    result.adds = chance(40);
    if (result.code == Code::store_wide || result.code == Code::copy_to_itself) {
      result.place = static_cast<std::uint8_t>(4 * below(fuzz_.words / 2));
    } else {
      if (chance(25)) result.space = shares && chance(50) ? Space::shared : Space::device;
      if (chance(25)) {
        result.size = 4;
        result.place = static_cast<std::uint8_t>(result.place + below(2));
      }
    }
    if (result.code == Code::skip_unless) result.count = static_cast<std::uint8_t>(1 + below(2));
    return result;
  }

  std::mt19937_64 random_;
  FuzzCase fuzz_;
};

const char* name_of(Code code) {
  constexpr const char* kNames[] = {"load",           "store",        "load_volatile",
                                    "store_volatile", "store_wide",   "clear_and_add",
                                    "copy_to_itself", "add",          "or",
                                    "exchange",       "acquire",      "release",
                                    "ofence",         "persist",      "fence.block",
                                    "fence.device",   "fence.system", "barrier",
                                    "barrier_or",     "ballot",       "skip_unless"};
  return kNames[static_cast<int>(code)];
}

void print(std::ostream& out, const std::vector<FuzzStep>& steps) {
  constexpr const char* kNames[] = {"launch",  "synchronize", "start",   "acknowledge",
                                    "copy_in", "copy_out",    "only_if", "store"};
  for (const FuzzStep& step : steps) {
    out << "  " << kNames[static_cast<int>(step.kind)];
    if (step.kind == FuzzStep::Kind::launch) out << " kernel " << step.kernel;
    if (step.kind >= FuzzStep::Kind::copy_in) {
      out << " word " << int{step.place} << " value " << step.value << " to " << int{step.to}
          << " count " << int{step.count};
    }
    out << "\n";
  }
}

}  // namespace

FuzzCase generate(std::uint64_t seed) {
  FuzzCase made = Generator(seed).make();
  made.device_words = std::max(made.words, 16u);
  return made;
}

std::string to_string(const FuzzCase& fuzz) {
  std::ostringstream out;
  out << fuzz.kind << ", " << fuzz.words << " words\nrun\n";
  print(out, fuzz.run);
  out << "recover\n";
  print(out, fuzz.recover);
  for (std::size_t k = 0; k < fuzz.kernels.size(); ++k) {
    const FuzzKernel& kernel = fuzz.kernels[k];
    out << "kernel " << k << ": " << kernel.blocks << " x " << kernel.threads << "\n";
    for (std::size_t t = 0; t < kernel.code.size(); ++t) {
      out << "  thread " << t << ":";
      for (const FuzzOp& op : kernel.code[t]) {
        out << " " << name_of(op.code);
        if (op.code < Code::ofence) {
          out << "PDS"[static_cast<int>(op.space)] << op.place / 2.0 << ":" << int{op.size} << "("
              << op.value << (op.adds ? "+" : "") << ")";
        }
        if (op.code == Code::skip_unless) out << "(" << op.value << ", " << int{op.count} << ")";
        out << "r" << int{op.reg} << ";";
      }
      out << "\n";
    }
  }
  for (std::size_t i = 0; i < fuzz.items.size(); ++i) {
    out << "item " << i << ":";
    for (const FuzzRead& read : fuzz.items[i]) {
      out << " P" << read.place / 2.0 << ":" << int{read.size} << (read.ends ? " ends at 0" : "");
    }
    out << "\n";
  }
  return out.str();
}

}  // namespace holdfast::test
