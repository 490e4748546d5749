"""Ranks of tests: threads, as a group of Python's own can have them, and processes of MPI."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ThreadGroup:
    """A rank that is a thread."""

    def __init__(self, rank: int, barrier: threading.Barrier, given: list[bytes]) -> None:
        self.rank, self.size = rank, barrier.parties
        self._barrier, self._given = barrier, given

    def all_gather(self, mine: bytes, timeout: float) -> list[bytes]:
        self._given[self.rank] = mine
        self._barrier.wait(timeout)
        result = list(self._given)
        self._barrier.wait(timeout)
        return result


def run_threads(size: int, body: Callable[[ThreadGroup], T]) -> list[T]:
    """Runs all ranks, and returns what each has returned."""
    barrier, given = threading.Barrier(size), [b""] * size
    failures: list[BaseException] = []
    results: dict[int, T] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = body(ThreadGroup(rank, barrier, given))
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[rank] for rank in range(size)]


def run_by_mpi(command: list[str], said: str) -> None:
    """Runs it on three ranks, each of which has to say this, white space apart."""
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }
    done = subprocess.run(
        ["mpirun", "-n", "3", *command],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    # mpirun mixes what ranks write.
    out = "".join(done.stdout.split())
    assert done.returncode == 0 and sorted(out) == sorted(said * 3), done.stderr
