#include "holdfast/testing/crash_medium.hpp"

#include <cstring>
#include <map>
#include <random>
#include <unordered_map>
#include <vector>

namespace holdfast::testing {

struct CrashMedium::State {
  using Word = std::uint64_t;
  // A store that nobody has waited for: the word as it was after it.
  struct Pending {
    std::uint64_t thread;
    Word value;
  };
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  const Word* memory;
  std::uint64_t words;
  std::mt19937_64 random;
  std::vector<Word> durable;
  std::map<std::uint64_t, std::vector<Pending>> pending;  // by word, in the order of the stores
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> words_of;  // by thread
  std::vector<Word> taken;
  std::uint64_t fences_left = kNever;

  void note_store(const cpu::Event& event, std::uint64_t thread) {
    const auto base = reinterpret_cast<std::uintptr_t>(memory);
    const auto first = reinterpret_cast<std::uintptr_t>(event.address);
    if (event.size == 0 || first < base || first - base >= words * sizeof(Word)) return;
    const std::uint64_t last = (first - base + event.size - 1) / sizeof(Word);
    for (std::uint64_t word = (first - base) / sizeof(Word); word <= last && word < words; ++word) {
      pending[word].push_back({thread, memory[word]});
      words_of[thread].push_back(word);
    }
  }

  // Stores to one word become durable in their order: the thread's last takes those before it
  // along.
  void wait_for(std::uint64_t thread) {
    for (const std::uint64_t word : words_of[thread]) {
      const auto found = pending.find(word);
      if (found == pending.end()) continue;
      auto& stores = found->second;
      std::size_t count = stores.size();
      while (count > 0 && stores[count - 1].thread != thread) --count;
      if (count == 0) continue;
      durable[word] = stores[count - 1].value;
      stores.erase(stores.begin(), stores.begin() + static_cast<std::ptrdiff_t>(count));
      if (stores.empty()) pending.erase(found);
    }
    words_of.erase(thread);
  }

  // Nothing is under way: what memory holds is durable, the host's own stores included.
  void settle() {
    std::memcpy(durable.data(), memory, words * sizeof(Word));
    pending.clear();
    words_of.clear();
  }

  void take() {
    taken = durable;
    for (const auto& [word, stores] : pending) {
      const std::size_t kept = random() % (stores.size() + 1);
      if (kept > 0) taken[word] = stores[kept - 1].value;
    }
    fences_left = kNever;
  }
};

CrashMedium::CrashMedium(Region& region, std::uint64_t seed)
    : state_(new State{.memory = static_cast<const State::Word*>(region.base()),
                       .words = region.size() / sizeof(State::Word),
                       .random = std::mt19937_64(seed),
                       .durable = std::vector<State::Word>(region.size() / sizeof(State::Word)),
                       .pending = {},
                       .words_of = {},
                       .taken = {}}) {
  if (region.domain() != Domain::emulated) {
    throw Error(Errc::invalid_argument,
                detail::concat("CrashMedium: region '", region.path(), "' is of the ",
                               to_string(region.domain()), " domain: make it in the emulated one"));
  }
  state_->settle();
  cpu::set_listener(this);
}

CrashMedium::~CrashMedium() { cpu::set_listener(nullptr); }

void CrashMedium::crash_at(std::uint64_t fences) {
  state_->taken.clear();
  state_->fences_left = fences;
}

bool CrashMedium::crashed() const { return !state_->taken.empty(); }

void CrashMedium::crash() {
  if (!crashed()) state_->take();
  std::memcpy(const_cast<State::Word*>(state_->memory), state_->taken.data(),
              state_->words * sizeof(State::Word));
  state_->taken.clear();
  state_->settle();
}

void CrashMedium::on_event(const cpu::Event& event) {
  if (event.host) return;  // between kernels: settle() sees to it
  State& state = *state_;
  constexpr std::uint64_t kThreadsOfABlock = 1024;
  const std::uint64_t thread = event.block * kThreadsOfABlock + event.thread;
  switch (event.kind) {
    case cpu::EventKind::kernel_begin:
    case cpu::EventKind::kernel_end:
      state.settle();
      break;
    case cpu::EventKind::store:
    case cpu::EventKind::atomic:
    case cpu::EventKind::release:
      state.note_store(event, thread);
      break;
    case cpu::EventKind::fence:
      if (event.scope != Scope::system) break;
      [[fallthrough]];
    case cpu::EventKind::ordering_fence:
    case cpu::EventKind::durability_fence:
      if (state.fences_left == 0) state.take();
      if (state.fences_left != State::kNever) --state.fences_left;
      state.wait_for(thread);
      break;
    default:
      break;
  }
}

}  // namespace holdfast::testing
