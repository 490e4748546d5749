"""Draws a trace: lanes over time, what the tiers held, and the longest stalls in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape

from ._stalls import Stall, duration_text, listed
from ._trace import CALLS, Event, Trace

_WIDTH, _LEFT, _RIGHT = 1180, 168, 24
_ROW, _BAR, _CHART = 26, 16, 46
_PLOT = _WIDTH - _LEFT - _RIGHT
_LEAST = 0.8  # pixels of a bar

_INK, _FAINT, _GRID, _BAND = "#1f2430", "#667085", "#e4e7ec", "#f7f8fa"
_COLORS = {
    "save": "#0072b2",
    "restore": "#009e73",
    "flush()": "#7a5195",
    "wait()": "#7a5195",
    "waiting": "#d55e00",
    "direct": "#e69f00",
    "copy": "#56b4e9",
    "flush": "#8fa3bf",
    "fetch": "#5fbf9f",
    "failed": "#c1121f",
}
_LEGEND = (
    ("save", "save()"),
    ("restore", "restore()"),
    ("flush()", "flush(), wait(), close()"),
    ("waiting", "within a call: waits"),
    ("direct", "moves past the caches"),
    ("copy", "copies of saves"),
    ("flush", "flush"),
    ("fetch", "fetch"),
    ("failed", "failed"),
)


def _clean(text: str) -> str:
    """Escapes what a trace may hold; characters that XML has not become question marks."""
    seen = "".join(
        c if c in "\t\n" or (c >= " " and c not in "\x7f\ufffe\uffff") else "?" for c in text
    )
    return escape(seen, quote=True)


def _size_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


@dataclass
class _Picture:
    begin: float  # microseconds
    end: float
    y: float = 0.0
    parts: list[str] = field(default_factory=list)

    def x(self, moment: float) -> float:
        moment = min(max(moment, self.begin), self.end)
        return _LEFT + (moment - self.begin) / (self.end - self.begin) * _PLOT

    def text(
        self, x: float, y: float, text: str, size: int = 11, fill: str = _INK, more: str = ""
    ) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}"{more}>'
            f"{_clean(text)}</text>"
        )

    def label(self, text: str, height: float) -> None:
        shown = text if len(text) <= 24 else text[:23] + "…"
        self.text(_LEFT - 10, self.y + height / 2 + 4, shown, 12, _INK, ' text-anchor="end"')

    def band(self, height: float) -> None:
        self.parts.append(
            f'<rect x="{_LEFT}" y="{self.y + 2:.1f}" width="{_PLOT}" height="{height - 4:.1f}" '
            f'fill="{_BAND}"/>'
        )

    def bars(self, bars: Iterable[tuple[float, float, str]], fill: str, y: float, h: float) -> None:
        """Bars of a row, by their beginning; those that would share a pixel are drawn as one."""
        held: list[tuple[float, float, list[str]]] = []
        for begin, end, title in bars:
            if end < self.begin or begin > self.end:
                continue
            left, right = self.x(begin), max(self.x(end), self.x(begin) + _LEAST)
            if held and left - held[-1][1] < 0.3 and min(right - left, right - held[-1][0]) < 2:
                held[-1] = (held[-1][0], max(right, held[-1][1]), [*held[-1][2], title])
            else:
                held.append((left, right, [title]))
        for left, right, titles in held:
            more = f" and {len(titles) - 3} more" if len(titles) > 3 else ""
            gap = 0.4 if right - left > 2 else 0
            self.parts.append(
                f'<rect x="{left:.2f}" y="{y:.1f}" width="{right - left - gap:.2f}" '
                f'height="{h:.1f}" fill="{fill}"><title>'
                f"{_clean(chr(10).join(titles[:3]) + more)}</title></rect>"
            )


def _title(event: Event) -> str:
    names = {"flush()": "flush()", "wait()": f"wait() for {event.step}"}
    name = names.get(event.kind, f"{event.kind} of {event.step}")
    if event.kind == "wait":
        name = f"waits ({event.why}) for {event.target}"
    elif event.kind == "direct":
        name = f"moves from {event.source} to {event.target}"
    text = f"{name}: {duration_text(event.duration)}"
    if event.kind not in ("flush()", "wait()", "wait") and event.nbytes:
        text += f", {_size_text(event.nbytes)} from {event.source} to {event.target}"
    if event.paused:
        text += f", gave way for {duration_text(event.paused)}"
    text += f", at {event.begin / 1e3:.2f} ms"
    if event.outcome != "done":
        text += f", {event.outcome}"
    return f"{text}: {event.message}" if event.message else text


def _ticks(begin: float, end: float) -> list[float]:
    raw = (end - begin) / 8
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= raw)
    first = math.ceil(begin / step)
    return [n * step for n in range(first, math.floor(end / step) + 1)]


def _tick_text(moment: float, span: float) -> str:
    if span >= 5e6:
        return f"{moment / 1e6:g} s"
    return f"{moment / 1e3:g} ms" if span >= 5e3 else f"{moment:g} us"


def _axis(picture: _Picture, height: float) -> None:
    for tick in _ticks(picture.begin, picture.end):
        x = picture.x(tick)
        picture.parts.append(
            f'<line x1="{x:.1f}" y1="{picture.y:.1f}" x2="{x:.1f}" y2="{picture.y + height:.1f}" '
            f'stroke="{_GRID}"/>'
        )
        label = _tick_text(tick, picture.end - picture.begin)
        picture.text(x, picture.y - 5, label, 11, _FAINT, ' text-anchor="middle"')


def _row(picture: _Picture, name: str, events: list[Event], color: Callable[[Event], str]) -> None:
    picture.band(_ROW)
    picture.label(name, _ROW)
    by_color: dict[str, list[Event]] = {}
    for event in events:
        by_color.setdefault(color(event), []).append(event)
    for fill, several in by_color.items():
        picture.bars(
            ((one.begin, one.end, _title(one)) for one in several),
            fill,
            picture.y + (_ROW - _BAR) / 2,
            _BAR,
        )
    picture.y += _ROW


def _color_of(event: Event) -> str:
    failed = event.outcome in ("failed", "damaged")
    return _COLORS["failed" if failed else event.kind]


def _calls(picture: _Picture, trace: Trace, stalls: list[Stall]) -> None:
    tracks = sorted({event.track for event in trace.of(*CALLS)})
    for number, track in enumerate(tracks, 1):
        top = picture.y
        name = "program" if len(tracks) == 1 else f"program, thread {number}"
        _row(picture, name, [one for one in trace.of(*CALLS) if one.track == track], _color_of)
        for kind, fill in (("wait", _COLORS["waiting"]), ("direct", _COLORS["direct"])):
            parts = [one for one in trace.of(kind) if one.track == track]
            picture.bars(
                ((one.begin, one.end, _title(one)) for one in parts),
                fill,
                top + (_ROW + _BAR) / 2 - 5,
                5,
            )
        _numbers(picture, [(n, s) for n, s in enumerate(stalls, 1) if s.event.track == track], top)


def _numbers(picture: _Picture, stalls: list[tuple[int, Stall]], top: float) -> None:
    """Numbers of stalls over their bars, where there is room."""
    taken: list[float] = []
    for number, stall in stalls:
        event = stall.event
        if event.end < picture.begin or event.begin > picture.end:
            continue
        x = (picture.x(event.begin) + picture.x(event.end)) / 2
        if any(abs(x - other) < 15 for other in taken):
            continue
        taken.append(x)
        y = top - 3
        picture.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7.5" fill="{_INK}"/>')
        picture.text(x, y + 3.5, str(number), 10, "#ffffff", ' text-anchor="middle"')


def _copies(picture: _Picture, trace: Trace) -> None:
    """Copies of several streams overlap: as many rows as they need, up to three."""
    rows: list[list[Event]] = []
    for copy in trace.of("copy"):
        row = next((row for row in rows if row[-1].end <= copy.begin), None)
        if row is None and len(rows) < 3:
            rows.append([copy])
        elif row is not None:
            row.append(copy)
        else:
            rows[-1].append(copy)
    for number, row in enumerate(rows):
        _row(picture, "copies of saves" if number == 0 else "", row, _color_of)


def _lanes(picture: _Picture, trace: Trace) -> None:
    by_track: dict[int, list[Event]] = {}
    for event in trace.of("flush", "fetch"):
        by_track.setdefault(event.track, []).append(event)

    def place(track: int) -> tuple[bool, int]:
        return by_track[track][0].kind == "fetch", track

    for track in sorted(by_track, key=place):
        events = by_track[track]
        ends = {(one.source, one.target) for one in events}
        source, target = next(iter(ends))
        # A lane goes past a tier where that takes nothing.
        kind = events[0].kind
        if len(ends) > 1 and kind == "flush":
            name = f"flush {source} → {' or '.join(_in_order(trace, {e[1] for e in ends}))}"
        elif len(ends) > 1:
            name = f"fetch {' or '.join(_in_order(trace, {e[0] for e in ends}))} → {target}"
        else:
            name = f"{kind} {source} → {target}"
        _row(picture, name, events, _color_of)


def _in_order(trace: Trace, tiers: set[str]) -> list[str]:
    return [tier for tier in trace.tiers if tier in tiers]


def _occupancy(picture: _Picture, trace: Trace) -> None:
    for tier, capacity in trace.tiers.items():
        events = [event for event in trace.of("held") if event.target == tier]
        if not events:
            continue
        top = capacity or max(1, *(event.nbytes for event in events))
        picture.band(_CHART)
        base, scale = picture.y + _CHART - 4, (_CHART - 10) / top
        points = _steps(picture, events, base, scale)
        picture.parts.append(
            f'<path d="M{points[0][0]:.1f},{base:.1f} '
            + " ".join(f"L{x:.1f},{y:.1f}" for x, y in points)
            + f' L{points[-1][0]:.1f},{base:.1f} Z" fill="#c9d7ea" stroke="#4a6fa5" '
            'stroke-width="0.8"/>'
        )
        most = max(event.nbytes for event in events)
        what = f"of {_size_text(capacity)}" if capacity else "no limit"
        picture.text(_LEFT - 10, picture.y + 20, f"in {tier}", 12, _INK, ' text-anchor="end"')
        picture.text(
            _LEFT - 10,
            picture.y + 34,
            f"up to {_size_text(most)}, {what}",
            9,
            _FAINT,
            ' text-anchor="end"',
        )
        picture.y += _CHART


def _steps(
    picture: _Picture, events: list[Event], base: float, scale: float
) -> list[tuple[float, float]]:
    """The line of what a tier holds; of several changes in a pixel the largest is kept."""
    points = [(float(_LEFT), base)]
    for event in events:
        y = base - event.nbytes * scale
        if event.begin < picture.begin:
            points = [(float(_LEFT), y)]
            continue
        if event.begin > picture.end:
            break
        x = picture.x(event.begin)
        if x - points[-1][0] < 0.5 and len(points) > 2:
            points[-1] = (points[-1][0], y)
            continue
        points += [(x, points[-1][1]), (x, y)]
    points.append((float(_LEFT + _PLOT), points[-1][1]))
    return points


def _marks(picture: _Picture, trace: Trace, top: float) -> None:
    """The program's words to the prefetcher: hints as ticks, prefetch_start() as a line."""
    starts = trace.of("prefetch_start")
    hints: dict[float, list[int]] = {}
    for event in trace.of("hint"):
        hints.setdefault(event.begin, []).append(event.step)
    if not hints and not starts:
        return
    row = picture.y
    picture.band(_ROW - 4)
    picture.label("hints", _ROW - 4)
    picture.bars(
        ((at, at, f"hint({listed(of)}) at {at / 1e3:.2f} ms") for at, of in hints.items()),
        "#b58900",
        row + 4,
        _ROW - 12,
    )
    picture.y += _ROW - 4
    for event in starts:
        if not picture.begin <= event.begin <= picture.end:
            continue
        x = picture.x(event.begin)
        picture.parts.append(
            f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{row + _ROW - 6:.1f}" '
            f'stroke="#b58900" stroke-width="1.2" stroke-dasharray="4 3"/>'
        )
        at_right = x > _LEFT + _PLOT * 0.85
        anchor = ' text-anchor="end"' if at_right else ""
        at = x + (-5 if at_right else 5)
        picture.text(at, row + 14, "prefetch_start()", 10, "#8a6800", anchor)


def _legend(picture: _Picture) -> None:
    x = float(_LEFT)
    for name, text in _LEGEND:
        picture.parts.append(
            f'<rect x="{x:.1f}" y="{picture.y - 9:.1f}" width="10" height="10" '
            f'fill="{_COLORS[name]}"/>'
        )
        picture.text(x + 14, picture.y, text, 11, _FAINT)
        x += 24 + 6.1 * len(text)


def _summary(trace: Trace) -> str:
    saves, restores = trace.of("save"), trace.of("restore")
    text = (
        f"{len(saves):,} saves blocked {duration_text(sum(s.duration for s in saves))}, "
        f"{len(restores):,} restores {duration_text(sum(r.duration for r in restores))}, "
        f"of {duration_text(trace.closed)}"
    )
    failed = [one for one in trace.of("flush", "fetch", "copy") if one.outcome == "failed"]
    if failed:
        text += f"; {len(failed):,} transfers failed"
    if trace.dropped:
        text += f"; the first {trace.dropped:,} events were dropped (trace_events={trace.limit:,})"
    return text


def _drawing(trace: Trace, stalls: list[Stall], window: tuple[float, float] | None) -> _Picture:
    begin, end = window or (
        min((event.begin for event in trace.events), default=0.0),
        max((event.end for event in trace.events), default=1.0),
    )
    picture = _Picture(begin, max(end, begin + 1.0))
    picture.text(14, 24, f"History {trace.path}", 15, _INK, ' font-weight="600"')
    picture.text(14, 43, _summary(trace), 12, _FAINT)
    picture.y = 66
    _legend(picture)
    picture.y = 100
    rows = _Picture(picture.begin, picture.end, y=picture.y + 16)
    _calls(rows, trace, stalls)
    _copies(rows, trace)
    _lanes(rows, trace)
    _marks(rows, trace, picture.y + 10)
    rows.y += 8
    _occupancy(rows, trace)
    _axis(picture, rows.y - picture.y)
    picture.parts += rows.parts
    picture.y = rows.y + 10
    return picture


_FONT = "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\""


def _wrapped(picture: _Picture) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {picture.y:.0f}" '
        f'width="{_WIDTH}" height="{picture.y:.0f}" {_FONT}>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(picture.parts)}</svg>\n'
    )


def svg(trace: Trace, stalls: list[Stall], window: tuple[float, float] | None = None) -> str:
    """Returns the picture with the stalls beneath it. window: from and to, in microseconds."""
    picture = _drawing(trace, stalls, window)
    if stalls:
        picture.y += 14
        picture.text(14, picture.y, "The longest calls", 13, _INK, ' font-weight="600"')
    for number, stall in enumerate(stalls, 1):
        lines = textwrap.wrap(
            f"at {stall.event.begin / 1e3:.2f} ms: {stall.text}", 172, break_long_words=True
        )
        picture.y += 6
        for first, line in enumerate(lines):
            picture.y += 15
            if first == 0:
                picture.text(26, picture.y, f"{number}", 11, _INK, ' text-anchor="end"')
            picture.text(34, picture.y, line, 11, _INK)
    picture.y += 16
    return _wrapped(picture)


_STYLE = """
body { font: 14px system-ui, -apple-system, 'Segoe UI', sans-serif; color: #1f2430;
  margin: 16px auto; max-width: 1220px; padding: 0 16px; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; margin-top: 8px; }
td, th { padding: 5px 12px 5px 0; vertical-align: top; text-align: left; }
th { color: #667085; font-weight: 500; }
tr + tr { border-top: 1px solid #e4e7ec; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
"""


def html(trace: Trace, stalls: list[Stall], window: tuple[float, float] | None = None) -> str:
    """Returns a page of its own, which loads nothing."""
    rows = "".join(
        f'<tr><td class="n">{number}</td><td class="n">{stall.event.begin / 1e3:.2f} ms</td>'
        f'<td class="n">{_clean(duration_text(stall.event.duration))}</td>'
        f"<td>{_clean(stall.text)}</td></tr>"
        for number, stall in enumerate(stalls, 1)
    )
    table = (
        '<h2>The longest calls</h2><table><tr><th class="n">#</th><th class="n">at</th>'
        f'<th class="n">blocked</th><th>why</th></tr>{rows}</table>'
        if stalls
        else ""
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{_clean(trace.path)}</title><style>{_STYLE}</style></head><body>"
        f"{_wrapped(_drawing(trace, stalls, window))}{table}</body></html>\n"
    )
