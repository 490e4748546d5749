"""The command line: exit status, JSON, and errors that a person can act on."""

from __future__ import annotations

import gzip
import json
import lzma
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from conftest import Run
from holdfast.csvfile import hash_text
from holdfast_bench import runner

COMMANDS = (
    ["doctor"],
    ["demo"],
    ["inspect"],
    ["backup"],
    ["check"],
    ["run"],
    ["crash"],
    ["kv", "create"],
    ["kv", "load"],
    ["kv", "put"],
    ["kv", "get"],
    ["kv", "del"],
    ["kv", "stat"],
    ["kv", "verify"],
    ["kv", "convert"],
    ["history", "show"],
    ["history", "verify"],
    ["history", "discard"],
    ["bench", "run"],
    ["bench", "plot"],
    ["bench", "gpm-fig3"],
    ["bench", "gpm-fig9"],
    ["bench", "gpm-all"],
    ["bench", "score-fig5"],
    ["bench", "score-all"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(run: Run, command: list[str]) -> None:
    answer = run(*command, "--help")
    assert answer.status == 0
    assert "Example: holdfast " + " ".join(command) in answer.out
    assert "--json" in answer.out


def test_version_and_usage(run: Run) -> None:
    assert run("--version").out.count(".") == 2
    assert run("nonsense").status == 2
    answer = run("doctor", HOLDFAST_BACKEND="tpu")
    assert answer.status == 1
    assert "use cpu or cuda" in answer.err
    assert run("kv", "create", "a.hf").status == 2


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["nonsense"], "nonsense"),
        (["kv", "create"], "STORE"),
        (["kv", "create", "a.hf", "--capacity", "none"], "--capacity"),
        (["crash", "gpkvs", "--kills", 0], "--kills"),
        (["bench", "gpm-fig9", "--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_is_for_machines_where_they_ask(
    run: Run, words: list[object], what: str
) -> None:
    answer = run(*words, "--json")
    assert answer.status == 2
    assert answer.json["ok"] is False
    assert answer.json["error"]["code"] == "invalid_argument"
    assert what in answer.json["error"]["message"]


def test_doctor(run: Run) -> None:
    answer = run("doctor", "--json")
    assert answer.status == 0, answer.out
    report = answer.json
    assert report["ok"] is True
    assert report["domains"]["file"]["persist"] == "process"
    assert report["domains"]["file"]["commit"] == "power"
    assert set(report["domains"]) == {"file", "device", "emulated", "dax"}
    assert all(domain["reason"] for domain in report["domains"].values())
    assert report["limits"]["arena_bytes_free"] > 0
    assert "What survives" in run("doctor").out


def test_doctor_says_what_is_missing(run: Run) -> None:
    answer = run("doctor", "--json", HOLDFAST_ARENA_DIR="/nonexistent")
    assert answer.status == 1
    assert "/nonexistent" in answer.out


def test_kv_log(run: Run) -> None:
    create = ["kv", "create", "a.hf", "--capacity", 1000, "--max-batch", 64]
    answer = run(*create, "--layout", "tree")
    assert answer.status == 2
    assert "use in_place, log or map" in answer.err
    few = ["--capacity", 100_000, "--layout", "log", "--log-records", 100_000]
    answer = run("kv", "create", "a.hf", *few)
    assert answer.status == 1
    assert "log_records" in answer.err
    answer = run(*create, "--log-records", 10000)
    assert answer.status == 2
    assert "in_place" in answer.err
    made = run(*create, "--layout", "log", "--log-records", 10000, "--json").json
    assert (made["layout"], made["capacity"]) == ("log", 1000)
    assert run("kv", "put", "a.hf", "1=10", "2=20", "3=30", "--json").json["inserted"] == 3
    assert run("kv", "del", "a.hf", 3, 4, "--json").json["removed"] == 1
    stat = run("kv", "stat", "a.hf", "--json").json
    assert (stat["records"], stat["live_records"], stat["tombstones"]) == (2, 3, 1)
    assert stat["index"] == "whole"
    assert stat["log_records"] == stat["segments"] * stat["segment_records"] >= 10000
    assert stat["segments"] - stat["free_segments"] == 1
    assert stat["space_amplification"] == round(stat["segment_records"] / 3, 3)
    assert (stat["snapshots"], stat["snapshot_age"], stat["snapshots_refused"]) == (0, 0, False)
    assert run("kv", "verify", "a.hf").status == 0
    # Two segments of 256 records. The fourth seals the first one, whose snapshot it takes as it
    # closes the store; the fifth changes too little for another.
    for first in range(0, 300, 60):
        run("kv", "put", "a.hf", *(f"{key}={key}" for key in range(first, first + 60)))
    stat = run("kv", "stat", "a.hf", "--json").json
    assert stat["segments"] - stat["free_segments"] == 2
    assert (stat["snapshots"], stat["snapshot_age"], stat["snapshots_refused"]) == (1, 1, False)
    assert run("kv", "verify", "a.hf").status == 0


def test_kv_convert(run: Run, tmp_path: Path) -> None:
    run("kv", "create", "a.hf", "--capacity", 512, "--max-batch", 64)
    run("kv", "put", "a.hf", *[f"{key}={key + 7}" for key in range(100)], "--json")
    assert run("kv", "stat", "a.hf", "--json").json["records"] == 0  # more than a batch
    for first in (0, 50):
        run("kv", "put", "a.hf", *[f"{key}={key + 7}" for key in range(first, first + 50)])
    assert run("kv", "convert", "a.hf", "b.hf", "--layout", "log", "--json").json["records"] == 100
    assert run("kv", "convert", "a.hf", "b.hf", "--layout", "log").status == 1  # it is there
    assert run("kv", "convert", "b.hf", "c.hf", "--layout", "in_place").status == 0
    for name, layout in (("b.hf", "log"), ("c.hf", "in_place")):
        stat = run("kv", "stat", name, "--json").json
        assert (stat["layout"], stat["records"], stat["max_batch"]) == (layout, 100, 64)
        assert run("kv", "get", name, 0, 99, "--json").json["values"] == {"0": 7, "99": 106}
        assert run("kv", "verify", name).status == 0
    for layout in ("in_place", "log"):
        answer = run("kv", "convert", "a.hf", "d.hf", "--layout", layout, "--capacity", 16)
        assert answer.status == 1
        assert "--capacity" in answer.err or "capacity" in answer.err
        assert not (tmp_path / "d.hf").exists()
    assert run("kv", "verify", "b.hf").status == 0


def test_kv_convert_makes_room_where_it_is_not_told_how_much(run: Run) -> None:
    # In four times as many places a bucket of so many may be full: seen with 1,000 keys in a row.
    run("kv", "create", "a.hf", "--capacity", 1000, "--layout", "log", "--max-batch", 64)
    for first in range(0, 1000, 50):
        run("kv", "put", "a.hf", *[f"{key}={key}" for key in range(first, first + 50)])
    told = run("kv", "convert", "a.hf", "b.hf", "--layout", "in_place", "--capacity", 4000)
    assert told.status == 1
    assert "found a place" in told.err
    assert run("kv", "convert", "a.hf", "b.hf", "--layout", "in_place").status == 0
    assert run("kv", "stat", "b.hf", "--json").json["records"] == 1000


@pytest.mark.parametrize("layout", ["in_place", "log", "map"])
def test_kv_refuses_a_batch_and_closes(
    run: Run, tmp_path: Path, layout: str, arenas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_ARENA_DIR", str(arenas))
    run("kv", "create", "a.hf", "--capacity", 64, "--layout", layout, "--max-batch", 8)
    many = [f"{key}=1" for key in range(9)]

    def refuses() -> dict[str, Any]:
        for words in (("put", "a.hf", *many), ("del", "a.hf", *range(9))):
            answer = run("kv", *words, "--json")
            assert (answer.status, answer.json["error"]["code"]) == (1, "invalid_argument")
        stat: dict[str, Any] = run("kv", "stat", "a.hf", "--json").json
        return stat

    stat = refuses()
    assert (stat["content"], stat["records"]) == ("the last commit", 0)
    assert list(arenas.iterdir()) == []
    assert run("kv", "put", "a.hf", *many[:8]).status == 0
    if layout == "log":  # in its last batches
        rows = tmp_path / "rows.csv"
        rows.write_text("id,v\n" + "".join(f"{key},1\n" for key in range(8, 99)))
        answer = run("kv", "load", "a.hf", rows, "--key", "id", "--value", "v", "--json")
        assert (answer.status, answer.json["error"]["code"]) == (1, "no_space")
        assert list(arenas.iterdir()) == []
    stat = run("kv", "stat", "a.hf", "--json").json
    assert (stat["content"], stat["records"] >= 8) == ("the last commit", True)
    if layout == "map":
        return  # reading one puts in order what a crash left
    # What a crash left is not committed by what is refused.
    assert killed_at_batch(tmp_path, 0, ("kv", "put", "a.hf", "77=1"))
    records = stat["records"]
    stat = refuses()
    assert (stat["content"], stat["records"]) == ("what a crash left", records)


def test_kv_convert_that_is_killed(run: Run, tmp_path: Path) -> None:
    run("kv", "create", "a.hf", "--capacity", 512, "--max-batch", 16)
    for first in range(0, 96, 16):
        run("kv", "put", "a.hf", *[f"{key}={key}" for key in range(first, first + 16)])
    words = ("kv", "convert", "a.hf", "b.hf", "--layout", "log")
    for batches in range(7):
        assert killed_at_batch(tmp_path, batches, words) == (batches < 6)
        if batches < 6:
            assert not (tmp_path / "b.hf").exists()
            assert (tmp_path / "b.hf.part").exists()
    assert run("kv", "stat", "b.hf", "--json").json["records"] == 96
    assert sorted(path.name for path in tmp_path.glob("b.hf*")) == ["b.hf"]


def killed_at_batch(folder: Path, batch: int, words: tuple[str, ...]) -> bool:
    """Runs the command in a process that kills itself in front of a batch. Says whether it did."""
    program = f"""
import os, signal, sys
from holdfast._store import KeyValueStore
from holdfast.cli import main
there, count = KeyValueStore.set, [0]
def counting(self, keys, values):
    if count[0] == {batch}:
        os.kill(os.getpid(), signal.SIGKILL)
    count[0] += 1
    return there(self, keys, values)
KeyValueStore.set = counting
sys.argv[1:] = {list(words)!r}
main()
"""
    child = subprocess.run([sys.executable, "-c", program], cwd=folder, check=False)
    assert child.returncode in (0, -signal.SIGKILL), child
    return child.returncode != 0


def test_kv(run: Run) -> None:
    assert run("kv", "create", "a.hf", "--capacity", 1000, "--max-batch", 64).status == 0
    assert run("kv", "create", "a.hf", "--capacity", 1000).status == 1
    assert run("kv", "put", "a.hf", "1=10", "0x2=20", "--json").json["inserted"] == 2
    answer = run("kv", "get", "a.hf", 1, 2, "--json")
    assert (answer.status, answer.json["values"]) == (0, {"1": 10, "2": 20})
    answer = run("kv", "get", "a.hf", 1, 3)
    assert answer.status == 1
    assert "3 absent" in answer.out
    assert run("kv", "del", "a.hf", 1, 3, "--json").json["removed"] == 1
    stat = run("kv", "stat", "a.hf", "--json").json
    assert (stat["records"], stat["batches"], stat["max_batch"]) == (1, 2, 64)
    answer = run("kv", "verify", "a.hf", "--json")
    assert (answer.status, answer.json["ok"], answer.json["records"]) == (0, True, 1)
    assert run("kv", "put", "a.hf", "--text", "N14228=7").status == 0
    answer = run("kv", "get", "a.hf", "--text", "N14228", "--json")
    assert answer.json["values"] == {"N14228": 7}


def test_errors_are_one_line_and_one_object(run: Run) -> None:
    answer = run("kv", "stat", "absent.hf")
    assert answer.status == 1
    assert answer.out == ""
    assert "absent.hf" in answer.err
    answer = run("kv", "stat", "absent.hf", "--json")
    assert answer.status == 1
    assert answer.json["ok"] is False
    assert answer.json["error"]["code"] == "not_found"
    run("kv", "create", "a.hf", "--capacity", 100)
    for arguments in (["put", "a.hf", "1"], ["get", "a.hf", "x"], ["get", "a.hf", str(2**64)]):
        assert run("kv", *arguments).status == 1


ROWS = "id,day,delay,tail\n" + "".join(f"{i},{i // 10},{i - 3},N{i % 7}\n" for i in range(1, 46))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.xz", "csv.zip"])
def test_load_packed_files(run: Run, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    if ending == "csv.gz":
        file.write_bytes(gzip.compress(ROWS.encode()))
    elif ending == "csv.xz":
        file.write_bytes(lzma.compress(ROWS.encode()))
    elif ending == "csv.zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("rows.csv", ROWS)
    else:
        file.write_text(ROWS)
    run("kv", "create", "a.hf", "--capacity", 4096, "--max-batch", 64)
    answer = run(
        "kv", "load", "a.hf", file, "--key", "id", "--value", "delay", "--batch-by", "day", "--json"
    )
    assert answer.status == 0, answer.out
    assert (answer.json["rows"], answer.json["batches"], answer.json["records"]) == (45, 5, 45)
    values = run("kv", "get", "a.hf", 1, 45, "--json").json["values"]
    assert values == {"1": 2**64 - 2, "45": 42}


def test_load_text_and_fractions(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("name,price\na,1.5\nb,2\nc,NA\n")
    run("kv", "create", "a.hf", "--capacity", 4096)
    load = ["kv", "load", "a.hf", file, "--key", "name", "--value", "price"]
    answer = run(*load)
    assert answer.status == 1
    assert "line 4" in " ".join(answer.err.split())
    assert "price" in answer.err
    assert run("kv", "stat", "a.hf", "--json").json["records"] == 0
    answer = run(*load, "--skip-bad", "--json")
    assert answer.status == 0
    assert (answer.json["key_type"], answer.json["value_type"]) == ("text", "float")
    assert len(answer.json["bad_rows"]) == 1
    assert "hash" in answer.err
    answer = run("kv", "get", "a.hf", "--text", "a", "--json")
    assert answer.json["values"]["a"] == 0x3FF8 << 48
    assert hash_text("a") != hash_text("b")


def test_load_refuses(run: Run, tmp_path: Path) -> None:
    run("kv", "create", "a.hf", "--capacity", 4096, "--max-batch", 16)
    file = tmp_path / "rows.csv"

    def refused(text: str, word: str, *options: object, status: int = 1) -> None:
        file.write_text(text)
        answer = run("kv", "load", "a.hf", file, "--key", "id", "--value", "v", *options)
        assert answer.status == status
        assert word in answer.err.replace("\n", " "), answer.err

    refused("", "header")
    refused("id,w\n1,2\n", "no column 'v'")
    refused("id,v\n1,2\n3\n", "line 3")
    refused("id,v\n1,2\nx,2\n", "line 3", "--key-type", "int")
    refused("id,v\n18446744073709551615,2\n", "reserved")
    refused("id,v\n" + "1,2\n" * 20, "max-batch", "--batch", 20)
    refused("id,v\n1,2\n", "exclude", "--batch", 2, "--batch-by", "v", status=2)
    refused("id,v\n1,2\n", "kind", "--key-type", "colour")
    file.with_suffix(".gz").write_bytes(b"not packed")
    answer = run("kv", "load", "a.hf", tmp_path / "rows.gz", "--key", "id", "--value", "v")
    assert answer.status == 1
    assert run("kv", "stat", "a.hf", "--json").json["records"] == 0


def test_interrupted(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "crash", "gpkvs", "--kills", "500"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore the signal, and hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "interrupted" in errors


BENCHMARK = """#!/bin/sh
echo "some words"
for n in 1024 4096 16384; do
  echo '{"benchmark": "stream", "threads": '$n', "gb_per_s": 1.5, "layout": "'$1'"}'
done
"""


def test_bench(run: Run, tmp_path: Path) -> None:
    programs, results = tmp_path / "programs", tmp_path / "results"
    programs.mkdir()
    program = programs / "stream_bench"
    program.write_text(BENCHMARK)
    program.chmod(0o755)
    for name in runner.WANT_ARGUMENTS:
        (programs / name).write_text("#!/bin/sh\nexit 2\n")
        (programs / name).chmod(0o755)
    options = ["--programs", programs, "--results", results, "--json"]
    assert run("bench", "run", *options, "--only", "adjoint_bench").status == 1
    answer = run("bench", "run", *options, "--", "--wide")
    assert answer.status == 0, answer.out
    (file,) = results.glob("*.json")
    text = file.read_text()
    for word in ('"machine"', '"date"', '"command": "stream_bench --wide"', '"medium"', '"commit"'):
        assert word in text
    answer = run("bench", "plot", "--results", results, "--json")
    assert answer.status == 0, answer.out
    (figure,) = results.glob("*.png")
    assert figure.stat().st_size > 1000
    # Lines that name their plots have a figure for each.
    lines = json.loads(file.read_text())
    for line in list(lines["results"]):
        lines["results"].append({**line, "plot": "as old"})
    file.write_text(json.dumps(lines))
    assert run("bench", "plot", "--results", results).status == 0
    assert {path.name for path in results.glob("*.png")} == {
        figure.name,
        f"{file.stem}-stream_as_old.png",
    }
    assert run("bench", "run", *options, "--only", "none").status == 1
    program.write_text("#!/bin/sh\nexit 3\n")
    answer = run("bench", "run", *options)
    assert answer.status == 1
    assert "exit status 3" in answer.json["error"]["message"]
    assert run("bench", "plot", "--results", tmp_path / "none").status == 1


def test_inspect(run: Run, tmp_path: Path) -> None:
    run("kv", "create", "a.hf", "--capacity", 1000)
    answer = run("inspect", "a.hf", "--verify", "--json")
    assert answer.status == 0
    report = answer.json
    assert report["ok"] is True
    assert report["generation"] >= 1
    assert "kvs.table" in [item["name"] for item in report["objects"]]
    assert report["arena"]["exists"] is False
    assert "kvs.table" in run("inspect", "a.hf").out
    before = (tmp_path / "a.hf").read_bytes()
    damaged = bytearray(before)
    damaged[:64] = bytes(64)
    (tmp_path / "b.hf").write_bytes(damaged)
    (tmp_path / "b.hf").chmod(0o600)
    answer = run("inspect", "b.hf", "--json")
    assert answer.status == 1
    assert answer.json["error"]["code"] in ("foreign", "damaged")
    assert (tmp_path / "b.hf").read_bytes() == damaged
