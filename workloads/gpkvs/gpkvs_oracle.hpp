// What the store should hold, and what its GETs should have answered, by a plain map on the host.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "gpkvs/engine.hpp"
#include "gpkvs/operations.hpp"

namespace gpkvs::oracle {

// Does all of the operations in order and compares `pairs` with the outcome. `answers`: checksums
// of the values that the GETs of some steps answered, by step. Returns the first difference in
// words; empty where there is none.
std::string compare(const Operations& operations, const Pairs& pairs,
                    const std::map<std::uint64_t, std::uint64_t>& answers);

}  // namespace gpkvs::oracle
