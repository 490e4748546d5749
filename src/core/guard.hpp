// What leaves the library is an Error, memory that ran out included.
#pragma once

#include "holdfast/error.hpp"

namespace holdfast::core {

// The Error for the exception at hand; `what` could not be done. REQUIRES: within a handler.
Error current_error(const char* what) noexcept;

// Throws it. Public functions end so: catch (const std::exception&) { fail("f()"); }
[[noreturn]] void fail(const char* what);

}  // namespace holdfast::core
