// Small programs for the fuzzer of the checker: tables of operations that one kernel interprets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/check.hpp"

namespace holdfast::test {

enum class Space : std::uint8_t { persistent, device, shared };

enum class Code : std::uint8_t {
  load,  // into the op's register
  store,
  load_volatile,
  store_volatile,
  store_wide,      // 16 bytes: the value, and the value + 1
  clear_and_add,   // stores 0, reads it back and adds
  copy_to_itself,  // 16 bytes, as a struct
  atomic_add,
  atomic_or,
  exchange,
  acquire,
  release,
  ofence,
  persist,
  fence_block,
  fence_device,
  fence_system,
  barrier,
  barrier_or,   // of whether the register is not 0
  ballot,       // the same, of the warp
  skip_unless,  // the next `count` operations, unless the register holds `value`
};

// One operation of one thread.
struct FuzzOp {
  Code code = Code::load;
  Space space = Space::persistent;
  Scope scope = Scope::device;
  std::uint8_t size = 8;   // 4 or 8 bytes
  std::uint8_t place = 0;  // in 4 bytes
  std::uint8_t count = 0;
  std::uint8_t reg = 0;
  bool adds = false;  // stores `value` plus the register
  std::uint64_t value = 0;
};

// On 8 bytes of persistent memory.
inline FuzzOp op(Code code, unsigned word, std::uint64_t value = 0, unsigned reg = 0) {
  FuzzOp result;
  result.code = code;
  result.place = static_cast<std::uint8_t>(2 * word);
  result.value = value;
  result.reg = static_cast<std::uint8_t>(reg);
  return result;
}
inline FuzzOp unless(unsigned reg, std::uint64_t value, unsigned count) {
  FuzzOp result = op(Code::skip_unless, 0, value, reg);
  result.count = static_cast<std::uint8_t>(count);
  return result;
}

inline constexpr unsigned kRegisters = 3;

struct FuzzKernel {
  unsigned blocks = 1;
  unsigned threads = 1;                   // of a block
  bool shares = false;                    // uses shared memory
  std::vector<std::vector<FuzzOp>> code;  // by thread of the grid
};

// One step of the host, in run() or in recover().
struct FuzzStep {
  enum class Kind : std::uint8_t {
    launch,
    synchronize,
    start,
    acknowledge,
    copy_in,   // device words [to, to + count) from persistent ones at `place` (8 bytes each)
    copy_out,  // ends the function unless device word `place` holds `value`
    only_if,   // ends the function unless persistent word `place` holds `value`
    store,     // of `value` to persistent word `place`
  };
  Kind kind = Kind::launch;
  std::uint32_t kernel = 0;
  std::uint8_t place = 0;
  std::uint8_t to = 0;
  std::uint8_t count = 0;
  std::uint64_t value = 0;
};

// What an item of the verification reads, in this order.
struct FuzzRead {
  std::uint8_t place = 0;
  std::uint8_t size = 8;
  bool ends = false;  // where it reads `value`, it reads no further
  std::uint64_t value = 0;
};

inline FuzzRead read(unsigned word) {
  FuzzRead result;
  result.place = static_cast<std::uint8_t>(2 * word);
  return result;
}

struct FuzzCase {
  std::string kind;
  unsigned words = 0;         // of persistent memory, 8 bytes each
  unsigned device_words = 0;  // of device memory and of each block's shared memory
  std::vector<FuzzKernel> kernels;
  std::vector<FuzzStep> run;
  std::vector<FuzzStep> recover;
  std::vector<std::vector<FuzzRead>> items;
};

// What one item saw after a crash: item, started, acknowledged, and the values that it read.
using Observation = std::vector<std::uint64_t>;

// The case as a program. `observe` is told what each item saw, and returns what is wrong with it.
check::Program make_program(std::shared_ptr<const FuzzCase> fuzz,
                            std::function<std::string(const Observation&)> observe);

// The object that has all of the case's persistent words.
inline constexpr const char* kFuzzObject = "words";

FuzzCase generate(std::uint64_t seed);
std::string to_string(const FuzzCase& fuzz);

}  // namespace holdfast::test
