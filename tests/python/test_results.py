"""The page of results is made of the results files."""

import subprocess
import sys


def test_page_is_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "holdfast_bench.report", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
