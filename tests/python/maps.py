"""What tests of the maps share: what they hold, what is refused, and processes that are killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import holdfast
from holdfast import Map

MAX_BATCH = 128
Array = npt.NDArray[Any]


def seed_of() -> int:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", random.randrange(2**32)))
    print(f"HOLDFAST_TEST_SEED={seed}")
    return seed


class ByDlpack:
    """An array of another library, as far as DLPack tells."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def region_for(path: Path, *kinds: tuple[Any, Any], capacity: int = 400) -> holdfast.Region:
    size = sum(Map.region_bytes(capacity, key, value, MAX_BATCH) for key, value in kinds)
    return holdfast.create(path, size)


def rows_of(*numbers: float) -> Array:
    return np.array([[number] * 4 for number in numbers], np.float32)


def exported(table: Map) -> dict[int, bytes]:
    keys, values = table.export()
    assert len(set(keys.tolist())) == len(keys)
    return dict(zip(keys.tolist(), [row.tobytes() for row in values], strict=True))


def expect_refused(table: Map, call: Callable[[Map], Any], words: list[str]) -> None:
    """A call with bad input is refused by these words, and leaves a map of rows as it was."""
    table.insert_or_assign([1, 2], rows_of(5, 6))
    before = exported(table)
    with pytest.raises(holdfast.Error) as raised:
        call(table)
    assert raised.value.code == "invalid_argument"
    for word in words:
        assert word in str(raised.value)
    assert exported(table) == before


def lines_until_killed(
    worker: ModuleType, *arguments: object, dice: random.Random, longest: float, at_least: int = 0
) -> list[str]:
    """Runs a worker until it is killed, some time behind so many lines; returns its whole lines."""
    process = subprocess.Popen(
        [sys.executable, str(worker.__file__), *map(str, arguments)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    lines = [process.stdout.readline() for _ in range(at_least)]
    threading.Timer(dice.random() * longest, process.kill).start()
    lines += [line for line in process.stdout if line.endswith("\n")]
    assert process.wait() == -9
    process.stdout.close()
    return lines
