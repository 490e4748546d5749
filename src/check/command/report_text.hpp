// Reports as text, for people who run the executable itself.
#pragma once

#include <string>

#include "check/command/report_json.hpp"

namespace holdfast::check {

// `command` is how the executable was called: replaying a failure starts with it.
std::string report_text(const Json& checked, const std::string& command);
std::string mutants_text(const Json& checked_mutants, const std::string& command);

}  // namespace holdfast::check
