// A queue of numbers in a region, as an example of a structure on durable objects and transactions
// (docs/architecture.md, "A structure of your own"). A batch is pushed or popped whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "holdfast/durable.hpp"

namespace durable_queue {

// Items number `first` to `end` - 1 are in the queue, item `i` in place `i` modulo the places.
struct Ends {
  static constexpr const char* kTypeName = "queue_ends";
  std::uint64_t first;
  std::uint64_t end;
};

struct QueueParameters {
  static constexpr const char* kTypeName = "queue";
  static constexpr std::uint32_t kVersion = 1;
  std::uint64_t places = 0;
  std::vector<holdfast::Part> parts() const;
};

// Thread safety: one thread. The region outlives it.
class Queue {
 public:
  static Queue create(holdfast::Region& region, std::string_view name, std::uint64_t places);
  // Takes back what a crash cut off.
  static Queue open(holdfast::Region& region, std::string_view name);

  // `values`: device memory. Durable on return. Throws no_space, and not_found if there are not so
  // many.
  void push(holdfast::Stream& stream, const std::uint64_t* values, std::uint32_t count);
  void pop(holdfast::Stream& stream, std::uint64_t* values, std::uint32_t count);
  Ends ends(holdfast::Stream& stream) const;

 private:
  Queue(holdfast::Region& region, holdfast::Durable<QueueParameters> object)
      : object_(std::move(object)), marks_(region.marks()) {}
  Ends* place() const;
  void move(holdfast::Stream& stream, std::uint64_t popped, std::uint64_t pushed);

  holdfast::Durable<QueueParameters> object_;
  holdfast::PageMarks marks_;
};

}  // namespace durable_queue
