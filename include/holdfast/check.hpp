// The crash-state checker: runs a program on the CPU backend, works out every state in which a
// crash may leave its persistent memory, and lets recovery face each of them.
//
// docs/crash-consistent-kernels.md teaches its use; docs/model.md has the model. Link
// holdfast::check.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/error.hpp"
#include "holdfast/persist.hpp"
#include "holdfast/region.hpp"

namespace holdfast::check {

// sbrp: scoped buffered release persistency (SBRP, ASPLOS '23). epoch: what GPM does on today's
// GPUs, where every fence that reaches the system waits.
enum class Model : std::uint8_t { sbrp, epoch };
const char* to_string(Model model) noexcept;

// What was promised to someone outside when the crash came.
struct History {
  std::uint32_t started = 0;       // operations begun
  std::uint32_t acknowledged = 0;  // of these, those reported as done
};

// How run() tells the checker of its operations.
class Session {
 public:
  virtual ~Session() = default;
  virtual void start() = 0;
  virtual void acknowledge() = 0;
};

// A program under check. All functions use the region through kernels, copies, and host code in
// kernel files; other host code that reads persistent memory does so through check::read(). Where
// recover() or verify() reads without, it is found by protecting pages (x86-64): then all such
// reads are, which is slow, and the report has a hint that names the place.
//
// REQUIRES: each function does the same whenever persistent memory is the same; what it keeps
// outside the region is made anew by each call of recover(), and calls of verify() for different
// items tell each other nothing there (docs/model.md, "Groups").
struct Program {
  std::string name;
  std::uint64_t region_bytes = std::uint64_t{1} << 20;  // from 116 KiB to 256 MiB
  // Makes the objects. No crash is explored here.
  std::function<void(Region&)> set_up;
  // The operations. A crash may come at any moment of it.
  std::function<void(Region&, Session&)> run;
  // What a new process does after the crash. An exception is a failure.
  std::function<void(Region&)> recover;
  // Whether item number `item` is as it should be after recovery: empty, or what is wrong. Items
  // that share no persistent bytes are explored apart, which is what makes large programs
  // tractable; with one item the program is explored as a whole.
  std::uint64_t items = 1;  // to 2^20
  std::function<std::string(Region&, const History&, std::uint64_t item)> verify;
};

// Whether reads of host code that is neither in a kernel file nor uses read() are seen at all.
bool can_see_host() noexcept;

// Reads persistent memory from host code that is not in a kernel file.
void note_read(const void* address, std::size_t bytes);
template <class T>
T read(const T* address) {
  note_read(address, sizeof(T));
  return *address;
}

// A change of the program. It is made while the program and its recovery run: what was dropped does
// not happen, so that a thread really does not wait at a dropped barrier.
struct Mutation {
  enum class Kind : std::uint8_t {
    none,
    drop,     // the fence orders nothing; the release or acquire is a volatile access; nobody waits
              // at the barrier; the host does not learn that its wait is over
    narrow,   // its scope is `scope` at most
    weaken,   // a durability fence orders, and does not wait
    swap,     // a store and the next one of its thread, behind a fence, change places
    early,    // what is acknowledged behind this wait of the host is acknowledged before the work
    persist,  // a persist() comes behind the store
    widen,    // the scope is `scope` at least
  };
  Kind kind = Kind::none;
  std::string place;  // where in the source, as check() reports it
  Scope scope = Scope::system;

  bool operator==(const Mutation&) const = default;
};
const char* to_string(Mutation::Kind kind) noexcept;
const char* to_string(Scope scope) noexcept;
// As --mutation takes it: drop@FILE:LINE, narrow=block@FILE:LINE.
std::string to_string(const Mutation& mutation);

struct Options {
  std::optional<Model> model;            // nothing: sbrp and epoch
  std::uint64_t max_states = 1'000'000;  // crash states to try at most, under each model
  double max_seconds = 0;                // 0: no limit
  std::uint64_t seed = 1;                // of random states
  std::uint64_t schedule = 0;            // seed of the kernels' schedule; 0: in index order
  std::uint64_t schedules = 10'000;      // to explore at most, beside the first; 0: that one alone
  // Of recovery, to explore from each crash state at most, beside the first; 0: that one alone.
  std::uint64_t recovery_schedules = 100;
  // One recover(), or the verify() of one item, may take: one that takes longer is taken for one
  // that never ends, and the process ends with a line that names the crash state. 0: 30, or
  // max_seconds where that is more. So does one call of set_up() or run(), which 0 gives 300.
  double recovery_seconds = 0;
  bool nested = true;           // crash once more, inside recovery
  bool barrier_orders = false;  // for study: a barrier alone orders persists
  bool races = true;            // look for scoped races
  // Judge by what recovery reads, not by verify(), which may be missing and is else run for what it
  // reads: a state fails where no crash of a machine that persists in order leaves the same values.
  bool robust = false;
  Mutation mutation{};
  std::string replay;  // a state as Failure::state names it: try this one alone
  // This process's share: of executions and models, since the states of one are explored in turn.
  unsigned worker = 0;
  unsigned workers = 1;
};

// Options ask for what is not there: a replay or a mutation that names nothing. Its own type, since
// a program's functions throw invalid_argument, too, which is no matter of what was asked for.
class OptionError : public Error {
 public:
  explicit OptionError(const std::string& message) : Error(Errc::invalid_argument, message) {}
};

// How thoroughly the states were explored. Each rung is tried where the one before it is too much.
enum class Rung : std::uint8_t {
  exhaustive,  // every state that recovery can tell apart
  components,  // the same, for each group of bytes that recovery looks at together
  sampled,     // pairs of persists in both orders, few deviations, random states
  replay,      // one state
};
const char* to_string(Rung rung) noexcept;

enum class Verdict : std::uint8_t {
  // No state fails, and all there is was explored: every execution that is not equivalent to
  // another, every state that recovery can tell apart, one crash inside recovery, and no race;
  // under sbrp and under epoch.
  passed,
  failed,
  none_found,  // "no failure found": not all was explored; Report::limits says what was not
  racy,        // the program has a scoped race, which voids what the model promises
  void_,       // "void": what was explored promises nothing; Report::void_reasons says why
};
const char* to_string(Verdict verdict) noexcept;

// A line of source; file is empty where it is not known. `context` is the kernel's own line where
// the place was inlined into it.
struct Place {
  std::string file;
  unsigned line = 0;
  std::string function;
  std::string context;
};
std::string to_string(const Place& place);

struct PersistInfo {
  Place place;
  std::string thread;  // such as "block 0, thread 3", "host"
  std::string object;  // of the region, with the offset
  std::uint64_t value = 0;
  unsigned bytes = 0;
  bool durable = false;
  std::uint32_t number = 0;  // in the order of execution
};

enum class CauseKind : std::uint8_t {
  missing_order,       // `kept` may become durable before `lost`
  narrow_scope,        // they would be ordered, were the scope at `fix` wider
  barrier_only,        // only a barrier stands between them
  torn_store,          // both belong to one store
  lost_acknowledged,   // `lost` may be lost after it was promised
  not_idempotent,      // recovery fails on what it has itself left behind
  not_atomic,          // `lost` comes after `kept`: a crash in between cannot be undone
  not_a_crash_matter,  // fails with everything durable
};
const char* to_string(CauseKind kind) noexcept;

struct Failure {
  std::string message;  // what verify() or recover() said; control characters as \x1b
  std::string state;    // names the crash state for Options::replay
  Model model = Model::sbrp;
  bool nested = false;  // the second crash, inside recovery, is what it takes
  CauseKind cause = CauseKind::missing_order;
  bool has_pair = false;
  PersistInfo lost;  // not durable in the state, and missed
  PersistInfo kept;  // durable in it
  Place fix;         // the release, acquire or fence to change, where there is one
  std::string advice;
  // A change under which the recorded program was checked again and no failure was found, in words;
  // empty where none of the simple ones is enough.
  std::string suggestion;
  std::vector<PersistInfo> persists;  // of the smallest failing state, for its diagram
};

struct Hint {
  std::string what;
  Place place;
};

struct RaceReport {
  std::string what;
  Place first;
  Place second;
};

// What was explored under one model, over all executions.
struct ModelReport {
  Model model = Model::sbrp;
  Rung rung = Rung::exhaustive;
  bool complete = false;         // every state of every execution that was made
  bool nested_complete = false;  // and so were the crashes inside recovery
  bool failed = false;           // some state fails
  std::uint64_t states = 0;      // crash states that were tried, nested ones among them
  std::uint64_t nested_states = 0;
  std::uint64_t runs = 0;      // of recovery
  std::uint64_t memoised = 0;  // states for which recovery did not run: it reads the same bytes
  std::uint64_t components = 0;
  std::uint64_t pairs = 0;  // sampled: pairs that recovery reads, and those tried
  std::uint64_t pairs_tried = 0;
};

struct Report {
  std::string program;
  std::vector<ModelReport> models;  // those that were asked for
  Verdict verdict = Verdict::none_found;
  std::vector<std::string> limits;        // why it is no stronger one
  std::vector<std::string> void_reasons;  // why it is void
  // Over all models: the least thorough rung, what all of them completed, and sums.
  Rung rung = Rung::exhaustive;
  bool complete = false;
  bool nested_complete = false;
  std::uint64_t states = 0;
  std::uint64_t nested_states = 0;
  std::uint64_t runs = 0;
  std::uint64_t memoised = 0;
  std::uint64_t schedules = 0;  // executions that were made
  bool schedules_complete = false;
  double schedules_share = 0;  // of all that are not equivalent; 0: unknown
  // Every execution of recovery was made that is not equivalent to another, from each state that
  // was tried; and none of them has a race.
  bool recovery_complete = false;
  std::uint64_t recovery_schedules =
      0;                        // executions of recovery that were made: the most of a state
  bool recovery_raced = false;  // recovery has a race, or one may have been missed
  bool races_sought = false;
  bool barrier_orders = false;
  std::uint64_t shares = 1;    // Options::workers whose reports are in this one ...
  std::uint64_t share_of = 1;  // ... of so many
  std::uint64_t persists = 0;  // the most of any execution; and so the threads and points
  std::uint64_t threads = 0;
  std::uint64_t crash_points = 0;
  double seconds = 0;
  std::uint64_t peak_bytes = 0;  // resident memory
  std::vector<Failure> failures;
  std::vector<RaceReport> races;
  std::vector<Hint> hints;
};

// Sets what follows from the rest of a report: the sums over its models, the verdict and why it is
// no stronger one. check() has done so; it is for who puts reports together.
void conclude(Report& report);

// Runs the program, and explores the crash states of each of its executions under each model. It
// stops at the first failure of a model.
// Throws unsupported (a build that delivers no events; a recovery that is not a function of
// persistent memory; host code that is not instrumented and stores to persistent memory, or reads
// it for the first time after many runs; a run() that allocates or removes objects, or ends while a
// stream has work that nobody has waited for), OptionError, invalid_argument (a Program that lacks
// something), and what set_up and run throw. One check at a time in a process.
Report check(const Program& program, const Options& options = {});

// A change of the program, and what it takes to notice it.
struct Mutant {
  Mutation mutation;
  Place place;
  bool in_recovery = false;
  enum class Fate : std::uint8_t {
    killed,      // some size shows what the change breaks
    not_needed,  // at every size it was reached at, the changed program passes, and its threads
                 // tell one another nothing by atomics, volatile accesses, releases and acquires
    not_killed,  // neither: not all was explored, as what the host does earlier without a wait
  } fate = Fate::not_killed;
  enum class Killer : std::uint8_t { none, state, race, executor } killer = Killer::none;
  std::vector<std::string> sizes;  // at which it was tried
  std::string killed_at;           // the size that shows it
  std::uint64_t schedule = 0;      // and the seed of its schedule
  std::string message;             // what the executor said, or why it could not be explored
  Report report;                   // of the execution that shows it, or of the last one tried
};
const char* to_string(Mutant::Fate fate) noexcept;
const char* to_string(Mutant::Killer killer) noexcept;

// A program at one of its sizes.
struct SizedProgram {
  std::string sizes;  // in words, such as "4 threads"
  std::function<Program()> make;
};

// Checks each single change of the program: fences, releases, acquires, barriers and waits of the
// host dropped; scopes narrowed; durability fences weakened; stores that a fence keeps apart
// swapped; acknowledgements made before the wait. Each at every size, under both models unless
// `options` says otherwise, with schedules 0 to `seeds` - 1 where they are not explored to the end,
// and looking for races. A state that fails, a race, or a kernel that the executor gives up (a
// livelock, a deadlock, a fault) kills a mutant. Killed by a race means: what threads see needs it,
// and no state that was tried.
// `options.mutation` and `schedule` are ignored; a worker takes its share of the mutants. Throws as
// check().
std::vector<Mutant> check_mutants(const std::vector<SizedProgram>& programs,
                                  const Options& options = {}, std::uint64_t seeds = 3);
std::vector<Mutant> check_mutants(const Program& program, const Options& options = {});

}  // namespace holdfast::check
