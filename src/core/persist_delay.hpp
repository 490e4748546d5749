// What media that are emulated ask of the backend.
#pragma once

namespace holdfast::backend {

// How long every durability fence of a kernel waits. CPU backend alone: a GPU's fences take the
// time that they take. Thread safety: any.
void set_persist_delay_ns(double nanoseconds) noexcept;

}  // namespace holdfast::backend
