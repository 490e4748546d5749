"""The rows that `holdfast kv load` stores, and those that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from .. import csvfile
from .._errors import Error
from . import common

_SHOWN = 10
_Columns = TypeVar("_Columns")


def read(quiet: bool, reading: Callable[[Callable[[int], None]], _Columns]) -> _Columns:
    """Returns what `reading` does, which tells how many rows it has read."""
    with common.progress(quiet) as bar:
        task = bar.add_task("rows read", total=None)
        return reading(lambda rows: bar.update(task, completed=rows))


def check(columns: csvfile.Columns | csvfile.TextColumns, file: Path, skip_bad: bool) -> None:
    """Raises Error if rows cannot be read, unless they may be left out."""
    bad = columns.bad_rows
    if not bad:
        return
    listed = "; ".join(bad[:_SHOWN])
    if columns.bad_count > _SHOWN:
        listed += f"; and {columns.bad_count - _SHOWN:,} more"
    if not skip_bad:
        raise Error(
            f"{file}: {columns.bad_count:,} rows cannot be read ({listed}). --skip-bad leaves them "
            "out"
        )
    common.note(f"{columns.bad_count:,} rows were left out: {listed}")


def ranges(
    columns: csvfile.Columns | csvfile.TextColumns, batch: int | None, max_batch: int
) -> list[tuple[int, int]]:
    """Returns the first and the last row (exclusive) of each batch."""
    rows = len(columns.keys)
    if columns.starts:
        ends = [*columns.starts[1:], rows]
        ranges = list(zip(columns.starts, ends, strict=True))
    else:
        step = batch or max_batch
        ranges = [(first, min(first + step, rows)) for first in range(0, rows, step)]
    largest = max((end - first for first, end in ranges), default=0)
    if largest > max_batch:
        raise Error(
            f"a batch would have {largest:,} rows and the store takes {max_batch:,}: use a smaller "
            "--batch, or create the store with a larger --max-batch"
        )
    return ranges
