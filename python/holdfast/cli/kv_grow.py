"""holdfast kv grow: more room in a store of strings, or of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _region
from .._bytes_map import BytesMap
from .._errors import Error
from .._store import KeyValueStore
from . import common, kv_strings

_MOST_REGION_BYTES = 1 << 40
_MOST_CAPACITY = 1 << 35  # in place; of the others, which have less, they know themselves


def _layout(region: _region.Region) -> str:
    if kv_strings.is_in(region):
        return "map"
    return "in_place" if "kvs.table" in region else "log"


def _check(store: Path, layout: str, record_bytes: int | None, log_records: int | None) -> None:
    if layout == "map" and log_records is not None:
        raise Error(f"{store} is a map, which has no --log-records: give --record-bytes")
    if layout != "map" and record_bytes is not None:
        raise Error(
            f"{store} is no map, and has no --record-bytes: give --capacity, or --log-records of "
            "a log"
        )
    if layout == "in_place" and log_records is not None:
        raise Error(f"{store} is of the layout in_place, and no log: give --capacity alone")


def _room(
    layout: str, size: int, capacity: int | None, record_bytes: int | None, log_records: int | None
) -> int:
    if layout == "map":
        # The index doubles, so that it may get twice what is asked for; while keys move, the old
        # levels are there, too.
        return 4 * BytesMap.region_bytes(capacity or 1, record_bytes or 1)
    if layout == "in_place":
        # Up to twice what is asked for, at 16 bytes; beside it undo logs as large as those there.
        return size + 32 * (capacity or 0) + (4 << 20)
    # A record takes 16.5 bytes; what batches take the region has already, several times.
    return max(log_records or 0, 2 * (capacity or 0)) * 20 + (4 << 20)


def _grow_strings(
    region: _region.Region, capacity: int | None, record_bytes: int | None
) -> dict[str, Any]:
    kv = BytesMap(region, kv_strings.NAME)
    kv.reserve(capacity, record_bytes)
    stats = kv.stats()
    return {"capacity": stats.capacity, "record_bytes": stats.record_bytes}


def _grow_numbers(
    region: _region.Region, capacity: int | None, log_records: int | None
) -> dict[str, Any]:
    kv = KeyValueStore.open(region)
    kv.reserve(capacity or 0, log_records or 0)
    stats = kv.stats()
    return {"capacity": stats.capacity, "log_records": stats.log_records}


def _of_what(layout: str, now: dict[str, Any]) -> str:
    if layout == "map":
        return f" of {common.size_text(now['record_bytes'])} in all"
    return f", in a log of {now['log_records']:,} records" if layout == "log" else ""


@common.command
def grow(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store's file.")],
    capacity: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MOST_CAPACITY, help="Pairs; of a map about nine tenths find room."
        ),
    ] = None,
    record_bytes: Annotated[
        int | None, typer.Option(min=1, help="Of a map: bytes for the records, in all.")
    ] = None,
    log_records: Annotated[
        int | None, typer.Option(min=1, help="Of a log: records of 16 bytes, in all.")
    ] = None,
    last_commit: common.LastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Gives a store room for more. What has as much stays as it is.

    The capacity of a map, and of the layout in_place, doubles until it is what is asked for.
    """
    if capacity is None and record_bytes is None and log_records is None:
        raise common.UsageError(
            "nothing to grow: give --capacity, or --record-bytes (a map) or --log-records (a log)"
        )
    with _region.open(
        store, arena_folder=arena_folder, last_commit=last_commit, read_only=True
    ) as region:
        layout = _layout(region)
        size = region.size
    _check(store, layout, record_bytes, log_records)
    room = _room(layout, size, capacity, record_bytes, log_records)
    opened = _region.open(
        store,
        arena_folder=arena_folder,
        last_commit=last_commit,
        max_size=min(max(size + room, 4 * size), _MOST_REGION_BYTES),
    )
    aside = opened.open_report.arena_set_aside
    common.note_set_aside(aside)
    with common.closed_behind(opened, common.is_refusal):
        if layout == "map":
            now = _grow_strings(opened, capacity, record_bytes)
        else:
            now = _grow_numbers(opened, capacity, log_records)
        size = opened.size
    result = {"ok": True, "store": str(store), **now, "bytes": size, "arena_set_aside": aside}
    if as_json:
        common.emit(result)
    else:
        common.out.print(f"{store}: room for {now['capacity']:,} pairs{_of_what(layout, now)}")
