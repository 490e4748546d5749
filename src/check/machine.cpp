#include "check/machine.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <unordered_map>
#include <utility>

#include "check/race.hpp"
#include "check/source_lines.hpp"
#include "holdfast/cpu/host_observer.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

// What a program under check may have, so that every state can be put in place in no time.
constexpr std::uint64_t kMaxRegion = std::uint64_t{256} << 20;
// Outcomes that are remembered, in what was read for them (16 bytes each): for each history.
constexpr std::size_t kMostReadings = std::size_t{8} << 20;
// Accesses of the host that are made one by one, to see whether hooks announce them, before runs
// are only looked at now and then.
constexpr std::uint64_t kWatchedFaults = 8'192;
// Recovery that spins for ever is reported after this many rounds.
constexpr std::uint64_t kLivelockRounds = 2'000;

Region make_region(const Program& program, bool robust) {
  if (!cpu::can_listen()) {
    throw Error(Errc::unsupported,
                "this build cannot check programs, since it delivers no events of kernels: "
                "configure it with -DHOLDFAST_INTERCEPT=ON (preset cpu-check)");
  }
  if (!program.set_up || !program.run || !program.recover || (!program.verify && !robust) ||
      program.items == 0) {
    throw Error(Errc::invalid_argument,
                concat("check: program '", program.name,
                       "' needs set_up, run, recover, verify and at least one item"));
  }
  if (program.region_bytes > kMaxRegion) {
    throw Error(Errc::invalid_argument,
                concat("check: program '", program.name, "' has a region of ", program.region_bytes,
                       " bytes; the checker takes up to ", kMaxRegion));
  }
  RegionOptions options;
  options.domain = Domain::emulated;
  options.size = program.region_bytes;
  options.max_size = program.region_bytes;
  return Region::create(program.name, options);
}

PersistentRange range_of(const Region& region) {
  const auto base = reinterpret_cast<std::uintptr_t>(region.base());
  return {base, base + region.size()};
}

cpu::Schedule take_schedule(const Options& options) {
  const cpu::Schedule before = cpu::schedule();
  cpu::Schedule ours = before;
  ours.seed = options.schedule;
  ours.lockstep = true;
  ours.livelock_rounds = kLivelockRounds;
  cpu::set_schedule(ours);
  return before;
}

}  // namespace

// Hears what a run does, before it is recorded: whether it might have gone another way.
class Machine::Ear : public cpu::Listener {
 public:
  Ear(cpu::Listener& recorder, cpu::Listener* also, Census* census)
      : recorder_(recorder), also_(also), census_(census) {
    cpu::watch_streams();
  }
  void on_event(const cpu::Event& event) override {
    if (event.kind == cpu::EventKind::kernel_begin) {
      const auto threads = [](const dim3& extent) {
        return std::uint64_t{extent.x} * extent.y * extent.z;
      };
      if (threads(event.grid) * threads(event.extent) > 1) threads_ = true;
      told_.clear();
    } else if (event.host && !event.is_copy && event.kind != cpu::EventKind::synchronize) {
      note_host();
    } else if (!talked_ && !event.host && is_strong(event)) {
      note_strong(event);
    }
    if (census_ != nullptr) census_->on_event(event);
    recorder_.on_event(event);
    if (also_ != nullptr) also_->on_event(event);
  }
  // The host does something that a crash or a kernel may come before or after.
  void note_host() { beside_ = beside_ || cpu::work_is_pending(); }
  bool heard_choices() const { return threads_ || heard_beside(); }
  // Something ran beside a kernel or copy.
  bool heard_beside() const { return beside_ || cpu::streams_have_overlapped(); }
  bool heard_talk() const { return talked_; }

 private:
  struct Told {
    std::uint64_t thread = 0;
    bool written = false;
    bool several = false;
  };
  static bool is_strong(const cpu::Event& event) {
    return event.is_volatile || event.is_atomic || event.kind == cpu::EventKind::atomic ||
           event.kind == cpu::EventKind::acquire || event.kind == cpu::EventKind::release;
  }
  void note_strong(const cpu::Event& event) {
    const std::uint64_t thread = event.block << 16 | event.thread;
    const bool writes =
        event.kind != cpu::EventKind::load && event.kind != cpu::EventKind::acquire;
    const auto address = reinterpret_cast<std::uintptr_t>(event.address);
    for (std::uint64_t unit = address / 4; unit * 4 < address + event.size; ++unit) {
      Told& told = told_.try_emplace(unit, Told{thread, false, false}).first->second;
      told.several = told.several || told.thread != thread;
      told.written = told.written || writes;
      talked_ = talked_ || (told.several && told.written);
    }
  }

  cpu::Listener& recorder_;
  cpu::Listener* also_;
  Census* census_;
  bool threads_ = false;                          // a kernel had several
  bool beside_ = false;                           // the host ran beside what it had queued
  std::unordered_map<std::uint64_t, Told> told_;  // by 4 bytes, of the kernel that runs
  bool talked_ = false;
};

class Machine::RecordedSession : public Session {
 public:
  RecordedSession(Machine& machine, Ear& ear, Trace& trace)
      : machine_(machine), ear_(ear), trace_(trace) {}
  void start() override {
    ear_.note_host();
    if (machine_.census_ != nullptr) machine_.census_->started();
    machine_.recorder_.add_host_op(OpKind::start);
  }
  void acknowledge() override {
    ear_.note_host();
    if (machine_.census_ != nullptr) machine_.census_->acknowledged();
    if (machine_.mutator_ != nullptr && machine_.mutator_->acknowledges_early()) {
      acknowledge_early(trace_);
    } else {
      machine_.recorder_.add_host_op(OpKind::acknowledge);
    }
  }

 private:
  Machine& machine_;
  Ear& ear_;
  Trace& trace_;
};

// Kernels, copies and this thread's host code are listened to while it lives.
class Machine::Recording {
 public:
  Recording(cpu::Listener& listener, Mutator* mutator) : mutator_(mutator) {
    if (mutator_ != nullptr) mutator_->begin(listener);
    cpu::set_listener(mutator_ != nullptr ? mutator_ : &listener);
  }
  ~Recording() {
    cpu::set_listener(nullptr);
    if (mutator_ != nullptr) mutator_->end();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Mutator* mutator_;
};

Machine::Machine(const Program& program, const Options& options)
    : program_(program),
      schedule_before_(take_schedule(options)),
      region_(make_region(program, options.robust)),
      robust_(options.robust),
      seeks_races_(options.races),
      range_(range_of(region_)),
      footprint_(range_),
      recorder_(range_) {
  program_.set_up(region_);
  const auto* bytes = static_cast<const std::byte*>(region_.base());
  base_.assign(bytes, bytes + region_.size());
}

Machine::~Machine() {
  cpu::set_schedule(schedule_before_);
  region_.abandon();
}

void Machine::set_schedule(std::uint64_t seed) {
  cpu::Schedule ours = cpu::schedule();
  if (ours.seed == seed) return;
  outcomes_.clear();  // recovery may read in another order
  ours.seed = seed;
  cpu::set_schedule(ours);
}

void Machine::change(const Mutation& mutation, std::vector<Site> sites) {
  outcomes_.clear();  // what recovery makes of a state may change with it
  recovery_had_choices_ = have_talked_ = false;
  mutator_.reset();
  if (mutation.kind == Mutation::Kind::none) return;
  mutator_ = std::make_unique<Mutator>(mutation, std::move(sites));
}

Trace Machine::record() {
  return record_as([](const std::function<void()>& run) { run(); });
}

Trace Machine::record(cpu::Chooser& chooser) {
  cpu::Exploration exploration(chooser);
  return record_as([&](const std::function<void()>& run) { exploration.run(run); });
}

template <class Around>
Trace Machine::record_as(const Around& around) {
  std::memcpy(region_.base(), base_.data(), base_.size());
  Trace trace;
  footprint_.begin_program();
  recorder_.begin(&trace, &footprint_);
  Ear ear(recorder_, also_, census_);
  try {
    RecordedSession session(*this, ear, trace);
    const Recording recording(ear, mutator_.get());
    const cpu::HostObserver observer(region_.base(), region_.size());
    around([&] { program_.run(region_, session); });
  } catch (...) {
    recorder_.end_trace();
    std::memcpy(region_.base(), base_.data(), base_.size());
    throw;
  }
  had_choices_ = ear.heard_choices();
  have_talked_ = have_talked_ || ear.heard_talk();
  if (mutator_ != nullptr) mutator_->change(trace);
  if (census_ != nullptr) census_->add_pairs(trace);
  return trace;
}

void Machine::restore(std::span<const Level> levels) {
  auto* const memory = static_cast<std::byte*>(region_.base());
  for (const auto* words : {&footprint_.written(), &std::as_const(placed_)}) {
    for (const std::uint32_t word : *words) {
      std::memcpy(memory + word * 8, base_.data() + word * 8, 8);
    }
  }
  placed_.clear();
  for (const Level& level : levels) {
    const Order& order = *level.order;
    for (std::uint32_t i = 0; i < order.cells().size(); ++i) {
      const std::uint32_t version = order.version(i, *level.durable);
      if (version == 0) continue;
      const Cell& cell = order.cells()[i];
      const Write& write = order.writes()[cell.writes[version - 1]];
      const std::uint64_t place = cell.address - range_.begin;
      placed_.push_back(static_cast<std::uint32_t>(place / 8));
      footprint_.set_variable(place / 8);
      std::memcpy(memory + place,
                  order.trace().bytes.data() + write.value + (cell.address - write.address),
                  cell.size);
    }
  }
}

const std::string* Machine::known(const History& history) {
  const auto tree = outcomes_.find(std::uint64_t{history.started} << 32 | history.acknowledged);
  if (tree == outcomes_.end()) return nullptr;
  return tree->second.find([&](std::uint64_t what) { return footprint_.value_of(what); },
                           [&](std::uint64_t what) { footprint_.replay(what); });
}

void Machine::remember(const History& history, const std::string& wrong) {
  if (footprint_.variable() != variable_) return;  // not all that matters was noted
  auto& tree = outcomes_[std::uint64_t{history.started} << 32 | history.acknowledged];
  if (tree.size() > kMostReadings) tree.clear();
  tree.insert(footprint_.readings(), wrong);
}

std::string Machine::run(std::span<const Level> levels, const History& history, Trace* recovery) {
  restore(levels);
  if (footprint_.variable() != variable_) {
    variable_ = footprint_.variable();
    outcomes_.clear();
  }
  const auto begin = [&] {
    footprint_.begin(levels.empty() ? nullptr : levels[0].order,
                     levels.size() < 2 ? nullptr : levels[1].order);
  };
  begin();
  const std::string* const before = known(history);
  if (before != nullptr && recovery == nullptr) {
    ++memoised_;
    return *before;
  }
  if (before == nullptr) {
    begin();  // what was looked up on the way may never be read
    const std::string wrong = run_anew(history, recovery);
    remember(history, wrong);
    return wrong;
  }
  begin();
  return run_anew(history, recovery);
}

std::string Machine::run_anew(const History& history, Trace* recovery) {
  ++runs_;
  recorder_.begin(recovery, &footprint_);
  const bool watched =
      can_watch_host() && (watch_always_ || watch_faults_ < kWatchedFaults + runs_);
  if (!watched) {
    unwatched_ = true;
    return recover_and_verify(history, recovery, nullptr);
  }
  HostWatch watch(recorder_, footprint_, range_);
  std::string wrong = recover_and_verify(history, recovery, &watch);
  watch.end();
  watch_faults_ += watch.faults();
  judge(watch);
  return wrong;
}

std::string Machine::recover_and_verify(const History& history, Trace* recovery, HostWatch* watch) {
  cpu::Listener& listener = watch != nullptr ? static_cast<cpu::Listener&>(*watch) : recorder_;
  // Threads that tell each other nothing and do not race have one execution, up to equivalence.
  std::optional<RaceDetector> detector;
  if (seeks_races_ && !recovery_had_choices_) detector.emplace();
  Ear ear(listener, detector ? &*detector : nullptr, census_);
  std::string wrong;
  try {
    const Recording recording(ear, mutator_.get());
    const cpu::HostObserver observer(region_.base(), region_.size());
    program_.recover(region_);
  } catch (const std::exception& error) {
    wrong = concat("recover() failed: ", error.what());
  }
  recorder_.end_trace();
  if (ear.heard_choices() && !recovery_had_choices_) {
    const bool one = !ear.heard_beside() && !ear.heard_talk() && detector && detector->complete() &&
                     detector->races().empty();
    recovery_had_choices_ = !one;
  }
  have_talked_ = have_talked_ || ear.heard_talk();
  if (recovery != nullptr && mutator_ != nullptr) mutator_->change(*recovery);
  if (recovery != nullptr && census_ != nullptr) census_->add_pairs(*recovery);
  if (!wrong.empty() || !program_.verify) return wrong;
  const Recording recording(listener, nullptr);
  for (std::uint64_t item = 0; item < program_.items && wrong.empty(); ++item) {
    recorder_.set_actor(Recorder::kItemActor | item);
    if (watch != nullptr) watch->set_actor(Recorder::kItemActor | item);
    try {
      const cpu::HostObserver observer(region_.base(), region_.size());
      wrong = program_.verify(region_, history, item);
      if (robust_) wrong.clear();
    } catch (const std::exception& error) {
      wrong = concat("verify() failed: ", error.what());
    }
    if (!wrong.empty() && program_.items > 1) wrong = concat("item ", item, ": ", wrong);
  }
  recorder_.no_actor();
  return wrong;
}

// A read that no hook announced is noted from here on. Where there were runs before that might have
// made it unseen, or where it is a store, what was explored means nothing.
void Machine::judge(const HostWatch& watch) {
  const std::optional<UnseenAccess> unseen = watch.unseen();
  if (!unseen) return;
  if (!unseen->is_store && (watch_always_ || !unwatched_)) {
    if (!watch_always_) unseen_.pc = unseen->pc;
    watch_always_ = true;
    return;
  }
  SourceLines lines;
  const SourceLine line = lines.resolve(unseen->pc)[0];
  throw Error(Errc::unsupported,
              concat("check: recover() or verify() of program '", program_.name, "' ",
                     unseen->is_store ? "stores to " : "reads ", name_of(unseen->address),
                     " unseen, at ", line.file.empty() ? line.function : line.file,
                     line.file.empty() ? "" : concat(":", line.line),
                     ": that code is not instrumented, so that the checker explores less than it "
                     "says. Name its file in holdfast_kernels(), or ",
                     unseen->is_store ? "store in a kernel" : "read through check::read()"));
}

std::string Machine::name_of(std::uint64_t address) const {
  const std::uint64_t offset = address - range_.begin;
  for (const ObjectInfo& object : region_.objects()) {
    if (offset >= object.offset && offset < object.offset + object.bytes()) {
      return concat(object.name, "+", offset - object.offset);
    }
  }
  return concat("region+", offset);
}

}  // namespace holdfast::check
