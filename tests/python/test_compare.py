"""Two builds of a benchmark in turn: what is called slower."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_bench.compare import compared, cost


def test_what_the_second_costs_of_the_first() -> None:
    assert cost("open_ms", 10, 11) == pytest.approx(1.1)
    assert cost("million_inserts_per_s", 10, 11) == pytest.approx(10 / 11)
    assert cost("threads", 10, 11) is None
    assert cost("open_ms", 0, 11) is None


def test_medians_by_line_and_figure() -> None:
    def rounds(*times: float) -> list[dict[str, list[dict[str, object]]]]:
        return [{"p": [{"benchmark": "a", "size": 1, "open_ms": t}]} for t in times]

    (line,) = compared({"before": rounds(10, 30, 20), "after": rounds(22, 21, 90)})
    assert (line["before"], line["after"], line["cost"]) == (20, 22, 1.1)
    assert (line["benchmark"], line["size"], line["figure"]) == ("a", 1, "open_ms")
    more = [{"p": [{"benchmark": "new", "open_ms": 1}, {"benchmark": "a", "open_ms": 2}]}]
    assert [line["benchmark"] for line in compared({"before": rounds(1), "after": more})] == ["a"]


def test_programs_take_turns(tmp_path: Path) -> None:
    order = tmp_path / "order"
    for side, time in (("old", 10), ("new", 12)):
        program = tmp_path / side / "p_bench"
        program.parent.mkdir()
        line = json.dumps({"benchmark": "p", "took_ms": time})
        program.write_text(f"#!/bin/sh\necho {side} $1 >> {order}\necho '{line}'\n")
        program.chmod(0o755)
    results = tmp_path / "results.json"
    words = f"--before {tmp_path}/old --after {tmp_path}/new --commits a b --results {results}"
    said = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast_bench.compare",
            *words.split(),
            "--rounds=2",
            "p_bench word",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 over 1.03" in said.stdout
    assert order.read_text().split("\n")[:4] == ["old word", "new word", "new word", "old word"]
    kept = json.loads(results.read_text())
    assert kept["rounds"] == 2
    assert kept["commit"] == {"before": "a", "after": "b"}
    assert kept["results"][0]["cost"] == 1.2
