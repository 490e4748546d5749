// Which streams have work that the host has not waited for.
#pragma once

namespace holdfast::cpu {

// Work is queued on the stream; all that is queued on it has been waited for (null: on all).
void note_queued(const void* stream);
void note_waited(const void* stream);

}  // namespace holdfast::cpu
