"""The sharded map by processes as ranks, of groups of each kind, and those that are killed."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import shard_worker
from maps import seed_of
from rank_groups import ThreadGroup, run_by_mpi, run_threads
from shards import done, shard_of


def start(folder: Path, size: int, *arguments: object) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, shard_worker.__file__, str(folder), *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size),
                 "HOLDFAST_RANKS": str(folder / "socket")},
        )
        for rank in range(size)
    ]  # fmt: skip


def killed_after(ranks: list[subprocess.Popen[str]], delay: float) -> list[list[str]]:
    """Kills all ranks so long after all have begun; returns what each has said."""
    said: list[list[str]] = []
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "open\n", rank.communicate()[1]

    def kill() -> None:
        for one in ranks:
            one.kill()

    timer = threading.Timer(delay, kill)
    timer.start()
    for rank in ranks:
        out, err = rank.communicate(timeout=60)
        assert rank.returncode in (-9, 0), err
        said.append(out.splitlines())
    timer.cancel()
    return said


def check_said_ok(ranks: list[subprocess.Popen[str]]) -> None:
    said = [rank.communicate(timeout=90) for rank in ranks]
    assert [out for out, _ in said] == ["open\nok\n"] * len(ranks), said


def test_processes_of_one_machine(folder: Path) -> None:
    check_said_ok(start(folder, 2, "local"))


@pytest.mark.parametrize("rows", [[], ["rows"]])
def test_a_group_of_torch_distributed(folder: Path, rows: list[str]) -> None:
    pytest.importorskip("torch")
    check_said_ok(start(folder, 3, "torch", *rows))


@pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
    reason="there is no mpirun, or no mpi4py (Debian: openmpi-bin; PyPI: mpi4py)",
)
def test_a_communicator_of_mpi4py(folder: Path) -> None:
    run_by_mpi([sys.executable, shard_worker.__file__, str(folder), "mpi"], "openok")


def test_kills_of_all_ranks_lose_nothing_that_was_acknowledged(folder: Path) -> None:
    seed = seed_of()
    dice = random.Random(seed)
    size = 2
    there: dict[int, int] = {}
    number = whole = 0

    def exported(group: ThreadGroup) -> dict[int, int]:
        table = shard_of(folder, group, capacity=shard_worker.CAPACITY)
        keys, values = table.export()
        done(table)
        return dict(zip(keys.tolist(), values.tolist(), strict=True))

    for _ in range(3):
        said = killed_after(start(folder, size, "change", seed, number), 0.05 + 0.2 * dice.random())
        told = max(len(lines) for lines in said)
        for lines in said:
            assert lines == [f"done {number + i}" for i in range(len(lines))]
            assert len(lines) >= told - 1  # all took part in each call
        for _ in range(told):
            there = shard_worker.after(there, seed, number, size)
            number, whole = number + 1, whole + 1
        # The call that was cut off: each of its operations whole or not at all.
        found = {k: v for one in run_threads(size, exported) for k, v in one.items()}
        changed = shard_worker.after(there, seed, number, size)
        for key in range(shard_worker.KEYS):
            assert found.get(key) in (there.get(key), changed.get(key)), (key, number)
        there, number = found, number + 1
    assert whole > 0, "no call came through: the test tested nothing"


def test_one_rank_that_is_killed_ends_the_others(folder: Path) -> None:
    ranks = start(folder, 3, "change", 1, 0)
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "open\n"
    ranks[1].kill()
    for number in (0, 2):
        _, err = ranks[number].communicate(timeout=30)
        assert ranks[number].returncode == 3, err
        assert err.startswith("rank_lost") and "open the map again" in err
    ranks[1].communicate()

    def again(group: ThreadGroup) -> None:
        done(shard_of(folder, group, capacity=shard_worker.CAPACITY))

    run_threads(3, again)


def test_a_load_that_is_cut_is_begun_again(folder: Path) -> None:
    dice = random.Random(seed_of())
    pairs = 18_000

    def make(group: ThreadGroup) -> None:
        table = shard_of(folder, group, name="old", capacity=10_000, max_batch=1024)
        keys = np.arange(group.rank, pairs, 3)
        assert table.insert(keys, 3 * keys).inserted == len(keys)
        done(table)

    run_threads(3, make)
    for attempt in range(3):
        # Each rank kills itself at one of its exchanges with others, the second time not before
        # there are pairs; at last none does.
        steps = [dice.randrange((2, 12, 10**6)[attempt], 10**6 + 1 if attempt == 2 else 50)
                 for _ in range(2)]  # fmt: skip
        ranks = start(folder, 2, "load", *steps)
        said = [rank.communicate(timeout=60) for rank in ranks]
        codes = [rank.returncode for rank in ranks]
        if attempt == 2:
            assert [out for out, _ in said] == ["open\ncut off before\nloaded\n"] * 2, said
        else:
            assert -9 in codes and {*codes} <= {-9, 3}, (codes, said)
    found: dict[int, int] = {}

    def exported(group: ThreadGroup) -> dict[int, int]:
        table = shard_of(folder, group, capacity=15_000)
        assert not table.loading
        keys, values = table.export()
        done(table)
        return dict(zip(keys.tolist(), values.tolist(), strict=True))

    for one in run_threads(2, exported):
        found.update(one)
    assert found == {key: 3 * key for key in range(pairs)}
