"""What holdfast kv convert makes: a store that has its name once it is whole."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import _region
from .._errors import Error
from .._store import KeyValueStore


@dataclass(frozen=True)
class Shape:
    """What the new store is made with."""

    layout: str
    capacity: int
    max_batch: int
    log_records: int


def make(
    new: Path, keys: Any, values: Any, shape: Shape, most_capacity: int, arena_folder: Path | None
) -> None:
    """Makes a store of these pairs, of a larger capacity than `shape`'s where they need it.

    It is filled under the name NEW.part, which is left of a conversion that is killed, and goes
    with the next one. Raises Error: already_exists; in_use, where another conversion fills it;
    no_space, where not all pairs find room in `most_capacity`.
    """
    part = new.with_name(f"{new.name}.part")
    if os.path.lexists(new):
        raise Error(f"{new} is there: remove it, or give another name", "already_exists")
    if os.path.lexists(part):
        _region.destroy(part, arena_folder=arena_folder)
    while not _fill(part, keys, values, shape, arena_folder):
        if shape.capacity >= most_capacity:
            raise Error(
                f"not all of {len(keys):,} pairs found a place, buckets being full: give a larger "
                "--capacity",
                "no_space",
            )
        shape = replace(shape, capacity=min(2 * shape.capacity, most_capacity))
    try:
        os.link(part, new)  # no other file is lost, as it would be by a renaming
        part.unlink()
        folder = os.open(new.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise Error(f"{part}, which is whole, did not get the name {new}: {error}", "io") from None


def _fill(part: Path, keys: Any, values: Any, shape: Shape, arena_folder: Path | None) -> bool:
    """Says whether all pairs found room. Else, and where it raises, nothing is left."""
    size = KeyValueStore.region_bytes(
        shape.capacity, shape.max_batch, shape.layout, shape.log_records
    )
    region = _region.create(part, size, arena_folder=arena_folder)
    evicted = 0
    try:
        with region:
            store = KeyValueStore.create(
                region,
                shape.capacity,
                shape.max_batch,
                layout=shape.layout,
                log_records=shape.log_records,
            )
            for first in range(0, len(keys), shape.max_batch):
                end = first + shape.max_batch
                evicted += store.set(keys[first:end], values[first:end]).evicted
    except BaseException:
        if not region.closed:  # its last commit has failed
            region.abandon()
        _region.destroy(part, arena_folder=arena_folder)
        raise
    if evicted:
        _region.destroy(part, arena_folder=arena_folder)
    return not evicted
