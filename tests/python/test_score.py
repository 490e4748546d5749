"""holdfast bench score-*: what is run, written, drawn and printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from conftest import REPOSITORY, Run
from holdfast_bench import runner, score

HEAD = {
    "backend": "cpu",
    "commit": "0",
    "date": "2026-01-01T00:00:00+00:00",
    "machine": {"device": "none", "processor": "a processor", "cores": 2},
}


@pytest.fixture
def program() -> Path:
    """The benchmark program; tests that need it are skipped where it was not built."""
    path = REPOSITORY / "build" / holdfast.backend / "bench" / "score_bench"
    if not path.is_file():
        pytest.skip("score_bench was not built")
    return path


def shot(
    cell: str, save: float, restore: float, rank: int = 0, ranks: int = 1
) -> dict[str, object]:
    store, sizes, order, hints, wait, *_ = cell.split("/")
    return {
        "benchmark": "score_shot", "cell": cell, "store": store, "sizes": sizes, "order": order,
        "hints": hints, "wait": int(wait == "wait"), "rank": rank, "ranks": ranks,
        "bytes": 10**9, "save_seconds": save, "restore_seconds": restore, "gpu_hits": 1.0,
        "host_hits": 0.0, "disk_hits": 0.0, "drain_seconds": 1.5, "gpu_bytes": 4096,
        "restore_rates_gb_per_s": [1.0, 2.0, 3.0], "prefetch_distance": [1, 2, 1],
    }  # fmt: skip


def write(folder: Path, name: str, lines: list[dict[str, object]]) -> None:
    text = json.dumps({**HEAD, "results": lines})
    (folder / f"{name}-cpu.json").write_text(text)


def settings(folder: Path, **more: object) -> score.Settings:
    return score.Settings(results=folder, size="tiny", **more)  # type: ignore[arg-type]


def together(rank: int, ranks: int) -> dict[str, object]:
    return {"benchmark": "score_together", "path": "flush, GPU to host tier", "rank": rank,
            "ranks": ranks, "bytes": 32 << 20, "snapshots": 16, "gb_per_s": 45.0 * ranks,
            "plain_gb_per_s": 50.0 * ranks, "speed_ratio": 0.9}  # fmt: skip


def test_the_rate_of_ranks_is_that_of_the_longest(tmp_path: Path) -> None:
    cell = "history/variable/irregular/all/nowait/coupled=1"
    lines = [shot(cell, 0.5, 1.0, 0, 2), shot(cell, 2.0, 4.0, 1, 2)]
    write(tmp_path, "score_fig9_tiny", lines)
    both = score.Results(tmp_path, ("cpu",)).shots("score-fig9", "tiny")[cell, 2]
    assert both.total("save") == 1.0  # 2 GB in the 2 s of the one that blocked longest
    assert both.rate("restore") == 0.25


def test_cells_are_those_of_table_1(tmp_path: Path) -> None:
    cells = [cell for cell, _ in score.cells_of("score-fig5", settings(tmp_path))]
    assert len(cells) == len(set(cells)) == 2 * 3 * (3 + 3 + 1 + 1 + 1)
    # What a ratio is made of runs one behind the other.
    assert cells[1] == cells[0].replace("history", "pager")
    some = score.cells_of("score-fig6", settings(tmp_path, having="variable/irregular/all"))
    assert {cell.split("/")[0] for cell, _ in some} == {"history", "pager", "buffers"}
    assert all("/variable/irregular/all/" in cell for cell, _ in some)
    fig9 = score.cells_of("score-fig9", settings(tmp_path, gpus=4, only=("history",)))
    assert {ranks for _, ranks in fig9} == {1, 2, 4}
    assert {cell.split("/")[0] for cell, _ in fig9} == {"history", "together"}


def test_tables_and_figures_of_results(tmp_path: Path) -> None:
    results = score.Results(tmp_path, ("cpu",))
    for name in score.tables.TABLES:
        assert score.tables.TABLES[name](results) == score.tables.unmeasured(name)
    for name in score.figures.FIGURES:
        assert not score.figures.draw(name, results, tmp_path / "none.svg")
        lines = []
        for cell, ranks in score.cells_of(name, settings(tmp_path, gpus=2)):
            if cell == "together":
                lines += [together(rank, ranks) for rank in range(ranks)]
                continue
            slow = 4.0 if cell.startswith("pager") else 2.0
            lines += [shot(cell, 1.0, slow, rank, ranks) for rank in range(ranks)]
        write(tmp_path, f"{name.replace('-', '_')}_quarter", lines)
        assert score.figures.draw(name, results, tmp_path / f"{name}.svg"), name
        assert "CPU backend, no GPU" in (tmp_path / f"{name}.svg").read_text()
        text = score.tables.TABLES[name](results)
        assert "a quarter of the paper's sizes" in text
        if name == "score-fig7":
            assert "| Holdfast | one hint | 0.5 GB/s | 1.33 | 2 | 100 % | 0 % | 0 % |" in text
        else:
            assert "| 1 / 0.5 |" in text  # 1 GB in 1 and 2 s
            assert "| 1 | 2 |" in text  # the ratios to the pager
    assert "| 2 | coupled | all hints | 1 / 0.5 | 2 / 1 |" in text
    assert "| 2 | flush, GPU to host tier | 32 MiB | 90 GB/s | 100 GB/s | 0.90 |" in text
    assert "| 1.67 | 2 to 74 |" in score.tables.TABLES["score-fig5"](results)


def test_a_rank_that_is_missing_is_not_averaged_over(tmp_path: Path) -> None:
    write(tmp_path, "score_fig9_tiny", [shot("history/variable/irregular/all/nowait/coupled=0",
                                             1.0, 1.0, 1, 2)])  # fmt: skip
    assert not score.Results(tmp_path, ("cpu",)).shots("score-fig9", "tiny")


def test_every_store_runs_a_figure(tmp_path: Path, run: Run, program: Path) -> None:
    answer = run("bench", "score-fig7", "--size", "tiny", "--program", program, "--disk", tmp_path,
                 "--results", tmp_path)  # fmt: skip
    assert answer.status == 0, answer.err
    assert "| Holdfast | all hints |" in answer.out
    report = json.loads((tmp_path / f"score_fig7_tiny-{holdfast.backend}.json").read_text())
    assert len(report["results"]) == 6
    for line in report["results"]:
        assert line["verified"] == line["snapshots"] == len(line["prefetch_distance"])
        assert abs(line["gpu_hits"] + line["host_hits"] + line["disk_hits"] - 1) < 1e-4
    assert (tmp_path / f"score-fig7-{holdfast.backend}.svg").is_file()
    assert not list(tmp_path.glob("holdfast-score-*"))  # no checkpoint is left


def test_ranks_are_processes(tmp_path: Path, run: Run, program: Path) -> None:
    answer = run("bench", "score-fig9", "--size", "tiny", "--program", program, "--disk", tmp_path,
                 "--results", tmp_path, "--gpus", 2, "--only", "history", "--json")  # fmt: skip
    assert answer.status == 0, answer.err
    shots = score.Results(tmp_path, (holdfast.backend,)).shots("score-fig9", "tiny")
    assert len(shots) == 12
    pair = shots["history/variable/irregular/all/nowait/coupled=1", 2].lines
    assert [line["rank"] for line in pair] == [0, 1]
    assert pair[0]["bytes"] != pair[1]["bytes"]


def test_a_run_goes_on_where_it_ended(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "commit", lambda: "a commit")
    notes: list[str] = []
    seen: list[str] = []

    def measure(**more: object) -> None:
        given = settings(tmp_path, program=program, disk=tmp_path, only=("buffers",), **more)
        score.run("score-fig5", given, lambda line: seen.append(line["cell"]), notes.append)

    measure(minutes=0.02)
    first = len(seen)
    assert first > 0
    if first < 6:  # a fast machine does them all in a second
        assert f"{6 - first} cells are left" in notes[0]
    measure(resume=True)
    assert len(seen) == len(set(seen)) == 6
    monkeypatch.setattr(runner, "commit", lambda: "another")
    with pytest.raises(holdfast.Error, match="without --resume"):
        measure(resume=True)


def test_a_wrong_byte_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "score_bench"
    line = json.dumps(shot("history/uniform/sequential/none/nowait", 1, 1))
    program.write_text(f"#!/bin/sh\necho '{line}'\nexit 1\n")
    program.chmod(0o755)
    given = settings(tmp_path, program=program, disk=tmp_path)
    with pytest.raises(holdfast.Error, match="exit status 1"):
        score.run("score-fig7", given, lambda _: None, lambda _: None)
    # What was measured before is kept.
    assert len(score.Results(tmp_path, (holdfast.backend,)).shots("score-fig7", "tiny")) == 1


def test_options_are_refused_by_name(run: Run) -> None:
    for option, value, words in (("--size", "huge", "choose of tiny, quarter, paper"),
                                 ("--only", "tape", "choose of history"),
                                 ("--compute", "think", "sleep or kernel")):  # fmt: skip
        answer = run("bench", "score-fig5", option, value)
        assert answer.status == 1
        assert words in answer.err


def test_adios_runs_the_same_shots(tmp_path: Path, run: Run, program: Path) -> None:
    pytest.importorskip("adios2")
    answer = run("bench", "score-fig6", "--size", "tiny", "--program", program, "--disk", tmp_path,
                 "--results", tmp_path, "--only", "adios", "--json")  # fmt: skip
    assert answer.status == 0, answer.err
    shots = score.Results(tmp_path, (holdfast.backend,)).shots("score-fig6", "tiny")
    assert len(shots) == 6
    assert all(found.head["verified"] == found.head["snapshots"] for found in shots.values())
