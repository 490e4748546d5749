// What the simple checkpointing workloads share: volatile arrays that iterations change, and a
// checkpoint of them behind each step. Source: GPM (ASPLOS '22) sections 4.2 and 5.3.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "holdfast/error.hpp"
#include "holdfast/stream.hpp"
#include "workload/backing.hpp"
#include "workload/inputs.hpp"
#include "workload/saver.hpp"
#include "workload/workload.hpp"

namespace checkpointing {

// Volatile numbers where the mode's computation wants them: device memory, or host memory in mode
// cpu. REQUIRES: allocate() before all else. Thread safety: one thread.
template <class T>
class Values {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  void allocate(workload::Backing& backing, std::uint64_t count) {
    stream_ = &backing.stream();
    count_ = count;
    if (backing.mode() == workload::Mode::cpu) {
      host_.assign(count, T{});
    } else {
      device_ = holdfast::DeviceBuffer<T>(count);
    }
  }

  T* data() { return host_.empty() ? device_.data() : host_.data(); }
  std::uint64_t count() const { return count_; }
  std::uint64_t bytes() const { return count_ * sizeof(T); }
  workload::Buffer buffer(std::string name) { return {std::move(name), data(), bytes()}; }

  // Both wait for the stream.
  void set(std::uint64_t first, const T* from, std::uint64_t count) {
    copy(data() + first, from, count);
  }
  void set(const std::vector<T>& values) { set(0, values.data(), values.size()); }
  std::vector<T> get() {
    std::vector<T> values(count_);
    copy(values.data(), data(), count_);
    return values;
  }

 private:
  void copy(T* to, const T* from, std::uint64_t count) {
    if (host_.empty()) {
      holdfast::copy_async(*stream_, to, from, count * sizeof(T));
      stream_->synchronize();
    } else {
      std::memcpy(to, from, count * sizeof(T));
    }
  }

  holdfast::Stream* stream_ = nullptr;
  holdfast::DeviceBuffer<T> device_;
  std::vector<T> host_;
  std::uint64_t count_ = 0;
};

// A step is some iterations and the checkpoint behind them. All of what makes it crash consistent
// is the Saver: after a crash the arrays are what the last checkpoint holds.
class Iterative : public workload::Workload {
 public:
  // Leaves no thread behind: OpenMP's would be missed in the child of a fork().
  ~Iterative() override { omp_pause_resource_all(omp_pause_hard); }

  std::uint64_t steps() const final { return steps_; }
  std::uint64_t medium_bytes() const final {
    std::uint64_t bytes = 0;
    const std::vector<std::uint64_t> each = saved_bytes();
    for (const std::uint64_t buffer : each) bytes += buffer;
    return workload::Saver::medium_bytes(bytes, each.size());
  }
  void prepare(workload::Backing& backing) final {
    backing_ = &backing;
    saver_ = workload::Saver::make(backing, allocate(backing), copied_by_);
  }
  std::uint64_t resume() final {
    const std::uint64_t done = saver_->restore();
    if (done == 0) start();
    return done;
  }
  void step(std::uint64_t number) final {
    iterate(number);
    saver_->save(number + 1);
  }
  // Both look at the checkpoint, not at what iterations left in the arrays.
  workload::Digest digest() final {
    saver_->restore();
    workload::Digester all;
    add_to(all);
    return all.finish();
  }
  std::string verify() final {
    const std::uint64_t done = saver_->restore();
    if (done != steps_) {
      return holdfast::detail::concat("the checkpoint is of step ", done, ", not ", steps_);
    }
    return compare();
  }
  // Savers count what they write.
  std::uint64_t kernel_bytes() const final { return 0; }
  // "checkpoint": what copies it.
  std::map<std::string, std::string> facts() const override {
    return {{"checkpoint", workload::copied_by_fact(mode_, copied_by_)}};
  }

 protected:
  // `usual_steps`: where the settings name no other number.
  Iterative(const workload::Settings& settings, std::uint64_t usual_steps)
      : steps_(settings.steps != 0 ? settings.steps : usual_steps),
        mode_(settings.mode),
        copied_by_(workload::copied_by_option(settings)) {}

  workload::Backing& backing() { return *backing_; }
  bool on_cpu() const { return backing_->mode() == workload::Mode::cpu; }
  // Of OpenMP, in mode cpu.
  int threads() const {
    const unsigned asked = backing_->cpu_threads();
    return asked != 0 ? static_cast<int>(asked) : omp_get_num_procs();
  }

  // The bytes of each buffer that allocate() will return.
  virtual std::vector<std::uint64_t> saved_bytes() const = 0;
  // Allocates all arrays; returns those that a checkpoint takes in.
  virtual std::vector<workload::Buffer> allocate(workload::Backing& backing) = 0;
  // Sets the arrays to what they are before step 0.
  virtual void start() = 0;
  // The iterations of step `number`, by kernels on the backing's stream or by OpenMP.
  virtual void iterate(std::uint64_t number) = 0;
  // Adds the arrays that a checkpoint takes in.
  virtual void add_to(workload::Digester& all) = 0;
  // Compares the arrays with the oracle after steps(). Empty, or what is wrong.
  virtual std::string compare() = 0;

 private:
  std::uint64_t steps_;
  workload::Mode mode_;
  workload::CopiedBy copied_by_;
  workload::Backing* backing_ = nullptr;
  std::unique_ptr<workload::Saver> saver_;
};

// A well-mixed number of 64 bits for each (seed, place): generated inputs, in any order.
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t place) {
  std::uint64_t bits = (place + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
  bits = (bits ^ (bits >> 32)) * 0xff51afd7ed558ccdu;
  bits = (bits ^ (bits >> 29)) * 0xc4ceb9fe1a85ec53u;
  return bits ^ (bits >> 32);
}
// In [least, most), of 24 bits.
constexpr float uniform(std::uint64_t bits, float least, float most) {
  return least + (most - least) * (static_cast<float>(bits >> 40) * 0x1p-24f);
}

}  // namespace checkpointing
