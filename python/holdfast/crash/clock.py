"""The clock of a process that is to be killed."""

from __future__ import annotations

import os
import resource
import time

_SPIN = 3e-4  # seconds before a moment from which on nothing is left to the scheduler
_MOST_WALL = 20.0  # seconds, and as many times the wait: a process may wait for a GPU, not compute


class ChildClock:
    """How long a child has computed, which does not go on while the machine does other work.

    A step of a workload may last 50 microseconds, and a busy machine may take milliseconds to give
    its process a core. Wall time says little then about how far it has come.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = ~pid << 3 | 2  # the kernel's number for the CPU time of another process
        self._others = _of_dead_children()
        self._start = self._now()
        self._start_wall = time.perf_counter()

    def wait(self, seconds: float) -> None:
        """Returns once the child has computed for so long since this clock was made, or ended."""
        most = self._start_wall + _MOST_WALL * (seconds + 0.01)
        while (left := seconds - (self._now() - self._start)) > 0:
            if self._has_ended() or time.perf_counter() > most:
                return
            if left > _SPIN:
                time.sleep(left - _SPIN)

    def share(self) -> float:
        """Returns the part of the wall time that the child computed. It has ended."""
        computed = _of_dead_children() - self._others - self._start
        return computed / (time.perf_counter() - self._start_wall)

    def _now(self) -> float:
        return time.clock_gettime(self._clock)

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _of_dead_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
