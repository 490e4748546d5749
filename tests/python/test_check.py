"""The crash-state checker: real runs of small programs, their reports, and the drawings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import holdfast
import holdfast.check as checker
from conftest import REPOSITORY, Run
from holdfast.check import diagram, tool

pytestmark = pytest.mark.usefixtures("check_executable")

SVG = "{http://www.w3.org/2000/svg}"


def line_of(text: str, after: str) -> int:
    """Returns the number of the first line of the example with `text`, behind the mark `after`."""
    lines = (REPOSITORY / "examples" / "checked_append" / "append.cu").read_text().splitlines()
    start = lines.index(f"// [{after}]")
    return next(i for i, line in enumerate(lines, 1) if i > start and text in line)


NUMBERS = (
    *("states", "nested_states", "runs", "memoised", "persists", "threads", "crash_points"),
    *("schedules", "schedules_share", "seconds", "peak_bytes", "jobs"),
)


def nothing_fails(answer: Any) -> bool:
    """Whether the program passed, or no failure was found."""
    return answer.status in (0, 3)


def test_passing_program(run: Run) -> None:
    answer = run("check", "append", "--threads", 1, "--json")
    assert answer.status == 0, answer.out
    report = answer.json
    assert (report["ok"], report["verdict"], report["rung"]) == (True, "passed", "exhaustive")
    assert report["complete"] is True
    assert [part["model"] for part in report["models"]] == ["sbrp", "epoch"]
    assert report["limits"] == report["void_reasons"] == []
    assert report["cause"] is None
    assert report["failures"] == report["races"] == report["dead_workers"] == []
    assert all(isinstance(report[name], int | float) for name in NUMBERS)
    assert report["states"] > 0
    answer = run("check", "append", "--threads", 1)
    assert answer.status == 0
    assert "every state that recovery can tell apart" in answer.out
    for words in ("append: passed", "sbrp", "epoch", "1, which is all", "ran ", "size 1"):
        assert words in answer.out


def test_partial_exploration_is_not_passed(run: Run) -> None:
    answer = run("check", "append", "--threads", 1, "--max-states", 3, "--json")
    assert answer.status == 3
    assert (answer.json["ok"], answer.json["verdict"]) == (False, "no failure found")
    assert answer.json["budget"] is True
    answer = run("check", "append", "--threads", 1, "--model", "sbrp")
    assert answer.status == 3
    assert "append: no failure found" in answer.out
    assert "only model sbrp" in answer.out


@pytest.mark.parametrize("jobs", [1, 2])
def test_failing_program_names_the_lines(run: Run, tmp_path: Path, jobs: int) -> None:
    answer = run("check", "append_naive", "--json", "--jobs", jobs, "--diagram", "state.svg")
    assert answer.status == 1
    report = answer.json
    assert (report["ok"], report["verdict"]) == (False, "failed")
    assert report["cause"] == "barrier_only"
    failure = report["failures"][0]
    lost, kept = failure["lost"], failure["kept"]
    assert lost["place"]["file"].endswith("examples/checked_append/append.cu")
    assert lost["place"]["line"] == line_of("records[first", "naive")
    assert lost["place"]["text"].startswith("records[first + threadIdx.x]")
    assert kept["place"]["line"] == line_of("head->count = ", "naive")
    assert (lost["durable"], kept["durable"]) == (False, True)
    assert kept["object"] == "head+0"
    assert "persist()" in failure["advice"]
    assert len(failure["persists"]) >= 2
    root = ElementTree.parse(tmp_path / "state.svg").getroot()
    boxes = {group.get("id") for group in root.iter(f"{SVG}g")}
    assert f"persist-{lost['number']}" in boxes
    assert f"persist-{kept['number']}" in boxes


def test_readable_output(run: Run) -> None:
    answer = run("check", "append_naive", "--diagram", "state.html")
    assert answer.status == 1
    line = line_of("records[first", "naive")
    for words in (f"append.cu:{line} in append_naive", "lost:", "kept:", "replay:", "state.html"):
        assert words in answer.out
    answer = run("check", "append", "--diagram", "state.svg")
    assert nothing_fails(answer)
    assert "nothing to draw" in answer.err


def test_replay(run: Run) -> None:
    first = run("check", "append_naive", "--threads", 3, "--json").json["failures"][0]
    words = first["command"].split()
    assert words[:2] == ["holdfast", "check"]
    assert words[-4:-2] == ["--threads", "3"]
    again = run(*words[1:], "--json")
    assert again.status == 1
    assert again.json["rung"] == "replay"
    assert again.json["failures"][0]["lost"]["place"] == first["lost"]["place"]
    assert run(*words[1:-1], "99:1", "--json").status == 2


def test_recovery_that_crashes(run: Run) -> None:
    failure = run("check", "append_sum_naive", "--json").json["failures"][0]
    assert failure["nested"] is True
    assert failure["cause"] == "not_idempotent"
    answer = run("check", "append_sum", "--json")
    assert nothing_fails(answer)
    assert answer.json["nested_states"] > 0
    answer = run("check", "append_sum", "--no-nested", "--json")
    assert (answer.status, answer.json["nested_states"]) == (3, 0)


def test_scope(run: Run) -> None:
    answer = run("check", "append_blocks_naive", "--json")
    assert answer.status == 1
    failure = answer.json["failures"][0]
    assert failure["cause"] == "narrow_scope"
    assert failure["fix"]["line"] == line_of("prel<S>", "blocks")
    assert nothing_fails(run("check", "append_blocks"))
    assert "scope" in answer.json["races"][0]["what"]
    answer = run("check", "append_blocks_naive", "--model", "epoch", "--json")
    assert (answer.status, answer.json["verdict"]) == (4, "racy")
    assert run("check", "append_blocks_naive", "--model", "epoch", "--no-races").status == 3


def test_mutants(run: Run) -> None:
    answer = run("check", "append", "--mutants", "--json", "--jobs", 2)
    assert answer.status == 0, answer.out
    result = answer.json
    assert result["score"]["not_killed"] == 0
    assert result["score"]["killed"] == len(result["mutants"]) > 0
    change = f"drop@append.cu:{line_of('persist();', 'fixed')}"
    drop = next(mutant for mutant in result["mutants"] if mutant["mutation"] == change)
    assert drop["killer"] == "state"
    assert {"drop", "weaken", "early"} <= {mutant["kind"] for mutant in result["mutants"]}
    command = drop["report"]["failures"][0]["command"].split()
    assert "--mutation" in command
    assert run(*command[1:], "--json").status == 1
    answer = run("check", "append_sum", "--mutants", "--sizes", 1)
    # A dropped wait of the host is never called not needed, since the run still waits.
    assert (answer.status, "not needed" in answer.out) == (3, True)
    assert run("check", "append_sum", "--mutants", "--schedules", 0).status == 3
    answer = run("check", "append_naive", "--mutants")
    assert answer.status == 1
    assert "mend it" in answer.out


def test_list_and_litmus(run: Run) -> None:
    names = [program["name"] for program in run("check", "list", "--json").json["programs"]]
    assert {"append", "undo_log", "gpkvs_set"} <= set(names)
    assert "append_naive" in run("check", "list").out
    answer = run("check", "litmus", "--json")
    assert answer.status == 0, answer.out
    assert answer.json["ok"] is True
    assert answer.json["tests"] > 50
    assert "all as the model says" in run("check", "litmus", "--model", "sbrp").out
    answer = run("check", "litmus", "absent.litmus")
    assert (answer.status, answer.out) == (2, "")
    assert "absent.litmus" in answer.err
    answer = run("check", "litmus", "absent.litmus", "--json")
    assert answer.status == 2
    assert "absent.litmus" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["append", "--threads", "0"], ""),
        (["append", "--threads", "5000"], "1,024"),
        (["append", "--persists", "2"], "does not apply"),
        (["append", "--mutation", "drop"], "drop@FILE:LINE"),
        (["append", "--replay", "x"], "'x'"),
        (["append", "--mutants", "--replay", "1:"], "exclude"),
        (["append", "--sizes", "2"], "--mutants"),
        (["append", "--mutants", "--sizes", "2x"], "--sizes"),
        (["append", "--model", "tso"], ""),
    ],
)
def test_bad_usage(run: Run, arguments: list[str], words: str) -> None:
    answer = run("check", *arguments)
    assert answer.status == 2, answer.out
    assert words in answer.err
    answer = run("check", *arguments, "--json")
    assert answer.status == 2


def test_bad_names(run: Run) -> None:
    answer = run("check", "append", "--diagram", "state.png", "--json")
    assert answer.status == 2
    assert ".svg" in answer.json["error"]["message"]
    for words, says in (
        (["append", "extra"], "extra"),
        (["list", "--diagram", "state.svg"], "one program"),
        (["append", "--brute"], "litmus"),
    ):
        answer = run("check", *words)
        assert answer.status == 2
        assert says in answer.err
    answer = run("check", "append", "--program", "absent")
    assert answer.status == 1
    assert "absent" in answer.err


def test_program_of_ones_own(run: Run, tmp_path: Path) -> None:
    report = run("check", "append", "--threads", 1, "--json").out
    program = tmp_path / "mine"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{report}END\n")
    program.chmod(0o755)
    assert run("check", "append", "--program", program).status == 0
    program.write_text("#!/bin/sh\nexit 3\n")
    answer = run("check", "append", "--program", program)
    assert answer.status == 1
    assert "status 3" in answer.err


def test_package_without_the_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "_check_missing.txt"
    missing.write_text("HOLDFAST_BUILD_CHECK was 0\n")
    monkeypatch.setattr(tool, "_PACKAGE", tmp_path)
    monkeypatch.setattr(tool, "_MISSING", missing)
    with pytest.raises(holdfast.Error, match=r"HOLDFAST_BUILD_CHECK was 0.*Install it again") as no:
        checker.executable()
    assert no.value.code == "unsupported"
    with pytest.raises(holdfast.Error):
        checker.litmus_folder()


def many_persists(count: int, threads: int) -> dict[str, Any]:
    """Returns a failure with so many persists; the pair stands in the middle."""
    place = {"file": "k.cu", "line": 7, "function": "k", "context": "", "text": "a < b && c;"}
    persists = [
        {
            "number": i,
            "thread": f"kernel {1 + i // 50}, block 0, thread {i % threads}",
            "object": f"a<b>+{8 * i}",
            "value": i,
            "bytes": 8,
            "durable": i % 3 != 0,
            "place": place,
        }
        for i in range(count)
    ]
    middle = count // 2 // 3 * 3
    return {
        "message": 'item 1: "x" < 2 & more',
        "cause": "missing_order",
        "cause_in_words": "nothing orders the two stores",
        "nested": False,
        "has_pair": True,
        "lost": persists[middle],
        "kept": persists[middle + 1],
        "fix": {**place, "file": ""},
        "advice": "put ofence() between them",
        "persists": persists,
    }


@pytest.mark.parametrize(("count", "threads"), [(2, 1), (60, 4), (500, 3), (500, 100)])
def test_drawing(count: int, threads: int) -> None:
    failure = many_persists(count, threads)
    text = checker.svg({"program": "p"}, failure)
    root = ElementTree.fromstring(text)
    drawn = [group.get("id") for group in root.iter(f"{SVG}g")]
    assert len(drawn) == len(set(drawn)) <= diagram.MOST_PERSISTS
    for name in ("lost", "kept"):
        assert f"persist-{failure[name]['number']}" in drawn
    if count == 60:
        assert len(drawn) == 60
    assert ("left out" in text) == (len(drawn) < count)
    columns = {info["thread"] for info in diagram.choose(failure)}
    assert len(columns) <= diagram.MOST_COLUMNS
    page = checker.html({"program": "p"}, failure, "holdfast check p --replay '1:2'")
    assert "<pre>holdfast check p --replay '1:2'</pre>" in page


def test_json_is_one_line(run: Run) -> None:
    out = run("check", "append_naive", "--json").out
    assert out.count("\n") == 1
    assert json.loads(out)["program"] == "append_naive"


def test_errors_can_be_planted() -> None:
    """The patches of `scripts/plant_errors` fit the code that is there."""
    patches = sorted((REPOSITORY / "tests" / "check" / "planted").glob("*.patch"))
    assert len(patches) > 20
    for patch in patches:
        fits = subprocess.run(
            ["git", "apply", "--check", str(patch)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert fits.returncode == 0, f"{patch.name}: {fits.stderr}"
