"""Workers that break their promises, to show that a campaign notices.

`python broken_workers.py MODE COMMANDS ANSWERS`
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from holdfast.crash.apps import App, Batch
from holdfast.crash.worker import Worker, main


class AcknowledgesFirst(Worker):
    """Says that a batch is in before it is."""

    def do_batch(self, batch: Batch) -> None:
        self._answer("begin", "batch")
        self._answer("done", "batch", 0.001, {"evicted": 0})
        time.sleep(0.01)
        self.apply(batch)


class AppliesInHalves(Worker):
    """Makes two transactions of one."""

    def apply(self, batch: Batch) -> dict[str, Any]:
        half = len(batch) // 2
        super().apply(Batch(batch.keys[:half], batch.values[:half], batch.erase))
        time.sleep(0.02)
        return super().apply(Batch(batch.keys[half:], batch.values[half:], batch.erase))


class Forgets(Worker):
    """Loses one record in each recovery."""

    def do_open(self, app: App, path: str, arena_folder: str) -> None:
        super().do_open(app, path, arena_folder)
        keys, _ = self._store.scan()
        self._store.erase(np.sort(keys)[:1])


class KeepsErased(Worker):
    """Passes over every ERASE."""

    def apply(self, batch: Batch) -> dict[str, Any]:
        return {"evicted": 0} if batch.erase else super().apply(batch)


class Scribbles(Worker):
    """Overwrites a part of the table in place, past the log."""

    def do_open(self, app: App, path: str, arena_folder: str) -> None:
        super().do_open(app, path, arena_folder)
        assert self._region is not None
        table = self._region["kvs.table"].reshape(-1)
        table[: len(table) // 2] = table[len(table) // 2 :]


MODES = {
    "early": AcknowledgesFirst,
    "halves": AppliesInHalves,
    "forgets": Forgets,
    "keeps": KeepsErased,
    "scribbles": Scribbles,
}

if __name__ == "__main__":
    main(sys.argv[2:], MODES[sys.argv[1]])
