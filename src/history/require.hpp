// What must hold, in every build: what follows would lose a checkpoint.
#pragma once

#include <stdexcept>
#include <string>

namespace holdfast::history {

// Throws logic_error: a defect of this library.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("holdfast: history: " + what);
}

}  // namespace holdfast::history
