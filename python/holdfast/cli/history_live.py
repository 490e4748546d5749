"""holdfast history show, of a program that runs."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from .._snapshot import HistorySnapshot, ask, socket_of
from . import common


def look(path: Path) -> tuple[HistorySnapshot | None, Path | None]:
    """Returns what a running history says, and the socket that one left that runs no longer."""
    at = socket_of(path)
    if at is None:
        return None, None
    snapshot = ask(at)
    return snapshot, at if snapshot is None else None


def report(snapshot: HistorySnapshot | None) -> dict[str, Any] | None:
    return asdict(snapshot) if snapshot else None


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _shown(text: str) -> str:
    """A path as a terminal can take it; the bytes of one may be no UTF-8."""
    return escape(os.fsencode(text).decode("utf-8", "replace"))


def _grid(title: str, *columns: str) -> Table:
    grid = Table(title=title, title_justify="left")
    for column in columns:
        grid.add_column(column)
    return grid


def show(snapshot: HistorySnapshot) -> None:
    restored = "prefetching" if snapshot.prefetching else "not prefetching"
    common.out.print(
        f"process {snapshot.pid} has it, {escape(snapshot.phase)}, {restored}; "
        f"{len(snapshot.hints):,} hints are ahead",
        soft_wrap=True,
    )
    tiers = _grid("Tiers", "tier", "taken", "of", "checkpoints", "where")
    for tier in snapshot.tiers:
        capacity = common.size_text(tier.capacity) if tier.capacity else "no limit"
        tiers.add_row(
            tier.name,
            common.size_text(tier.used),
            capacity,
            f"{tier.checkpoints:,}",
            _shown(tier.path),
        )
    common.out.print(tiers)
    _show_checkpoints(snapshot)
    if snapshot.transfers:
        grid = _grid("Transfers under way", "transfer", "step", "from", "to", "bytes", "since")
        for one in snapshot.transfers:
            moved = f"{common.size_text(one.moved)} of " if one.moved else ""
            grid.add_row(
                one.kind,
                str(one.step),
                one.source,
                one.target,
                moved + common.size_text(one.nbytes),
                _seconds(one.seconds),
            )
        common.out.print(grid)
    if snapshot.callers:
        grid = _grid("Calls under way", "call", "step", "waits for", "since")
        for caller in snapshot.callers:
            step = "" if caller.call == "flush" else str(caller.step)
            waits = escape(caller.waits_for) or "nothing: it copies"
            grid.add_row(caller.call, step, waits, _seconds(caller.seconds))
        common.out.print(grid)


def _show_checkpoints(snapshot: HistorySnapshot) -> None:
    if not snapshot.checkpoints:
        return
    places: dict[int, int] = {}
    for place, step in enumerate(snapshot.hints, 1):
        places.setdefault(step, place)
    names = [tier.name for tier in snapshot.tiers]
    grid = _grid("Checkpoints", "step", "age", "bytes", *names, "restored as")
    for one in snapshot.checkpoints:
        ahead = f"{places[one.step]:,}. next" if one.step in places else ""
        grid.add_row(
            str(one.step),
            _seconds(max(0, snapshot.unix_ns - one.saved_unix_ns) / 1e9),
            common.size_text(one.nbytes),
            *(one.states.get(name, "") for name in names),
            "is discarded" if one.discarded else ahead,
        )
    common.out.print(grid)
