// What a persist costs on emulated media. The CPU backend's durability fence asks here.
#pragma once

#include <cstdint>

namespace holdfast::core {

// Nanoseconds that the medium which holds `address` takes to make `bytes` durable there; 0 if no
// open region of the emulated domain holds it. Thread safety: any.
double persist_cost_ns(const void* address, std::uint64_t bytes) noexcept;

// Nanoseconds for a fence whose addresses are not known: the slowest open medium's cost of
// `bytes`; 0 if there is none. One atomic load in that case. Thread safety: any.
double fence_cost_ns(std::uint64_t bytes) noexcept;

}  // namespace holdfast::core
