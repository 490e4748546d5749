"""examples/adjoint/velocity_model.py: grids of the models that a package brings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import REPOSITORY

SCRIPT = REPOSITORY / "examples" / "adjoint" / "velocity_model.py"
TABLE = """a model - P
a model - S
 0.0  2.0  1.0  2.0
10.0  4.0  1.0  2.0
10.0  6.0  1.0  2.0
12.0  6.0  1.0  2.0
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A package of the name, with one model."""
    folder = tmp_path / "site" / "obspy" / "taup" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "site" / "obspy" / "__init__.py").touch()
    (folder / "layers.tvel").write_text(TABLE)
    return tmp_path / "site"


def write(site: Path | None, *arguments: object) -> subprocess.CompletedProcess[str]:
    words = list(map(str, arguments))
    return subprocess.run(
        [sys.executable, *(["-S"] if site is None else []), str(SCRIPT), *words],
        env={**os.environ, "PYTHONPATH": "" if site is None else str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_velocities_are_those_at_the_cells(site: Path, tmp_path: Path) -> None:
    grid = tmp_path / "grid.f32"
    assert write(site, "layers", 3, 11, 1000, grid).returncode == 0
    rows = np.fromfile(grid, "<f4").reshape(11, 3)
    expected = [2000 + 2000 * (z + 0.5) / 10 if z < 10 else 6000 for z in range(11)]
    np.testing.assert_allclose(rows, np.repeat(expected, 3).reshape(11, 3), rtol=1e-6)


def test_bad_words_are_refused(site: Path, tmp_path: Path) -> None:
    grid = tmp_path / "grid.f32"
    for arguments, words in (
        (("crust", 3, 3, 1000, grid), "choose of layers"),
        (("layers", 3, 30, 1000, grid), "ends above 12.5 km"),
        (("layers", "x", 3, 1000, grid), "whole numbers"),
        (("layers", 3, 0, 1000, grid), "1 to 16,384"),
        (("layers", 3, 3, "nan", grid), "more than 0 metres"),
        (("layers", 3), "NAME NX NZ"),
        (("layers", 3, 3, 1000, tmp_path / "none" / "grid"), "cannot write"),
    ):
        answer = write(site, *arguments)
        assert answer.returncode == 1, arguments
        assert words in answer.stderr
        assert "Traceback" not in answer.stderr
    (site / "obspy" / "taup" / "data" / "layers.tvel").write_text("1\n2\nno numbers\n")
    assert "is no table" in write(site, "layers", 3, 3, 1000, grid).stderr
    assert "pip install --no-deps obspy" in write(None, "layers", 3, 3, 1000, grid).stderr
    assert not grid.exists()
