"""The example of an embedding bag: killed in training, it ends with the same bits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import holdfast
from conftest import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "embedding_bag" / "train.py"
STEPS = 60


def lines_of(region: Path, steps: int = STEPS, kill_after: float | None = None) -> list[str]:
    """Runs the example; kills it so many seconds behind its first line."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE), str(region), "--steps", str(steps), "--ids", "1500"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    assert lines[0].startswith("begins")
    if kill_after is not None:
        threading.Timer(kill_after, process.kill).start()
    lines += [line for line in process.stdout if line.endswith("\n")]
    assert process.wait() in ((0,) if kill_after is None else (0, -9))
    process.stdout.close()
    return lines


def test_a_training_that_is_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", random.randrange(2**32)))
    print(f"HOLDFAST_TEST_SEED={seed}")
    dice = random.Random(seed)
    first, killed = tmp_path / "whole.hf", tmp_path / "killed.hf"
    whole = lines_of(first)
    assert [line.split()[1] for line in whole[1:-1]] == [str(step + 1) for step in range(STEPS)]
    losses = [float(line.split()[3]) for line in whole[1:-1]]
    assert sum(losses[-10:]) < sum(losses[:10])  # it learns
    assert lines_of(first, STEPS + 1)[-1] != whole[-1]  # a step changes the digest
    kills = made = 0
    delay = 0.1  # grows, so that it comes to an end
    while True:
        lines = lines_of(killed, kill_after=delay * dice.random())
        assert int(lines[0].split()[3].rstrip(",")) >= made  # what was told is there
        for line in lines[1:]:
            if line.startswith("step"):
                made = int(line.split()[1])
                assert line == whole[made]
        if lines[-1].startswith("digest"):
            break
        kills += 1
        delay *= 1.3
    assert lines[-1] == whole[-1]
    assert kills > 0, "it was never killed: the test tested nothing"
    print(f"{kills} kills")
    for path in (first, killed):
        holdfast.destroy(path)
