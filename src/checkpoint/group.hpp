// One group of a checkpoint: its object, and the tables of what is copied where.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/kernels.hpp"
#include "checkpoint/layout.hpp"
#include "holdfast/checkpoint.hpp"
#include "holdfast/testing/throttle.hpp"

namespace holdfast::checkpoint {

// What the group's last valid slot says.
struct Current {
  std::uint64_t sequence = 0;  // 0: nothing was saved
  std::uint64_t tag = 0;
  std::uint64_t data = 0;
};

// The header of an object and as many entries as it says there are: what decode_header() takes.
std::vector<unsigned char> read_header(Stream& stream, const void* object,
                                       std::uint64_t object_bytes);

class Group {
 public:
  Group(std::string name, std::string object)
      : name_(std::move(name)), object_(std::move(object)) {}

  void add(const CheckpointBuffer& buffer, void* data, BufferMemory memory);
  void save(Region& region, Stream& stream, std::uint64_t tag, std::uint64_t threshold);
  std::shared_ptr<PendingSave::State> save_async(Region& region, Stream& stream, std::uint64_t tag,
                                                 std::uint64_t threshold);
  std::optional<std::uint64_t> restore(Region& region, Stream& stream, std::uint64_t threshold);
  // Returns once no save is under way.
  void wait() noexcept;

  const std::string& name() const { return name_; }

 private:
  struct Buffer {
    CheckpointBuffer info;
    unsigned char* data;
    BufferMemory memory;
    std::uint64_t offset;  // in a copy
  };
  // Parts for one direction, in device memory, and copies that the engine makes.
  struct Plan {
    struct Copy {
      void* to;
      const void* from;
      std::uint64_t bytes;
    };
    DeviceBuffer<Part> parts;
    std::uint64_t chunks = 0;
    std::vector<Copy> copies;
    bool waits = false;  // copies of host memory: the caller's, who may change it at once
  };
  enum class Direction { save, restore };

  // Finds the object or makes it. Once; from then on it throws not_found if it was removed since.
  void bind(Region& region, Stream& stream);
  void check_in_place(const Region& region) const;
  // Whether the region holds the group, made by a first save or restore.
  bool is_stored(Region& region, Stream& stream) const;
  void make_object(Region& region, Stream& stream, const std::vector<CheckpointBuffer>& buffers);
  Current read_current(Stream& stream) const;
  void begin_anew_after_failure(Stream& stream);
  const Plan& plan(Direction direction, std::uint64_t which, std::uint64_t threshold);
  Plan make_plan(Direction direction, unsigned char* copy, std::uint64_t threshold,
                 bool marked) const;
  static void run(Stream& stream, const Plan& plan, const DeviceBuffer<Tally>& tally,
                  const Publication& publication, const PageMarks& marks);
  // Queues what writes a copy, and behind it a wait until the region's medium has taken the copy.
  template <class Body>
  void throttled(testing::Throttle& throttle, Stream& stream, Body&& body) const;
  void make_staging();
  const Plan& drain_plan(std::uint64_t which);
  std::shared_ptr<Event> free_end();
  static void settle(Stream& stream) noexcept;
  Publication next_save(std::uint64_t tag, Stream& stream);
  unsigned char* copy_address(std::uint64_t which) const {
    return base_ + layout_.copies + which * layout_.copy_bytes;
  }
  Slot* slot_address(std::uint64_t which) const {
    return reinterpret_cast<Slot*>(base_ + layout_.slots + which * kSlotDistance);
  }

  std::string name_;
  std::string object_;
  std::vector<Buffer> buffers_;
  std::uint64_t bytes_ = 0;  // of a copy, as the buffers give it

  unsigned char* base_ = nullptr;  // of the object; null: not bound yet
  Layout layout_;
  PageMarks marks_;
  std::uint64_t sequence_ = 0;  // of the last save that was queued
  DeviceBuffer<Tally> tally_;
  std::optional<Plan> plans_[2][2];
  std::uint64_t threshold_ = 0;  // of the plans

  // Asynchronous saves.
  DeviceBuffer<unsigned char> staging_;
  std::optional<Plan> aside_;      // buffers to the staging memory
  std::optional<Plan> drains_[2];  // from there to a copy, by a kernel
  DeviceBuffer<Tally> unused_;     // of the copies aside where a drain sums
  std::shared_ptr<Stream> drain_;
  std::optional<Event> set_aside_;  // behind the copy within device memory

  // Ends of saves, used again once no one else has them: making an event takes as long as a tenth
  // of a small save. A region holds on to some of those that have ended.
  std::vector<std::shared_ptr<Event>> ends_;
  std::shared_ptr<Event> last_;  // behind the last save, whatever its stream
  bool is_uncertain_ = false;    // whether a save that could not be queued to its end was made
};

}  // namespace holdfast::checkpoint

namespace holdfast {

struct PendingSave::State {
  std::shared_ptr<Stream> drain;
  // Its own: what the stream holds on to must not be what holds the stream.
  std::shared_ptr<std::atomic<bool>> is_done = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace holdfast
