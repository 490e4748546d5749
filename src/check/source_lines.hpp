// Source lines of addresses in code, for reports.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace holdfast::check {

// Where nothing is known `file` is empty, and `function` names the module and the offset in it,
// such as "libc.so.6+0x1234".
struct SourceLine {
  std::string file;
  unsigned line = 0;
  std::string function;
  bool operator==(const SourceLine&) const = default;
};

// Resolves return addresses with addr2line, which has to be installed and on PATH; without it
// nothing is known. Remembers what it has resolved. Thread safety: one thread at a time.
class SourceLines {
 public:
  // Resolves all of `pcs` at once: one process for each module that they are in.
  void look_up(std::span<const void* const> pcs);

  // The line of the call that returns to `pc`, and of those that were inlined around it: innermost
  // first, at least one. What look_up() has not seen costs a process.
  const std::vector<SourceLine>& resolve(const void* pc);

 private:
  std::unordered_map<const void*, std::vector<SourceLine>> known_;
};

}  // namespace holdfast::check
