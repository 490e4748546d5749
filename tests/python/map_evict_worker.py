"""Evicts until it is killed: python map_evict_worker.py REGION.

Prints "begins KEYS" before each batch, and "done NUMBER KEYS" behind it: the number is what its
rows have, the keys are those that went.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import holdfast


def main() -> None:
    region = holdfast.open(sys.argv[1])
    table = holdfast.Map(
        region, "rows", key="int64", value=("int64", 4), capacity=40, max_batch=128, scores="lru"
    )
    rng = np.random.default_rng()
    print("open", flush=True)
    while True:
        keys = rng.choice(300, 30, replace=False).astype(np.int64)
        number = time.time_ns()
        print("begins", *keys, flush=True)
        went = table.insert_and_evict(keys, np.full((30, 4), number))
        print("done", number, *went.keys, flush=True)


if __name__ == "__main__":
    main()
