// Which streams have work that the host has not waited for, and errors that it never asked for.
#pragma once

#include <cstddef>

#include "holdfast/error.hpp"

namespace holdfast::cpu {

// Work is queued on the stream; all that is queued on it has been waited for (null: on all).
void note_queued(const void* stream);
void note_waited(const void* stream);
// Host code makes a strong access, or (null) does something else that work beside it may see or be
// seen by. If some is queued, streams_have_overlapped() says so from here on. The caller's own
// stack does not count: no kernel sees it.
void note_host_beside(const void* address);

// A thread that has no part in the run does something that kernels or the host may see, or gives
// work to a stream.
void note_stranger() noexcept;

// Memory of the host that a copy of a stream reads or writes, since the last watch_streams().
void note_copied(const void* address, std::size_t bytes);
bool is_copied(const void* address);

// A stream has ended whose error was thrown to nobody. A destructor says so: no memory is needed.
void note_lost_error(const Error& error) noexcept;

}  // namespace holdfast::cpu
