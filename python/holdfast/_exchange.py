"""How the ranks of a sharded map give each other rows: by torch.distributed, MPI, or any group."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from . import ranks
from ._backend import ext
from ._errors import Error
from ._rows import DeviceRows, HostRows, Rows

Wait = Callable[[], None]


class Exchange:
    """The ranks of a group, for the rows of calls. This one is of any group of ranks.

    It goes by the group's all_gather(), so that every rank gets what is for all: for tests, and few
    ranks of one node. Every function is collective. They raise Error (rank_lost) once a rank has
    ended or has not come within the timeout, and at once from then on.
    """

    rows: Rows = HostRows()

    def __init__(self, group: ranks.RankGroup, timeout: float) -> None:
        self.rank, self.size = group.rank, group.size
        self._group, self._timeout = group, timeout
        self._lost: Error | None = None

    def gather(self, numbers: list[int]) -> Any:
        """Returns an array of what each rank gave: as many numbers each."""
        mine = np.array(numbers, np.int64)
        if self.size == 1:
            return mine[np.newaxis]
        return self._checked(lambda: self._gather(mine))

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """Returns what each rank gave, of any length."""
        lengths = self.gather([len(mine)])[:, 0].tolist()
        words = -(-max(lengths) // 8)
        padded = np.frombuffer(mine.ljust(8 * words, b"\0"), np.int64)
        texts = self.gather(padded.tolist()) if words else np.empty((self.size, 0), np.int64)
        return [row.tobytes()[:length] for row, length in zip(texts, lengths, strict=True)]

    def start(self, rows: Any, counts: Any, into: Any) -> Wait:
        """Sends rows, which are ordered by rank: counts[i][j] of them go from rank i to rank j.

        They are in `into`, by rank, once what is returned was called. Several may be on their way.
        """
        if self.size == 1:
            into[...] = rows
            return lambda: None
        wait = self._checked(lambda: self._start(rows, counts, into))
        return lambda: self._checked(wait)

    def _checked(self, work: Callable[[], Any]) -> Any:
        if self._lost is not None:
            raise Error(f"{self._lost} (in an earlier call)", "rank_lost")
        try:
            return work()
        except Exception as error:
            said = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            self._lost = Error(
                f"rank {self.rank} of {self.size}: a rank has ended, or does not answer: {said}; "
                "end all ranks and open the map again",
                "rank_lost",
            )
            raise self._lost from error

    def _gather(self, mine: Any) -> Any:
        gathered = self._group.all_gather(mine.tobytes(), self._timeout)
        return np.stack([np.frombuffer(one, np.int64) for one in gathered])

    def _start(self, rows: Any, counts: Any, into: Any) -> Wait:
        gathered = self._group.all_gather(rows.tobytes(), self._timeout)
        begin = 0
        for sent, per_rank in zip(gathered, counts, strict=True):
            first, count = int(per_rank[: self.rank].sum()), int(per_rank[self.rank])
            part = np.frombuffer(sent, rows.dtype).reshape(-1, rows.shape[1])
            into[begin : begin + count] = part[first : first + count]
            begin += count
        return lambda: None


class TorchExchange(Exchange):
    """By all-to-all of torch.distributed: NCCL in memory of the GPU, others in the host's."""

    def __init__(self, process_group: Any, timeout: float) -> None:
        import torch
        from torch import distributed

        super().__init__(ranks.of(process_group), timeout)
        self._torch, self._distributed, self._of = torch, distributed, process_group
        self._awake = 5e-5
        if distributed.get_backend(process_group) == "nccl":
            if ext.backend_name() != "cuda":
                raise Error(
                    "the group exchanges by NCCL, in memory of GPUs, and the backend is cpu: give "
                    "a group of gloo, or set HOLDFAST_BACKEND=cuda",
                    "unsupported",
                )
            self._awake = 0.01  # a chunk takes less, and the GPU has nothing else to do
            self._device = torch.device("cuda", torch.cuda.current_device())
            self.rows = DeviceRows(torch, self._device)
        else:
            self._device = torch.device("cpu")

    def _tensor(self, rows: Any) -> Any:
        return self._torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows

    def _waited(self, work: Any, *used: Any) -> None:
        # The host waits: a kernel behind a collective that never ends could not be given up.
        deadline = time.monotonic() + self._timeout
        ranks._poll(work.is_completed, deadline, (work, used), self._awake)
        work.wait()  # raises what it met

    def _gather(self, mine: Any) -> Any:
        own = self._torch.from_numpy(mine).to(self._device)
        rows = [self._torch.empty_like(own) for _ in range(self.size)]
        work = self._distributed.all_gather(rows, own, group=self._of, async_op=True)
        self._waited(work, own, rows)
        return self._torch.stack(rows).cpu().numpy()

    def _start(self, rows: Any, counts: Any, into: Any) -> Wait:
        given, to = self._tensor(rows), self._tensor(into)
        work = self._distributed.all_to_all_single(
            to, given, counts[:, self.rank].tolist(), counts[self.rank].tolist(),
            group=self._of, async_op=True,
        )  # fmt: skip
        return lambda: self._waited(work, given, to)


class MpiExchange(Exchange):
    """By MPI's all-to-all, over a duplicate of a communicator, in the host's memory."""

    def __init__(self, communicator: Any, timeout: float) -> None:
        super().__init__(ranks.of(communicator), timeout)
        self._mpi = sys.modules["mpi4py.MPI"]
        self._over, request = communicator.Idup()
        ranks._poll(request.Test, time.monotonic() + timeout, (self._over, request))
        self._types: dict[int, Any] = {}

    def _row(self, row_bytes: int) -> Any:
        """MPI's type of a row, so that counts of rows have room in an int."""
        if row_bytes not in self._types:
            self._types[row_bytes] = self._mpi.BYTE.Create_contiguous(row_bytes).Commit()
        return self._types[row_bytes]

    def _start(self, rows: Any, counts: Any, into: Any) -> Wait:
        row = self._row(rows.itemsize * rows.shape[1])
        sent, received = counts[self.rank], counts[:, self.rank]
        given = [rows, sent.tolist(), (np.cumsum(sent) - sent).tolist(), row]
        to = [into, received.tolist(), (np.cumsum(received) - received).tolist(), row]
        request = self._over.Ialltoallv(given, to)
        return lambda: ranks._poll(
            request.Test, time.monotonic() + self._timeout, (request, rows, into)
        )


def exchange_of(group: Any, timeout: float) -> Exchange:
    """Returns the exchange of what holdfast.ranks.of() takes. Collective for a communicator."""
    distributed = sys.modules.get("torch.distributed")
    if (
        distributed is not None
        and distributed.is_available()
        and isinstance(group, distributed.ProcessGroup)
    ):
        return TorchExchange(group, timeout)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(group, mpi.Comm):
        return MpiExchange(group, timeout)
    return Exchange(ranks.of(group), timeout)
