"""holdfast bench power: what is run, written, shown and drawn."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import holdfast
from conftest import REPOSITORY, Run
from holdfast_bench import power
from holdfast_bench.gpm.results import Results


@pytest.fixture
def program() -> Path:
    """The benchmark program; tests that need it are skipped where it was not built."""
    path = REPOSITORY / "build" / holdfast.backend / "bench" / "power_bench"
    if not path.is_file():
        pytest.skip("power_bench was not built")
    return path


def test_every_system_is_measured_and_right(tmp_path: Path, run: Run, program: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    given = os.environ.get("HOLDFAST_ROCKSDB")
    rocksdb = ["--rocksdb", given] if given else []
    answer = run("bench", "power", "--disk", disk, "--table-mib", 1, "--batches", "1,300",
                 "--repeat", 1, "--program", program, "--results", tmp_path, *rocksdb)  # fmt: skip
    assert answer.status == 0, answer.err
    report = Results(tmp_path, (holdfast.backend,)).report("power_bench")
    assert "holdfast bench power --table-mib 1 --repeat 1" in report.head["command"]
    assert str(tmp_path) not in json.dumps(report.head)
    (rival,) = (line for line in report.lines if line["benchmark"] == "power_rocksdb")
    lines = [line for line in report.lines if line["benchmark"] == "power_set"]
    for batch in (1, 300):
        here = [line for line in lines if line["batch"] == batch]
        for form in ("in place", "log"):
            ours = {(x["rung"], x["batches_per_commit"]) for x in here
                    if x["system"] == "holdfast" and x["form"] == form}  # fmt: skip
            assert ours == {("process", 1), ("power", 1), ("power", 8)}
        rivals = {line["system"] for line in here} - {"holdfast"}
        assert rivals == {"cap-pages", "cap-log"} | ({"rocksdb"} if "version" in rival else set())
        for line in here:
            # So many turns with so many batches: what was read back.
            assert line["batches"] == (line["turns"] + 3) * line["batches_per_commit"]
            sets = line["batches"] * batch
            assert 0 < line["verified_pairs"] + line["evicted_keys"] <= sets
            on_disk = line["rung"] == "power"
            assert (line["disk_bytes"] > 0) == ("plain_ms" in line) == on_disk
            assert ("disk" in line["medium"]) == on_disk
    assert "disk" in report.head["medium"]
    assert "dram" in report.head["medium"]
    assert not list(disk.iterdir())  # nothing is left
    assert "CAP with fsync, redo log of the pairs" in answer.out
    pytest.importorskip("matplotlib")
    assert power.draw(report, tmp_path / "power.svg")
    assert "CPU backend, no GPU" in (tmp_path / "power.svg").read_text()


def test_bad_words_are_refused(tmp_path: Path, run: Run, program: Path) -> None:
    common = ("bench", "power", "--program", program, "--results", tmp_path)
    assert "--disk" in run(*common).err
    for words, expected in (
        (("--disk", tmp_path / "none"), "no such folder"),
        (("--disk", tmp_path, "--batches", "1,x"), "numbers"),
        (("--disk", tmp_path, "--batches", "0"), "numbers"),
        (("--disk", tmp_path, "--table-mib", 3), "power of two"),
        (("--disk", tmp_path, "--rocksdb", tmp_path / "no.so"), "no.so"),
        (("--disk", tmp_path, "--program", tmp_path / "none"), "none"),
    ):
        answer = run(*common, *words)
        assert answer.status != 0
        assert expected in answer.err
    assert not list(tmp_path.glob("power_bench*"))
    assert not list(tmp_path.glob("holdfast-power-*"))


def line(system: str, **more: Any) -> dict[str, Any]:
    """A line as the program prints it."""
    return {
        "benchmark": "power_set", "system": system, "form": "", "rung": "power",
        "medium": "disk (ext4)", "atomic": "batches", "guarantee": "it survives",
        "recovery": "reads", "table_bytes": 1 << 30, "keys": 1000, "batch": 1024,
        "batches_per_commit": 1, "turns": 5, "batches": 8, "batch_ms": 0.25,
        "commit_ms": 1.5, "total_ms": 1.75,
        "ms_per_batch": 1.75, "million_sets_per_s": 0.585, "disk_bytes": 41216, "cpu_threads": 1,
        "recovery_ms": 1234.5, "verified_pairs": 7, "evicted_keys": 0, "plain_ms": 0.5,
        "ratio_to_plain": 3.5, **more,
    }  # fmt: skip


HEAD = {
    "backend": "cuda", "date": "2026-01-02T03:04:05+00:00", "commit": "0123456789",
    "command": "holdfast bench power", "medium": "disk (ext4), dram",
    "machine": {"device": "a GPU", "processor": "p", "cores": 2},
}  # fmt: skip


def test_tables_and_figure_are_of_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = line("holdfast", rung="process", disk_bytes=0, commit_ms=0, medium="dram")
    del process["ratio_to_plain"]
    lines = [
        {"benchmark": "power_rocksdb", "not_there": "no librocksdb.so is installed"},
        line("cap-log", form="redo log of the pairs", io="direct", ms_per_batch=0.9),
        line("cap-pages", form="changed pages in place", atomic="nothing", ms_per_batch=9),
        line("holdfast", batches_per_commit=8, ms_per_batch=0.5),
        line("holdfast", disk_bytes=2_500_000),
        process,
    ]
    monkeypatch.setattr(power, "MEASURED", Results(tmp_path, ("cuda",)))
    assert power.part() == "Not measured yet: `holdfast bench power --disk FOLDER`."
    assert power.readme_rows() == []
    assert not power.draw(power.MEASURED.report(power.NAME), tmp_path / "none.svg")

    (tmp_path / "power_bench-cuda.json").write_text(json.dumps({**HEAD, "results": lines}))
    text = power.part()
    rows = [row for row in text.splitlines() if row.startswith("| 1,024 ")]
    assert [row.split(" | ")[1] for row in rows] == [
        "Holdfast, the batch alone",
        "Holdfast, a commit for each batch",
        "Holdfast, a commit for 8 batches",
        "CAP with fsync, changed pages in place",
        "CAP with fsync, redo log of the pairs",
    ]
    assert rows[0].endswith("| process | 0.25 |  | 1.75 | 0.585 |  |  | 1,234 (8) |")
    assert "| 0.25 | 1.5 | 1.75 | 0.585 | 2.5 MB | 3.50 | 1,234 (8) |" in rows[1]
    assert "RocksDB: not there (no librocksdb.so is installed)" in text
    assert "| it survives | nothing | reads |" in text
    ((what, where, result),) = power.readme_rows()
    assert "1,024" in str(what)
    assert where == "a GPU"
    assert result == "1.75 ms; CAP with fsync, redo log of the pairs 0.9 ms"


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path) -> None:
    program = tmp_path / "power_bench"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(line('holdfast'))}'\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    settings = power.Settings(disk=tmp_path)
    with pytest.raises(holdfast.Error, match="exit status 1"):
        power.run(settings, tmp_path, program=program)
    report = Results(tmp_path, (holdfast.backend,)).report(power.NAME)
    assert [x["system"] for x in report.lines] == ["holdfast"]
