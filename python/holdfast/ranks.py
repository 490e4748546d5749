"""Groups of ranks: the processes of a run, for histories that belong together.

A group has a rank, a size, and one collective call, all_gather(). holdfast.History(ranks=...) takes
what of() takes. Without MPI and PyTorch, local() makes one of processes of one machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ._backend import ext
from ._errors import Error, checked_number
from ._region import path_text

__all__ = ["RankGroup", "from_environment", "local", "of"]

if TYPE_CHECKING:
    RankGroup = ext.RankGroup


def __getattr__(name: str) -> Any:
    # Not at the import: a backend that cannot be chosen is then a command's to report.
    if name == "RankGroup":
        return ext.RankGroup
    raise AttributeError(f"module 'holdfast.ranks' has no attribute '{name}'")


# What a transport may still write to, though nobody waits any more.
_abandoned: list[Any] = []


def local(path: Any, rank: int, size: int, *, timeout: float = 60.0, node: str = "") -> RankGroup:
    """Returns a group of `size` processes of one user on one machine. Collective.

    path: of a socket that rank 0 makes, in a folder that all can write to; each run has its own.
    timeout: seconds for all ranks to come. node: instead of the machine's name, for tests.
    Raises Error: rank_lost (not all came), in_use (another run has the path), invalid_argument,
    permission, not_found, io.
    """
    return ext.local_ranks(
        path_text(path),
        checked_number(rank, "rank", most=2**31 - 1),
        checked_number(size, "size", most=2**31 - 1),
        timeout,
        node,
    )


def from_environment(*, timeout: float = 60.0) -> RankGroup:
    """The same of the variables RANK, WORLD_SIZE and HOLDFAST_RANKS (the path)."""
    return ext.ranks_from_environment(timeout)


def of(group: Any) -> RankGroup:
    """Returns the group of a torch.distributed.ProcessGroup, an mpi4py.MPI.Comm, or a RankGroup.

    Anything else has `rank`, `size` and all_gather(mine: bytes, timeout: float), which returns the
    list of what all ranks gave, and raises behind `timeout` seconds rather than to wait for ever;
    and perhaps `node`, a text that is equal for ranks of one machine alone.
    Collective for an mpi4py.MPI.Comm, which is duplicated. Raises Error (invalid_argument).
    """
    if isinstance(group, ext.RankGroup):
        return group
    distributed = sys.modules.get("torch.distributed")
    if (
        distributed is not None
        and distributed.is_available()
        and isinstance(group, distributed.ProcessGroup)
    ):
        rank, size = distributed.get_rank(group), distributed.get_world_size(group)
        return ext.ranks_by_call(_TorchGather(group), rank, size, "")
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(group, mpi.Comm):
        return ext.ranks_by_call(_MpiGather(group), group.Get_rank(), group.Get_size(), "")
    try:
        gather, rank, size = group.all_gather, int(group.rank), int(group.size)
    except (AttributeError, TypeError, ValueError):
        raise Error(
            f"ranks is a {type(group).__name__}: give a torch.distributed.ProcessGroup, an "
            "mpi4py.MPI.Comm, a holdfast.ranks.RankGroup, or an object with rank, size and "
            "all_gather(mine, timeout)"
        ) from None
    return ext.ranks_by_call(gather, rank, size, str(getattr(group, "node", "")))


def _poll(done: Callable[[], bool], deadline: float, used: Any, awake: float = 5e-5) -> None:
    """Returns once done() is true. Raises TimeoutError behind the deadline, and keeps `used`.

    awake: seconds in which it does not sleep.
    """
    begin = time.monotonic()
    nap = 1e-6
    while not done():
        now = time.monotonic()
        if now >= deadline:
            _abandoned.append(used)
            raise TimeoutError(f"not all ranks came within {deadline - begin:.3g} s")
        if now - begin > awake:  # what comes soon is not slept away
            time.sleep(nap)
            nap = min(2 * nap, 5e-4)


class _TorchGather:
    """all_gather() over a torch.distributed.ProcessGroup; of NCCL in memory of the GPU."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def __call__(self, mine: bytes, timeout: float) -> list[bytes]:
        import torch
        from torch import distributed

        deadline = time.monotonic() + timeout
        device = "cuda" if distributed.get_backend(self._group) == "nccl" else "cpu"
        size = distributed.get_world_size(self._group)

        def gather(own: Any) -> list[Any]:
            all_of_them = [torch.empty_like(own) for _ in range(size)]
            work = distributed.all_gather(all_of_them, own, group=self._group, async_op=True)
            _poll(work.is_completed, deadline, (own, all_of_them, work))
            work.wait()  # raises what it met
            return all_of_them

        counts = gather(torch.tensor([len(mine)], dtype=torch.int64, device=device))
        sizes = [int(count) for count in counts]
        own = torch.zeros(max(*sizes, 1), dtype=torch.uint8)
        if mine:
            own[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        rows = gather(own.to(device))
        return [row.cpu().numpy()[:n].tobytes() for row, n in zip(rows, sizes, strict=True)]


class _MpiGather:
    """all_gather() over a duplicate of an mpi4py.MPI.Comm."""

    def __init__(self, communicator: Any, timeout: float = 60.0) -> None:
        self._communicator, request = communicator.Idup()
        _poll(request.Test, time.monotonic() + timeout, (self._communicator, request))

    def __call__(self, mine: bytes, timeout: float) -> list[bytes]:
        deadline = time.monotonic() + timeout
        own = np.frombuffer(mine, np.uint8) if mine else np.empty(0, np.uint8)
        size = np.array([len(mine)], np.int64)
        sizes = np.empty(self._communicator.Get_size(), np.int64)
        request = self._communicator.Iallgather(size, sizes)
        _poll(request.Test, deadline, (size, sizes, request))
        if sizes.sum() >= 2**31:
            raise ValueError("MPI moves 2 GiB at once at most")
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.empty(int(offsets[-1]), np.uint8)
        target = [rows, sizes.tolist(), offsets[:-1].tolist(), _byte()]
        request = self._communicator.Iallgatherv([own, _byte()], target)
        _poll(request.Test, deadline, (own, rows, request))
        return [
            rows[begin : begin + n].tobytes() for begin, n in zip(offsets[:-1], sizes, strict=True)
        ]


def _byte() -> Any:
    return sys.modules["mpi4py.MPI"].BYTE
