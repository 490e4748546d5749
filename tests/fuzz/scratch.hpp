// A folder in shared memory for the targets that need files; gone when the process ends.
#pragma once

#include <string>

namespace holdfast::fuzz {

// A file that stands for the image: it is opened and locked, and its bytes are in memory.
const std::string& scratch_image();

// Removes everything beside it.
void clear_scratch();

}  // namespace holdfast::fuzz
