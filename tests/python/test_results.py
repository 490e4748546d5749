"""The page of results is made of the results files."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_page_is_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "bench" / "report.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
