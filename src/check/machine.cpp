#include "check/machine.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "backend_cpu/engine.hpp"
#include "backend_cpu/team.hpp"
#include "check/ear.hpp"
#include "check/source_lines.hpp"
#include "core/format.hpp"
#include "holdfast/cpu/host_observer.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

// What a program under check may have, so that every state can be put in place in no time.
constexpr std::uint64_t kMaxRegion = std::uint64_t{256} << 20;
constexpr std::uint64_t kMaxItems = std::uint64_t{1} << 20;
// Recovery that spins for ever is reported after this many rounds.
constexpr std::uint64_t kLivelockRounds = 2'000;
// What a GPU has room for at once, as blocks of a program under check.
constexpr unsigned kResidentBlocks = 64;

Region make_region(const Program& program, bool robust) {
  if (!program.set_up || !program.run || !program.recover || (!program.verify && !robust) ||
      program.items == 0) {
    throw Error(Errc::invalid_argument,
                concat("check: program '", program.name,
                       "' needs set_up, run, recover, verify and at least one item"));
  }
  if (program.items > kMaxItems) {
    throw Error(Errc::invalid_argument,
                concat("check: items of program '", program.name, "' is ", program.items, ": give ",
                       kMaxItems, " at most, each of which is verified in every state"));
  }
  if (program.region_bytes < core::kMetadataBytes || program.region_bytes > kMaxRegion) {
    throw Error(Errc::invalid_argument,
                concat("check: region_bytes of program '", program.name, "' is ",
                       program.region_bytes, ": give from ", core::kMetadataBytes, " to ",
                       kMaxRegion, ", of which the region itself takes ", core::kMetadataBytes));
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
  ours.resident_blocks = std::max(ours.resident_blocks, kResidentBlocks);
  ours.livelock_rounds = kLivelockRounds;
  cpu::set_schedule(ours);
  return before;
}

}  // namespace

class Machine::RecordedSession : public Session {
 public:
  RecordedSession(Machine& machine, Ear& ear, Trace& trace)
      : machine_(machine), ear_(ear), trace_(trace) {}
  void start() override {
    expect_own_thread("start()");
    const auto lock = act();
    if (machine_.census_ != nullptr) machine_.census_->started();
    machine_.recorder_.add_host_op(OpKind::start);
  }
  void acknowledge() override {
    expect_own_thread("acknowledge()");
    const auto lock = act();
    if (machine_.census_ != nullptr) machine_.census_->acknowledged();
    if (machine_.mutator_ != nullptr && machine_.mutator_->acknowledges_early()) {
      acknowledge_early(trace_);
    } else {
      machine_.recorder_.add_host_op(OpKind::acknowledge);
    }
  }

 private:
  // Kernels that run beside are recorded at the same time.
  std::unique_lock<std::mutex> act() {
    if (cpu::Engine* const engine = cpu::Engine::of_host()) engine->host_acts();
    auto lock = cpu::lock_kernels();
    ear_.note_host();
    return lock;
  }
  // What another thread does has no place in the host's order.
  void expect_own_thread(const char* call) const {
    if (std::this_thread::get_id() == thread_ && cpu::is_observed()) return;
    throw Error(Errc::unsupported,
                concat("check: ", call, " is called by another thread than run()'s, or by a ",
                       "function of a stream: wait for the stream, and call it in run()"));
  }

  Machine& machine_;
  Ear& ear_;
  Trace& trace_;
  std::thread::id thread_ = std::this_thread::get_id();
};

Machine::Machine(const Program& program, const Options& options)
    : program_(program),
      vigil_(program.name, options),
      schedule_before_(take_schedule(options)),
      region_(make_region(program, options.robust)),
      robust_(options.robust),
      seeks_races_(options.races),
      most_schedules_(options.recovery_schedules),
      range_(range_of(region_)),
      footprint_(range_),
      recorder_(range_) {
  try {
    const Vigil::Call call(vigil_, "set_up()");
    program_.set_up(region_);
  } catch (const Error& error) {
    if (error.code() != Errc::no_space) throw;
    throw Error(Errc::no_space, concat(error.what(), "; region_bytes of program '", program_.name,
                                       "' is ", program_.region_bytes, ": give more"));
  }
  const auto* bytes = static_cast<const std::byte*>(region_.base());
  base_.assign(bytes, bytes + region_.size());
  objects_ = region_.objects();
  std::vector<PersistentRange> ranges;
  ranges.reserve(objects_.size());
  for (const ObjectInfo& object : objects_) {
    ranges.push_back({range_.begin + object.offset, range_.begin + object.offset + object.bytes()});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& one, const auto& other) { return one.begin < other.begin; });
  recorder_.allow(std::move(ranges));
  cpu::take_lost_error();
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
  recovery_schedules_ = {};
  explored_unseen_ = have_talked_ = false;
  mutator_.reset();
  vigil_.set_mutation(mutation);
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
    const Vigil::Call call(vigil_, "run()");
    around([&] { program_.run(region_, session); });
  } catch (...) {
    recorder_.end_trace();
    std::memcpy(region_.base(), base_.data(), base_.size());
    throw;
  }
  if (ear.heard_failure()) {
    refuse_run(
        "goes on though a kernel of it failed: what that stored last is not recorded; let it "
        "throw the error");
  }
  check_end_of_run(trace);
  had_choices_ = ear.heard_choices();
  went_by_chance_ = ear.heard_beside();
  have_talked_ = have_talked_ || ear.heard_talk();
  if (mutator_ != nullptr) mutator_->change(trace);
  if (census_ != nullptr) census_->add_pairs(trace);
  return trace;
}

void Machine::refuse_run(const std::string& what) const {
  throw Error(Errc::unsupported, concat("check: run() of program '", program_.name, "' ", what));
}

// What would be missing from the trace, or no crash would undo.
void Machine::check_end_of_run(const Trace& trace) {
  if (const auto lost = cpu::take_lost_error()) {
    refuse_run(concat("left a stream whose work failed: ", lost->what()));
  }
  if (cpu::work_is_pending()) {
    refuse_run("ended while a stream had work that nobody has waited for: synchronize() it");
  }
  if (cpu::stranger_was_met()) {
    refuse_run(
        "lets a thread of its own launch kernels or talk to others: the checker explores what "
        "the thread that calls run() does alone");
  }
  const auto objects = region_.objects();
  const bool same =
      std::equal(objects.begin(), objects.end(), objects_.begin(), objects_.end(),
                 [](const ObjectInfo& a, const ObjectInfo& b) {
                   return a.name == b.name && a.offset == b.offset && a.bytes() == b.bytes();
                 });
  if (!same) {
    refuse_run(
        "allocates or removes an object of the region: do so in set_up(), since what the region "
        "itself stores is not recorded");
  }
  if (const auto what = describe_stray(); !what.empty()) refuse_run(what);
  if (const auto address = find_unrecorded(trace)) {
    refuse_run(
        concat("stores to ", name_of(*address),
               " unheard: the checker hears kernels, copies and instrumented code of the thread "
               "that calls run() alone, no other threads, functions of a stream or of the C "
               "library. Store there, or say it with cpu::note_write()"));
  }
}

// Empty: nothing was stored but to objects.
std::string Machine::describe_stray() const {
  const auto& stray = recorder_.stray();
  if (!stray) return {};
  return concat("stores to ", name_of(stray->address), at_line(stray->site),
                ", which is not, or not wholly, in an object: the region's own tables may be "
                "there, without which it is not opened again");
}

// A byte of an object that does not hold what the trace makes of what set_up() left.
std::optional<std::uint64_t> Machine::find_unrecorded(const Trace& trace) const {
  std::vector<std::byte> recorded = base_;
  for (const Op& op : trace.ops) {
    const bool writes =
        op.kind == OpKind::write || op.kind == OpKind::update || op.kind == OpKind::release;
    if (!writes || !range_.contains(op.address)) continue;
    std::memcpy(recorded.data() + (op.address - range_.begin), trace.bytes.data() + op.value,
                std::min<std::uint64_t>(op.size, range_.end - op.address));
  }
  return find_difference(recorded);
}

std::optional<std::uint64_t> Machine::find_difference(std::span<const std::byte> expected) const {
  const auto* const memory = static_cast<const std::byte*>(region_.base());
  for (const ObjectInfo& object : objects_) {
    const std::byte* const first = memory + object.offset;
    const auto [at, other] =
        std::mismatch(first, first + object.bytes(), expected.begin() + object.offset);
    if (at != first + object.bytes()) return range_.begin + (at - memory);
  }
  return std::nullopt;
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
      const std::uint64_t place = cell.address - range_.begin;
      placed_.push_back(static_cast<std::uint32_t>(place / 8));
      footprint_.set_variable(place / 8);
      std::memcpy(memory + place, order.value(cell, version), cell.size);
    }
  }
}

std::string Machine::at_line(const Site& site) {
  if (site.file != nullptr) return concat(", at ", site.file, ":", site.line);
  SourceLines lines;
  const SourceLine line = lines.resolve(site.pc)[0];
  if (line.file.empty()) return concat(", at ", line.function);
  return concat(", at ", line.file, ":", line.line);
}

const ObjectInfo* Machine::object_at(std::uint64_t address) const {
  const std::uint64_t offset = address - range_.begin;
  const auto found = std::find_if(objects_.begin(), objects_.end(), [&](const ObjectInfo& object) {
    return offset >= object.offset && offset < object.offset + object.bytes();
  });
  return found == objects_.end() ? nullptr : &*found;
}

std::string Machine::name_of(std::uint64_t address) const {
  const std::uint64_t offset = address - range_.begin;
  const ObjectInfo* const object = object_at(address);
  if (object == nullptr) return concat("region+", offset);
  return concat(object->name, "+", offset - object->offset);
}

}  // namespace holdfast::check
