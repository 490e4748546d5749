"""Reads the trace of a history: docs/format.md, "Traces of histories"."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._errors import Error

CALLS = ("save", "restore", "flush()", "wait()")  # for which the program is blocked
PARTS = ("wait", "direct")  # of a call
TRANSFERS = ("copy", "flush", "fetch")
MOMENTS = ("evicted", "discarded", "hint", "prefetch_start")
_KINDS = (*CALLS, *PARTS, *TRANSFERS, *MOMENTS, "held")


@dataclass(frozen=True)
class Census:
    """Checkpoints of a cache, by what stands against their eviction."""

    moving: int
    unflushed: int
    ready: int  # fetched ahead, and not restored
    evictable: int

    @property
    def total(self) -> int:
        return self.moving + self.unflushed + self.ready + self.evictable


@dataclass(frozen=True)
class Event:
    """Times are microseconds since the history was opened."""

    kind: str
    begin: float
    end: float
    track: int
    step: int = 0
    nbytes: int = 0
    source: str = "program"
    target: str = "program"
    outcome: str = "done"
    why: str = ""  # of a wait
    paused: float = 0.0  # microseconds for which a lane gave way
    hinted: bool = False  # when a restore began
    prefetching: bool = False
    census: Census | None = None
    message: str = ""

    @property
    def duration(self) -> float:
        return self.end - self.begin


@dataclass
class Trace:
    path: str
    opened_unix_ns: int
    pid: int
    closed: float  # microseconds
    dropped: int
    limit: int
    tiers: dict[str, int]  # capacity in bytes, 0: no limit; from the fastest
    tracks: dict[int, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)  # by their beginning

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]


def load(path: Path) -> Trace:
    """Raises Error: not_found, permission, io; foreign (no trace of a history), damaged."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise Error(
            f"there is no trace '{path}': History(trace=...) writes one at close()", "not_found"
        ) from None
    except PermissionError:
        raise Error(f"the trace '{path}' cannot be read: permission", "permission") from None
    except OSError as error:
        raise Error(f"the trace '{path}' cannot be read: {error.strerror}", "io") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        code = (
            "damaged" if text.startswith(b'{"otherData":{"holdfast_history_trace"') else "foreign"
        )
        raise Error(
            f"'{path}' is no whole trace of a history ({error}): let the program that wrote it "
            "close() its history again",
            code,
        ) from None
    try:
        return _trace_of(found, str(path))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Error(f"the trace '{path}' is damaged: {error!r}", "damaged") from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no time")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise ValueError(f"{value!r} is no number of 64 bits")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    # What no terminal and no picture can show is a question mark, as bytes of a path that are no
    # UTF-8 are.
    seen = value.encode("utf-8", "replace").decode()
    return "".join("?" if c < " " or "\x7f" <= c < "\xa0" else c for c in seen)


def _trace_of(found: Any, path: str) -> Trace:
    head = found.get("otherData") if isinstance(found, dict) else None
    version = head.get("holdfast_history_trace") if isinstance(head, dict) else None
    if not isinstance(head, dict) or version is None:
        raise Error(
            f"'{path}' is JSON, and no trace of a history: History(trace=...) writes one", "foreign"
        )
    if version != 1:
        raise Error(f"the trace '{path}' is of version {version!r}: this reads 1", "newer_version")
    trace = Trace(
        path=path,
        opened_unix_ns=_count(head["opened_unix_ns"]),
        pid=_count(head["pid"]),
        closed=_number(head["closed_us"]),
        dropped=_count(head["dropped"]),
        limit=_count(head["limit"]),
        tiers={_text(tier["tier"]): _count(tier["capacity"]) for tier in head["tiers"]},
    )
    begun: dict[int, dict[str, Any]] = {}
    for line in found["traceEvents"]:
        _take(trace, line, begun)
    if begun:
        raise ValueError(f"event {min(begun)} has no end")
    if len(trace.events) != _count(head["events"]):
        raise ValueError(f"it has {len(trace.events)} events, and not {head['events']}")
    trace.events.sort(key=lambda event: (event.begin, -event.end))
    return trace


def _take(trace: Trace, line: Any, begun: dict[int, dict[str, Any]]) -> None:
    phase = line["ph"]
    if phase == "M":
        if line["name"] == "thread_name":
            trace.tracks[_count(line["tid"])] = _text(line["args"]["name"])
        return
    if line["cat"] not in _KINDS:
        return  # of a later build
    begin = _number(line["ts"])
    if phase == "b":
        begun[_count(line["id"])] = line
        return
    if phase == "e":
        line = begun.pop(_count(line["id"])) | {"end": begin}
        begin = _number(line["ts"])
    end = line.get("end", begin + _number(line.get("dur", 0)))
    if end < begin:
        raise ValueError(f"event '{line['name']}' ends before it begins")
    trace.events.append(_event(line, begin, end))


def _event(line: dict[str, Any], begin: float, end: float) -> Event:
    args = line["args"]
    track = _count(line["tid"])
    if line["cat"] == "held":
        tier = _text(line["name"]).removeprefix("bytes in ")
        return Event("held", begin, end, track, nbytes=_count(args["bytes"]), target=tier)
    counts = [_count(args.get(name, 0)) for name in ("moving", "unflushed", "ready", "evictable")]
    return Event(
        kind=_text(line["cat"]),
        begin=begin,
        end=end,
        track=track,
        step=_count(args["step"]),
        nbytes=_count(args["bytes"]),
        source=_text(args["from"]),
        target=_text(args["to"]),
        outcome=_text(args["outcome"]),
        why=_text(args.get("why", "")),
        paused=_number(args.get("paused_us", 0)),
        hinted=bool(args.get("hinted", False)),
        prefetching=bool(args.get("prefetching", False)),
        census=Census(*counts) if any(counts) else None,
        message=_text(args.get("message", "")),
    )
