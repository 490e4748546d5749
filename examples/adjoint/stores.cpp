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
  std::unique_ptr<SnapshotStore> (*make)(const StoreOptions& options);
};

constexpr Kind kKinds[] = {
    {"memory", false,
     [](const StoreOptions&) -> std::unique_ptr<SnapshotStore> {
       return std::make_unique<MemoryStore>();
     }},
    {"revolve", true,
     [](const StoreOptions& options) -> std::unique_ptr<SnapshotStore> {
       const std::uint64_t snapshots = options.snapshots == 0 ? kUsualSnapshots : options.snapshots;
       return std::make_unique<RevolveStore>(snapshots, options.advance);
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
    return kind.make(options);
  }
  throw Error(Errc::invalid_argument, concat("adjoint: there is no store '", options.name,
                                             "': use one of ", store_names()));
}

}  // namespace adjoint
