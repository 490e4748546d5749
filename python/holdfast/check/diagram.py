"""Draws a failing crash state: threads as columns, time downwards, persists as boxes.

A filled box reached the medium; a hollow red one was lost. The pair whose order is missing has a
thick frame, and between them stands the arrow that is not there.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from .._errors import Error

MOST_PERSISTS = 60
MOST_COLUMNS = 12

_COLUMN = 210
_ROW = 46
_BOX_WIDTH = 178
_BOX_HEIGHT = 34
_MARGIN = 24
_TEXT_LINE = 18

_KEPT = "#1f4e8c"
_LOST = "#c62828"
_PAIR = "#f2a900"
_FIX = "#2e7d32"
_GREY = "#8a8a8a"

_STYLE = f"""
text {{ font: 13px system-ui, sans-serif; fill: #222; }}
text.mono {{ font: 12px ui-monospace, monospace; }}
text.title {{ font-size: 17px; font-weight: 600; }}
text.head {{ font-weight: 600; text-anchor: middle; }}
text.note {{ fill: {_GREY}; }}
.kept {{ fill: {_KEPT}; stroke: {_KEPT}; }}
.lost {{ fill: #fff; stroke: {_LOST}; stroke-dasharray: 5 3; }}
.pair {{ fill: none; stroke: {_PAIR}; stroke-width: 4; }}
text.on-kept {{ fill: #fff; }}
text.on-lost {{ fill: {_LOST}; }}
.lane {{ stroke: #ddd; }}
.missing {{ fill: none; stroke: {_LOST}; stroke-width: 2; stroke-dasharray: 6 4; }}
.fix {{ stroke: {_FIX}; stroke-width: 3; stroke-dasharray: 8 4; }}
text.fix-text {{ fill: {_FIX}; stroke: none; font-weight: 600; }}
.crash {{ stroke: {_LOST}; stroke-width: 2; }}
text.crash-text {{ fill: {_LOST}; stroke: none; font-weight: 600; }}
.kernel {{ stroke: #aaa; stroke-dasharray: 2 4; }}
"""

_FIX_WORDS = {
    "missing_order": "fence needed here",
    "barrier_only": "fence needed here",
    "lost_acknowledged": "persist() needed here",
    "narrow_scope": "scope too narrow",
}

Persist = dict[str, Any]
Failure = dict[str, Any]


def _place(place: dict[str, Any]) -> str:
    if not place["file"]:
        return str(place["function"] or "an unknown place")
    return f"{Path(place['file']).name}:{place['line']}"


def _value(info: Persist) -> str:
    value = int(info["value"])
    return f"{value:,}" if value < 1 << 20 else f"{value:#x}"


def _named(failure: Failure) -> list[Persist]:
    return [failure[name] for name in ("lost", "kept") if failure[name]["bytes"]]


def choose(failure: Failure) -> list[Persist]:
    """Returns the persists to draw, in their order: all, or those nearest to the pair."""
    anchors = [info["number"] for info in _named(failure)] or [0]
    threads = [info["thread"] for info in _named(failure)]

    def distance(info: Persist) -> tuple[int, int]:
        near = min(abs(info["number"] - anchor) for anchor in anchors)
        return (0 if near == 0 else 1 if info["thread"] in threads else 2, near)

    chosen: list[Persist] = []
    columns: set[str] = set()
    for info in sorted(failure["persists"], key=distance):
        if info["thread"] not in columns and len(columns) == MOST_COLUMNS:
            continue
        columns.add(info["thread"])
        chosen.append(info)
        if len(chosen) == MOST_PERSISTS:
            break
    return sorted(chosen, key=lambda info: int(info["number"]))


def _kernel(thread: str) -> int:
    match = re.match(r"kernel (\d+)", thread)
    return int(match[1]) if match else 0


def _column_order(persists: Iterable[Persist]) -> list[str]:
    """Returns the threads: by kernel, block and thread."""

    def key(thread: str) -> tuple[list[int], str]:
        return ([int(number) for number in re.findall(r"\d+", thread)], thread)

    return sorted({info["thread"] for info in persists}, key=key)


@dataclass
class _Box:
    x: float  # its middle
    y: float

    @property
    def left(self) -> float:
        return self.x - _BOX_WIDTH / 2

    @property
    def top(self) -> float:
        return self.y - _BOX_HEIGHT / 2


class _Drawing:
    """SVG elements, one after another."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>')

    def rect(self, box: _Box, kind: str, grow: float = 0) -> None:
        self.parts.append(
            f'<rect x="{box.left - grow:g}" y="{box.top - grow:g}" rx="4" '
            f'width="{_BOX_WIDTH + 2 * grow:g}" height="{_BOX_HEIGHT + 2 * grow:g}" '
            f'class="{kind}"/>'
        )

    def persist(self, box: _Box, info: Persist) -> None:
        kind = "kept" if info["durable"] else "lost"
        place = info["place"]
        hint = (
            f"persist {info['number']}, {info['thread']}: {info['bytes']} bytes, "
            f"{'reached the medium' if info['durable'] else 'lost'}\n{_place(place)} "
            f"{place['function']}\n{place.get('text', '')}"
        )
        self.parts.append(f'<g id="persist-{info["number"]}"><title>{escape(hint)}</title>')
        self.rect(box, kind)
        words = f"{info['object']} = {_value(info)}"
        self.text(box.left + 6, box.y - 3, _short(words, 25), f"mono on-{kind}")
        self.text(box.left + 6, box.y + 12, _short(_place(place), 25), f"mono on-{kind}")
        self.parts.append("</g>")


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _header(drawing: _Drawing, report: dict[str, Any], failure: Failure, width: float) -> float:
    """Draws what went wrong; returns where the columns start."""
    y = _MARGIN + 6.0
    drawing.text(_MARGIN, y, f"{report['program']}: {failure['message']}", "title")
    lines = [f"{failure['cause_in_words'].capitalize()}."]
    if failure["nested"]:
        lines.insert(0, "The state is that of a second crash, inside recovery.")
    lines += textwrap.wrap("What to do: " + failure["advice"], max(60, int(width / 7)))
    for name in ("lost", "kept"):
        info = failure[name]
        if info["bytes"]:
            quoted = info["place"].get("text", "")
            lines.append(f"{name}: {_place(info['place'])}  {quoted}")
    for line in lines:
        y += _TEXT_LINE
        drawing.text(_MARGIN, y, line, "mono" if line.startswith(("lost:", "kept:")) else "")
    return y + 20


def _legend(drawing: _Drawing, y: float, left_out: int) -> float:
    x = float(_MARGIN)
    for kind, words in (("kept", "reached the medium"), ("lost", "lost in the crash")):
        drawing.parts.append(
            f'<rect x="{x:g}" y="{y - 11:g}" width="22" height="14" rx="3" class="{kind}"/>'
        )
        drawing.text(x + 28, y, words)
        x += 190
    drawing.line(x, y - 4, x + 26, y - 4, "missing")
    drawing.text(x + 32, y, "order that is missing")
    if left_out:
        y += _TEXT_LINE
        drawing.text(_MARGIN, y, f"{left_out:,} persists further from the pair left out", "note")
    return y


def _columns(drawing: _Drawing, threads: list[str], top: float, bottom: float) -> dict[str, float]:
    """Draws a lane for each thread; returns their middles."""
    middles = {}
    for i, thread in enumerate(threads):
        x = _MARGIN + _COLUMN * (i + 0.5)
        middles[thread] = x
        kernel, comma, rest = thread.partition(", ")
        drawing.text(x, top, rest if comma else kernel, "head")
        if comma:
            drawing.text(x, top + 16, kernel, "head note")
        drawing.line(x, top + 26, x, bottom, "lane")
    return middles


def _missing_arrow(drawing: _Drawing, lost: _Box, kept: _Box) -> None:
    """Draws the order that should be and is not: lost before kept."""
    if lost.x == kept.x:
        side = lost.left + _BOX_WIDTH
        bend = side + 40
        path = f"M{side:g} {lost.y:g} C{bend:g} {lost.y:g} {bend:g} {kept.y:g} {side:g} {kept.y:g}"
        middle, height = side + 30, (lost.y + kept.y) / 2
    else:
        way = 1 if kept.x > lost.x else -1
        start, end = lost.x + way * _BOX_WIDTH / 2, kept.x - way * _BOX_WIDTH / 2
        bend = (start + end) / 2
        path = f"M{start:g} {lost.y:g} C{bend:g} {lost.y:g} {bend:g} {kept.y:g} {end:g} {kept.y:g}"
        middle, height = bend, (lost.y + kept.y) / 2
    drawing.parts.append(f'<path d="{path}" class="missing" marker-end="url(#arrow)"/>')
    for sign in (1, -1):
        drawing.line(middle - 7, height - 7 * sign, middle + 7, height + 7 * sign, "crash")


def _marks(drawing: _Drawing, failure: Failure, boxes: dict[int, _Box]) -> None:
    """Draws the pair, its missing arrow, and the line where a fence belongs."""
    pair = {name: failure[name] for name in ("lost", "kept") if failure[name]["bytes"]}
    here = {name: boxes[info["number"]] for name, info in pair.items() if info["number"] in boxes}
    for box in here.values():
        drawing.rect(box, "pair", 4)
    if len(here) == 2 and failure["has_pair"]:
        _missing_arrow(drawing, here["lost"], here["kept"])
    words = _FIX_WORDS.get(failure["cause"])
    if words and "lost" in here:
        box = here["lost"]
        y = box.y + _BOX_HEIGHT / 2 + 12
        if failure["fix"]["file"]:
            words += f": {_place(failure['fix'])}"
        drawing.line(box.left - 8, y, box.left + _BOX_WIDTH + 8, y, "fix")
        drawing.text(box.left - 8, y + 14, words, "fix-text")


def _rows(failure: Failure, persists: list[Persist], first: float) -> list[float]:
    """Returns where the persists stand, and the end: there is room for the fence that is needed."""
    rows = [first]
    for info in persists:
        is_lost = info["number"] == failure["lost"]["number"] and failure["cause"] in _FIX_WORDS
        rows.append(rows[-1] + _ROW + (26 if is_lost else 0))
    return rows


def svg(report: dict[str, Any], failure: Failure) -> str:
    """Returns the drawing of a failure of a report, as `holdfast check --json` prints them."""
    persists = choose(failure)
    threads = _column_order(persists)
    width = max(760.0, 2 * _MARGIN + _COLUMN * len(threads) + 60)
    drawing = _Drawing()
    y = _header(drawing, report, failure, width)
    y = _legend(drawing, y, len(failure["persists"]) - len(persists)) + 36
    top = y
    first_row = top + 26 + _ROW / 2 + 8
    *rows, bottom = _rows(failure, persists, first_row)
    middles = _columns(drawing, threads, top, bottom)
    boxes: dict[int, _Box] = {}
    kernel = _kernel(persists[0]["thread"]) if persists else 0
    for info, y in zip(persists, rows, strict=True):
        box = _Box(middles[info["thread"]], y)
        if _kernel(info["thread"]) > kernel:
            kernel = _kernel(info["thread"])
            line = box.y - _ROW / 2
            drawing.line(_MARGIN, line, width - _MARGIN, line, "kernel")
            drawing.text(_MARGIN, line - 3, f"kernel {kernel}", "note")
        boxes[info["number"]] = box
        drawing.persist(box, info)
    _marks(drawing, failure, boxes)
    drawing.line(_MARGIN, bottom + 6, width - _MARGIN, bottom + 6, "crash")
    drawing.text(_MARGIN, bottom + 24, "crash", "crash-text")
    height = bottom + 24 + _MARGIN
    label = quoteattr(f"A failing crash state of {report['program']}: {failure['message']}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label={label}>\n'
        f"<style>{_STYLE}</style>\n"
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" '
        f'markerHeight="9" orient="auto"><path d="M0 0L10 5L0 10z" fill="{_LOST}"/></marker>'
        '</defs>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(drawing.parts)
        + "\n</svg>\n"
    )


def html(report: dict[str, Any], failure: Failure, command: str) -> str:
    """Returns a page with the drawing and the command that replays the state."""
    title = escape(f"{report['program']}: {failure['message']}")
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        "</head>\n<body>\n"
        f"{svg(report, failure)}<p>Try this state again:</p>\n<pre>{escape(command)}</pre>\n"
        "</body>\n</html>\n"
    )


def check_name(path: Path) -> None:
    """Raises Error unless the file's name says what to write."""
    if path.suffix.lower() not in (".svg", ".html"):
        raise Error(f"--diagram {path}: end the name with .svg or .html")


def draw(report: dict[str, Any], path: Path, command: str) -> bool:
    """Writes the drawing of the report's first failure; returns whether there was one."""
    check_name(path)
    failures = [failure for failure in report["failures"] if failure["persists"]]
    if not failures:
        return False
    if path.suffix.lower() == ".html":
        path.write_text(html(report, failures[0], command))
    else:
        path.write_text(svg(report, failures[0]))
    return True
