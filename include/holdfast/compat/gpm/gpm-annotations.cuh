// Marks that applications of the artifact put around accesses to persistent memory: here they are
// the accesses alone, and no bandwidth is emulated.
#pragma once

#define PMEM_WRITE_OP(operation, size) operation;
#define PMEM_READ_OP(operation, size) operation;
#define PMEM_READ_WRITE_OP(operation, size) operation;
#define OUTPUT_STATS
#define CALC(base, target, size) 0
#define BW_DELAY(cycles)
