"""The pytest plug-in: what a test of a kernel makes of each verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("check_executable")

TESTS = """
def test_all(holdfast_check):
    assert holdfast_check("append", "--threads", 1)["verdict"] == "passed"

def test_some(holdfast_check):
    holdfast_check("append", "--threads", 1, "--model", "sbrp")

def test_failing(holdfast_check):
    holdfast_check("append_naive")

def test_misspelt(holdfast_check):
    holdfast_check("apend")
"""


def run_tests(folder: Path, *options: str) -> str:
    (folder / "conftest.py").write_text('pytest_plugins = ["holdfast.check.pytest_plugin"]\n')
    (folder / "test_kernels.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", ".", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout


def test_verdicts_are_outcomes(tmp_path: Path) -> None:
    said = run_tests(tmp_path)
    assert "PASSED test_kernels.py::test_all" in said
    assert "1 failed" not in said
    assert "2 failed, 1 passed, 1 skipped" in said
    assert "only model sbrp" in said
    assert "put persist() after the store" in said
    assert "--replay" in said
    assert "there is no program 'apend'" in said


def test_a_budget_is_enough(tmp_path: Path) -> None:
    said = run_tests(tmp_path, "--check-max-states", "3", "--check-seed", "5")
    assert "PASSED test_kernels.py::test_some" in said
    assert "FAILED test_kernels.py::test_misspelt" in said
