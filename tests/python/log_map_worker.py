"""Changes a log map until it is killed: python log_map_worker.py REGION SEED NUMBER.

Batch n is a function of the seed and of n. "done N" is printed once batch N has returned.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

import holdfast

KEYS = 500
ROW = 6
MAX_BATCH = 256
OPERATIONS = ("insert_or_assign", "insert", "assign", "erase")
Batch = tuple[str, npt.NDArray[np.uint64], npt.NDArray[np.float32]]


def batch(seed: int, number: int) -> Batch:
    """Returns operation, keys, some of them twice, and rows, which say key and batch."""
    rng = np.random.default_rng([seed, number])
    operation = str(rng.choice(OPERATIONS, p=[0.4, 0.15, 0.15, 0.3]))
    keys = rng.integers(0, KEYS, MAX_BATCH).astype(np.uint64)
    rows = np.empty((MAX_BATCH, ROW), np.float32)
    rows[:, 0], rows[:, 1:] = keys, number
    return operation, keys, rows


def after(there: dict[int, float], batch: Batch) -> dict[int, float]:
    """Returns the number of each key's row behind a batch."""
    operation, keys, rows = batch
    if operation == "erase":
        gone = set(keys.tolist())
        return {key: number for key, number in there.items() if key not in gone}
    stored = dict(zip(keys.tolist(), rows[:, 1].tolist(), strict=True))
    if operation == "insert":
        return {**stored, **there}
    if operation == "assign":
        stored = {key: row for key, row in stored.items() if key in there}
    return {**there, **stored}


def apply(table: holdfast.LogMap, batch: Batch) -> Any:
    operation, keys, rows = batch
    return table.erase(keys) if operation == "erase" else getattr(table, operation)(keys, rows)


def main() -> None:
    path, seed, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    table = holdfast.LogMap(holdfast.open(path), "rows")
    print("open", flush=True)
    while True:
        apply(table, batch(seed, number))
        print(f"done {number}", flush=True)
        number += 1


if __name__ == "__main__":
    main()
