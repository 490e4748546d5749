// Changes of a recorded execution: the program with one fence less, or a narrower one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "check/source_lines.hpp"
#include "check/trace.hpp"
#include "holdfast/check.hpp"

namespace holdfast::check {

// Places of a trace's sites as text, such as "undo_log_ref.inl:87", resolved as they are asked for.
class Places {
 public:
  // Resolves all sites of a trace at once, which takes far less than one by one.
  void look_up(const Trace& trace);
  Place place(const Site& site);
  std::string name(const Site& site);  // "file:line", what Mutation::place holds

 private:
  SourceLines lines_;
  std::map<const void*, Place> places_;
};

// The execution of the changed program. The trace itself where the mutation is `none`.
Trace mutate(const Trace& trace, const Mutation& mutation, Places& places);

// Every mutation that changes something in the trace.
std::vector<Mutation> mutations_of(const Trace& trace, Places& places);

}  // namespace holdfast::check
