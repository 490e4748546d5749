// Streams and events of the CPU backend.
#include "holdfast/stream.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "backend_cpu/engine.hpp"
#include "backend_cpu/host_events.hpp"
#include "backend_cpu/pending.hpp"
#include "backend_cpu/soon.hpp"
#include "backend_cpu/stream_impl.hpp"
#include "core/address.hpp"
#include "core/event_access.hpp"
#include "core/guard.hpp"
#include "core/host_asks.hpp"
#include "core/kernel_memory.hpp"
#include "core/marks.hpp"
#include "core/process.hpp"

namespace holdfast {
namespace {

// All streams of the process, for who waits for all of them. Never destroyed: streams may be later.
struct Streams {
  std::mutex mutex;
  std::set<Stream::Impl*> all;
};
Streams& streams() {
  static Streams* const instance = new Streams;
  return *instance;
}

// A place in a stream.
struct Point {
  const core::Maker maker;
  std::mutex mutex;
  std::condition_variable reached;
  bool done = false;
  std::chrono::steady_clock::time_point time;
  std::optional<Error> error;  // that the stream had met by then
  Stream::Impl* stream = nullptr;
  std::uint64_t task = 0;  // its number, in an exploration

  void wait() {
    if (!maker.is_this_process()) {
      if (done) return;
      maker.refuse("the event", "wait for it there");
    }
    if (cpu::Engine* const engine = cpu::Engine::of_host()) {
      engine->wait_until([this] { return done; });
    }
    std::unique_lock lock(mutex);
    reached.wait(lock, [this] { return done; });
  }
  // As CUDA, whose context is lost with a kernel: who builds on work that failed fails, too.
  void expect_reached() {
    wait();
    if (!error) return;
    throw Error(error->code(),
                detail::concat("waited for a stream whose work failed: ", error->what()));
  }
};

std::shared_ptr<Point> push_point(Stream::Impl& stream) {
  auto point = std::make_shared<Point>();
  stream.push(
      [point, &stream] {
        {
          const std::lock_guard lock(point->mutex);
          point->error = stream.error();
          point->time = std::chrono::steady_clock::now();
          point->done = true;
        }
        point->reached.notify_all();
      },
      Stream::Impl::Run::always);
  point->stream = &stream;
  if (cpu::Engine* const engine = cpu::Engine::of_host()) point->task = engine->last_task();
  return point;
}

}  // namespace

Stream::Impl::Impl() {
  const std::lock_guard lock(streams().mutex);
  streams().all.insert(this);
}

Stream::Impl::~Impl() {
  {
    const std::lock_guard lock(streams().mutex);
    streams().all.erase(this);
  }
  cpu::Engine* const engine = cpu::Engine::of_host();
  if (engine != nullptr) engine->wait_for(*this);
  cpu::note_waited(this);
  if (engine == nullptr && worker_ == nullptr) return;
  if (worker_ != nullptr) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_one();
    worker_->finish();
  }
  if (!error_ && (engine == nullptr || process_ != 0)) cpu::synchronized(nullptr, this);
  if (engine != nullptr) engine->forget(*this);
  if (!error_ || seen_) return;
  cpu::note_lost_error(*error_);
  std::fprintf(stderr, "holdfast: stream: %s\n", error_->what());
}

void Stream::Impl::push(std::function<void()> task, Run run, std::function<bool()> ready,
                        std::uint64_t waits_for) try {
  cpu::settle_host();
  if (cpu::Engine* const engine = cpu::Engine::of_host()) {
    engine->push(*this, std::move(task), run == Run::always, std::move(ready), waits_for);
    return;
  }
  check_process();
  cpu::note_queued(this);
  {
    const std::lock_guard lock(mutex_);
    if (worker_ == nullptr) {  // first: what is queued has someone who serves it
      worker_ = cpu::StreamThread::start([this] { serve(); });
      process_ = ::getpid();
    }
    queue_.push_back({std::move(task), run});
    ++left_;
  }
  work_.notify_one();
} catch (const std::exception&) {
  core::fail("a stream");
}

void Stream::Impl::wait() {
  cpu::settle_host();
  if (cpu::Engine* const engine = cpu::Engine::of_host()) engine->wait_for(*this);
  check_process();
  cpu::look_for([this] { return left_ == 0; });
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void Stream::Impl::throw_if_failed() {
  if (!error_) return;
  seen_ = true;
  throw *error_;
}

bool Stream::Impl::is_serving() const { return process_ == ::getpid(); }

void Stream::Impl::check_process() const {
  if (!is_inherited()) return;
  throw Error(Errc::in_use, detail::concat("the stream belongs to process ", process_.load(),
                                           ", of which this one is a fork; make one here"));
}

void Stream::Impl::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (queue_.empty() && !stop_) {
      lock.unlock();
      cpu::look_for([this] { return left_ != 0 || stop_; });
      lock.lock();
    }
    work_.wait(lock, [this] { return !queue_.empty() || stop_; });
    if (queue_.empty()) return;
    {
      Task task = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      if (task.run == Run::always || !error_) attempt(task.function);
    }  // what the task holds is released before the stream is idle
    lock.lock();
    busy_ = false;
    --left_;
    if (queue_.empty()) idle_.notify_all();
  }
}

namespace {

// REQUIRES: within a handler.
Error error_of_function() noexcept {
  try {
    try {
      throw;
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(Errc::device,
                  detail::concat("a function queued on a stream threw: ", error.what()));
    }
  } catch (const std::exception&) {  // no memory for the words, too
    return core::current_error("a function queued on a stream");
  }
}

}  // namespace

// Only the worker writes error_, and others read it once the stream is idle.
void Stream::Impl::attempt(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception&) {
    if (!error_) error_.emplace(error_of_function());
  }
}

Stream::Stream() try : impl_(std::make_unique<Impl>()) {
} catch (const std::exception&) {
  core::fail("a stream");
}
Stream::~Stream() {
  if (impl_ && impl_->is_inherited()) (void)impl_.release();
}
Stream Stream::borrow(void* /*native*/) {
  throw Error(Errc::unsupported,
              "Stream::borrow(): the CPU backend has no streams of other libraries: make a Stream");
}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    const Stream old(std::move(*this));
    impl_ = std::move(other.impl_);
  }
  return *this;
}

void Stream::synchronize() {
  Impl& own = impl();
  own.wait();
  own.throw_if_failed();
  cpu::note_waited(&own);
  cpu::synchronized(__builtin_return_address(0), &own);
}

// There is no sooner here.
void core::await_word(Stream& stream, const std::uint64_t* word, std::uint64_t value) {
  Stream::Impl& own = stream.impl();
  own.wait();
  own.throw_if_failed();
  cpu::note_waited(&own);
  cpu::synchronized(__builtin_return_address(0), &own);
  if (*word != value) throw Error(Errc::device, "a kernel ended without its last store");
}

// The function is host code that runs beside what the host does meanwhile.
void Stream::enqueue(std::function<void()> function) {
  impl().push(std::move(function));
  cpu::note_host_beside(nullptr);
}

void* Stream::native() const {
  (void)impl();
  return nullptr;
}

void copy_async(Stream& stream, void* dst, const void* src, std::size_t bytes) {
  if (bytes == 0) return;
  core::check_address(dst, bytes, "the target of a copy");
  core::check_address(src, bytes, "the source of a copy");
  const void* const pc = __builtin_return_address(0);
  cpu::note_copied(src, bytes);
  cpu::note_copied(dst, bytes);
  stream.impl().push([=] {
    cpu::copy_observed({{src, bytes}}, {{dst, bytes}}, pc, [=] { std::memmove(dst, src, bytes); });
  });
}

void fill_async(Stream& stream, void* dst, int byte, std::size_t bytes) {
  if (bytes == 0) return;
  core::check_address(dst, bytes, "the target of a fill");
  const void* const pc = __builtin_return_address(0);
  cpu::note_copied(dst, bytes);
  stream.impl().push([=] {
    cpu::copy_observed({}, {{dst, bytes}}, pc, [=] { std::memset(dst, byte, bytes); });
  });
}

void core::clear_copied(Stream& stream, std::uint8_t* map, const std::uint8_t* copy,
                        std::size_t bytes) {
  const void* const pc = __builtin_return_address(0);
  cpu::note_copied(map, bytes);
  stream.impl().push([=] {
    cpu::copy_observed({{copy, bytes}}, {{map, bytes}}, pc, [=] {
      for (std::size_t i = 0; i < bytes; ++i) {
        if (copy[i] != 0) map[i] = 0;
      }
    });
  });
}

void core::load_clear_copied() {}

struct Event::Impl {
  std::shared_ptr<Point> last;  // where it was recorded; null: never
};

Event::Event() try : impl_(std::make_unique<Impl>()) {
} catch (const std::exception&) {
  core::fail("an event");
}
Event::Event(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(Stream& stream) try {
  Impl& own = impl();
  own.last = push_point(stream.impl());
} catch (const std::exception&) {
  core::fail("an event");
}

void Event::synchronize() {
  const std::shared_ptr<Point>& last = impl().last;
  if (!last) return;
  cpu::settle_host();
  last->expect_reached();
  cpu::synchronized(__builtin_return_address(0), last->stream, last->task);
}

void Event::wait(Stream& stream) {
  Stream::Impl& waiting = stream.impl();
  if (auto point = impl().last) {
    waiting.push([point] { point->expect_reached(); }, Stream::Impl::Run::always,
                 [point] { return point->done; }, point->task);
  }
}

bool Event::failed() const {
  if (impl().last) core::host_asks();
  return core::EventAccess::failed(*this);
}

bool core::EventAccess::failed(const Event& event) {
  const auto& point = event.impl().last;
  if (!point) return false;
  const std::lock_guard lock(point->mutex);
  return point->done && point->error;
}

Event core::EventAccess::untimed() { return {}; }

bool core::EventAccess::ended(const Event& event) {
  if (is_moved_from(event)) return false;
  const auto& point = event.impl().last;
  if (!point) return true;
  const std::lock_guard lock(point->mutex);
  return point->done;
}

void core::EventAccess::wait(Event& event, Stream& stream,
                             const std::shared_ptr<std::atomic<bool>>& failed) {
  if (auto point = event.impl().last) {
    stream.impl().push(
        [point, failed] {
          point->wait();
          if (point->error) *failed = true;
        },
        Stream::Impl::Run::always, [point] { return point->done; }, point->task);
  }
}

float Event::elapsed_ms(const Event& start, const Event& stop) {
  core::host_asks();
  const auto time = [](const Event& event) {
    const auto& point = event.impl().last;
    if (point) {
      const std::lock_guard lock(point->mutex);
      if (point->done) return point->time;
    }
    throw Error(Errc::invalid_argument,
                "elapsed_ms: an event is not recorded or not complete: synchronize() it first");
  };
  return std::chrono::duration<float, std::milli>(time(stop) - time(start)).count();
}

void backend::synchronize(void*) {
  std::vector<std::shared_ptr<Point>> points;
  {
    const std::lock_guard lock(streams().mutex);
    for (Stream::Impl* const stream : streams().all) {
      if (stream->is_serving()) points.push_back(push_point(*stream));
    }
  }
  for (const auto& point : points) point->wait();
  cpu::note_waited(nullptr);
  cpu::synchronized(__builtin_return_address(0));
}

}  // namespace holdfast
