// Reports as JSON: what the processes of a check send one another, and what --json prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "check/command/arguments.hpp"
#include "holdfast/check.hpp"

namespace holdfast::check {

using Json = nlohmann::ordered_json;

// A whole report, and back. Lines of source are not in it.
Json to_json(const Report& report);
Report report_from_json(const Json& json);
Json to_json(const Mutant& mutant);
Mutant mutant_from_json(const Json& json);

// In words: what a rung tried, what a cause is.
const char* describe(Rung rung) noexcept;
const char* describe(CauseKind cause) noexcept;

// What --json prints for a check: the report, and with it words, lines of source, the arguments
// that replay each failure, and `dead`, what became of processes that did not report.
Json checked(const Report& report, const Arguments& arguments,
             const std::vector<std::string>& dead);
// The same for the mutants; `plain` is the report of the program as it is.
Json checked_mutants(const Report& plain, const std::vector<Mutant>& mutants,
                     const Arguments& arguments, const std::vector<std::string>& dead);

// The exit status that a verdict stands for.
int status_of(Verdict verdict);
// Whether a program's mutants say anything: nothing fails in it as it is.
bool is_sound(const Report& report);
bool is_good(const std::vector<Mutant>& mutants);

// One line, whatever bytes its strings hold.
std::string print(const Json& json);

}  // namespace holdfast::check
