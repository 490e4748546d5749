// Why a structure cannot be used any more.
#pragma once

#include <exception>
#include <string>

namespace holdfast::core {

// Keeps what an error says; where there is no memory for that, a few words that need none: a
// structure that is broken must not pass for one that is not.
inline void keep_reason(std::string& reason, const std::exception& error) noexcept {
  try {
    reason = error.what();
  } catch (const std::exception&) {
    reason = "no memory";
  }
}

}  // namespace holdfast::core
