// The stores by name. A new one takes its class, and its line in the table of stores.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "adjoint/history_store.hpp"
#include "adjoint/snapshot_store.hpp"

namespace adjoint {

inline constexpr std::uint64_t kUsualSnapshots = 16;

struct StoreOptions {
  std::string name = "memory";
  std::uint64_t snapshots = 0;    // for those that hold a few; 0: kUsualSnapshots
  RevolveStore::Advance advance;  // for those that recompute
  // For those that keep them in tiers: bytes of the caches, and where the rest goes.
  std::uint64_t gpu_cache = 0, host_cache = 0;
  std::string folder = {};
  std::string host_region = {};  // a region for the host's cache, which then outlives the process
  std::optional<Resumption> resumption = {};
};

// "memory, revolve, history", for messages.
std::string store_names();
// Throws invalid_argument: no such store, snapshots for one that holds all, or
// caches for one that has none.
std::unique_ptr<SnapshotStore> make_store(const StoreOptions& options);

}  // namespace adjoint
