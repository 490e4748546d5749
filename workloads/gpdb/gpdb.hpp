// gpDB: a relational table on the medium, as two workloads, INSERT and UPDATE.
// Source: GPM (ASPLOS '22) section 4.1 and Table 1.
//
// Every step is a batch. In the modes gpm and eadr it is a transaction: UPDATE logs old values in
// the coalesced undo log (or, to compare, in a conventional one: option `log`), INSERT logs the
// number of rows in the conventional one (and so its recovery restores that number only). Where the
// CPU persists there is no log, as in the paper: an INSERT's new rows, or after an UPDATE the whole
// table, are made durable and then the number of batches that are in. A batch that was cut off is
// done again, which the values that it stores allow: they depend on nothing that a batch changes.
// Mode cpu keeps an undo log of its own.
#pragma once

#include "workload/workload.hpp"

namespace gpdb {

workload::Info insert_info();  // "gpdb_insert"
workload::Info update_info();  // "gpdb_update"

}  // namespace gpdb
