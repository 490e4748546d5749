// The plain way: a snapshot is copied into one of two pinned buffers, and a thread writes it to a
// file of its own while the program goes on. A hinted one is read ahead into the buffer that is
// free. No cache: who saves faster than the disk takes it waits for the disk.
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "files.hpp"
#include "holdfast/error.hpp"
#include "store.hpp"

namespace score {

namespace {

class Buffers final : public Store {
 public:
  explicit Buffers(const StoreOptions& options) : options_(options) {
    std::uint64_t largest = 0;
    for (const std::uint64_t bytes : options.step_bytes) largest = std::max(largest, bytes);
    for (Slot& slot : slots_)
      slot.memory = holdfast::PinnedBuffer<std::byte>(file_rounded(largest));
    thread_ = std::thread([this] { run(); });
  }
  ~Buffers() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void save(Step step, holdfast::Stream& stream) override {
    std::unique_lock lock(mutex_);
    Slot& slot = take_slot(lock);
    lock.unlock();
    holdfast::copy_async(stream, slot.memory.data(), options_.array, options_.step_bytes[step]);
    stream.synchronize();
    lock.lock();
    slot.step = step;
    slot.state = Slot::writing;
    jobs_.push_back(&slot);
    changed_.notify_all();
  }

  void restore(Step step, holdfast::Stream& stream) override {
    std::unique_lock lock(mutex_);
    std::erase(hints_, step);
    restoring_ = step;
    Slot* slot = nullptr;
    const auto find = [&] {
      for (Slot& each : slots_) {
        if (each.state != Slot::idle && each.step == step) slot = &each;
      }
      return slot;
    };
    if (find()) {
      if (slot->state != Slot::holding) ++counts_.waits;
      await(lock, [&] { return slot->state == Slot::holding; });
      counts_.restored_bytes[1] += options_.step_bytes[step];
    } else {
      slot = &take_slot(lock);
      slot->step = step;
      lock.unlock();
      file(step).read({{slot->memory.data(), file_rounded(options_.step_bytes[step]), 0}});
      lock.lock();
      counts_.restored_bytes[2] += options_.step_bytes[step];
    }
    slot->state = Slot::taken;
    restoring_ = ~Step{0};
    lock.unlock();
    holdfast::copy_async(stream, options_.array, slot->memory.data(), options_.step_bytes[step]);
    stream.synchronize();
    lock.lock();
    slot->state = Slot::idle;
    changed_.notify_all();
  }

  void hint(std::span<const Step> steps) override {
    const std::lock_guard lock(mutex_);
    hints_.insert(hints_.end(), steps.begin(), steps.end());
    changed_.notify_all();
  }
  void prefetch_start() override {
    const std::lock_guard lock(mutex_);
    prefetching_ = true;
    changed_.notify_all();
  }
  void flush() override {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return jobs_.empty(); });
  }
  std::uint64_t ready(std::span<const Step>) override { return 0; }  // nothing is on the GPU
  StoreCounts counts() override {
    const std::lock_guard lock(mutex_);
    StoreCounts counts = counts_;
    counts.pinned_bytes = slots_[0].memory.size() + slots_[1].memory.size();
    return counts;
  }

 private:
  struct Slot {
    enum State { idle, taken, writing, reading, holding };
    holdfast::PinnedBuffer<std::byte> memory;
    State state = idle;
    Step step = 0;
  };

  template <class Ready>
  void await(std::unique_lock<std::mutex>& lock, Ready&& ready) {
    while (!ready()) {
      if (error_) std::rethrow_exception(error_);
      changed_.wait(lock);
    }
    if (error_) std::rethrow_exception(error_);
  }

  Slot* free_slot(bool may_drop) {
    for (Slot& slot : slots_) {
      if (slot.state == Slot::idle) return &slot;
    }
    for (Slot& slot : slots_) {
      if (may_drop && slot.state == Slot::holding) return &slot;
    }
    return nullptr;
  }
  // What was written stays in its buffer until another needs it.
  Slot& take_slot(std::unique_lock<std::mutex>& lock) {
    if (!free_slot(true)) ++counts_.waits;
    await(lock, [&] { return free_slot(true) != nullptr; });
    Slot& slot = *free_slot(true);
    slot.state = Slot::taken;
    return slot;
  }

  DirectFile file(Step step) const {
    return DirectFile(options_.folder + "/" + std::to_string(step));
  }

  // The next hint that is on disk alone, if a buffer is idle, or holds what is not hinted next.
  Slot* next_read() {
    if (!prefetching_ || hints_.empty()) return nullptr;
    std::set<Step> held;
    for (const Slot& slot : slots_) {
      if (slot.state != Slot::idle) held.insert(slot.step);
    }
    std::size_t at = 0;
    while (at < hints_.size() && at < 2 && held.contains(hints_[at])) ++at;
    if (at == hints_.size() || at == 2 || !written_.contains(hints_[at])) return nullptr;
    const auto wanted = [&](Step step) {
      if (step == restoring_) return true;
      for (std::size_t i = 0; i < at; ++i) {
        if (hints_[i] == step) return true;
      }
      return false;
    };
    for (Slot& slot : slots_) {
      const bool useless = slot.state == Slot::holding && !wanted(slot.step);
      if (slot.state != Slot::idle && !useless) continue;
      slot.step = hints_[at];
      return &slot;
    }
    return nullptr;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Slot* slot = nullptr;
      bool writes = false;
      if (!jobs_.empty()) {
        slot = jobs_.front();
        writes = true;
      } else if (stopping_) {
        return;
      } else {
        slot = next_read();
        if (!slot) {
          changed_.wait(lock);
          continue;
        }
        slot->state = Slot::reading;
      }
      const Step step = slot->step;
      lock.unlock();
      std::exception_ptr error;
      try {
        move(*slot, step, writes);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (writes) {
        jobs_.pop_front();
        written_.insert(step);
      }
      slot->state = Slot::holding;
      if (error) error_ = error;
      changed_.notify_all();
    }
  }
  void move(Slot& slot, Step step, bool writes) {
    const DirectFile::Piece whole{slot.memory.data(), file_rounded(options_.step_bytes[step]), 0};
    DirectFile into(options_.folder + "/" + std::to_string(step));
    if (!writes) return into.read({whole});
    into.write({whole});
    into.sync();
  }

  const StoreOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Slot slots_[2];
  std::deque<Slot*> jobs_;
  std::deque<Step> hints_;
  std::set<Step> written_;
  Step restoring_ = ~Step{0};  // the program waits for it
  StoreCounts counts_;
  std::exception_ptr error_;
  bool prefetching_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Store> open_buffers(const StoreOptions& options) {
  return std::make_unique<Buffers>(options);
}

}  // namespace score
