"""Batches of a map whose operations have a kind each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._backend import ext
from ._buffers import is_array
from ._errors import Error


class MapApplied(NamedTuple):
    """What became of a batch of Map.apply()."""

    values: Any  # what a find has found, and a find_or_insert leaves; else 0, or as `out` had it
    status: Any  # by operation: a MapStatus
    result: ext.MapResult  # how many had which


def map_operations() -> dict[str, int]:
    return {one.name: int(one) for one in ext.MapOp}


def numbers_of(operations: Any, known: dict[str, int]) -> Any:
    """Returns operations as an array of the numbers of those that are known; arrays as they are."""
    if isinstance(operations, np.ma.MaskedArray):
        raise Error("operations is a masked array: give a plain one of what is to be done")
    if is_array(operations) and not (
        isinstance(operations, np.ndarray) and operations.dtype.kind == "U"
    ):
        return operations
    if isinstance(operations, (str, bytes)):
        raise Error(f"operations are {operations!r}: give one for each key, in a list or an array")
    try:
        return np.array([_number_of(one, known) for one in operations], np.uint8)
    except TypeError:
        raise Error(
            f"operations are {operations!r}: give one for each key, in a list or an array"
        ) from None


def _number_of(operation: Any, known: dict[str, int]) -> int:
    name = getattr(operation, "name", None) or str(operation)
    if name not in known:
        raise Error(
            f"operation {operation!r} is none that there is: give one of {', '.join(known)}"
        )
    return known[name]
