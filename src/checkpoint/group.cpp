#include "checkpoint/group.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/format.hpp"
#include "core/region_access.hpp"
#include "core/stream_end.hpp"

namespace holdfast::checkpoint {
namespace {

using detail::concat;

template <class T>
DeviceBuffer<T> upload(const std::vector<T>& values) {
  DeviceBuffer<T> buffer(values.size());
  Stream stream;
  copy_async(stream, buffer.data(), values.data(), values.size() * sizeof(T));
  stream.synchronize();
  return buffer;
}

}  // namespace

std::vector<unsigned char> read_header(Stream& stream, const void* object,
                                       std::uint64_t object_bytes) {
  std::vector<unsigned char> bytes(std::min<std::uint64_t>(object_bytes, sizeof(GroupHeader)));
  copy_async(stream, bytes.data(), object, bytes.size());
  stream.synchronize();
  GroupHeader header{};
  std::memcpy(&header, bytes.data(), bytes.size());
  if (header.magic != GroupHeader::kMagic || header.buffers > kMostBuffers) return bytes;
  const std::uint64_t entries = header.buffers * std::uint64_t{sizeof(BufferEntry)};
  bytes.resize(std::min(object_bytes, sizeof(header) + entries));
  copy_async(stream, bytes.data(), object, bytes.size());
  stream.synchronize();
  return bytes;
}

void Group::add(const CheckpointBuffer& buffer, void* data, BufferMemory memory) {
  const std::string what = concat("buffer '", buffer.name, "' of group '", name_, "'");
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, concat(what, ": ", why));
  };
  const auto fits = [](const std::string& text, std::size_t field) {
    return !text.empty() && text.size() < field && text.find('\0') == std::string::npos;
  };
  if (!fits(buffer.name, sizeof(BufferEntry::name))) {
    refuse("give a name of 1 to 47 bytes, none of them zero");
  }
  if (!fits(buffer.type, sizeof(BufferEntry::type))) {
    refuse("give a type of 1 to 23 bytes, none of them zero");
  }
  if (data == nullptr || buffer.count == 0 || buffer.element_bytes == 0) {
    refuse("there is nothing to save: give an address, and at least one element of one byte");
  }
  if (memory != BufferMemory::device && memory != BufferMemory::host) {
    refuse("unknown memory: give BufferMemory::device or BufferMemory::host");
  }
  constexpr std::uint64_t kMost = core::kMaxRegionBytes;
  if (buffer.count > kMost / buffer.element_bytes || bytes_ + aligned(buffer.bytes()) > kMost) {
    refuse(concat("with it the group is too large: a region has at most ", kMost,
                  " bytes; give fewer elements"));
  }
  if (base_ != nullptr) refuse("add it before the group's first save or restore");
  if (buffers_.size() == kMostBuffers) {
    refuse("the group has 1,048,576 buffers, the most there are: use another group");
  }
  for (const Buffer& other : buffers_) {
    if (other.info.name == buffer.name)
      refuse("the group has a buffer of this name: choose another");
  }
  buffers_.push_back({buffer, static_cast<unsigned char*>(data), memory, bytes_});
  bytes_ += aligned(buffer.bytes());
}

// The space of one that was removed may be another object's by now.
void Group::check_in_place(const Region& region) const {
  if (region.contains(object_)) {
    const ObjectInfo info = region.object(object_);
    if (info.type == kTypeName && info.bytes() == layout_.object_bytes &&
        region.address(info) == base_) {
      return;
    }
  }
  throw Error(Errc::not_found,
              concat("object '", object_, "' of region '", region.path(), "', in which group '",
                     name_, "' was saved or restored before, was removed: forget() the group and ",
                     "add() its buffers again"));
}

void Group::bind(Region& region, Stream& stream) {
  (void)stream.impl();  // throws closed, before anything is changed
  if (base_ != nullptr) return check_in_place(region);
  std::vector<CheckpointBuffer> given;
  given.reserve(buffers_.size());
  for (const Buffer& buffer : buffers_) given.push_back(buffer.info);
  layout_ = layout_of(bytes_, given.size());
  std::vector<CheckpointBuffer> stored;
  const std::string what = concat("checkpoint '", object_, "' of region '", region.path(), "'");
  if (region.contains(object_)) {
    const ObjectInfo info = region.object(object_);
    if (info.type != kTypeName) {
      throw Error(Errc::invalid_argument,
                  concat("object '", object_, "' of region '", region.path(),
                         "' is no checkpoint: choose another name"));
    }
    stored =
        decode_header(read_header(stream, region.address(info), info.bytes()), info.bytes(), what);
    // A process was killed before the header was there; nothing was saved.
    if (stored.empty()) region.remove(object_);
  }
  if (stored.empty()) {
    make_object(region, stream, given);
  } else if (const std::string differs = difference(stored, given); !differs.empty()) {
    throw Error(Errc::invalid_argument,
                concat(what, " is of another shape: ", differs,
                       "; add the buffers that it holds, or choose another name"));
  }
  marks_ = region.marks();
  tally_ = DeviceBuffer<Tally>(1);
  last_ = std::make_shared<Event>();
  base_ = static_cast<unsigned char*>(region.address(region.object(object_)));
  try {
    sequence_ = read_current(stream).sequence;
  } catch (...) {
    base_ = nullptr;  // which copy is the older one is not known
    throw;
  }
}

bool Group::is_stored(Region& region, Stream& stream) const {
  if (base_ != nullptr) return true;
  if (!region.contains(object_)) return false;
  const ObjectInfo info = region.object(object_);
  if (info.type != kTypeName) return true;  // for bind() to refuse
  const std::string what = concat("checkpoint '", object_, "' of region '", region.path(), "'");
  return !decode_header(read_header(stream, region.address(info), info.bytes()), info.bytes(), what)
              .empty();
}

// The header comes behind the object, by a kernel that persists it: until then it reads as zeroes.
void Group::make_object(Region& region, Stream& stream,
                        const std::vector<CheckpointBuffer>& buffers) {
  auto* const object = static_cast<unsigned char*>(
      region.allocate_raw(object_, kTypeName, 1, layout_.object_bytes, Tracking::marked));
  const std::vector<unsigned char> header = encode_header(buffers);
  const DeviceBuffer<unsigned char> source = upload(header);
  const DeviceBuffer<Tally> tally(1);
  const auto copy = [&](std::uint64_t first, std::uint64_t bytes) {
    const DeviceBuffer<Part> part =
        upload<Part>({{source.data() + first, object + first, object + first, bytes, 0, 0}});
    copy_and_sum(stream, part.data(), 1, chunks_of(bytes), tally.data(), {}, region.marks());
    stream.synchronize();
  };
  copy(sizeof(GroupHeader), header.size() - sizeof(GroupHeader));
  copy(8, sizeof(GroupHeader) - 8);
  copy(0, 8);  // the magic number
}

Current Group::read_current(Stream& stream) const {
  Slot slots[2];
  for (std::uint64_t i = 0; i < 2; ++i) {
    copy_async(stream, &slots[i], slot_address(i), sizeof(Slot));
    stream.synchronize();  // each: if the next one fails, nothing is on its way to `slots`
  }
  Current current;
  for (std::uint64_t i = 0; i < 2; ++i) {
    const Slot& slot = slots[i];
    if (slot.sequence % 2 != i || slot.sequence <= current.sequence) continue;
    if (slot.self != slot_check(slot.tag, slot.data, slot.sequence)) continue;
    current = {slot.sequence, slot.tag, slot.data};
  }
  return current;
}

const Group::Plan& Group::plan(Direction direction, std::uint64_t which, std::uint64_t threshold) {
  if (threshold != threshold_) {
    for (auto& row : plans_) {
      for (auto& stale : row) stale.reset();
    }
    threshold_ = threshold;
  }
  std::optional<Plan>& plan = plans_[direction == Direction::restore][which];
  if (!plan)
    plan = make_plan(direction, copy_address(which), threshold, direction == Direction::save);
  return *plan;
}

Group::Plan Group::make_plan(Direction direction, unsigned char* copy, std::uint64_t threshold,
                             bool marked) const {
  Plan plan;
  std::vector<Part> parts;
  for (const Buffer& buffer : buffers_) {
    unsigned char* const there = copy + buffer.offset;
    const std::uint64_t bytes = buffer.info.bytes();
    const bool saves = direction == Direction::save;
    Part part{saves ? buffer.data : there,
              saves ? there : buffer.data,
              marked ? there : nullptr,
              bytes,
              buffer.offset,
              plan.chunks};
    if (buffer.memory == BufferMemory::host || bytes >= threshold) {
      plan.copies.push_back({part.to, part.from, bytes});
      plan.waits |= buffer.memory == BufferMemory::host;
      // The sum is taken from what kernels read fastest.
      part.from = buffer.memory == BufferMemory::host ? there : buffer.data;
      part.to = nullptr;
    }
    plan.chunks += chunks_of(bytes);
    parts.push_back(part);
  }
  plan.parts = upload(parts);
  return plan;
}

// The engine's copies come first: the kernel, which may publish, starts once they have ended.
void Group::run(Stream& stream, const Plan& plan, const DeviceBuffer<Tally>& tally,
                const Publication& publication, const PageMarks& marks) {
  for (const Plan::Copy& copy : plan.copies) copy_async(stream, copy.to, copy.from, copy.bytes);
  copy_and_sum(stream, plan.parts.data(), static_cast<std::uint32_t>(plan.parts.size()),
               plan.chunks, tally.data(), publication, marks);
}

template <class Body>
void Group::throttled(testing::Throttle& throttle, Stream& stream, Body&& body) const {
  if (!throttle.active()) return body();
  const auto begun = std::make_shared<testing::Throttle::Mark>();
  stream.enqueue([&throttle, begun] { *begun = throttle.mark(); });
  body();
  stream.enqueue([&throttle, begun, bytes = bytes_ + sizeof(Slot)] {
    throttle.write(*begun, bytes, testing::Access::aligned);
    throttle.wait();
  });
}

// Behind a save that failed the sequence goes on from what is stored: going on from the failed
// one's number would go over the last save that is whole. A save that is queued before it fails
// waits for it, and fails with it.
void Group::begin_anew_after_failure(Stream& stream) {
  if (!is_uncertain_ && !last_->failed()) return;
  sequence_ = read_current(stream).sequence;
  tally_ = DeviceBuffer<Tally>(1);  // may hold half a sum
  last_ = std::make_shared<Event>();
  if (drain_) drain_ = std::make_shared<Stream>();
  is_uncertain_ = false;
}

Publication Group::next_save(std::uint64_t tag, Stream& stream) {
  if (sequence_ > 0) last_->wait(stream);
  ++sequence_;
  return {slot_address(sequence_ % 2), tag, sequence_};
}

std::shared_ptr<Event> Group::free_end() {
  for (const std::shared_ptr<Event>& end : ends_) {
    if (end.use_count() != 1) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // behind what a region's thread did
    return end;
  }
  return ends_.emplace_back(std::make_shared<Event>());
}

// What was queued of a save that failed ends here, before anything that it uses can go away.
// The caller throws what came first.
void Group::settle(Stream& stream) noexcept { const core::StreamEnd end(stream); }

void Group::save(Region& region, Stream& stream, std::uint64_t tag, std::uint64_t threshold) {
  bind(region, stream);
  begin_anew_after_failure(stream);
  const Plan& plan = this->plan(Direction::save, (sequence_ + 1) % 2, threshold);
  std::shared_ptr<Event> end = free_end();
  const Publication publication = next_save(tag, stream);
  try {
    throttled(testing::throttle(region), stream,
              [&] { run(stream, plan, tally_, publication, marks_); });
    end->record(stream);
  } catch (...) {
    settle(stream);
    is_uncertain_ = true;  // the next save must not go over the last one
    throw;
  }
  last_ = std::move(end);
  if (plan.waits) stream.synchronize();
}

void Group::make_staging() {
  if (aside_) return;
  try {
    staging_ = DeviceBuffer<unsigned char>(bytes_);
  } catch (const Error& error) {
    if (error.code() != Errc::no_memory) throw;
    throw Error(Errc::no_memory, concat("group '", name_, "' has ", bytes_,
                                        " bytes, which do not fit into device memory once more: "
                                        "use save()"));
  }
  drain_ = std::make_shared<Stream>();
  set_aside_.emplace();
  unused_ = DeviceBuffer<Tally>(1);
  // By a kernel whatever their size: within device memory it is as fast, and sums on the way.
  aside_ = make_plan(Direction::save, staging_.data(), ~std::uint64_t{0}, false);
}

const Group::Plan& Group::drain_plan(std::uint64_t which) {
  std::optional<Plan>& plan = drains_[which];
  if (plan) return *plan;
  Plan fresh{};
  std::vector<Part> parts;
  parts.reserve(buffers_.size());
  for (const Buffer& buffer : buffers_) {
    unsigned char* const there = copy_address(which) + buffer.offset;
    parts.push_back({staging_.data() + buffer.offset, there, there, buffer.info.bytes(),
                     buffer.offset, fresh.chunks});
    fresh.chunks += chunks_of(buffer.info.bytes());
  }
  fresh.parts = upload(parts);
  plan = std::move(fresh);
  return *plan;
}

std::shared_ptr<PendingSave::State> Group::save_async(Region& region, Stream& stream,
                                                      std::uint64_t tag, std::uint64_t threshold) {
  bind(region, stream);
  begin_anew_after_failure(stream);
  make_staging();
  const std::uint64_t which = (sequence_ + 1) % 2;
  const bool by_kernel = bytes_ < threshold;
  const Plan* const drain = by_kernel ? &drain_plan(which) : nullptr;
  auto state = std::make_shared<PendingSave::State>();
  state->drain = drain_;
  std::shared_ptr<Event> end = free_end();
  const Publication publication = next_save(tag, stream);
  core::RegionAccess::writer_begins(region);
  try {
    run(stream, *aside_, by_kernel ? unused_ : tally_, {}, {});
    set_aside_->record(stream);
    set_aside_->wait(*drain_);
    throttled(testing::throttle(region), *drain_, [&] {
      if (by_kernel) {
        run(*drain_, *drain, tally_, publication, marks_);
        return;
      }
      copy_async(*drain_, copy_address(which), staging_.data(), bytes_);
      mark_pages(*drain_, copy_address(which), bytes_, marks_);
      publish(*drain_, tally_.data(), publication, marks_);
    });
    drain_->enqueue([done = state->is_done] { *done = true; });
    end->record(*drain_);
    region.pending(end);
  } catch (...) {
    settle(stream);
    settle(*drain_);
    is_uncertain_ = true;  // as in save()
    throw;
  }
  last_ = std::move(end);
  if (aside_->waits) stream.synchronize();
  return state;
}

std::optional<std::uint64_t> Group::restore(Region& region, Stream& stream,
                                            std::uint64_t threshold) {
  if (region.read_only() && !is_stored(region, stream)) return std::nullopt;
  bind(region, stream);
  begin_anew_after_failure(stream);
  if (sequence_ > 0) last_->wait(stream);
  const Current current = read_current(stream);
  if (current.sequence == 0) return std::nullopt;
  const Plan& plan = this->plan(Direction::restore, current.sequence % 2, threshold);
  const DeviceBuffer<Tally> tally(1);
  const testing::Throttle::Mark begun = testing::throttle(region).mark();
  Tally found{};
  try {
    run(stream, plan, tally, {}, {});
    copy_async(stream, &found, tally.data(), sizeof(found));
    stream.synchronize();
  } catch (...) {
    settle(stream);
    throw;
  }
  testing::throttle(region).read(begun, bytes_);
  testing::throttle(region).wait();
  if (found.sum != current.data) {
    throw Error(Errc::damaged,
                concat("checkpoint '", object_, "' of region '", region.path(),
                       "' is damaged: the checksum of its last save does not match; reopen the "
                       "region from its last commit"));
  }
  return current.tag;
}

void Group::wait() noexcept {
  try {
    if (last_ && sequence_ > 0) last_->synchronize();
  } catch (const Error& error) {
    std::fprintf(stderr, "holdfast: a save of group '%s' failed: %s\n", name_.c_str(),
                 error.what());
  }
}

}  // namespace holdfast::checkpoint
