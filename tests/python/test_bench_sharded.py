"""The benchmark of the sharded map, at a size for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY


def measure(folder: Path, ranks: str, batch: int) -> list[dict[str, object]]:
    """Runs it, and returns the lines of the file."""
    path = f"{REPOSITORY / 'bench'}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [
            sys.executable, "-m", "holdfast_bench.sharded_map", "--group", "local",
            "--ranks", ranks, "--pairs", "3001", "--batch", str(batch), "--chunk", "200",
            "--max_batch", "512", "--repeat", "1", "--folder", str(folder),
            "--results", str(folder),
        ],
        env={**os.environ, "PYTHONPATH": path, "HOLDFAST_BACKEND": "cpu"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines: list[dict[str, object]] = json.loads((folder / "sharded_map-cpu.json").read_text())[
        "results"
    ]
    return lines


def test_it_measures_each_number_of_ranks(tmp_path: Path) -> None:
    lines = measure(tmp_path, "1,2", 512)
    assert [(line["ranks"], line["operation"]) for line in lines] == [
        (ranks, operation) for ranks in (1, 2) for operation in ("load", "insert_or_assign", "find")
    ]
    assert all(
        float(str(line["million_per_s"])) > 0 and line["value_bytes"] == 128 for line in lines
    )
    assert [line["times_the_first"] for line in lines[:3]] == [1, 1, 1]
    assert not list(tmp_path.glob("**/*.hf"))
    # Other batches are added to the file, and the same ones come anew.
    assert measure(tmp_path, "1", 256)[:6] == lines
    again = measure(tmp_path, "1,2", 512)
    assert [line["batch"] for line in again] == [256] * 3 + [512] * 6
