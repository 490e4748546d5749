"""What the tests share."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.check as checker

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

        with subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "holdfast", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "120", **environment},
        ) as process:
            try:
                out, err = process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # says where each thread stands
                out, err = process.communicate(timeout=60)
                pytest.fail(f"holdfast {arguments} does not end:\n{out}\n{err}")
        assert "Traceback" not in err, err
        return Answer(process.returncode, out, err)

    return call


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A path for a region; what is made there is removed, its shared memory too."""
    place = tmp_path / "region.hf"
    yield place
    if place.exists():
        holdfast.destroy(place)


@pytest.fixture
def arenas() -> Iterator[Path]:
    """A folder for a region's arena. In shared memory: a GPU cannot pin what is on a disk."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir="/dev/shm") as made:
        yield Path(made)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for regions, which are removed, their shared memory too."""
    yield tmp_path
    for region in tmp_path.glob("*.hf"):
        holdfast.destroy(region)


@pytest.fixture(scope="session")
def check_executable() -> None:
    """Skips tests of the crash-state checker where its executable has not been built."""
    try:
        checker.executable()
    except holdfast.Error as error:
        pytest.skip(str(error))


class Full:
    """A small file system that can be filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, leaving: int = 0) -> None:
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(1 << 16))
            except OSError:
                pass
            ballast.truncate(ballast.tell() - leaving)

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Full]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("only root may mount a file system")
    try:
        yield Full(folder)
        for region in folder.glob("*.hf"):
            holdfast.destroy(region)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
