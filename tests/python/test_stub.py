"""The committed type stub is what the module says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from conftest import REPOSITORY


@pytest.mark.skipif(holdfast.backend != "cpu", reason="the stub describes the cpu module")
def test_the_stub_is_current(tmp_path: Path) -> None:
    out = tmp_path / "_cpu.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "holdfast._cpu", "-o", str(out)],
        check=True,
    )
    stub = REPOSITORY / "python" / "holdfast" / "_cpu.pyi"
    assert stub.read_text() == out.read_text(), (
        "python/holdfast/_cpu.pyi is out of date: "
        "python -m nanobind.stubgen -m holdfast._cpu -o python/holdfast/_cpu.pyi"
    )
