"""What the tests share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass
class Answer:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        answer = json.loads(self.out)
        assert isinstance(answer, dict)
        return answer


Run = Callable[..., Answer]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command line in an empty folder."""

    def call(*arguments: object, **environment: str) -> Answer:
        import os

        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "120", **environment},
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A path for a region; what is made there is removed, its shared memory too."""
    place = tmp_path / "region.hf"
    yield place
    if place.exists():
        holdfast.destroy(place)
