#include "shipped.hpp"

#include "checked_append/append.hpp"
#include "checking/registry.hpp"
#include "layers.hpp"

namespace holdfast::check {

std::vector<Offer> shipped_programs() {
  std::vector<Offer> all;
  for (const auto& some :
       {checked_append::offers(), undo_log_programs(), checkpoint_programs(),
        region_metadata_programs(), kv_log_programs(), kv_lookups_programs(), map_programs(),
        map_evict_programs(), bytes_map_programs(), log_map_programs(), programs_of_folders()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace holdfast::check
