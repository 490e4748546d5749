// The one exception type of the library.
#pragma once

#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace holdfast {

enum class Errc {
  invalid_argument,
  not_found,
  already_exists,
  in_use,            // another process has the region open
  damaged,           // a checksum or a bound does not hold
  conflict,          // image and arena do not belong together, or one of them is not there
  foreign,           // not a file of this kind
  newer_version,     // written by a later format version
  permission,        // wrong owner, wrong mode, a symbolic link, or refused by the system
  no_space,          // the file system is full
  no_shared_memory,  // the arena does not fit into its folder
  no_memory,
  closed,        // used after close()
  unsupported,   // this build or this machine cannot do it
  log_full,      // an undo log did not take an entry
  kernel_fault,  // a kernel trapped or touched memory that is not its own
  livelock,      // a kernel made no progress (CPU backend)
  device,        // a CUDA call failed
  io,
  rank_lost,  // another rank ended, or did not come in time
};

// Returns the enumerator's name, such as "damaged".
const char* to_string(Errc code) noexcept;

// What every function of the library throws. what() names the thing and the remedy.
class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message);
  Errc code() const noexcept { return code_; }

 private:
  Errc code_;
};

namespace detail {

template <class... Parts>
std::string concat(Parts&&... parts) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // memory that runs out must not cut a path short
  (out << ... << std::forward<Parts>(parts));
  return out.str();
}

// The Error of a `what`, such as "stream", whose state went to another.
[[noreturn]] void throw_moved_from(const char* what);

}  // namespace detail
}  // namespace holdfast
