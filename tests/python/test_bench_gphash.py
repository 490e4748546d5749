"""holdfast bench gphash-*: what is run, written, shown and drawn."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

import holdfast
from conftest import REPOSITORY, Run
from holdfast_bench import gphash, gphash_alone, gphash_report
from holdfast_bench.gpm.results import Report


@pytest.fixture
def program() -> Path:
    """The benchmark program; tests that need it are skipped where it was not built."""
    path = REPOSITORY / "build" / holdfast.backend / "bench" / gphash.PROGRAM
    if not path.is_file():
        pytest.skip(f"{gphash.PROGRAM} was not built")
    return path


def settings(tmp_path: Path, program: Path | None = None, **more: Any) -> gphash.Settings:
    return gphash.Settings(tmp_path, "tiny", threads=2, program=program, **more)


@pytest.mark.parametrize("name", gphash.EXPERIMENTS)
def test_every_figure_is_measured(tmp_path: Path, run: Run, program: Path, name: str) -> None:
    chosen = {
        "gphash-fig9": "holdfast-no-directory,holdfast-log",
        "gphash-fig10": "clevel-gpm,cpu-assisted",  # of more keys than the others
    }.get(name, "holdfast,clevel-gpm,cpu-assisted")
    answer = run("bench", name, "--size", "tiny", "--threads", 2, "--program", program,
                 "--results", tmp_path, "--contestants", chosen)  # fmt: skip
    assert answer.status == 0, answer.err
    report = gphash.measured(name, settings(tmp_path))
    assert report.head["size"] == "tiny"
    assert name in report.head["command"] and report.head["command"].endswith("--threads 2")
    if name == "gphash-fig9":
        assert "| Holdfast without its directory, as given |" in answer.out
        # As given, and ordered; the log map, which orders by itself, once.
        assert len(report.lines) == 3 * len(gphash.MICRO)
    allowed = set(gphash.EXPERIMENTS[name].contestants)
    if name == "gphash-fig12a":
        ours = {line["key_bytes"] for line in report.lines if line["contestant"] == "holdfast"}
        others = {line["key_bytes"] for line in report.lines if line["contestant"] != "holdfast"}
        assert (ours, others) == (set(gphash.KEY_BYTES), set(gphash.RIVALS_KEY_BYTES))
    found = {line["contestant"] for line in report.lines}
    assert found == set(chosen.split(",")) & allowed
    for line in report.lines:
        # Every request was answered, and none for lack of room.
        full = line["no_room"]
        assert line["there"] + line["not_there"] + full == line["operations"]
        if name == "gphash-fig7" and line["contestant"] == "holdfast":  # a slot for each key
            assert 0 <= full < line["keys"] / 5
        else:
            assert full == 0
        parts = sum(line[f"{part}_us"] for part in gphash.PARTS)
        assert 0 < parts <= line["mean_us"] * 1.01
    assert name == "gphash-fig9" or "Clevel-GPM, as printed" in answer.out


def test_what_is_there_is_found(tmp_path: Path, program: Path) -> None:
    chosen = settings(tmp_path, program, contestants=("volatile",))
    gphash.run("gphash-fig6", chosen, lambda _: None, lambda _: None)
    report = gphash.measured("gphash-fig6", chosen)
    kinds = {(line["workload"], line["batch"], line["form"]) for line in report.lines}
    assert len(kinds) == len(report.lines) == 2 * 2 * len(gphash.MICRO + gphash.MACRO)
    absent = {"search-absent", "insert", "load"}
    for line in report.lines:
        assert line["key_bytes"] == 32
        assert (line["there"] == 0) == (line["workload"] in absent)
        assert (line["not_there"] == 0) == (line["workload"] not in {*absent, "d"})


def test_a_part_is_measured_and_added(tmp_path: Path, run: Run, program: Path) -> None:
    def cells(*words: object) -> list[tuple[str, str, str, int, int]]:
        answer = run("bench", "gphash-fig5", "--size", "tiny", "--program", program, "--results",
                     tmp_path, "--operations", 700, "--batches", "64,128", *words)  # fmt: skip
        assert answer.status == 0, answer.err
        report = gphash.measured("gphash-fig5", settings(tmp_path))
        assert report.head["command"].endswith("--operations 700 --batches 64,128")
        names = ("contestant", "form", "workload", "batch", "operations")
        return [tuple(line[name] for name in names) for line in report.lines]

    first = cells("--contestants", "holdfast", "--forms", "ordered", "--workloads", "update,load")
    assert first == [("holdfast", "ordered where it pays", workload, batch, 700)
                     for workload in ("update", "load") for batch in (64, 128)]  # fmt: skip
    more = cells("--contestants", "volatile", "--forms", "given", "--workloads", "c", "--add")
    assert more == first + [("volatile", "as given", "c", batch, 700) for batch in (64, 128)]
    again = cells("--contestants", "volatile", "--forms", "given", "--workloads", "c", "--add")
    assert again == more


def test_bad_words_are_refused(tmp_path: Path, run: Run, program: Path) -> None:
    for words, expected in (
        (("--size", "huge"), "quarter"),
        (("--contestants", "cuckoo"), "clevel-gpm"),
        (("--distribution", "normal"), "scrambled"),
        (("--batches", "4096,many"), "numbers"),
        (("--workloads", "c,z"), "search-absent"),
        (("--forms", "sorted"), "ordered"),
        (("--size", "tiny", "--program", tmp_path / "none"), "none"),
    ):
        answer = run("bench", "gphash-fig6", "--results", tmp_path, *words)
        assert answer.status != 0
        assert expected in answer.err
    assert not list(tmp_path.glob("*.json"))


def line(contestant: str, **more: Any) -> dict[str, Any]:
    """A line as the program prints it."""
    return {
        "benchmark": "map_rival", "contestant": contestant, "form": "as printed",
        "workload": "a", "drawn_from": "scrambled", "theta": 0.99, "keys": 1000, "operations": 5000,
        "batch": 4096, "million_operations_per_s": 40, "batch_us": 102.4, "mean_us": 100,
        "order_us": 10, "to_cpu_us": 20, "to_gpu_us": 5, "operations_us": 60, "commit_us": 1,
        "no_room": 0, **more,
    }  # fmt: skip


def head() -> dict[str, Any]:
    return {"backend": "cuda", "machine": {"device": "a GPU"}}


def test_tables_say_what_was_measured() -> None:
    logged = {"logged": True}
    report = Report(head(), [
        line("slabhash-gpm", **logged),
        line("slabhash-gpm", logged=False, mean_us=80),
        line("cpu-assisted", batch=8192, million_operations_per_s=7.125, **logged),
    ])  # fmt: skip
    text = gphash.throughputs(report)
    assert "| SlabHash-GPM, as printed | 40 (102) |  |" in text
    assert "| CPU-assisted, as printed |  | 7.12 (102) |" in text
    text = gphash.shares(report)
    assert "as printed | a | 100 | 10.0 % | 20.0 % | 5.0 % | 60.0 % | 1.0 % | 20.0 % |" in text
    assert "without its log" not in text
    report = Report(head(), [
        line("holdfast", form="ordered", million_operations_per_s=300, **logged),
        line("holdfast-no-directory", form="as given", million_operations_per_s=15, **logged),
    ])  # fmt: skip
    text = gphash.factors(report)
    assert (
        "without its directory, as given | 15 (1.00x) |\n| Holdfast, ordered | 300 (20.00x) |"
        in text
    )
    skewed = Report(head(), [line("clevel-gpm", theta=t, **logged) for t in (1.1, 0)])
    assert "| M operations/s, theta | 0 | 1.1 |" in gphash.skews(skewed)
    assert "| Clevel-GPM, as printed | 40 | 40 |" in gphash.skews(skewed)
    sized = Report(head(), [line("holdfast", key_bytes=n, **logged) for n in (128, 8)])
    assert "| M operations/s, bytes of a key | 8 | 128 |" in gphash.key_sizes(sized)
    curve = Report(head(), [line("clevel-gpm", load_factors=[0.5, 0.83, 0.6], **logged)])
    assert "| Clevel-GPM, as printed | 0.830 | 0.600 | 0 |" in gphash.load_factors(curve)


def test_the_best_batch_of_each_is_set_beside_ours() -> None:
    def rate(contestant: str, form: str, batch: int, rate: float) -> dict[str, Any]:
        return line(contestant, form=form, batch=batch, workload="insert", logged=True,
                    million_operations_per_s=rate)  # fmt: skip

    report = Report(head(), [
        rate("slabhash-gpm", "as printed", 4096, 10),
        rate("slabhash-gpm", "as printed", 65536, 8),
        rate("holdfast", "as given", 4096, 30),
        rate("holdfast", "ordered where it pays", 65536, 40),
        line("holdfast", form="ordered where it pays", workload="a", logged=True),  # none of these
    ])  # fmt: skip
    rows = gphash_report.best(report).splitlines()[2:]
    assert rows == [
        "| Holdfast, ordered where it pays |  |  |  | 40 at 65,536 |  |",
        "| SlabHash-GPM, as printed |  |  |  | 10 at 4,096: 4x |  |",
        "| Holdfast, as given |  |  |  | 30 at 4,096: 1.33x |  |",
        "| the paper's, over its rivals | 4.28x |  | 9.23x | 5.79x | 10.37x |",
    ]


def test_figures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = [line("clevel-gpm", batch=1 << i, load_factors=[0.1, 0.2]) for i in (12, 14)]
    for name in ("gphash-fig6", "gphash-fig7", "gphash-fig12"):
        assert gphash.draw(name, Report(head(), lines), tmp_path / "figure.svg")
        assert "Clevel-GPM, as printed" in (tmp_path / "figure.svg").read_text()
    assert not gphash.draw("gphash-fig6", Report(), tmp_path / "none.svg")


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path) -> None:
    program = tmp_path / gphash.PROGRAM
    program.write_text(f"#!/bin/sh\necho '{json.dumps(line('clevel-gpm'))}'\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    chosen = settings(tmp_path, program)
    with pytest.raises(holdfast.Error, match="exit status 1"):
        gphash.run("gphash-fig6", chosen, lambda _: None, lambda _: None)
    assert [x["contestant"] for x in gphash.measured("gphash-fig6", chosen).lines] == ["clevel-gpm"]


@pytest.mark.parametrize("name", gphash_alone.EXPERIMENTS)
def test_figures_of_the_map_alone(tmp_path: Path, run: Run, name: str) -> None:
    experiment = gphash_alone.EXPERIMENTS[name]
    programs = REPOSITORY / "build" / holdfast.backend / "bench"
    if not (programs / experiment.program).is_file():
        pytest.skip(f"{experiment.program} was not built")
    answer = run("bench", name, "--size", "tiny", "--results", tmp_path, "--programs", programs)
    assert answer.status == 0, answer.err
    report = gphash_alone.measured(name, "tiny", tmp_path)
    assert {line["benchmark"] for line in report.lines} == set(experiment.kept)
    assert experiment.table(report).splitlines()[0] in answer.out
    assert (tmp_path / f"{name}-{holdfast.backend}.svg").is_file()
    lines = report.lines
    if name == "gphash-fig11":
        assert {line["policy"] for line in lines} == set(gphash_alone.POLICIES)
        assert all(x["miss_share"] == 1 for x in lines if x["cache_share"] == 0)
        # Few lookups: a policy's own hits vary, all of them together rise with the cache.
        hits = {
            share: sum(1 - x["miss_share"] for x in lines if round(x["cache_share"], 2) == share)
            for share in (0.01, 0.25)
        }
        assert 0 < hits[0.01] < hits[0.25]
    if name == "gphash-fig13":
        loads = {line["shape"]: line["load_factor_at_first_failure"] for line in lines}
        assert loads["2L-2H-8S"] > 0.85 and len(loads) == len(lines)
    if name == "gphash-fig14":
        pairs = {line["pairs"] for line in lines}
        assert pairs == {gphash_alone.SIZES["tiny"].keys // share for share in gphash_alone.GROWN}
    if name == "gphash-fig15":
        assert all(line["load_ms"] > 0 for line in lines if line["benchmark"] == "map_cache_load")


def test_figures_of_the_map_alone_refuse(tmp_path: Path, run: Run) -> None:
    answer = run("bench", "gphash-fig11", "--size", "large", "--results", tmp_path)
    assert answer.status != 0 and "--size large" in answer.err
    answer = run("bench", "gphash-fig11", "--programs", tmp_path, "--results", tmp_path)
    assert answer.status != 0 and "map_bench is not there" in answer.err
    assert not list(tmp_path.iterdir())
