// What stands behind make_program(): one function for each program. Options are filled in.
#pragma once

#include "programs.hpp"

namespace holdfast::check {

Program undo_log_program(const ProgramOptions& options);
Program undo_log_conventional_program(const ProgramOptions& options);
Program bfs_program(const ProgramOptions& options);
Program gpdb_insert_program(const ProgramOptions& options);
Program gpdb_update_program(const ProgramOptions& options);
Program gpdb_update_conventional_program(const ProgramOptions& options);
Program black_scholes_program(const ProgramOptions& options);
Program cfd_program(const ProgramOptions& options);
Program checkpoint_program(const ProgramOptions& options);
Program gpkvs_program(const ProgramOptions& options);
Program gpkvs_cached_program(const ProgramOptions& options);
Program gpkvs_conventional_program(const ProgramOptions& options);
Program gpkvs_set_program(const ProgramOptions& options);
Program gpkvs_set_cached_program(const ProgramOptions& options);
Program hotspot_program(const ProgramOptions& options);
Program kv_lookups_program(const ProgramOptions& options);
Program kv_lookups_cached_program(const ProgramOptions& options);
Program prefix_sum_program(const ProgramOptions& options);
Program reduction_program(const ProgramOptions& options);
Program reduction_block_scope_program(const ProgramOptions& options);
Program lenet_program(const ProgramOptions& options);
Program region_metadata_program(const ProgramOptions& options);
Program srad_program(const ProgramOptions& options);

}  // namespace holdfast::check
