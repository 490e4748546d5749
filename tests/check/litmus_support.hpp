// Where the litmus tests are, and small random ones.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "check/litmus.hpp"
#include "check/litmus_run.hpp"

namespace holdfast::test {

inline std::string repository() { return HOLDFAST_REPOSITORY; }
inline std::string litmus_folder() { return repository() + "/litmus"; }

inline const std::vector<check::LitmusTest>& all_litmus() {
  static const std::vector<check::LitmusTest> tests = [] {
    std::vector<check::LitmusTest> all = check::load_litmus({litmus_folder()});
    std::erase_if(all, [](const check::LitmusTest& test) { return test.is_final; });
    return all;
  }();
  return tests;
}

// Programs of 2 to 3 threads with 2 to 5 operations each and at most 10 persists.
class LitmusGenerator {
 public:
  explicit LitmusGenerator(std::uint64_t seed) : random_(seed) {}

  // With `fences`, what makes fences matter is frequent: few plain races, many messages.
  std::string program(bool fences) {
    persists_ = 0;
    barriers_ = !fences && below(4) == 0;
    const bool streams = !barriers_ && below(3) == 0;
    bool recorded = false;
    const std::size_t threads = 2 + below(2);
    std::string text =
        "test random {\n  persistent u64 a, b, c\n  persistent u32 p[2]\n  volatile u32 f, g, "
        "m[2]\n";
    for (std::size_t i = 0; i < threads; ++i) {
      if (streams) text += "  stream S" + std::to_string(below(2)) + " {\n";
      if (recorded && below(2) == 0) text += "  wait E\n";
      text += "  thread T" + std::to_string(i) + " block " +
              std::to_string(barriers_ ? 0 : below(2)) + " {\n";
      const std::size_t count = 2 + below(threads == 3 ? 3 : 4);
      const std::size_t barrier = below(count);
      for (std::size_t j = 0; j < count; ++j) {
        text += "    " + (barriers_ && j == barrier ? "barrier" : operation(fences)) + "\n";
      }
      text += "  }\n";
      if (!streams) continue;
      if (persists_ < 8 && below(3) == 0) {
        persists_ += 2;
        text += "  " + pick({"copy a = 4", "copy p[0..1] = 4", "copy c = b"}) + "\n";
      }
      if (below(2) == 0) {
        recorded = true;
        text += "  record E\n";
      }
      text += "  }\n";
      const std::string stream = text.substr(text.rfind("  stream S") + 9, 2);
      if (below(4) == 0)
        text += "  synchronize " + (recorded ? pick({stream, "E"}) : stream) + "\n";
    }
    if (below(4) == 0) text += "  synchronize\n  acknowledge\n";
    text += "  crash " + term();
    for (std::size_t more = below(4); more > 0; --more) text += " && " + term();
    return text + "\n  sbrp: allowed\n  epoch: allowed\n}\n";
  }

  std::size_t below(std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_);
  }

 private:
  std::string pick(const std::vector<std::string>& from) { return from[below(from.size())]; }
  std::string scope() { return pick({".block", ".device", ".device", ".system"}); }
  std::string value() { return std::to_string(1 + below(2)); }

  std::string operation(bool fences) {
    const std::size_t kind = below(fences ? 10 : 14);
    if (kind < 3 && persists_ < 9) {
      ++persists_;
      return pick({"a", "b", "c", "p[0]", "p[1]"}) + " = " + value();
    }
    if (kind < 5) return pick({"ofence", "dfence", "dfence", "fence" + scope()});
    if (kind < 7) {
      if (below(12) == 0) return pick({"m[0..1] = 1", "m[1] = 1"});
      return pick({"prel", "strong"}) + scope() + " " + pick({"f", "g", "f", "g", "m[0..1]"}) +
             " = 1";
    }
    if (kind < 10) {
      return "r0 = " + pick({"pacq", "strong"}) + scope() + " " +
             pick({"f", "g", "f", "g", "m[0..1]", "m[0]"}) + "\n    if r0 " + pick({"==", "!="}) +
             " 1: " + simple();
    }
    if (kind == 10) return "r0 = " + pick({"a", "b", "p[1]", "f"});
    if (kind == 11 && persists_ < 8) {
      persists_ += 1;
      return pick({"p[0..1] = 3", "prel" + scope() + " a = 2", "strong" + scope() + " b = 2"});
    }
    if (kind == 12 && persists_ < 9) {
      ++persists_;
      return pick({"add" + scope() + " a, 1", "cas" + scope() + " b, 0, 2"});
    }
    return pick({"add" + scope() + " f, 1", "cas" + scope() + " g, 1, 2", "ofence"});
  }

  std::string simple() {
    if (persists_ >= 10) return "ofence";
    ++persists_;
    return pick({"a", "b", "c", "p[0]"}) + " = " + value();
  }

  std::string term() {
    if (below(8) == 0) return "acknowledged < " + value();
    return pick({"a", "b", "c", "p[0]", "p[1]", "p[0..1]"}) + " " + pick({"==", "!=", "<", "<"}) +
           " " + std::to_string(below(4));
  }

  std::mt19937_64 random_;
  std::size_t persists_ = 0;
  bool barriers_ = false;
};

}  // namespace holdfast::test
