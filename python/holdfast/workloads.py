"""Runs GPMbench's workloads: the program holdfast-run, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from . import _backend
from ._errors import Error

MODES = (
    "gpm",
    "cap-fs",
    "cap-mm",
    "ndp",
    "gpufs",
    "cpu",
    "eadr",
    "cap-eadr",
    "cap-delta",
    "cap-delta-raw",
    "cap-log",
)
PROJECTIONS = ("eadr", "cap-eadr")
SIZES = ("test", "real", "paper")


def repository() -> Path | None:
    """Returns the repository that the working folder is in, if it is Holdfast's."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "include" / "holdfast").is_dir():
            return folder
    return None


@dataclass(frozen=True)
class Run:
    """What is run, and how."""

    workload: str
    mode: str = "gpm"
    size: str = "test"
    data: str | None = None  # folder of real inputs
    seed: int = 1
    steps: int = 0  # 0: what the size says
    cpu_threads: int = 0  # 0: as many as there are cores
    medium: str = "dram"  # what the region's memory stands for: dram, optane, cxl, limit=1.6GB/s
    verify: bool = True
    expect: str = ""  # the state of a run that an oracle verified: stands for the oracle
    die_in_step: int = 0  # counted from 1: kills itself before what the step did is committed
    options: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Returns the command line, without the program."""
        words = [self.workload, "--mode", self.mode, "--size", self.size, "--seed", str(self.seed)]
        words += ["--steps", str(self.steps), "--cpu-threads", str(self.cpu_threads)]
        if self.medium != "dram":
            words += ["--medium", self.medium]
        if self.data:
            words += ["--data", self.data]
        if not self.verify:
            words.append("--no-verify")
        elif self.expect:
            words += ["--expect", self.expect]
        if self.die_in_step:
            words += ["--die-in-step", str(self.die_in_step)]
        for name, value in self.options.items():
            words += ["--set", f"{name}={value}"]
        return words


def executable() -> Path:
    """Returns the program of the backend in use. $HOLDFAST_RUN names another."""
    given = os.environ.get("HOLDFAST_RUN")
    if given:
        return Path(given)
    backend = _backend.name()
    own = Path(__file__).parent / "bin" / f"holdfast-run-{backend}"
    if own.is_file():
        return own
    root = repository()
    built = root / "build" / backend / "tools" / "run" / "holdfast-run" if root else None
    if built and built.is_file():
        return built
    note = Path(__file__).with_name("_run_missing.txt")
    why = f": {note.read_text().strip()}" if note.is_file() else ""
    raise Error(
        f"this installation has no holdfast-run for the {backend} backend{why}. Build it "
        f"(cmake --preset {backend} && cmake --build --preset {backend}), or name it in "
        "$HOLDFAST_RUN",
        "unsupported",
    )


def default_data() -> str | None:
    """Returns the folder of real inputs: $HOLDFAST_DATA, or data beside the repository."""
    given = os.environ.get("HOLDFAST_DATA")
    if given:
        return given
    root = repository()
    if root:
        for folder in (root / "data", root.parent / "shared" / "data"):
            if folder.is_dir():
                return str(folder)
    return None


@cache
def available() -> list[dict[str, Any]]:
    """Returns name, class, summary and options of every workload."""
    out = subprocess.run([executable(), "list"], capture_output=True, text=True, check=True).stdout
    workloads = json.loads(out)["workloads"]
    assert isinstance(workloads, list)
    return workloads


class Process:
    """A workload that runs. It can be killed at any moment."""

    def __init__(self, run: Run, region: Path | None = None, last_commit: bool = False) -> None:
        command = [str(executable()), *run.arguments()]
        if region:
            command += ["--region", str(region)]
        if last_commit:
            command.append("--last-commit")
        self._command = command
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> dict[str, Any] | None:
        stream: IO[str] | None = self._process.stdout
        assert stream is not None
        line = stream.readline()
        if not line.endswith("\n"):
            return None
        event: dict[str, Any] = json.loads(line)
        if event.get("event") == "error":
            error = event["error"]
            raise Error(error["message"], error["code"])
        return event

    def wait_ready(self) -> dict[str, Any] | None:
        """Returns what it says once it is set up; None if it was killed before."""
        return self._read()

    def wait_done(self) -> dict[str, Any] | None:
        """Returns what it says at its end; None if it was killed. Raises Error if it failed."""
        event = self._read()
        status = self._process.wait()
        if event is None and status != -9:
            raise Error(f"'{' '.join(self._command)}' ended with status {status}", "io")
        return event

    def kill(self) -> None:
        """Kills it with SIGKILL and waits for its end."""
        self._process.kill()
        self._process.wait()


def run(
    what: Run,
    region: Path | None = None,
    on_ready: Callable[[dict[str, Any]], None] = lambda event: None,
    last_commit: bool = False,
) -> dict[str, Any]:
    """Runs a workload to its end and returns what it measured and found."""
    with Process(what, region, last_commit) as process:
        ready = process.wait_ready()
        if ready is not None:
            on_ready(ready)
        done = process.wait_done()
    if done is None:
        raise Error(f"{what.workload} was killed by someone else", "io")
    return done


def remove(region: Path) -> None:
    """Removes what a killed run left."""
    subprocess.run([executable(), "remove", str(region)], check=True)
