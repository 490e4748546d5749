#include "backend_cpu/host_events.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "backend_cpu/engine.hpp"
#include "backend_cpu/pending.hpp"
#include "backend_cpu/stream_thread.hpp"
#include "backend_cpu/team.hpp"

namespace holdfast::cpu {

struct HostObserver::State {
  PendingStore pending;
  std::vector<unsigned char> value;  // of the pending store
  const std::byte* low = nullptr;    // null: everything is delivered
  const std::byte* high = nullptr;
  State* outer = nullptr;

  // What the host and kernels tell each other by strong accesses may stand anywhere.
  bool wants(const void* address, bool strong = false) const {
    return strong || low == nullptr || (address >= low && address < high) ||
           is_pinned_memory(address) || is_copied(address);
  }

  // Reads the pending store's memory, which host code may have unmapped since.
  bool fetch() {
    value.resize(pending.size);
    const iovec local{value.data(), value.size()};
    const iovec remote{const_cast<void*>(pending.address), value.size()};
    if (low == nullptr) {
      const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
      if (got == static_cast<ssize_t>(value.size())) return true;
      if (got >= 0 || (errno != ENOSYS && errno != EPERM)) return false;
    }
    std::memcpy(value.data(), pending.address, value.size());
    return true;
  }
  bool changed() const { return std::memcmp(pending.replaced(), value.data(), value.size()) != 0; }
};

namespace {

// What the hooks read themselves is none of the program's accesses.
bool fetch_silently(HostObserver::State& state) {
  const Silence silence;
  return state.fetch();
}

// Kernels deliver while they hold the lock of kernels, so that it keeps the listener's calls apart.
void deliver(Event& event) {
  const Silence silence;
  const auto lock = lock_kernels();
  Listener* const listener = current_listener();
  event.host = true;
  if (listener != nullptr) listener->on_event(event);
}

void deliver_access(EventKind kind, const Bytes& bytes, bool is_volatile, const void* value,
                    const void* pc) {
  Event event;
  event.kind = kind;
  event.is_volatile = is_volatile;
  event.address = bytes.address;
  event.size = bytes.size;
  event.value = value;
  event.pc = pc;
  deliver(event);
}

// PendingStore says why.
void deliver_presumed(const PendingStore& store) {
  Event event;
  event.kind = EventKind::load;
  event.presumed = true;
  event.address = store.address;
  event.size = store.size;
  event.value = store.replaced();
  event.pc = store.pc;
  deliver(event);
}

void deliver_fetched(HostObserver::State& state) {
  const PendingStore& store = state.pending;
  const Bytes bytes{std::exchange(state.pending.address, nullptr), store.size};
  deliver_access(EventKind::store, bytes, store.is_volatile, state.value.data(), store.pc);
}

Event event_of_copy(EventKind kind, const Bytes& bytes, const void* pc) {
  Event event;
  event.kind = kind;
  event.host = event.is_copy = true;
  event.stream = 1;
  if (Engine* const engine = Engine::of_host()) {
    event.stream = engine->running_stream();
    event.task = engine->running_task();
  }
  event.address = event.value = bytes.address;
  event.size = bytes.size;
  event.pc = pc;
  return event;
}

// The calling thread copies while it lives.
class Copying {
 public:
  Copying() : before_(std::exchange(t_hook.copies, true)) {}
  ~Copying() { t_hook.copies = before_; }
  Copying(const Copying&) = delete;
  Copying& operator=(const Copying&) = delete;

 private:
  bool before_;
};

void note(EventKind kind, const void* address, std::size_t size, const char* file, unsigned line) {
  if (!kEvents || t_hook.host == nullptr || size == 0 || !t_hook.host->wants(address)) return;
  settle_host_pending();
  if (kind == EventKind::load) after_plain_host_load(address, size);
  Event event;
  event.kind = kind;
  event.address = event.value = address;
  event.size = size;
  event.file = file;
  event.line = line;
  deliver(event);
}

}  // namespace

HostObserver::HostObserver() : HostObserver(nullptr, 0) {}

HostObserver::HostObserver(const void* start, std::size_t bytes) {
  if (!kEvents) return;
  settle_host();
  state_ = std::make_unique<State>();
  state_->low = static_cast<const std::byte*>(start);
  state_->high = state_->low + bytes;
  state_->outer = std::exchange(t_hook.host, state_.get());
}

HostObserver::~HostObserver() {
  if (!state_) return;
  settle_host();
  t_hook.host = state_->outer;
}

bool is_observed() noexcept { return t_hook.host != nullptr; }

void note_read(const void* address, std::size_t bytes, const char* file, unsigned line) {
  note(EventKind::load, address, bytes, file, line);
}

void note_write(const void* address, std::size_t bytes, const char* file, unsigned line) {
  note(EventKind::store, address, bytes, file, line);
}

void settle_host_pending() {
  HostObserver::State& state = *t_hook.host;
  if (state.pending.address == nullptr) return;
  if (fetch_silently(state)) {
    deliver_fetched(state);
  } else {
    state.pending.address = nullptr;
  }
}

// PendingStore says why a load may leave a store pending.
void on_host_load(const void* address, std::size_t size, bool is_volatile, const void* pc) {
  HostObserver::State& state = *t_hook.host;
  if (state.pending.address != nullptr) {
    if (!fetch_silently(state)) {
      state.pending.address = nullptr;
    } else if (state.pending.may_be_of_itself(address, size, is_volatile)) {
      deliver_presumed(state.pending);
      deliver_fetched(state);
    } else if (is_volatile || state.pending.load_passed ||
               state.pending.is_read_back(address, size) || state.changed()) {
      deliver_fetched(state);
    } else {
      state.pending.load_passed = true;
    }
  }
  if (size == 0) return;
  if (is_volatile) {
    note_host_beside(address);
    before_host_access(false, address, size, pc);
  } else {
    after_plain_host_load(address, size);
  }
  if (!state.wants(address, is_volatile)) return;
  deliver_access(EventKind::load, {address, size}, is_volatile, address, pc);
}

void on_host_store(const void* address, std::size_t size, bool is_volatile, const void* pc) {
  HostObserver::State& state = *t_hook.host;
  settle_host_pending();
  if (size == 0) return;
  if (is_volatile) {
    note_host_beside(address);
    before_host_access(true, address, size, pc);
  } else {
    before_plain_host_store(address);
  }
  if (!state.wants(address, is_volatile)) return;
  const Silence silence;
  state.pending.announce(address, size, is_volatile, pc);
}

void on_host_stored(const void* address, std::size_t size, const void* pc) {
  if (size == 0 || !t_hook.host->wants(address)) return;
  deliver_access(EventKind::store, {address, size}, false, address, pc);
}

void on_host_atomic(EventKind kind, const void* address, std::size_t size, const void* value,
                    const void* pc, const void* now, bool failed) {
  note_host_beside(address);
  if (!t_hook.host->wants(address, true)) return;
  Event event;
  event.kind = kind;
  event.is_atomic = true;
  event.address = address;
  event.size = size;
  event.value = value;
  event.new_value = now;
  event.failed = failed;
  event.pc = pc;
  deliver(event);
}

void note_unobserved() {
  if (current_listener() == nullptr) return;
  if (Engine* const engine = Engine::of_host()) {
    if (engine->running_task() != 0) engine->cut();
  } else if (!StreamThread::is_one()) {
    note_stranger();
  }
}

// To whoever looks for races, a function of a stream is as a copy.
void on_unobserved(EventKind kind, const void* address, std::size_t size, bool is_volatile,
                   const void* pc) {
  Listener* const listener = current_listener();
  if (listener == nullptr) return;
  if (is_volatile) return note_unobserved();
  Engine* const engine = Engine::of_host();
  if (engine == nullptr || !engine->is_new_to_function(kind, address, size)) return;
  if (kind == EventKind::store) note_copied(address, size);
  const auto lock = lock_kernels();
  listener->on_event(event_of_copy(kind, {address, size}, pc));
}

void on_host_fence(const void* pc) {
  settle_host_pending();
  Event event;
  event.kind = EventKind::fence;
  event.scope = Scope::system;
  event.pc = pc;
  deliver(event);
}

void deliver_synchronize(const void* pc, Stream::Impl* stream, std::uint64_t task) {
  settle_host();
  Event event;
  event.kind = EventKind::synchronize;
  if (Engine* const engine = Engine::of_host()) {
    engine->synchronized(stream, task);
    if (stream != nullptr) {
      event.stream = engine->number_of(*stream);
      event.task = task;
    }
  }
  event.pc = pc;
  deliver(event);
}

void deliver_copy(std::initializer_list<Bytes> reads, std::initializer_list<Bytes> writes,
                  const void* pc, const std::function<void()>& work) {
  const auto lock = lock_kernels();
  Listener* const listener = current_listener();
  const Copying copying;
  const auto deliver_all = [&](EventKind kind, std::initializer_list<Bytes> ranges) {
    for (const Bytes& range : ranges) {
      if (range.size == 0 || listener == nullptr) continue;
      listener->on_event(event_of_copy(kind, range, pc));
    }
  };
  deliver_all(EventKind::load, reads);
  work();
  deliver_all(EventKind::store, writes);
}

}  // namespace holdfast::cpu
