#include "holdfast/error.hpp"

#include <new>
#include <system_error>

#include "core/guard.hpp"

namespace holdfast {

const char* to_string(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::not_found:
      return "not_found";
    case Errc::already_exists:
      return "already_exists";
    case Errc::in_use:
      return "in_use";
    case Errc::damaged:
      return "damaged";
    case Errc::conflict:
      return "conflict";
    case Errc::foreign:
      return "foreign";
    case Errc::newer_version:
      return "newer_version";
    case Errc::permission:
      return "permission";
    case Errc::no_space:
      return "no_space";
    case Errc::no_shared_memory:
      return "no_shared_memory";
    case Errc::no_memory:
      return "no_memory";
    case Errc::closed:
      return "closed";
    case Errc::unsupported:
      return "unsupported";
    case Errc::log_full:
      return "log_full";
    case Errc::kernel_fault:
      return "kernel_fault";
    case Errc::livelock:
      return "livelock";
    case Errc::device:
      return "device";
    case Errc::io:
      return "io";
    case Errc::rank_lost:
      return "rank_lost";
  }
  return "unknown";
}

namespace {

// what() ends at a zero byte, and a name that is refused for having one is part of its message.
std::string with_zeroes_shown(std::string message) {
  for (std::size_t at = 0; (at = message.find('\0', at)) != std::string::npos;) {
    message.replace(at, 1, "\\0");
  }
  return message;
}

}  // namespace

Error::Error(Errc code, const std::string& message)
    : std::runtime_error(with_zeroes_shown(message)), code_(code) {}

void detail::throw_moved_from(const char* what) {
  throw Error(Errc::closed, concat("the ", what, " was moved from: use what it was moved to"));
}

namespace {

// A thread that cannot be had is memory, or a limit on either, that has run out.
bool is_lack_of_threads(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr && system->code() == std::errc::resource_unavailable_try_again;
}

// Made while there is memory. An Error is copied without any.
const Error g_no_memory(Errc::no_memory, "no memory; free some, or raise the limit");

}  // namespace

Error core::current_error(const char* what) noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return error;
    } catch (const std::bad_alloc&) {
      return {Errc::no_memory,
              detail::concat("no memory for ", what, "; free some, or raise the limit")};
    } catch (const std::exception& error) {
      if (is_lack_of_threads(error)) {
        return {Errc::no_memory, detail::concat("no thread for ", what, " (", error.what(),
                                                "); free memory, or raise ulimit -u")};
      }
      return {Errc::io, detail::concat(what, " failed: ", error.what())};
    }
  } catch (...) {
    return g_no_memory;
  }
}

void core::fail(const char* what) { throw current_error(what); }

}  // namespace holdfast
