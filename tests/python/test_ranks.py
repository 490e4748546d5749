"""Histories of several ranks: processes with groups of each kind, threads with one of Python's."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
import holdfast.ranks
import torch_stand_in
from rank_groups import ThreadGroup, run_by_mpi, run_threads

WORKER = Path(__file__).with_name("rank_worker.py")


def run_all(commands: list[list[str]], environments: list[dict[str, str]]) -> None:
    ranks = [
        subprocess.Popen(command, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True)
        for command, more in zip(commands, environments, strict=True)
    ]
    try:
        for rank in ranks:
            assert rank.communicate(timeout=60)[0] == "ok\n"
    finally:
        for rank in ranks:
            rank.kill()


def run_workers(kind: str, folder: Path, size: int) -> None:
    run_all(
        [[sys.executable, str(WORKER), kind, str(folder)]] * size,
        [
            {"RANK": str(rank), "WORLD_SIZE": str(size), "HOLDFAST_RANKS": f"{folder}/socket"}
            for rank in range(size)
        ],
    )


def test_processes_of_one_machine(tmp_path: Path) -> None:
    run_workers("local", tmp_path, 3)


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: test_what_stands_for_torch has its interface",
)
def test_a_group_of_torch_distributed(tmp_path: Path) -> None:
    run_workers("torch", tmp_path, 3)


@pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
    reason="there is no mpirun, or no mpi4py (Debian: openmpi-bin; PyPI: mpi4py)",
)
def test_a_communicator_of_mpi4py(tmp_path: Path) -> None:
    run_by_mpi([sys.executable, str(WORKER), "mpi", str(tmp_path)], "ok")


def test_a_group_of_pythons_own(tmp_path: Path) -> None:
    def first(group: ThreadGroup) -> None:
        field = np.full(100, float(group.rank))
        with holdfast.History(disk=tmp_path / "run", host=1 << 20, ranks=group) as history:
            history.protect("field", field)
            history.wait_for_all(history.save(1))
            if group.rank == 1:
                history.save(2)
            assert history.latest_of_all() == 1

    def second(group: ThreadGroup) -> None:
        field = np.zeros(100)
        with holdfast.History(disk=tmp_path / "run", ranks=group) as history:
            history.protect("field", field)
            assert history.steps() == [1]
            history.restore(1)
            assert (field == group.rank).all()
            who = "rank 0 does not have it" if group.rank == 1 else "not in this history"
            with pytest.raises(holdfast.Error, match=who) as refused:
                history.restore(2)
            assert refused.value.code == "not_found"

    run_threads(2, first)
    run_threads(2, second)


def test_what_stands_for_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in torch_stand_in.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    barrier, given = threading.Barrier(2), [None, None]

    def body(thread: ThreadGroup) -> None:
        process_group = torch_stand_in.ProcessGroup(thread.rank, barrier, given)
        group = holdfast.ranks.of(process_group)
        assert (group.rank, group.size) == (thread.rank, 2)
        for length in (0, 1, 5000):
            mine = bytes([thread.rank]) * (length * (thread.rank + 1))
            assert group.all_gather(mine, 20) == [b"\0" * length, b"\1" * (2 * length)]
        field = np.zeros(100)
        with holdfast.History(disk=tmp_path / "run", ranks=process_group) as history:
            history.protect("field", field)
            history.wait_for_all(history.save(1))
        if thread.rank == 0:  # and the other one does not come
            with pytest.raises(holdfast.Error, match="TimeoutError") as lost:
                group.all_gather(b"late", 0.2)
            assert lost.value.code == "rank_lost"
            barrier.abort()

    run_threads(2, body)


def test_a_rank_that_does_not_come(tmp_path: Path) -> None:
    def body(group: ThreadGroup) -> None:
        field = np.zeros(100)
        with holdfast.History(disk=tmp_path / "run", ranks=group, ranks_timeout=1.5) as history:
            history.protect("field", field)
            history.save(1)
            if group.rank == 0:
                for _ in range(2):
                    with pytest.raises(holdfast.Error) as lost:
                        history.agree()
                    assert lost.value.code == "rank_lost"
                history.restore(1)  # the rest goes on

    run_threads(2, body)


def test_what_cannot_be(tmp_path: Path) -> None:
    class Wrong:
        rank, size = 0, 1

        def all_gather(self, mine: bytes, timeout: float) -> Any:
            return ["no bytes"]

    class Failing(Wrong):
        def all_gather(self, mine: bytes, timeout: float) -> Any:
            raise RuntimeError("the wire is cut")

    def refused(words: str, code: str = "invalid_argument", **options: Any) -> None:
        with pytest.raises(holdfast.Error, match=words) as error:
            holdfast.History(disk=tmp_path / "run", **options)
        assert error.value.code == code

    refused("give a torch.distributed.ProcessGroup", ranks=3)
    refused("list of bytes", ranks=Wrong())
    refused("the wire is cut", "rank_lost", ranks=Failing())
    alone = holdfast.ranks.local("", 0, 1)
    refused("coupling is 'loose'", ranks=alone, coupling="loose")
    refused("timeout", ranks=alone, ranks_timeout=0)
    refused("weight", ranks=alone, weight=0)
    refused("ranks", node_host=1 << 20)
    with pytest.raises(holdfast.Error):
        holdfast.ranks.local(tmp_path / "socket", 2, 2)
    with holdfast.History(disk=tmp_path / "run", ranks=alone, node_host=1 << 20) as history:
        history.protect("field", np.zeros(10))
        history.wait_for_all(history.save(1))
        assert history.agree() == [1]
