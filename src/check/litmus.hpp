// Litmus tests of the persistency model: small programs, and whether a crash may leave what they
// describe. docs/model.md has the text form; litmus/*.litmus are the tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/trace.hpp"
#include "holdfast/check.hpp"

namespace holdfast::check {

struct LitmusVariable {
  std::string name;
  bool persistent = false;
  std::uint32_t width = 8;  // bytes of an element
  std::uint32_t count = 1;  // elements, next to each other
  std::uint64_t initial = 0;
  std::uint64_t address = 0;  // aligned to 16 bytes
};

// Elements [first, first + count) of a variable.
struct LitmusPlace {
  std::uint32_t variable = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 1;
};

struct LitmusValue {
  bool is_register = false;
  std::uint64_t number = 0;  // the value, or the register's number
};

enum class Comparison : std::uint8_t { equal, unequal, less, greater };
bool holds(std::uint64_t left, Comparison comparison, std::uint64_t right);

enum class LitmusOp : std::uint8_t {
  store,
  load,
  wait,  // a load that is made once the value is there
  add,
  cas,
  fence,
  ofence,
  dfence,
  barrier,
  branch,  // skips `skip` steps unless the comparison holds
  // Of a stream:
  record,
  wait_event,
  // The host's:
  launch,  // of the next kernel, copy, record or wait of a stream
  synchronize,
  start,
  acknowledge,
};

enum class Access : std::uint8_t {
  plain,
  strong,   // atomic or volatile
  persist,  // prel() and pacq()
};

inline constexpr std::uint32_t kNoRegister = ~std::uint32_t{0};

struct LitmusStep {
  LitmusOp op = LitmusOp::store;
  Access access = Access::plain;
  Scope scope = Scope::system;
  LitmusPlace place;
  std::uint32_t result = kNoRegister;  // register that receives what was read
  LitmusValue value;                   // stored, added, or what a cas puts
  LitmusValue expected;                // of a cas, a wait or a branch
  std::uint32_t tested = 0;            // branch: the register
  Comparison comparison = Comparison::equal;
  std::uint32_t skip = 0;
  std::uint32_t stream = 0;  // synchronize: the one it waits for; 0: all, or an event
  std::uint32_t event = 0;   // record, wait_event, synchronize: the launch of the record
  std::uint32_t line = 0;
};

// A thread of a kernel; or a copy, a record or a wait of a stream, which is launched as a kernel
// is.
struct LitmusThread {
  std::string name;
  std::uint32_t launch = 0;  // what the host launches, from 1; 0: the host
  std::uint32_t stream = 0;  // from 1, which holds what stands in no stream; 0: the host
  bool is_kernel = false;
  std::uint64_t block = 0;
  std::uint32_t registers = 0;
  std::vector<LitmusStep> steps;
};

// One comparison of what recovery makes. It reads the elements one after the other and stops at
// the first for which the comparison does not hold.
struct LitmusTerm {
  enum class Of : std::uint8_t { place, started, acknowledged, reg } of = Of::place;
  LitmusPlace place;
  std::uint32_t thread = 0;  // of a register
  std::uint32_t reg = 0;
  Comparison comparison = Comparison::equal;
  std::uint64_t value = 0;
};

struct LitmusTest {
  std::string name;
  std::string comment;
  std::string file;
  std::uint32_t line = 0;
  std::vector<LitmusVariable> variables;
  std::uint32_t kernels = 0;
  std::vector<LitmusThread> threads;  // the first is the host
  std::vector<LitmusTerm> condition;
  // Whether a crash may leave a state in which the condition holds. Unset: not said.
  std::optional<bool> sbrp;
  std::optional<bool> epoch;
  // Of a test without a crash, whose condition is what threads and memory hold at the end: whether
  // it is reached, and whether PTX allows it (litmus_ptx.hpp).
  bool is_final = false;
  std::optional<bool> sc;
  std::optional<bool> ptx;

  std::optional<bool> allowed(Model model) const { return model == Model::sbrp ? sbrp : epoch; }
};

// `file` is for messages. Throws invalid_argument, with the place and what was expected there.
std::vector<LitmusTest> parse_litmus(std::string_view text, const std::string& file);

// Reads a file. Throws not_found and io, too.
std::vector<LitmusTest> read_litmus(const std::string& path);

// The persistent variables as recovery finds them if nothing is durable.
std::vector<std::byte> initial_image(const LitmusTest& test);
PersistentRange persistent_range(const LitmusTest& test);

}  // namespace holdfast::check
