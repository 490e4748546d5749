"""holdfast bench adjoint: what is run, written, shown and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from conftest import REPOSITORY, Run
from holdfast_bench import adjoint
from holdfast_bench.gpm.results import Results


@pytest.fixture
def program() -> Path:
    """The benchmark program; tests that need it are skipped where it was not built."""
    path = REPOSITORY / "build" / holdfast.backend / "bench" / "adjoint_bench"
    if not path.is_file():
        pytest.skip("adjoint_bench was not built")
    return path


def test_every_store_gives_the_same_image(tmp_path: Path, run: Run, program: Path) -> None:
    answer = run("bench", "adjoint", "--size", "tiny", "--repeat", 1, "--program", program,
                 "--disk", tmp_path, "--results", tmp_path)  # fmt: skip
    assert answer.status == 0, answer.err
    report = Results(tmp_path, (holdfast.backend,)).report("adjoint_tiny")
    assert [line["cell"] for line in report.lines] == adjoint.SIZES["tiny"].words()
    by_cell = {line["cell"]: line for line in report.lines}
    for line in report.lines:
        assert line.get("same_image", 1) == 1
        assert line["kept_steps"] == 60
        assert line["steps"] == 60 * line["every"]
        assert (line["recomputed_steps"] > 0) == (line["store"] == "revolve")
    whole = by_cell["memory/exact/every=1"]
    assert whole["gpu_bytes"] == 60 * whole["step_bytes"]
    assert by_cell["memory/packed/every=1"]["gpu_bytes"] < whole["gpu_bytes"]
    assert 0 < by_cell["memory/packed/every=3"]["correlation_error"] < 0.1
    assert not list(tmp_path.glob("holdfast-adjoint-*"))  # no checkpoint is left
    assert adjoint.draw(report, tmp_path / "stores.svg")
    assert "CPU backend, no GPU" in (tmp_path / "stores.svg").read_text()


def test_a_store_that_does_not_fit_is_said(tmp_path: Path) -> None:
    common = {"benchmark": "adjoint_shot", "form": "exact", "every": 1, "nx": 10, "nz": 10}
    timed = {
        "forward_seconds": 1.0, "backward_seconds": 2.0, "seconds": 3.0, "recomputed_steps": 1234,
        "forward_call_seconds": 0.25, "backward_call_seconds": 0.25, "gpu_bytes": 2 * 10**9,
        "host_bytes": 0, "disk_bytes": 0, "kept_steps": 10, "step_bytes": 100,
    }  # fmt: skip
    lines = [
        {**common, **timed, "cell": "a", "store": "none", "seconds": 2.5},
        {**common, "cell": "b", "store": "memory", "error": "no_memory"},
        {**common, **timed, "cell": "c", "store": "revolve", "snapshots": 7, "same_image": 1},
    ]
    head = {"backend": "cpu", "machine": {"processor": "p", "cores": 2}}
    (tmp_path / "adjoint_real-cpu.json").write_text(json.dumps({**head, "results": lines}))
    report = Results(tmp_path, ("cpu",)).report("adjoint_real")
    text = adjoint.stores(report)
    assert "| 1 | all in device memory | does not fit |" in text
    row = "| 1 | recomputation (revolve), 7 snapshots | 1.000 + 2.000 | 0.500 | 1,234 | 0.500 |"
    assert row + " 2.0 |  |  | yes |" in text
    assert adjoint.draw(report, tmp_path / "stores.svg")
    assert not adjoint.draw(Results(tmp_path, ("cpu",)).report("other"), tmp_path / "none.svg")


def test_bad_words_are_refused(tmp_path: Path, run: Run, program: Path) -> None:
    assert "choose of tiny, real" in run("bench", "adjoint", "--size", "huge").err
    answer = run("bench", "adjoint", "--program", tmp_path / "none", "--results", tmp_path)
    assert answer.status != 0
    assert "none" in answer.err
