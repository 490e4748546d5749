"""Kills a workload again and again and lets it resume, until it ends as if nothing had happened."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import workloads
from .._errors import Error

_MOST_IDLE = 200  # processes in a row that no kill meets
_IN_RECOVERY = 0.2  # of kills are aimed at recovery
_TO_THE_END = 0.4  # of runs that resume are let run to their end


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


class ResumeCampaign:
    """Runs `what` once as it is, then again with `kills` SIGKILLs at random moments.

    The uninterrupted run's digest is compared with that of every run that ends, and each of them
    asks its oracle, too.
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
        self.result = ResumeResult(what.workload, seed, mode=what.mode)

    def run(self) -> ResumeResult:
        """Returns what was found. Raises Error if a run fails by itself."""
        started = time.monotonic()
        result = self.result
        whole = workloads.run(self._what)
        if not whole["ok"]:
            raise Error(f"{self._what.workload} is wrong without a kill: {whole['wrong']}", "io")
        result.backend, result.device = whole["backend"], whole["device"]
        result.input, result.digest = whole["input"], whole["digest"]
        result.run_seconds = sum(whole["step_seconds"])
        with _folder(self._folder) as folder:
            region = folder / "region"
            try:
                self._kill_all(region, result.run_seconds)
            finally:
                workloads.remove(region)
        result.seconds = time.monotonic() - started
        return result

    def _kill_all(self, region: Path, run_seconds: float) -> None:
        result = self.result
        reach = max(run_seconds, 1e-3)
        killed_on_the_way = False
        idle = 0
        while result.kills < self._kills or killed_on_the_way:
            last = result.kills >= self._kills
            spared = killed_on_the_way and self._random.random() < _TO_THE_END
            done = self._once(region, None if last or spared else self._delay(reach))
            if done is None:
                killed_on_the_way = True
                idle = 0
                continue
            self._judge(done, killed_on_the_way)
            killed_on_the_way = False
            workloads.remove(region)
            if spared:
                continue
            reach = max(reach * 0.7, 1e-4)  # kills come too late: aim earlier
            idle += 1
            if idle == _MOST_IDLE:
                raise Error(f"no kill meets {self._what.workload}: choose a larger --size", "io")

    def _delay(self, reach: float) -> float:
        recoveries = self.result.recovery_seconds
        if recoveries and self._random.random() < _IN_RECOVERY:
            reach = max(recoveries)
        return float(self._random.uniform(0, reach))

    def _once(self, region: Path, delay: float | None) -> dict[str, Any] | None:
        """Runs it, and kills it `delay` seconds after it is ready. Returns its end, if any."""
        with workloads.Process(self._what, region) as process:
            ready = process.wait_ready()
            if delay is not None and ready is not None:
                time.sleep(delay)
                process.kill()
            done = process.wait_done()
        if done is None:
            self.result.kills += 1
            self.result.kills_in_setup += ready is None
            self._on_kill()
        return done

    def _judge(self, done: dict[str, Any], was_killed: bool) -> None:
        result = self.result
        if was_killed and done["first_step"] > 0:  # else there was next to nothing to recover
            result.recovery_seconds.append(done["recovery_seconds"])
        if was_killed:
            result.finished += 1
            result.resumed_at.append(done["first_step"])
        if not done["ok"]:
            result.wrong.append(done["wrong"])
        elif done["digest"] != result.digest:
            result.wrong.append(
                f"digest {done['digest']} after {result.kills} kills, {result.digest} without"
            )
