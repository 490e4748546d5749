"""Saves and restores a shot's snapshots by ADIOS2's BP5 engine.

As the paper's section 5.2.1: puts from host memory, and no cache on the GPU. Tuned: no statistics,
a pinned staging buffer, asynchronous writes, and as many buffers of its own as BP5 wants. A step of
the file is a snapshot; reading begins when the file is closed, which BP5 asks for.
`python -m holdfast_bench.score.adios --help` has the arguments.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from .shots import Device, main


class Adios:
    """A file of BP5: a folder, with a step for each snapshot."""

    def __init__(self, folder: Path, device: Device, counts: list[int]) -> None:
        import adios2

        self._adios2 = adios2
        self._path = str(folder / "shot.bp")
        self._device, self._counts = device, counts
        self._host, self._words = device.pinned(max(counts))
        self.pinned_bytes = 8 * max(counts)
        self._adios = adios2.Adios()
        writer = self._adios.declare_io("write")
        writer.set_engine("BP5")
        writer.set_parameters({"StatsLevel": "0", "AsyncOpen": "On", "AsyncWrite": "Guided"})
        self._io = writer
        self._engine = writer.open(self._path, adios2.bindings.Mode.Write)
        self._variable = writer.define_variable(
            "snapshot", np.zeros(1, dtype=np.int64), [], [], [max(counts)]
        )
        self._reader: Any = None

    def save(self, step: int, count: int) -> None:
        """Copies to the host, and hands a copy of that to BP5, whose thread writes it."""
        self._device.save_to(self._host, count)
        self._device.synchronize()
        self._engine.begin_step()
        self._variable.set_selection([[], [count]])
        self._engine.put(self._variable, self._words[:count], self._adios2.bindings.Mode.Sync)
        self._engine.end_step()

    def drain(self) -> None:
        """Closes the file, syncs it, and opens it to be read."""
        self._engine.close()
        for path in Path(self._path).iterdir():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.close(file)
        reader = self._adios.declare_io("read")
        reader.set_engine("BP5")
        self._reader = reader.open(self._path, self._adios2.bindings.Mode.ReadRandomAccess)
        self._variable = reader.inquire_variable("snapshot")

    def restore(self, step: int, count: int) -> None:
        """Reads one step, and copies it to the device."""
        self._variable.set_block_selection(0)
        self._variable.set_step_selection([step, 1])
        self._reader.get(self._variable, self._words[:count], self._adios2.bindings.Mode.Sync)
        self._device.restore_from(self._host, count)

    def close(self) -> None:
        """Closes the file."""
        self._reader.close()


if __name__ == "__main__":
    main("ADIOS2 BP5 runs shots.", Adios)
