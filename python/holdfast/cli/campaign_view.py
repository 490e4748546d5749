"""A crash campaign on the terminal: live, and its result."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..crash import Campaign, Event, Result
from . import common

_LINES_SECONDS = 5.0  # between lines where there is no terminal


class View:
    """Shows batches, kills and recoveries as they happen."""

    def __init__(self, title: str, quiet: bool) -> None:
        self._title = title
        self._quiet = quiet
        self._bars = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=common.err,
        )
        self._line = Text("")
        self._live: Live | None = None
        self._campaign: Campaign | None = None
        self._next_line = time.monotonic() + _LINES_SECONDS

    def __enter__(self) -> View:
        return self

    def start(self, campaign: Campaign) -> None:
        self._campaign = campaign
        result = campaign.result
        if self._quiet:
            return
        common.err.print(f"{self._title}: {result.batches:,} batches, seed {result.seed}")
        kills = sum(len(kill) for kill in campaign.plan)
        self._batches = self._bars.add_task("batches", total=result.batches)
        self._kills = self._bars.add_task("kills", total=kills)
        if common.err.is_terminal:
            self._live = Live(
                Group(self._bars, self._line), console=common.err, refresh_per_second=10
            )
            self._live.start()

    def event(self, event: Event) -> None:
        if self._quiet or self._campaign is None:
            return
        result = self._campaign.result
        if event.kind == "batch":
            self._bars.advance(self._batches)
        elif event.kind == "kill":
            self._bars.advance(self._kills)
        self._line.plain = _summary(result)
        if self._live is None and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINES_SECONDS
            common.err.print(_summary(result))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()


def _summary(result: Result) -> str:
    return (
        f"{result.acknowledged + result.found_whole:,} batches in; {result.kills} kills: "
        f"{result.kills_in_batch} in a batch, {result.kills_in_recovery} in recovery, "
        f"{result.kills_in_commit} in a commit, {result.kills_between} between; "
        f"{result.recoveries} recoveries; lost {result.lost}, torn {result.torn}"
    )


def show(result: Result, title: str) -> None:
    """Prints the result and what went wrong."""
    rows: dict[str, Any] = {
        "backend": f"{result.backend} ({result.device})",
        "records": result.records,
        "batches": result.batches,
        "acknowledged": f"{result.acknowledged:,} of {result.sent:,} sent",
        "kills": result.kills,
        "  in a batch": result.kills_in_batch,
        "  in a recovery": result.kills_in_recovery,
        "  in a commit to disk": result.kills_in_commit,
        "  between": result.kills_between,
        "batches cut off": f"{result.found_absent} found absent, {result.found_whole} whole",
        "recoveries": f"{result.recoveries} with work to do, {result.recoveries_cut_off} cut off",
        "tables compared": f"{result.verified}, and {result.images_verified} of the file alone",
        "lost": result.lost,
        "torn": result.torn,
        "operations a second": f"{result.operations_per_second:,.0f} while batches run",
        "seconds": result.seconds,
    }
    common.table(title, rows)
    for problem in result.problems[:20]:
        common.err.print(f"[red]problem:[/] {problem}")
    if len(result.problems) > 20:
        common.err.print(f"... and {len(result.problems) - 20} more")
