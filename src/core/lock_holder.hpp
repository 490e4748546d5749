// Who has a file's lock, for messages.
#pragma once

#include <string>

namespace holdfast::core {

// Of the lock that another descriptor has on the open file `fd`, from /proc: "process 17; close it
// there first", with the remedy. A lock lives until every copy of its descriptor is closed and
// unmapped; the system goes on naming the process that took it, which may have handed it on to what
// it forked and have let go of it, or have ended. Reads at most a few thousand processes.
std::string lock_holder_in_words(int fd);

}  // namespace holdfast::core
