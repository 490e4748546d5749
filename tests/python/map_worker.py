"""Changes a map until it is killed: python map_worker.py REGION SEED NUMBER.

Batch n is a function of the seed and of n. "done N" is printed once batch N has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import holdfast

KEYS = 700
ROW = 6
Batch = tuple[str, npt.NDArray[np.int64], npt.NDArray[np.float32]]


def batch(seed: int, number: int) -> Batch:
    """Returns operation, keys, each once, and rows, which say key and batch."""
    rng = np.random.default_rng([seed, number])
    operation = str(
        rng.choice(["insert", "insert_or_assign", "assign", "erase"], p=[0.2, 0.4, 0.2, 0.2])
    )
    keys = rng.choice(KEYS, 200, replace=False).astype(np.int64)
    rows = np.empty((200, ROW), np.float32)
    rows[:, 0], rows[:, 1:] = keys, number
    return operation, keys, rows


def changes(batch: Batch, there: dict[int, float]) -> Iterator[tuple[int, float | None]]:
    """Yields what a batch leaves of the keys that it changes: the row's number, or None."""
    operation, keys, rows = batch
    for key, number in zip(keys.tolist(), rows[:, 1].tolist(), strict=True):
        if operation == "erase":
            yield key, None
        elif operation == "insert_or_assign" or (key in there) == (operation == "assign"):
            yield key, number


def main() -> None:
    path, seed, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    table = holdfast.Map(holdfast.open(path), "rows")
    print("open", flush=True)
    while True:
        operation, keys, rows = batch(seed, number)
        if operation == "erase":
            result = table.erase(keys)
        else:
            result = getattr(table, operation)(keys, rows)
        assert result.not_done == 0
        print(f"done {number}", flush=True)
        number += 1


if __name__ == "__main__":
    main()
