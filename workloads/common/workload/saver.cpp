#include "workload/saver.hpp"

#include "holdfast/checkpoint.hpp"
#include "holdfast/testing/checkpoint.hpp"
#include "workload/store_kernel.hpp"

namespace workload {
namespace {

constexpr std::uint64_t kAlignment = 256;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// In the modes where the CPU persists: two targets, and the backing's progress says which holds the
// last save. `by_kernels`: these store to the medium, and the CPU writes the lines back.
class PairSaver : public Saver {
 public:
  PairSaver(Backing& backing, std::vector<Buffer> buffers, bool by_kernels)
      : backing_(backing), buffers_(std::move(buffers)), by_kernels_(by_kernels) {
    std::uint64_t bytes = 0;
    for (const Buffer& buffer : buffers_) bytes += aligned(buffer.bytes);
    copies_[0] = backing.target("save 0", bytes);
    copies_[1] = backing.target("save 1", bytes);
  }

  void save(std::uint64_t step) override {
    const std::uint64_t which = ~backing_.progress() & 1;
    backing_.save_begins();
    backing_.timed([&] {
      if (by_kernels_) {
        store(copies_[which]);
      } else {
        copy(copies_[which]);
      }
      backing_.set_progress(step << 1 | which);
    });
  }

  std::uint64_t restore() override {
    const std::uint64_t progress = backing_.progress();
    if (progress >> 1 == 0) return 0;
    std::uint64_t offset = 0;
    for (const Buffer& buffer : buffers_) {
      backing_.copy_from_target(copies_[progress & 1], offset, buffer.data, buffer.bytes);
      offset += aligned(buffer.bytes);
    }
    return progress >> 1;
  }

 private:
  void copy(std::uint32_t target) {
    std::uint64_t offset = 0;
    for (const Buffer& buffer : buffers_) {
      backing_.copy_to_target(target, offset, buffer.data, buffer.bytes);
      offset += aligned(buffer.bytes);
    }
  }
  void store(std::uint32_t target) {
    const holdfast::testing::Throttle::Mark begun = backing_.throttle().mark();
    unsigned char* const medium = backing_.on_medium(target);
    std::uint64_t offset = 0;
    std::uint64_t stored = 0;
    for (const Buffer& buffer : buffers_) {
      store_by_kernel(backing_.stream(), medium + offset, buffer.data, buffer.bytes);
      offset += aligned(buffer.bytes);
      stored += buffer.bytes;
    }
    backing_.stream().synchronize();
    backing_.flush_parallel(medium, offset);
    backing_.count_written(stored);
    backing_.throttle().write(begun, stored, holdfast::testing::Access::aligned);
    backing_.throttle().wait();
  }

  Backing& backing_;
  std::vector<Buffer> buffers_;
  bool by_kernels_;
  std::uint32_t copies_[2];
};

// Holdfast's own checkpoints.
class CheckpointSaver : public Saver {
 public:
  CheckpointSaver(Backing& backing, const std::vector<Buffer>& buffers, CopiedBy by)
      : backing_(backing), checkpoint_(backing.region(), "workload") {
    if (by != CopiedBy::automatic) {
      holdfast::testing::set_engine_threshold(checkpoint_,
                                              by == CopiedBy::engine ? 1 : ~std::uint64_t{0});
    }
    for (const Buffer& buffer : buffers) {
      checkpoint_.add(kGroup, buffer.name, static_cast<std::uint8_t*>(buffer.data), buffer.bytes);
      bytes_ += buffer.bytes;
    }
  }

  void save(std::uint64_t step) override {
    backing_.save_begins();
    backing_.timed([&] {
      checkpoint_.save(backing_.stream(), kGroup, step);
      backing_.stream().synchronize();
    });
    backing_.count_written(bytes_ + kSlotBytes);
  }

  std::uint64_t restore() override {
    return checkpoint_.restore(backing_.stream(), kGroup).value_or(0);
  }

 private:
  static constexpr const char* kGroup = "buffers";
  static constexpr std::uint64_t kSlotBytes = 32;
  Backing& backing_;
  holdfast::Checkpoint checkpoint_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

CopiedBy copied_by_option(const Settings& settings) {
  return choice_option<CopiedBy>(settings, "checkpoint",
                                 {{"kernels", CopiedBy::kernels},
                                  {"engine", CopiedBy::engine},
                                  {"automatic", CopiedBy::automatic}});
}

std::string copied_by_fact(Mode mode, CopiedBy by) {
  if (!stores_directly(mode)) return "as the mode has it";
  if (by == CopiedBy::engine) return "engine";
  return by == CopiedBy::kernels || mode == Mode::ndp ? "kernels" : "automatic";
}

std::unique_ptr<Saver> Saver::make(Backing& backing, std::vector<Buffer> buffers, CopiedBy by) {
  if (kernel_persists(backing.mode())) {
    return std::make_unique<CheckpointSaver>(backing, buffers, by);
  }
  const bool by_kernels = stores_directly(backing.mode()) && by != CopiedBy::engine;
  return std::make_unique<PairSaver>(backing, std::move(buffers), by_kernels);
}

std::uint64_t Saver::medium_bytes(std::uint64_t buffer_bytes, std::uint64_t buffers) {
  return holdfast::Checkpoint::region_bytes(buffer_bytes, buffers);
}

}  // namespace workload
