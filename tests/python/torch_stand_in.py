"""As much of torch.distributed as a group of ranks uses, over NumPy and threads.

Where PyTorch is not installed this stands for it: same names, arguments and meanings, as PyTorch's
documentation has them.
"""

from __future__ import annotations

import threading
import types
from typing import Any

import numpy as np


class Tensor:
    """A row of numbers in the host's memory."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __setitem__(self, key: Any, value: Tensor) -> None:
        self.array[key] = value.array

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self.array[key])

    def __int__(self) -> int:
        return int(self.array.item())

    def to(self, device: str) -> Tensor:
        assert device == "cpu"
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.array


class Work:
    """A collective that goes on."""

    def __init__(self, thread: threading.Thread, errors: list[BaseException]) -> None:
        self._thread, self._errors = thread, errors

    def is_completed(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()
        if self._errors:
            raise RuntimeError(str(self._errors[0]))


class ProcessGroup:
    """One rank of a group whose ranks are threads."""

    def __init__(self, rank: int, barrier: threading.Barrier, given: list[Any]) -> None:
        self.own_rank, self.barrier, self.given = rank, barrier, given


def all_gather(
    into: list[Tensor], own: Tensor, group: ProcessGroup, async_op: bool = False
) -> Work:
    assert async_op
    errors: list[BaseException] = []

    def run() -> None:
        try:
            group.given[group.own_rank] = own.array.copy()
            group.barrier.wait()
            for row, array in zip(into, group.given, strict=True):
                row.array[:] = array
            group.barrier.wait()
        except threading.BrokenBarrierError:
            errors.append(RuntimeError("Connection closed by peer"))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return Work(thread, errors)


def modules() -> dict[str, types.ModuleType]:
    """For sys.modules."""
    torch = types.ModuleType("torch")
    distributed = types.ModuleType("torch.distributed")
    names: dict[str, Any] = {
        "uint8": np.uint8,
        "int64": np.int64,
        "tensor": lambda data, dtype, device: Tensor(np.array(data, dtype)),
        "zeros": lambda size, dtype: Tensor(np.zeros(size, dtype)),
        "empty_like": lambda other: Tensor(np.empty_like(other.array)),
        "frombuffer": lambda buffer, dtype: Tensor(np.frombuffer(buffer, dtype)),
        "distributed": distributed,
    }
    vars(torch).update(names)
    names = {
        "ProcessGroup": ProcessGroup,
        "is_available": lambda: True,
        "get_backend": lambda group: "gloo",
        "get_rank": lambda group: group.own_rank,
        "get_world_size": lambda group: group.barrier.parties,
        "all_gather": all_gather,
    }
    vars(distributed).update(names)
    return {"torch": torch, "torch.distributed": distributed}
