// Who has a file's lock.
#pragma once

#include <string>

namespace holdfast::core {

struct LockHolder {
  std::string words;       // "process 17; close it there first", with the remedy
  bool was_found = false;  // a process that has it now
};

// Of the lock that another descriptor has on the open file `fd`, from /proc. A lock lives until
// every copy of its descriptor is closed and unmapped; the system goes on naming the process that
// took it, which may have handed it on to what it forked and have let go of it, or have ended. For
// a moment nobody has it: while the system still closes what a process had that was killed. Reads
// at most a few thousand processes.
LockHolder lock_holder(int fd);

}  // namespace holdfast::core
