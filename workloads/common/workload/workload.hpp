// What every workload offers, so that one program runs, kills, measures and checks them all:
// workloads/NAME/ implements Workload and defines std::vector<workload::Info> NAME::workloads(),
// tools/run drives it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "workload/backing.hpp"
#include "workload/digest.hpp"
#include "workload/mode.hpp"

namespace workload {

// How large the input is.
enum class Size {
  test,   // under a second on one CPU core
  real,   // the real input where there is one; else some seconds on a CPU
  paper,  // GPM's Table 1
};

struct Settings {
  Mode mode = Mode::gpm;
  Size size = Size::test;
  std::string data_folder;  // real inputs; empty, or without the file: one is generated
  std::uint64_t seed = 1;
  std::uint64_t steps = 0;                     // 0: what the size says
  std::map<std::string, std::string> options;  // of the workload: see Info::options
};

// One step is what is durable, or not, as a whole: a batch, an interval between checkpoints, or a
// pass of a native kernel.
//
// Order of calls: the constructor reads or makes the input; prepare() once; then step(resume()) to
// step(steps() - 1), note_step() behind each; digest() and verify() at the end. A process may be
// killed at any moment; the next makes the same Workload of the same settings with a Backing of the
// same path.
class Workload {
 public:
  virtual ~Workload() = default;

  // In words: "New York road network, 264,346 nodes", or "generated: ...".
  virtual std::string input() const = 0;
  virtual std::uint64_t steps() const = 0;
  // Bytes that its persistent arrays and checkpoints take, for Backing's capacity (alignment is
  // added by the caller). Known before prepare().
  virtual std::uint64_t medium_bytes() const = 0;

  // Asks `backing` for its arrays and sets up the volatile ones. Not part of what is timed.
  // `backing` outlives the workload.
  virtual void prepare(Backing& backing) = 0;
  // Recovers: undoes or loads what a former process left. Returns the first step that is still to
  // be done; 0 for new. Safe to be killed in, and to be called again.
  virtual std::uint64_t resume() = 0;
  // REQUIRES: all steps before `number` are done. Durable on return.
  virtual void step(std::uint64_t number) = 0;

  // Outside what is timed, behind step(): what has to be kept of it for verify().
  virtual void note_step(std::uint64_t) {}

  // Of the durable result, as it is on the medium: the same whatever the kills on the way, and,
  // for workloads of integers, whatever the mode.
  virtual Digest digest() = 0;
  // Of what steps answered and did not keep, where this process did all of them; else empty.
  virtual std::string answers() const { return {}; }
  // Compares the durable result, as it is on the medium, with an oracle that shares no code with
  // the kernels. Returns what is wrong; empty if nothing is.
  virtual std::string verify() = 0;

  // Bytes that kernels stored to the medium in the steps so far, where they store directly (modes
  // gpm, eadr and ndp), logs included. What Backing writes for the other modes it counts itself.
  virtual std::uint64_t kernel_bytes() const = 0;
  // Of these, what falls as aligned streams although Info::kernel_access says otherwise: the
  // entries of a coalesced log.
  virtual std::uint64_t streamed_bytes() const { return 0; }
  // Of kernel_bytes(), those that were stored as they are there, to store whole lines
  // (holdfast/whole_lines.hpp). What writes lines or larger blocks writes them either way.
  virtual std::uint64_t unchanged_bytes() const { return 0; }

  // What a result has to be read with and the settings do not tell, by name: which of several ways
  // was taken, what kernels read of the medium. REQUIRES: resume().
  virtual std::map<std::string, std::string> facts() const { return {}; }
};

struct Info {
  enum class Class { transactional, checkpointing, native };
  std::string name;     // "hotspot"
  std::string summary;  // one line
  Class kind;
  std::uint32_t table_row = UINT32_MAX;  // in GPM's Table 1; what is not in it is listed last
  // Name, and what it is, with its values: {"rows", "rows of the table (default 50,000)"}.
  std::map<std::string, std::string> options;
  std::function<std::unique_ptr<Workload>(const Settings&)> make;
  // How a step's stores fall on the medium where kernels store directly, but for streamed_bytes().
  // Copies and checkpoints are aligned in every mode.
  holdfast::testing::Access kernel_access = holdfast::testing::Access::aligned;
};

// By table_row, then by name.
const std::vector<Info>& workloads();
// Throws not_found, naming those that there are.
const Info& find_workload(const std::string& name);

// Throws invalid_argument for an option that the workload does not have, naming those that it has.
void check_options(const Info& info, const Settings& settings);

// Reads a number from the options, or returns `otherwise`. Throws invalid_argument, naming the
// option and the range.
std::uint64_t number_option(const Settings& settings, const std::string& name,
                            std::uint64_t otherwise, std::uint64_t least, std::uint64_t most);

// Throws invalid_argument, naming all of `names`, where some are given and others are not.
void check_together(const Settings& settings, const std::vector<std::string>& names);

// The choice that an option says in a word; the first where it is not given. Throws
// invalid_argument, naming the option and the choices.
template <class T>
T choice_option(const Settings& settings, const std::string& name,
                const std::vector<std::pair<const char*, T>>& choices) {
  const auto given = settings.options.find(name);
  if (given == settings.options.end()) return choices.front().second;
  std::string known;
  for (const auto& [word, value] : choices) {
    if (given->second == word) return value;
    known += holdfast::detail::concat(known.empty() ? "" : " or ", word);
  }
  throw holdfast::Error(
      holdfast::Errc::invalid_argument,
      holdfast::detail::concat("option ", name, "=", given->second, ": give ", known));
}

}  // namespace workload
