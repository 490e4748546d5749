"""The benchmark of the sharded map, at a size for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY


def test_it_measures_each_number_of_ranks(tmp_path: Path) -> None:
    path = f"{REPOSITORY / 'bench'}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [
            sys.executable, "-m", "holdfast_bench.sharded_map", "--group", "local",
            "--ranks", "1,2", "--pairs", "3001", "--batch", "512", "--chunk", "200",
            "--max_batch", "512", "--repeat", "1", "--folder", str(tmp_path),
            "--results", str(tmp_path),
        ],
        env={**os.environ, "PYTHONPATH": path, "HOLDFAST_BACKEND": "cpu"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "sharded_map-cpu.json").read_text())
    lines = results["results"]
    assert [(line["ranks"], line["operation"]) for line in lines] == [
        (ranks, operation) for ranks in (1, 2) for operation in ("load", "insert_or_assign", "find")
    ]
    assert all(line["million_per_s"] > 0 and line["value_bytes"] == 128 for line in lines)
    assert [line["times_the_first"] for line in lines[:3]] == [1, 1, 1]
    assert not list(tmp_path.glob("**/*.hf"))
