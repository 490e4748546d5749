#include "adjoint/stores.hpp"

#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;

namespace {

struct Kind {
  const char* name;
  bool takes_snapshots;  // of those options of StoreOptions
  bool takes_tiers;
  std::unique_ptr<SnapshotStore> (*make)(const StoreOptions& options);
};

constexpr Kind kKinds[] = {
    {"memory", false, false,
     [](const StoreOptions&) -> std::unique_ptr<SnapshotStore> {
       return std::make_unique<MemoryStore>();
     }},
    {"revolve", true, false,
     [](const StoreOptions& options) -> std::unique_ptr<SnapshotStore> {
       const std::uint64_t snapshots = options.snapshots == 0 ? kUsualSnapshots : options.snapshots;
       return std::make_unique<RevolveStore>(snapshots, options.advance);
     }},
    {"history", false, true,
     [](const StoreOptions& options) -> std::unique_ptr<SnapshotStore> {
       holdfast::HistoryOptions tiers;
       tiers.gpu_bytes = options.gpu_cache;
       tiers.host_bytes = options.host_cache;
       tiers.disk = options.folder;
       tiers.host_region = options.host_region;
       return std::make_unique<HistoryStore>(tiers, options.resumption);
     }},
};

}  // namespace

std::string store_names() {
  std::string names;
  for (const Kind& kind : kKinds) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

std::unique_ptr<SnapshotStore> make_store(const StoreOptions& options) {
  for (const Kind& kind : kKinds) {
    if (options.name != kind.name) continue;
    if (options.snapshots != 0 && !kind.takes_snapshots) {
      throw Error(Errc::invalid_argument, concat("adjoint: store ", options.name,
                                                 " keeps every step: leave --snapshots away"));
    }
    const bool tiers = options.gpu_cache > 0 || options.host_cache > 0 || !options.folder.empty() ||
                       !options.host_region.empty();
    if (tiers != kind.takes_tiers) {
      throw Error(Errc::invalid_argument,
                  concat("adjoint: store ", options.name,
                         tiers ? " has no tiers: leave --gpu-cache, --host-cache, --host-region "
                                 "and --folder away"
                               : " needs --gpu-cache, --host-cache or --folder"));
    }
    return kind.make(options);
  }
  throw Error(Errc::invalid_argument, concat("adjoint: there is no store '", options.name,
                                             "': use one of ", store_names()));
}

}  // namespace adjoint
