// What the table should hold, computed on the host, row by row, without kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpdb/row.hpp"

namespace gpdb::oracle {

// Compares `table` with `input` inserted in order and then changed by `queries`, in order. Returns
// the first difference in words; empty where there is none.
std::string compare(const std::vector<Row>& table, const std::vector<Row>& input,
                    const std::vector<Query>& queries);

}  // namespace gpdb::oracle
