"""holdfast kv of the layout map: keys and values are byte strings."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from .. import _region, csvfile
from .._bytes_map import BytesMap
from . import common, kv_rows

NAME = "strings"  # of the map in its region
BYTES_OF_PAIR = 128  # for records, where nothing is said


def is_in(region: _region.Region) -> bool:
    return f"{NAME}.index.header" in region


def create(
    store: Path, capacity: int, max_batch: int, record_bytes: int | None, arena_folder: Path | None
) -> dict[str, Any]:
    room = BYTES_OF_PAIR * capacity if record_bytes is None else record_bytes
    size = BytesMap.region_bytes(capacity, room, max_batch)
    with _region.create(store, size, arena_folder=arena_folder) as region:
        made = BytesMap(
            region, NAME, capacity=capacity, record_bytes=room, max_batch=max_batch
        ).stats()
        return {
            "ok": True,
            "store": str(store),
            "capacity": made.capacity,
            "max_batch": made.max_batch,
            "layout": "map",
            "record_bytes": made.record_bytes,
            "bytes": region.size,
        }


def _shown(string: bytes) -> str:
    return string.decode(errors="backslashreplace")


def _for_machines(string: bytes) -> str | dict[str, str]:
    """Returns text, or what is none in a form that is not taken for another text."""
    try:
        return string.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(string).decode()}


def _as_bytes(word: str) -> bytes:
    return os.fsencode(word)


def _report(counts: dict[str, Any], not_done: int, as_json: bool, text: str = "") -> None:
    """Prints what was done; exits with 1 where something was not."""
    failed = (
        f"{not_done:,} pairs found no room: erase some, or give it more by `holdfast kv grow` "
        "(kv stat shows which is short, capacity or free bytes side by side)"
    )
    if as_json:
        error = {"error": {"code": "no_space", "message": failed}} if not_done else {}
        common.emit({"ok": not not_done, **counts} | error)
    else:
        if text:
            common.out.print(text)
        if not_done:
            common.complain(failed)
    if not_done:
        raise typer.Exit(common.EXIT_FAILED)


def put(kv: BytesMap, pairs: Sequence[str], as_json: bool) -> None:
    keys, values = [], []
    for pair in pairs:
        key, _, value = pair.partition("=")
        keys.append(_as_bytes(key))
        values.append(_as_bytes(value))
    done = kv.insert_or_assign(keys, values)
    counts = {"inserted": done.inserted, "updated": done.assigned, "not_done": done.not_done}
    text = ", ".join(f"{name} {count}" for name, count in counts.items())
    aside = kv.region.open_report.arena_set_aside
    _report(counts | {"arena_set_aside": aside}, done.not_done, as_json, text)


def get(kv: BytesMap, keys: Sequence[str], as_json: bool) -> None:
    values, found = kv.find([_as_bytes(key) for key in keys])
    form: Callable[[bytes], Any] = _for_machines if as_json else _shown
    answers = [form(values[i]) if there else None for i, there in enumerate(found)]
    if as_json:
        common.emit({"ok": bool(found.all()), "values": dict(zip(keys, answers, strict=True))})
    else:
        for key, answer in zip(keys, answers, strict=True):
            common.out.print(f"{key} {'absent' if answer is None else answer}", markup=False)
    if not found.all():
        raise typer.Exit(common.EXIT_FAILED)


def delete(kv: BytesMap, keys: Sequence[str]) -> int:
    return kv.erase([_as_bytes(key) for key in keys]).erased


def stat(kv: BytesMap) -> dict[str, Any]:
    stats = kv.stats()
    crashed = kv.region.open_report.arena_found
    return {
        "records": stats.size,
        "capacity": stats.capacity,
        "max_batch": stats.max_batch,
        "record_bytes": stats.record_bytes,
        "free_bytes": stats.free_bytes,
        "largest_free": stats.largest_free,
        "free_extents": stats.free_extents,
        "bytes": kv.region.size,
        "commits": kv.region.generation,
        "content": "what a crash left" if crashed else "the last commit",
        "layout": "map",
    }


def load(
    kv: Any, columns: csvfile.TextColumns, batch: int | None, file: Path, as_json: bool
) -> None:
    """Stores rows, batch by batch, and says what was done."""
    assert isinstance(kv, BytesMap)
    ranges = kv_rows.ranges(columns, batch, kv.stats().max_batch)
    totals = {"inserted": 0, "updated": 0, "not_done": 0}
    start = time.monotonic()
    with common.progress(as_json) as bar:
        task = bar.add_task("rows stored", total=len(columns.keys))
        for first, end in ranges:
            done = kv.insert_or_assign(columns.keys[first:end], columns.values[first:end])
            totals["inserted"] += done.inserted
            totals["updated"] += done.assigned + done.superseded
            totals["not_done"] += done.not_done
            bar.update(task, completed=end)
    shown = {
        "rows": len(columns.keys),
        "batches": len(ranges),
        **totals,
        "records": kv.size,
        "capacity": kv.stats().capacity,
        "bad_row_count": columns.bad_count,
        "seconds": round(time.monotonic() - start, 3),
    }
    if not as_json:
        common.table(f"{file} into {kv.region.path}", shown)
    hidden = {
        "arena_set_aside": kv.region.open_report.arena_set_aside,
        "bad_rows": columns.bad_rows,
    }
    _report(shown | hidden, totals["not_done"], as_json)
