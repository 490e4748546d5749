"""holdfast kv grow: more room in a store of strings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import _region
from .._bytes_map import BytesMap
from .._errors import Error
from . import common, kv_strings

_MOST_REGION_BYTES = 1 << 40
_MOST_CAPACITY = 1 << 32  # an index has four times as many slots at most
# With these nothing has changed, and what is there is whole.
_REFUSALS = ("invalid_argument", "no_space", "no_shared_memory", "already_exists")


@common.command
def grow(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store's file.")],
    capacity: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MOST_CAPACITY, help="Pairs, of which about nine tenths find room."
        ),
    ] = None,
    record_bytes: Annotated[
        int | None, typer.Option(min=1, help="Bytes for the records, in all.")
    ] = None,
    last_commit: common.LastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Gives a store of the layout map room for more. What has as much already stays as it is.

    The capacity doubles until it is what is asked for. `kv convert` has this for other layouts.
    """
    if capacity is None and record_bytes is None:
        raise Error("nothing to grow: give --capacity, --record-bytes, or both")
    with _region.open(
        store, arena_folder=arena_folder, last_commit=last_commit, read_only=True
    ) as region:
        if not kv_strings.is_in(region):
            raise Error(
                f"{store} is no store of the layout map: `holdfast kv convert STORE NEW "
                "--capacity ...` copies the pairs of a store of numbers into a larger one"
            )
        size = region.size
    # The index doubles, so that it may get twice what is asked for; while keys move, the old
    # levels are there, too.
    room = size + BytesMap.region_bytes(4 * (capacity or 1), record_bytes or 1)
    opened = _region.open(
        store,
        arena_folder=arena_folder,
        last_commit=last_commit,
        max_size=min(max(room, 4 * size), _MOST_REGION_BYTES),
    )
    aside = opened.open_report.arena_set_aside
    common.note_set_aside(aside)
    refused: Error | None = None
    with opened:
        kv = BytesMap(opened, kv_strings.NAME)
        try:
            kv.reserve(capacity, record_bytes)
        except Error as error:
            if error.code not in _REFUSALS:
                raise
            refused = error
        stats, size = kv.stats(), opened.size
    if refused is not None:
        raise refused
    result = {"ok": True, "store": str(store), "capacity": stats.capacity}
    result |= {"record_bytes": stats.record_bytes, "bytes": size, "arena_set_aside": aside}
    if as_json:
        common.emit(result)
    else:
        common.out.print(
            f"{store}: room for {stats.capacity:,} pairs of "
            f"{common.size_text(stats.record_bytes)} in all"
        )
