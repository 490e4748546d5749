"""holdfast run, crash and bench gpm-*: workloads in processes of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conftest import Run
from holdfast import Error, workloads
from holdfast.crash import ResumeCampaign

# The paper's, in the order in which they are listed.
PAPERS = [
    "gpkvs",
    "gpkvs_95_5",
    "gpdb_insert",
    "gpdb_update",
    "lenet",
    "cfd",
    "black_scholes",
    "hotspot",
    "bfs",
    "srad",
    "prefix_sum",
]


def names() -> list[str]:
    """Returns what is listed; the paper's where there is no runner to ask."""
    try:
        return [entry["name"] for entry in workloads.available()]
    except Error:
        return PAPERS


def test_list(run: Run) -> None:
    answer = run("run", "--list", "--json")
    assert answer.status == 0
    listed = [entry["name"] for entry in answer.json["workloads"]]
    assert listed[: len(PAPERS)] == PAPERS
    words = run("run", "--list").out
    assert all(name in words for name in listed)


@pytest.mark.parametrize("name", sorted(names()))
def test_every_mode_agrees_with_the_oracle(run: Run, name: str) -> None:
    for mode in workloads.MODES:
        answer = run("run", name, "--mode", mode, "--size", "test", "--json")
        assert answer.status == 0, (mode, answer.out, answer.err)
        result = answer.json
        assert result["ok"] and result["verified"] and result["wrong"] == ""
        assert result["mode"] == mode
        assert result["input"]
        assert len(result["step_seconds"]) == result["steps"]
        assert result["bytes_written"] > 0


def test_words_name_the_input_and_projections(run: Run) -> None:
    out = run("run", "hotspot", "--size", "test").out
    assert "input: " in out and "as the oracle says" in out
    assert "projection" in run("run", "hotspot", "--size", "test", "--mode", "eadr").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], ["nothing", "gpkvs", "srad"]),
        (["bfs", "--mode", "fast"], ["--mode fast", "gpm", "cap-mm"]),
        (["bfs", "--size", "huge"], ["--size huge", "paper"]),
        (["bfs", "--set", "sauce=1"], ["sauce", "levels_per_step"]),
        (["bfs", "--set", "sauce"], ["NAME=VALUE"]),
        (["hotspot", "--set", "grid=x"], ["grid=x"]),
        (["bfs", "--data", "/nowhere"], ["/nowhere"]),
    ],
)
def test_bad_arguments_are_named(run: Run, arguments: list[str], words: list[str]) -> None:
    answer = run("run", *arguments)
    assert answer.status == 1, answer.err
    text = " ".join(answer.err.split())
    for word in words:
        assert word in text
    answer = run("run", *arguments, "--json")
    assert answer.json["ok"] is False


def test_a_region_of_another_run_is_refused(run: Run, tmp_path: Path) -> None:
    region = tmp_path / "r"
    arguments = ("run", "hotspot", "--size", "test", "--region", region)
    assert run(*arguments).status == 0
    again = run(*arguments, "--json").json
    assert again["first_step"] == again["steps"]  # all was done before
    answer = run(*arguments, "--mode", "cap-mm")
    assert answer.status == 1
    assert "another mode" in " ".join(answer.err.split())
    workloads.remove(region)
    assert not region.exists()


@pytest.mark.parametrize("name", ["gpdb_update", "black_scholes", "srad"])
def test_killed_workloads_resume(name: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", "7"))
    print(f"HOLDFAST_TEST_SEED={seed}")
    what = workloads.Run(name, size="test", steps=30 if name == "black_scholes" else 0)
    result = ResumeCampaign(what, 8, seed, str(tmp_path)).run()
    assert result.ok, result.wrong
    assert result.kills == 8
    assert not list(tmp_path.iterdir())


def test_crash_command(run: Run) -> None:
    answer = run("crash", "prefix_sum", "--kills", 4, "--seed", 5, "--json")
    assert answer.status == 0, answer.err
    assert answer.json["kills"] == 4
    assert answer.json["finished"] > 0
    assert run("crash", "nothing", "--kills", 1).status == 1


def test_crash_kills_gpkvs_in_the_mode_that_is_asked_for(run: Run) -> None:
    arguments = ("crash", "gpkvs", "--seed", 5, "--json", "--mode")
    answer = run(*arguments, "cap-delta", "--kills", 4)
    assert answer.status == 0, answer.err
    assert answer.json["mode"] == "cap-delta"
    assert answer.json["kills"] == 4 and answer.json["finished"] > 0
    assert run(*arguments, "fast", "--kills", 1).status == 1
    log = run("crash", "gpkvs_95_5", "--seed", 5, "--json", "--kills", 4, "--set", "layout=log")
    assert log.status == 0, log.err
    assert log.json["finished"] > 0


def test_experiments_write_results(run: Run, tmp_path: Path) -> None:
    common = ("--size", "test", "--results", tmp_path, "--cpu-threads", "1,2")
    answer = run("bench", "gpm-fig9", "--only", "hotspot,srad", *common)
    assert answer.status == 0, answer.err
    lines = json.loads((tmp_path / "gpm_modes_test-cpu.json").read_text())["results"]
    assert {(line["workload"], line["mode"]) for line in lines} == {
        (name, mode)
        for name in ("hotspot", "srad")
        for mode in ("cap-fs", "cap-mm", "gpufs", "gpm")
    }
    assert run("bench", "gpm-table5", "--only", "hotspot", "--kills", 2, *common).status == 0
    lines = json.loads((tmp_path / "gpm_restores_test-cpu.json").read_text())["results"]
    assert lines[0]["recovery_seconds"] > 0
    assert lines[0]["wrong"] == 0


def test_a_run_is_held_to_the_state_of_another() -> None:
    right = workloads.run(workloads.Run("bfs"))
    assert right["verified_by"] == "oracle"
    same = workloads.run(workloads.Run("bfs", mode="cap-fs", expect=right["state"]))
    assert (same["ok"], same["verified_by"], same["state"]) == (True, "digest", right["state"])
    flipped = f"{int(right['state'][0], 16) ^ 1:x}{right['state'][1:]}"
    other = workloads.run(workloads.Run("bfs", expect=flipped))
    assert not other["ok"] and flipped in other["wrong"]
    assert not workloads.run(workloads.Run("bfs", verify=False))["verified"]
    with pytest.raises(Error, match="--expect 123"):
        workloads.run(workloads.Run("bfs", expect="123"))
