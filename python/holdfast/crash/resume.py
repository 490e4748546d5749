"""Kills a workload again and again and lets it resume, until it ends as if nothing had happened."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import workloads
from .._errors import Error
from .clock import ChildClock

_MOST_IDLE = 200  # processes in a row that no kill meets
# Of kills, those that are aimed at what comes before the first step: recovery, where a run
# resumes; of new runs fewer, since such a kill leaves nothing to resume.
_IN_RECOVERY = 0.2
_IN_START = 0.05
_IN_SETUP = 0.05  # of kills of new runs, those that come before the run says that it is ready
# Of the runs that resume, how many are let run to their end; of runs of a second and more, fewer.
_TO_THE_END = 0.6
_TO_THE_END_LONG = 0.25
_LONG = 1.0
_CHEAP_ORACLE = 0.5  # seconds: an oracle that takes longer is asked once


@dataclass
class ResumeResult:
    """What a campaign counted. `ok` is what it claims."""

    app: str
    seed: int
    backend: str = ""
    device: str = ""
    input: str = ""
    mode: str = "gpm"
    kills: int = 0
    kills_in_setup: int = 0  # landed before the run said that it was ready
    resumed_at: list[int] = field(default_factory=list)  # the first step of runs that ended
    finished: int = 0  # runs that were killed on the way and then ended
    midway: int = 0  # of these, with a part of the steps done and a part still to do
    oracles_asked: int = 0  # runs, the uninterrupted one included, that an oracle looked at
    wrong: list[str] = field(default_factory=list)
    run_seconds: float = 0.0  # of the steps, uninterrupted
    recovery_seconds: list[float] = field(default_factory=list)
    digest: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every run that was killed ended as the uninterrupted one does."""
        return not self.wrong and self.finished > 0

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


@contextmanager
def _folder(given: str | None) -> Iterator[Path]:
    if given is not None:
        Path(given).mkdir(parents=True, exist_ok=True)
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as name:
        yield Path(name)


class _Aim:
    """Where the steps of a process lie, in seconds of its own from when it says that it is ready.

    What runs report is wall time. Multiplied by the scale it is what they compute, and where kills
    were found to land corrects that.
    """

    def __init__(self, whole: dict[str, Any], scale: float) -> None:
        seconds = whole["step_seconds"]
        # What a process's first step takes longer than others: a GPU's code is loaded on first use.
        self._cold: float = max(0.0, seconds[0] - statistics.median(seconds))
        self._steps = max(sum(seconds) - self._cold, 1e-4)
        self._recovery = {False: whole["recovery_seconds"], True: whole["recovery_seconds"]}
        self._first_scale = self._scale = scale
        self._done = 0.0  # the part of the steps that is believed to be done

    def _before(self, resumed: bool) -> float:
        return float(self._recovery[resumed]) + self._cold

    def delay(self, random: np.random.Generator, resumed: bool) -> float:
        before = self._before(resumed)
        if random.random() < (_IN_RECOVERY if resumed else _IN_START):
            return float(random.uniform(0, before)) * self._scale
        return (before + float(random.uniform(0, self._steps * (1 - self._done)))) * self._scale

    def killed(self, delay: float, resumed: bool) -> None:
        part = max(0.0, delay / self._scale - self._before(resumed)) / self._steps
        self._done = min(0.9, self._done + part)

    def ended(self, done: dict[str, Any], resumed: bool, too_late: bool) -> None:
        """Learns from a run that ended; `too_late`: before the kill that was meant for it."""
        first, steps, seconds = done["first_step"], done["steps"], done["step_seconds"]
        self._done = 0.0
        self._recovery[resumed] = done["recovery_seconds"]
        if len(seconds) > 1:
            now = statistics.median(seconds) * steps
            self._steps += 0.2 * (now - self._steps)
        if too_late or (resumed and first == steps):
            self._scale = max(self._first_scale / 20, self._scale * 0.9)
        elif resumed and first == 0:
            self._scale = min(self._first_scale * 5, self._scale * 1.1)


class _Process(workloads.Process):
    def clock(self) -> ChildClock:
        return ChildClock(self._process.pid)


class ResumeCampaign:
    """Runs `what` once as it is, then again with `kills` SIGKILLs at random moments.

    The uninterrupted run asks the oracle. Every run that ends must have its digest, whatever the
    kills; where the oracle is quick, runs that resumed ask it, too.
    """

    def __init__(
        self,
        what: workloads.Run,
        kills: int,
        seed: int,
        folder: str | None = None,
        on_kill: Callable[[], None] = lambda: None,
    ) -> None:
        self._what = what
        self._kills = kills
        self._folder = folder
        self._on_kill = on_kill
        self._random = np.random.default_rng(seed)
        self._oracle_is_cheap = False
        self._setup_seconds = 0.0
        self.result = ResumeResult(what.workload, seed, mode=what.mode)

    def run(self) -> ResumeResult:
        """Returns what was found. Raises Error if a run fails by itself."""
        started = time.monotonic()
        aim = self._run_whole()
        with _folder(self._folder) as folder:
            region = folder / "region"
            try:
                self._kill_all(region, aim)
            finally:
                workloads.remove(region)
        self.result.seconds = time.monotonic() - started
        return self.result

    def _run_whole(self) -> _Aim:
        result = self.result
        started = time.monotonic()
        process = _Process(self._what)
        with process:
            process.wait_ready()
            clock = process.clock()
            ready = time.monotonic()
            self._setup_seconds = ready - started
            whole = process.wait_done()
        seconds = time.monotonic() - ready
        if whole is None:
            raise Error(f"{self._what.workload} was killed by someone else", "io")
        if not whole["ok"]:
            raise Error(f"{self._what.workload} is wrong without a kill: {whole['wrong']}", "io")
        result.backend, result.device = whole["backend"], whole["device"]
        result.input, result.digest = whole["input"], whole["digest"]
        result.run_seconds = sum(whole["step_seconds"])
        result.oracles_asked = int(whole["verified"])
        oracle = seconds - whole["recovery_seconds"] - result.run_seconds
        self._oracle_is_cheap = self._what.verify and oracle < _CHEAP_ORACLE
        return _Aim(whole, clock.share())

    def _kill_all(self, region: Path, aim: _Aim) -> None:
        result = self.result
        to_the_end = _TO_THE_END if result.run_seconds < _LONG else _TO_THE_END_LONG
        resumes = False
        idle = 0
        while result.kills < self._kills or resumes:
            spared = result.kills >= self._kills or (resumes and self._random.random() < to_the_end)
            early = not spared and not resumes and self._random.random() < _IN_SETUP
            delay = None if spared or early else aim.delay(self._random, resumes)
            done = self._once(region, delay, early)
            if done is None:
                if delay is not None:
                    aim.killed(delay, resumes)
                resumes = True
                idle = 0
                continue
            aim.ended(done, resumes, too_late=delay is not None)
            self._judge(done, resumes)
            resumes = False
            workloads.remove(region)
            idle = 0 if spared else idle + 1
            if idle == _MOST_IDLE:
                raise Error(f"no kill meets {self._what.workload}: choose a larger --size", "io")

    def _once(self, region: Path, delay: float | None, early: bool) -> dict[str, Any] | None:
        """Runs it, and kills it `delay` seconds after it is ready, or `early`, in its set-up.

        Returns its end, if any.
        """
        killed = early or delay is not None
        what = replace(self._what, verify=not killed and self._oracle_is_cheap)
        process = _Process(what, region)
        with process:
            if early:
                time.sleep(float(self._random.uniform(0, self._setup_seconds)))
                process.kill()
            ready = process.wait_ready()
            if delay is not None and ready is not None:
                process.clock().wait(delay)
                process.kill()
            done = process.wait_done()
        if done is None:
            self.result.kills += 1
            self.result.kills_in_setup += ready is None
            self._on_kill()
        return done

    def _judge(self, done: dict[str, Any], was_killed: bool) -> None:
        result = self.result
        first, steps = done["first_step"], done["steps"]
        if was_killed and first > 0:  # else there was next to nothing to recover
            result.recovery_seconds.append(done["recovery_seconds"])
        if was_killed:
            result.finished += 1
            result.midway += 0 < first < steps
            result.resumed_at.append(first)
            result.oracles_asked += int(done["verified"])
        if not done["ok"]:
            result.wrong.append(done["wrong"])
        elif done["digest"] != result.digest:
            result.wrong.append(
                f"digest {done['digest']} after {result.kills} kills, {result.digest} without"
            )
