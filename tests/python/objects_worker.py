"""Saves and discards until it is killed: python objects_worker.py DISK URL OPTIONS SEED.

Says `remote STEP` once a checkpoint is in the object store, and `discarding STEP` before one goes.
Its arrays take several parts of an upload.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

import holdfast

CELLS = (17 << 20) // 8


def content(step: int) -> npt.NDArray[np.int64]:
    return np.arange(step, step + CELLS, dtype=np.int64) * 2654435761


def main() -> None:
    disk, url, options, seed = sys.argv[1:]
    dice = random.Random(int(seed))
    field = np.zeros(CELLS, np.int64)
    with holdfast.History(
        disk=Path(disk), remote=url, remote_options=json.loads(options)
    ) as history:
        history.protect("field", field)
        print("open", flush=True)
        step = max(history.steps(), default=-1)
        while True:
            step += 1
            field[:] = content(step)
            ticket = history.save(step)
            if dice.random() < 0.7:
                ticket.wait("remote")
                print(f"remote {step}", flush=True)
            if len(history.steps()) > 3:
                old = min(history.steps())
                print(f"discarding {old}", flush=True)
                history.discard(old)


if __name__ == "__main__":
    main()
