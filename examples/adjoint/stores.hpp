// The stores by name. A new one takes its class, and its line in the table of stores.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "adjoint/snapshot_store.hpp"

namespace adjoint {

inline constexpr std::uint64_t kUsualSnapshots = 16;

struct StoreOptions {
  std::string name = "memory";
  std::uint64_t snapshots = 0;    // for those that hold a few; 0: kUsualSnapshots
  RevolveStore::Advance advance;  // for those that recompute
};

// "memory, revolve", for messages.
std::string store_names();
// Throws invalid_argument: no such store, or snapshots for one that holds all.
std::unique_ptr<SnapshotStore> make_store(const StoreOptions& options);

}  // namespace adjoint
