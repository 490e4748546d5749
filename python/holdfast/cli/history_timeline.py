"""holdfast history timeline: what a run did, drawn from its trace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import timeline
from .._errors import Error
from . import common

TraceFile = Annotated[
    Path, typer.Argument(metavar="TRACE", help="What History(trace=...) wrote at close().")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The picture: a file .html or .svg.")
]
Stalls = Annotated[
    int, typer.Option(min=0, max=1000, help="How many of the longest calls to tell.")
]
Begin = Annotated[float | None, typer.Option("--begin", help="Draw from here on (ms).")]
End = Annotated[float | None, typer.Option("--end", help="Draw up to here (ms).")]


def _window(
    trace: timeline.Trace, begin: float | None, end: float | None
) -> tuple[float, float] | None:
    if begin is None and end is None:
        return None
    first = min((event.begin for event in trace.events), default=0.0)
    last = max((event.end for event in trace.events), default=1.0)
    window = (first if begin is None else begin * 1e3, last if end is None else end * 1e3)
    if not first <= window[1] or not window[0] <= last or not window[0] < window[1]:
        raise Error(
            f"nothing is to be drawn from {window[0] / 1e3:g} to {window[1] / 1e3:g} ms: the trace "
            f"goes from {first / 1e3:.3f} to {last / 1e3:.3f} ms"
        )
    return window


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise Error(f"cannot write '{path}': {error.strerror}", "io") from None


@common.command
def draw(
    path: TraceFile,
    output: Output = None,
    stalls: Stalls = 10,
    begin: Begin = None,
    end: End = None,
    as_json: common.Json = False,
) -> None:
    """Draws what a history did, and says in words what its longest calls waited for.

    Lanes for the program's calls and for each direction of transfers, what was taken of each tier,
    hints. The picture loads nothing. Without --output the words alone are printed. Perfetto
    (ui.perfetto.dev) opens the trace, too.
    """
    kind = output.suffix.lower() if output else ""
    if output and kind not in (".html", ".svg"):
        raise Error(f"'{output}' is no name of a picture: let it end in .html or .svg")
    trace = timeline.load(path)
    told = timeline.longest_stalls(trace, stalls)
    if output:
        draws = timeline.html if kind == ".html" else timeline.svg
        _write(output, draws(trace, told, _window(trace, begin, end)))
    if as_json:
        common.emit(_report(trace, told, output))
        return
    for stall in told:
        common.out.print(
            f"{stall.event.begin / 1e3:10.2f} ms  {stall.text}", soft_wrap=True, markup=False
        )
    if trace.dropped:
        common.note(
            f"the first {trace.dropped:,} events were dropped: a larger trace_events keeps more"
        )
    if output:
        common.out.print(f"{output}: drawn", soft_wrap=True, markup=False)


def _report(
    trace: timeline.Trace, told: list[timeline.Stall], output: Path | None
) -> dict[str, Any]:
    def seconds(kind: str) -> float:
        return sum(event.duration for event in trace.of(kind)) / 1e6

    return {
        "ok": True,
        "path": trace.path,
        "output": str(output) if output else None,
        "events": len(trace.events),
        "dropped": trace.dropped,
        "save_seconds": seconds("save"),
        "restore_seconds": seconds("restore"),
        "stalls": [
            {
                "call": stall.event.kind,
                "step": stall.event.step,
                "begin_ms": stall.event.begin / 1e3,
                "ms": stall.event.duration / 1e3,
                "text": stall.text,
            }
            for stall in told
        ],
    }
