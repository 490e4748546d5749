"""`holdfast history timeline`: real runs are drawn, and a stall is named for what it was."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Run
from holdfast import Error, History, timeline


def shot(folder: Path, trace: Path, **options: Any) -> None:
    """A run whose cache has one checkpoint's room, so that saves wait for the disk."""
    field = np.zeros(1 << 18, np.uint8)
    with History(host=1 << 18, disk=folder, trace=trace, **options) as history:
        history.protect("field", field)
        for step in range(12):
            history.save(step)
        history.flush()
        assert history.stats().waits > 0
        history.restore(3)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    shot(tmp_path / "run", tmp_path / "run.trace")
    return tmp_path / "run.trace"


def stalls_of(run: Run, trace: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(
        "history", "timeline", trace, "--stalls", 1000, "--json"
    ).json["stalls"]
    return found


def test_saves_that_wait_for_room_are_told_with_what_made_them_wait(run: Run, trace: Path) -> None:
    stalls = stalls_of(run, trace)
    assert [stall["ms"] for stall in stalls] == sorted((s["ms"] for s in stalls), reverse=True)
    saves = [stall for stall in stalls if stall["call"] == "save"]
    assert len(saves) == 12
    waited = [stall for stall in saves if "for room" in stall["text"]]
    assert waited
    for stall in waited:
        # The one checkpoint that the cache has room for, and it is the one saved before.
        assert re.search(
            rf"save of {stall['step']} took .*: it waited .* for room in host, which had "
            rf"1 checkpoint: 1 (not flushed yet|on the way in); meanwhile {stall['step'] - 1} went "
            r"from host to disk \(",
            stall["text"],
        )
    restored = next(stall for stall in stalls if stall["call"] == "restore")
    assert re.match(
        "restore of 3 took .*: it was on disk alone, and was read from there in .*, since no hint "
        "had named it$",
        restored["text"],
    )


def test_the_pictures_are_whole_and_load_nothing(run: Run, trace: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "run.html", tmp_path / "run.svg"
    said = run("history", "timeline", trace, "--output", page)
    assert said.status == 0 and f"{page}: drawn" in said.out
    assert run("history", "timeline", trace, "-o", picture).status == 0
    drawn = ET.parse(picture).getroot()
    texts = ["".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for label in ("program", "copies of saves", "flush host → disk", "in host", "in disk"):
        assert label in texts
    titles = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    for step in range(12):
        assert any(f"flush of {step}: " in title for title in titles)
        assert any(f"save of {step}: " in title for title in titles)
    for file in (page, picture):
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|src=|href=|url\(|@import|<script", text)

    class Page(HTMLParser):
        rows = 0

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.rows += tag == "tr"

    parser = Page()
    parser.feed(page.read_text())
    assert parser.rows == 11  # ten, and the head


def test_a_part_of_the_time(run: Run, trace: Path, tmp_path: Path) -> None:
    begin = stalls_of(run, trace)[0]["begin_ms"]
    out = tmp_path / "part.svg"
    assert run("history", "timeline", trace, "-o", out, "--begin", begin).status == 0
    ET.parse(out)
    answer = run("history", "timeline", trace, "-o", out, "--begin", 5, "--end", 2, "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "invalid_argument")
    answer = run("history", "timeline", trace, "-o", tmp_path / "run.pdf", "--json")
    assert "end in .html or .svg" in answer.json["error"]["message"]
    answer = run("history", "timeline", trace, "-o", tmp_path / "no" / "run.svg", "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "io")


def test_what_did_not_fit_into_the_trace_is_told(run: Run, tmp_path: Path) -> None:
    shot(tmp_path / "run", tmp_path / "small.trace", trace_events=10)
    answer = run("history", "timeline", tmp_path / "small.trace", "--json").json
    assert answer["events"] == 10
    assert answer["dropped"] > 20
    said = run("history", "timeline", tmp_path / "small.trace", "-o", tmp_path / "small.svg")
    assert "events were dropped" in said.err
    assert "events were dropped" in (tmp_path / "small.svg").read_text()


# --- What the words are for: made-up events -----------------------------------------------------


class Made:
    """A trace of two caches and a disk, event by event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []

    def add(self, kind: str, step: int, begin: float, end: float, **args: Any) -> None:
        tracks = {"flush": 1_000_000, "fetch": 1_000_003}
        base = {"step": step, "bytes": 1 << 20, "from": "program", "to": "program"}
        self.lines.append(
            {
                "ph": "X",
                "name": f"{kind} {step}",
                "cat": kind,
                "pid": 1,
                "tid": args.pop("tid", tracks.get(kind, 1)),
                "ts": begin,
                "dur": end - begin,
                "args": {**base, "outcome": "done", **args},
            }
        )

    def held(self, tier: str, at: float, count: int) -> None:
        self.lines.append(
            {
                "ph": "C",
                "name": f"bytes in {tier}",
                "cat": "held",
                "pid": 1,
                "tid": 0,
                "ts": at,
                "args": {"bytes": count},
            }
        )

    def head(self) -> dict[str, Any]:
        return {
            "holdfast_history_trace": 1,
            "opened_unix_ns": 1,
            "pid": 1,
            "closed_us": 1e6,
            "events": len(self.lines),
            "dropped": 0,
            "limit": 100,
            "tiers": [
                {"tier": "gpu", "capacity": 4 << 20},
                {"tier": "host", "capacity": 8 << 20},
                {"tier": "disk", "capacity": 0},
            ],
        }

    def write(self) -> Path:
        self.path.write_text(json.dumps({"otherData": self.head(), "traceEvents": self.lines}))
        return self.path

    def words(self) -> str:
        """What is said of the longest call."""
        return timeline.longest_stalls(timeline.load(self.write()), 1)[0].text


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "made.trace")


def test_a_restore_behind_the_fetches_of_others(made: Made) -> None:
    made.add("fetch", 19, 80_000, 90_000, **{"from": "disk", "to": "host"})
    made.add("fetch", 18, 90_010, 98_100, **{"from": "disk", "to": "host"})
    made.add("fetch", 17, 98_110, 112_300, **{"from": "disk", "to": "host", "paused_us": 2000})
    made.add("wait", 17, 100_000, 112_300, to="host", why="fetch")
    made.add(
        "restore", 17, 100_000, 112_310, **{"from": "host", "hinted": True, "prefetching": True}
    )
    assert made.words() == (
        "restore of 17 took 12.3 ms: it was on disk; it waited 12.3 ms for its fetch from there "
        "into host, which began 1.9 ms before the call and took 14.2 ms, 2.0 ms of that giving way "
        "to other reads, behind the fetches of 19 and 18"
    )


def test_a_restore_whose_fetch_found_no_room(made: Made) -> None:
    made.held("gpu", 10, 4 << 20)
    made.add(
        "restore",
        4,
        1000,
        3000,
        **{"from": "host", "hinted": True, "prefetching": True, "ready": 3, "unflushed": 1},
    )
    assert made.words() == (
        "restore of 4 took 2.0 ms: nothing was waited for, it was copied from host, since there "
        "was no room in gpu, which had 4 checkpoints: 1 not flushed yet, 3 fetched ahead and not "
        "restored"
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "no hint had named it"),
        ({"hinted": True}, "prefetch_start() had not been called"),
        ({"hinted": True, "prefetching": True}, "its fetch had not begun"),
    ],
)
def test_a_restore_that_nothing_fetched(made: Made, args: dict[str, Any], words: str) -> None:
    made.add("direct", 4, 1000, 2990, **{"from": "disk"})
    made.add("restore", 4, 1000, 3000, **{"from": "disk", **args})
    assert made.words().endswith(f"was read from there in 2.0 ms, since {words}")


def test_damage_and_failures_are_told(made: Made) -> None:
    made.add(
        "fetch", 4, 10, 20, **{"from": "disk", "to": "host", "outcome": "failed"}, message="EIO"
    )
    made.add("direct", 4, 1000, 1500, **{"from": "disk", "outcome": "damaged"})
    made.add("direct", 4, 1500, 2990, **{"from": "disk"})
    made.add("restore", 4, 1000, 3000, **{"from": "disk"})
    words = made.words()
    assert "read from there in 500 us, where it turned out to be damaged; " in words
    assert words.endswith("since its fetch had failed (EIO)")


def test_a_save_that_waits_for_two_tiers(made: Made) -> None:
    made.held("gpu", 10, 4 << 20)
    made.held("host", 10, 8 << 20)
    made.add("wait", 9, 1000, 31_000, to="gpu", why="room", unflushed=4)
    made.add("flush", 5, 30_000, 31_000, **{"from": "gpu", "to": "host"})
    made.add("flush", 1, 2_000, 29_000, **{"from": "host", "to": "disk"}, tid=1_000_002)
    made.add("save", 9, 990, 31_100, to="gpu")
    assert made.words() == (
        "save of 9 took 30.1 ms: it waited 30.0 ms for room in gpu, which had 4 checkpoints: 4 not "
        "flushed yet; meanwhile 5 went from gpu to host (1.0 ms); host was full, too, so that it "
        "went at the pace of the flushes to disk: 1 (27.0 ms)"
    )


def test_what_a_trace_holds_is_escaped(run: Run, made: Made, tmp_path: Path) -> None:
    evil = "</title></text><script>alert(1)</script>\x00\x1b[31m & \ud800 [/red] "
    made.add("flush", 5, 0, 10_000, **{"from": evil, "to": evil, "outcome": "failed"}, message=evil)
    made.add("wait", 6, 0, 9_000, to=evil, why="room")
    made.add("save", 6, 0, 10_000, to=evil)
    path = made.write()
    for name in ("out.svg", "out.html"):
        answer = run("history", "timeline", path, "-o", tmp_path / name)
        assert answer.status == 0, answer.err
        text = (tmp_path / name).read_text()
        assert "<script" not in text
        assert "alert(1)" in text
    ET.parse(tmp_path / "out.svg")
    assert "\x1b" not in answer.out


# --- Damage -------------------------------------------------------------------------------------


def code_of(path: Path) -> str:
    with pytest.raises(Error) as refused:
        trace = timeline.load(path)
        timeline.svg(trace, timeline.longest_stalls(trace))
    assert str(path) in str(refused.value)
    return refused.value.code


def test_what_is_no_trace(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert code_of(path) == "not_found"
    for content in (b"", b"\x00" * 100, b"[]", b"{}", b'{"traceEvents": []}', b"[" * 100_000):
        path.write_bytes(content)
        assert code_of(path) == "foreign"
    assert code_of(tmp_path) == "io"
    answer = run("history", "timeline", path, "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "foreign")


def test_a_trace_cut_off_anywhere_is_damaged(trace: Path) -> None:
    whole = trace.read_bytes()
    for length in range(60, len(whole) - 2, max(1, len(whole) // 60)):
        trace.write_bytes(whole[:length])
        assert code_of(trace) == "damaged"


@pytest.mark.parametrize(
    "change",
    [
        {"ts": "soon"},
        {"ts": float("nan")},
        {"ts": 1e400},
        {"dur": -1},
        {"tid": -1},
        {"tid": "1"},
        {"args": None},
        {"args": {"step": -1}},
        {"args": {"step": 2**64, "bytes": 1, "from": "", "to": "", "outcome": ""}},
        {"args": {"step": True, "bytes": 1, "from": "", "to": "", "outcome": ""}},
        {"ph": "e", "id": 3},
        {"ph": "b", "id": 3},
    ],
)
def test_one_wrong_value_is_damage(made: Made, change: dict[str, Any]) -> None:
    made.add("save", 1, 0, 10, to="gpu")
    made.lines[0].update(change)
    assert code_of(made.write()) == "damaged"


def test_any_bytes_are_drawn_or_refused(trace: Path) -> None:
    """Every byte changed, in turn over many positions: an answer or an Error, and nothing else."""
    whole = trace.read_bytes()
    refused = 0
    for position in range(0, len(whole), max(1, len(whole) // 150)):
        for other in (0, whole[position] ^ 1, ord("9"), ord('"')):
            trace.write_bytes(whole[:position] + bytes([other]) + whole[position + 1 :])
            try:
                drawn = timeline.load(trace)
                timeline.html(drawn, timeline.longest_stalls(drawn, 3))
            except Error:
                refused += 1
    assert refused > 50
