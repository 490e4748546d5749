"""holdfast run --medium: as slow as a medium, with the same result, and the result says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conftest import Run
from holdfast import workloads
from holdfast_bench.gpm.results import TITLES

RATE = 1e6  # the slowest: the rest of a step takes less, on a busy machine, too


@pytest.mark.parametrize("mode", workloads.MODES)
def test_a_step_takes_as_long_as_its_bytes(mode: str) -> None:
    what = workloads.Run("prefix_sum", mode=mode)
    fast = workloads.run(what)
    slow = workloads.run(replace(what, medium="limit=1MB/s"))
    assert fast["medium"] == "dram"
    assert slow["medium"] == "limit=1MB/s"
    assert slow["ok"] and slow["digest"] == fast["digest"]
    assert slow["bytes_written"] == fast["bytes_written"]
    assert sum(slow["step_seconds"]) >= slow["bytes_written"] / RATE
    assert sum(fast["medium_seconds"]) == 0
    for step, waited in zip(slow["step_seconds"], slow["medium_seconds"], strict=True):
        assert 0 < waited <= step


def test_the_answer_says_how_stores_fall(run: Run) -> None:
    listed = run("run", "--list", "--json").json["workloads"]
    access = {entry["name"]: entry["kernel_access"] for entry in listed}
    scattered = {name for name in TITLES if access[name] == "random"}
    assert scattered == {"gpkvs", "gpkvs_95_5", "gpdb_update"}
    assert access["bfs"] == "unaligned"
    assert set(access.values()) <= {"aligned", "unaligned", "random"}
    answer = run("run", "bfs", "--size", "test", "--medium", "optane", "--json").json
    assert answer["medium"] == "optane"
    assert answer["kernel_access"] == "unaligned"
    streamed = answer["bytes_streamed"]  # costs, at the end
    assert 0 < streamed < answer["bytes_written"]
    least = (answer["bytes_written"] - streamed) / 3.13e9 + streamed / 12.5e9
    assert sum(answer["step_seconds"]) >= least


def test_words_name_the_model(run: Run) -> None:
    out = run("run", "hotspot", "--size", "test", "--medium", "cxl").out
    assert "medium cxl, a model" in out
    assert "a model" not in run("run", "hotspot", "--size", "test").out


@pytest.mark.parametrize("medium", ["flash", "limit=1.6", "limit=0GB/s", "optane,cxl"])
def test_a_bad_medium_is_named(run: Run, medium: str) -> None:
    answer = run("run", "hotspot", "--size", "test", "--medium", medium)
    assert answer.status == 1, answer.err
    text = " ".join(answer.err.split())
    assert medium in text and "dram, optane, cxl" in text and "limit=1.6GB/s" in text
