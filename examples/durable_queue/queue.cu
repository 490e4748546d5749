#include "durable_queue/queue.hpp"

#include "holdfast/kernel.hpp"
#include "holdfast/undo.hpp"

namespace durable_queue {

using holdfast::Durable;
using holdfast::Errc;
using holdfast::Error;
using holdfast::LogShape;
using holdfast::LogStatus;
using holdfast::PageMarks;
using holdfast::Part;
using holdfast::Stream;
using holdfast::detail::concat;

namespace {

// Places behind the end hold nothing that counts: what is stored there needs no log.
__global__ void store_items(std::uint64_t* items, std::uint64_t places, const Ends* ends,
                            const std::uint64_t* values, PageMarks marks) {
  std::uint64_t* const place = &items[(ends->end + threadIdx.x) % places];
  *place = values[threadIdx.x];
  marks.mark(place, sizeof(*place));
  holdfast::persist();
}

__global__ void load_items(const std::uint64_t* items, std::uint64_t places, const Ends* ends,
                           std::uint64_t* values) {
  values[threadIdx.x] = items[(ends->first + threadIdx.x) % places];
}

// One thread. What cannot be logged is not changed; the transaction sees to the rest.
__global__ void move_ends(Ends* ends, holdfast::ConventionalLogRef log, std::uint64_t popped,
                          std::uint64_t pushed, PageMarks marks) {
  const Ends before = *ends;
  if (log.insert(before) != LogStatus::ok) return;
  ends->first = before.first + popped;
  ends->end = before.end + pushed;
  marks.mark(ends, sizeof(*ends));
  holdfast::persist();
}

void check_count(std::uint32_t count) {
  if (count != 0 && count <= 1024) return;
  throw Error(Errc::invalid_argument, concat("queue: a batch of ", count, "; give 1 to 1024"));
}

}  // namespace

std::vector<Part> QueueParameters::parts() const {
  if (places == 0) throw Error(Errc::invalid_argument, "queue: no places; give one or more");
  return {Part::array<std::uint64_t>("items", places), Part::array<Ends>("ends", 1),
          Part::transaction(), Part::undo_log("log", LogShape::conventional(1, sizeof(Ends)))};
}

Queue Queue::create(holdfast::Region& region, std::string_view name, std::uint64_t places) {
  return {region, Durable<QueueParameters>::create(region, name, {places})};
}

Queue Queue::open(holdfast::Region& region, std::string_view name) {
  Queue queue(region, Durable<QueueParameters>::open(region, name));
  Stream stream;
  queue.object_.transaction().recover(
      stream, undo(queue.object_.log("log"), holdfast::PutBack<Ends>{queue.place(), queue.marks_}));
  return queue;
}

Ends* Queue::place() const { return object_.part<Ends>("ends").data(); }

Ends Queue::ends(Stream& stream) const {
  Ends ends;
  copy_async(stream, &ends, place(), sizeof(ends));
  stream.synchronize();
  return ends;
}

void Queue::push(Stream& stream, const std::uint64_t* values, std::uint32_t count) {
  check_count(count);
  const auto items = object_.part<std::uint64_t>("items");
  const Ends now = ends(stream);
  if (count > items.size() - (now.end - now.first)) {
    throw Error(Errc::no_space, concat("queue: no places for ", count, " items: pop some first"));
  }
  object_.transaction().begin(stream);
  launch(stream, dim3(1), dim3(count), store_items, items.data(), items.size(), place(), values,
         marks_);
  move(stream, 0, count);
}

void Queue::pop(Stream& stream, std::uint64_t* values, std::uint32_t count) {
  check_count(count);
  const auto items = object_.part<std::uint64_t>("items");
  const Ends now = ends(stream);
  if (count > now.end - now.first) {
    throw Error(Errc::not_found,
                concat("queue: there are ", now.end - now.first, " items, not ", count));
  }
  object_.transaction().begin(stream);
  launch(stream, dim3(1), dim3(count), load_items, items.data(), items.size(), place(), values);
  move(stream, count, 0);
}

void Queue::move(Stream& stream, std::uint64_t popped, std::uint64_t pushed) {
  const holdfast::UndoLog log = object_.log("log");
  launch(stream, dim3(1), dim3(1), move_ends, place(), log.conventional(), popped, pushed, marks_);
  object_.transaction().commit(stream);
  object_.transaction().finish(stream, undo(log, holdfast::PutBack<Ends>{place(), marks_}));
}

}  // namespace durable_queue
