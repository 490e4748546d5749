// gpKVS as workloads: batches of SETs, and batches of 95 GETs to 5 SETs.
// Source: GPM (ASPLOS '22) section 4.1 and Table 1.
//
// Every step is a batch. In the modes gpm and eadr it is a transaction of a holdfast::KvStore.
// Where the CPU persists there is no log, as in the paper: the same kernels store without it, and
// the whole table is made durable behind them; a batch that was cut off is done again, which is
// safe since no operation evicts a key. Mode cpu has an undo log of its own.
#pragma once

#include "workload/workload.hpp"

namespace gpkvs {

workload::Info set_info();    // "gpkvs"
workload::Info mixed_info();  // "gpkvs_95_5": keys by Zipf's law, all of them loaded in the set-up

}  // namespace gpkvs
