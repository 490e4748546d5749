#include "check/fuzz/fuzz_brute.hpp"

#include <cstring>
#include <utility>

#include "check/failure.hpp"
#include "holdfast/cpu/host_observer.hpp"

namespace holdfast::test {
namespace {

using check::Bitset;
using check::CrashPoint;
using check::History;
using check::Order;
using check::Trace;

cpu::Schedule take_schedule(std::uint64_t seed) {
  const cpu::Schedule before = cpu::schedule();
  cpu::Schedule ours = before;
  ours.seed = seed;
  ours.lockstep = true;
  ours.livelock_rounds = 2'000;
  cpu::set_schedule(ours);
  return before;
}

Region make_region(const check::Program& program) {
  RegionOptions options;
  options.domain = Domain::emulated;
  options.size = program.region_bytes;
  options.max_size = program.region_bytes;
  return Region::create("brute", options);
}

class Recording {
 public:
  Recording(check::Recorder& recorder, Region& region)
      : listening_(recorder), observer_(region.base(), region.size()) {}

 private:
  struct Listening {
    explicit Listening(check::Recorder& recorder) { cpu::set_listener(&recorder); }
    ~Listening() { cpu::set_listener(nullptr); }
  } listening_;
  cpu::HostObserver observer_;
};

class RecordedSession : public check::Session {
 public:
  explicit RecordedSession(check::Recorder& recorder) : recorder_(recorder) {}
  void start() override { recorder_.add_host_op(check::OpKind::start); }
  void acknowledge() override { recorder_.add_host_op(check::OpKind::acknowledge); }

 private:
  check::Recorder& recorder_;
};

check::PersistentRange range_of(const Region& region) {
  const auto base = reinterpret_cast<std::uintptr_t>(region.base());
  return {base, base + region.size()};
}

std::uint64_t key_of(const History& history) {
  return std::uint64_t{history.started} << 32 | history.acknowledged;
}

History history_of(const CrashPoint& point) { return {point.started, point.acknowledged}; }

check::OrderOptions order_options(check::Model model) {
  check::OrderOptions options;
  options.model = model;
  return options;
}

// Of recovery, whose schedules are not explored, all moments of the one execution are looked at.
check::OrderOptions nested_order_options(check::Model model) {
  check::OrderOptions options = order_options(model);
  options.moments = check::Moments::cuts;
  return options;
}

}  // namespace

BruteForce::BruteForce(std::shared_ptr<const FuzzCase> fuzz, check::Model model,
                       std::uint64_t schedule)
    : model_(model),
      schedule_before_(take_schedule(schedule)),
      program_(make_program(fuzz,
                            [this](const Observation& seen) {
                              told_->insert(seen);
                              return std::string();
                            })),
      region_(make_region(program_)) {
  program_.set_up(region_);
  memory_ = reinterpret_cast<char*>(region_.find<std::uint64_t>(kFuzzObject).data());
  base_.assign(memory_, memory_ + fuzz->words * 8);
  check::Recorder recorder(range_of(region_));
  recorder.begin(&trace_, nullptr);
  RecordedSession session(recorder);
  {
    const Recording recording(recorder, region_);
    program_.run(region_, session);
  }
  order_ = std::make_unique<Order>(trace_, order_options(model));
}

BruteForce::~BruteForce() {
  cpu::set_schedule(schedule_before_);
  region_.abandon();
}

BruteForce::Image BruteForce::image_of(Image image, const Order& order,
                                       const Bitset& durable) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_);
  durable.for_each([&](std::size_t number) {  // in the order of execution, which coherence follows
    const check::Write& write = order.writes()[number];
    std::memcpy(image.data() + (write.address - begin), order.trace().bytes.data() + write.value,
                write.size);
  });
  return image;
}

Trace BruteForce::recover(const Image& image, const History& history, std::set<Observation>& seen) {
  ++runs_;
  std::memcpy(memory_, image.data(), image.size());
  Trace recovery;
  check::Recorder recorder(range_of(region_));
  recorder.begin(&recovery, nullptr);
  {
    const Recording recording(recorder, region_);
    program_.recover(region_);
  }
  told_ = &seen;
  for (std::uint64_t item = 0; item < program_.items; ++item) {
    program_.verify(region_, history, item);
  }
  return recovery;
}

// What is the same byte for byte is recovered from once.
bool BruteForce::explore_nested(const Image& image, const Trace& recovery, const History& history,
                                std::set<Observation>& seen,
                                std::set<std::pair<Image, std::uint64_t>>& done) {
  const Order order(recovery, nested_order_options(model_));
  if (order.writes().empty()) return true;
  for (const CrashPoint& point : order.points()) {
    order.for_each_state(point, [&](const Bitset& durable) {
      if (++states_ > most_) return false;
      Image again = image_of(image, order, durable);
      const auto [place, fresh] = done.emplace(std::move(again), key_of(history));
      if (fresh) recover(place->first, history, seen);
      return true;
    });
    if (states_ > most_) return false;
  }
  return true;
}

std::optional<std::set<Observation>> BruteForce::explore(std::uint64_t most) {
  most_ = most;
  std::set<Observation> seen;
  std::set<std::pair<Image, std::uint64_t>> done, nested_done;
  for (const CrashPoint& point : order_->points()) {
    bool within = true;
    order_->for_each_state(point, [&](const Bitset& durable) {
      within = ++states_ <= most_;
      if (!within) return false;
      const History history = history_of(point);
      const auto [place, fresh] = done.emplace(image_of(base_, *order_, durable), key_of(history));
      if (!fresh) return true;
      const Trace recovery = recover(place->first, history, seen);
      return within = explore_nested(place->first, recovery, history, seen, nested_done);
    });
    if (!within) return std::nullopt;
  }
  return seen;
}

std::set<Observation> BruteForce::replay(const std::string& state) {
  const std::vector<check::StateName> parts = check::parse_state(state, state);
  const CrashPoint& point = order_->points().at(parts[0].point);
  Image image = image_of(base_, *order_, check::state_of(*order_, parts[0]));
  std::set<Observation> seen;
  const Trace recovery = recover(image, history_of(point), seen);
  if (parts.size() == 1) return seen;
  const Order order(recovery, nested_order_options(model_));
  image = image_of(std::move(image), order, check::state_of(order, parts[1]));
  seen.clear();
  recover(image, history_of(point), seen);
  return seen;
}

}  // namespace holdfast::test
