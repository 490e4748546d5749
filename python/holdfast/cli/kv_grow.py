"""holdfast kv grow: more room in a store of strings, or in a log of numbers."""

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
_MOST_CAPACITY = 1 << 32  # an index has four times as many slots at most
# With these nothing has changed, and what is there is whole.
_REFUSALS = ("invalid_argument", "no_space", "no_shared_memory", "already_exists", "unsupported")


def _room_for_strings(capacity: int | None, record_bytes: int | None) -> int:
    # The index doubles, so that it may get twice what is asked for; while keys move, the old
    # levels are there, too.
    return BytesMap.region_bytes(4 * (capacity or 1), record_bytes or 1)


def _room_for_log(capacity: int | None, log_records: int | None) -> int:
    # A record takes 16.5 bytes; what batches take the region has already, several times.
    return max(log_records or 0, 2 * (capacity or 0)) * 20 + (4 << 20)


def _grow_strings(
    region: _region.Region, capacity: int | None, record_bytes: int | None
) -> dict[str, Any]:
    kv = BytesMap(region, kv_strings.NAME)
    kv.reserve(capacity, record_bytes)
    stats = kv.stats()
    return {"capacity": stats.capacity, "record_bytes": stats.record_bytes}


def _grow_log(
    region: _region.Region, capacity: int | None, log_records: int | None
) -> dict[str, Any]:
    kv = KeyValueStore.open(region)
    kv.reserve(capacity or 0, log_records or 0)
    stats = kv.stats()
    return {"capacity": stats.capacity, "log_records": stats.log_records}


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
    """Gives a store of the layout map or log room for more. What has as much stays as it is.

    The capacity of a map doubles until it is what is asked for. `kv convert` is for the layout
    in_place.
    """
    if capacity is None and record_bytes is None and log_records is None:
        raise Error(
            "nothing to grow: give --capacity, or --record-bytes (a map) or --log-records (a log)"
        )
    with _region.open(
        store, arena_folder=arena_folder, last_commit=last_commit, read_only=True
    ) as region:
        is_map = kv_strings.is_in(region)
        size = region.size
    if is_map and log_records is not None:
        raise Error(f"{store} is a map, which has no --log-records: give --record-bytes")
    if not is_map and record_bytes is not None:
        raise Error(f"{store} is no map, and has no --record-bytes: give --log-records, of a log")
    room = size + (
        _room_for_strings(capacity, record_bytes)
        if is_map
        else _room_for_log(capacity, log_records)
    )
    opened = _region.open(
        store,
        arena_folder=arena_folder,
        last_commit=last_commit,
        max_size=min(max(room, 4 * size), _MOST_REGION_BYTES),
    )
    aside = opened.open_report.arena_set_aside
    common.note_set_aside(aside)
    refused: Error | None = None
    now: dict[str, Any] = {}
    with opened:
        try:
            if is_map:
                now = _grow_strings(opened, capacity, record_bytes)
            else:
                now = _grow_log(opened, capacity, log_records)
        except Error as error:
            if error.code not in _REFUSALS:
                raise
            refused = error
        size = opened.size
    if refused is not None:
        raise refused
    result = {"ok": True, "store": str(store), **now, "bytes": size, "arena_set_aside": aside}
    if as_json:
        common.emit(result)
    elif is_map:
        records = common.size_text(now["record_bytes"])
        common.out.print(f"{store}: room for {now['capacity']:,} pairs of {records} in all")
    else:
        records = f"{now['log_records']:,} records"
        common.out.print(f"{store}: room for {now['capacity']:,} pairs, in a log of {records}")
