// What must hold, in every build: what follows would lose a checkpoint.
#pragma once

#include <stdexcept>
#include <string>

namespace holdfast::history {

// Throws logic_error: a defect of this library. `what` is no string, which would be made each time.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("holdfast: history: ") + what);
}

}  // namespace holdfast::history
