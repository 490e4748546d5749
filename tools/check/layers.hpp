// The check programs of the library's layers.
#pragma once

#include <vector>

#include "holdfast/check_command.hpp"

namespace holdfast::check {

std::vector<Offer> undo_log_programs();
std::vector<Offer> checkpoint_programs();
std::vector<Offer> region_metadata_programs();
std::vector<Offer> kv_log_programs();
std::vector<Offer> kv_lookups_programs();
std::vector<Offer> map_programs();
std::vector<Offer> map_evict_programs();
std::vector<Offer> bytes_map_programs();
std::vector<Offer> log_map_programs();

}  // namespace holdfast::check
