"""Saves and restores a shot's snapshots by PyTorch's distributed checkpoints.

async_save() with pinned staging that is kept, eight threads, a shard of the snapshot for each. Each
snapshot is a checkpoint of its own; a save waits for the one before, as async_save() asks for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .shots import Device, main

_THREADS = 8


class Dcp:
    """A folder of checkpoints, one for each snapshot."""

    def __init__(self, folder: Path, device: Device, counts: list[int]) -> None:
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        self._torch, self._dist, self._dcp = torch, dist, dcp
        self._folder = folder
        words: Any = device.words  # type: ignore[attr-defined]
        self._words = words if isinstance(words, torch.Tensor) else torch.from_numpy(words)
        self.pinned_bytes = 8 * max(counts)
        self._pending: Any = None
        # Without a driver nothing can be pinned: then each save stages anew.
        self._pinned = bool(torch.cuda.is_available())
        backend = "cpu:gloo,cuda:gloo" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend, init_method=f"file://{folder}/rendezvous", rank=0, world_size=1
        )

    def _shards(self, count: int) -> dict[str, Any]:
        parts = self._words[:count].tensor_split(_THREADS)
        return {f"shard{i}": part for i, part in enumerate(parts) if part.numel()}

    def _writer(self, step: int) -> Any:
        return self._dcp.FileSystemWriter(
            self._folder / str(step), thread_count=_THREADS, cache_staged_state_dict=self._pinned
        )

    def save(self, step: int, count: int) -> None:
        """Waits for the save before, and stages this one."""
        if self._pending is not None:
            self._pending.result()
        self._pending = self._dcp.async_save(self._shards(count), storage_writer=self._writer(step))

    def drain(self) -> None:
        """Waits for the last save; the writer syncs its files."""
        if self._pending is not None:
            self._pending.result()

    def restore(self, step: int, count: int) -> None:
        """Reads a checkpoint into the tensor."""
        state = self._shards(count)
        self._dcp.load(state, storage_reader=self._dcp.FileSystemReader(self._folder / str(step)))

    def close(self) -> None:
        """Ends the group."""
        self._dist.destroy_process_group()


if __name__ == "__main__":
    main("PyTorch's distributed checkpoints run shots.", Dcp)
