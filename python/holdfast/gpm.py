"""The experiments of GPM (ASPLOS '22), section 6: what is run for each figure and table.

Each experiment is a set of runs of workloads; a results file holds their lines, and the figures
and docs/results/gpm.md are made from the files (bench/gpm_report.py).
"""

from __future__ import annotations

import datetime
import json
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import bench, workloads
from ._errors import Error
from .crash import ResumeCampaign
from .workloads import Run

Line = dict[str, Any]
OnLine = Callable[[Line], None]

TRANSACTIONAL = ("gpkvs", "gpkvs_95_5", "gpdb_insert", "gpdb_update")
CHECKPOINTING = ("lenet", "cfd", "black_scholes", "hotspot")
NATIVE = ("bfs", "srad", "prefix_sum")
ALL = TRANSACTIONAL + CHECKPOINTING + NATIVE

# Steps that are measured where a step takes seconds in some mode: the median of so many.
FEW_STEPS = {"gpkvs": 5, "gpkvs_95_5": 5, "gpdb_insert": 5, "gpdb_update": 5, "black_scholes": 5,
             "hotspot": 5, "srad": 5}  # fmt: skip
# Thread counts that are tried for the modes in which the CPU persists: the best counts.
TRIED_THREADS = (1, 4, 8, 16)
_MOST_CAMPAIGNS = 5


@dataclass(frozen=True)
class Experiment:
    """What a figure or table needs."""

    name: str
    what: str
    names: tuple[str, ...] = ALL
    modes: tuple[str, ...] = ()
    restores: bool = False


EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment("gpm-fig1a", "gpKVS against the CPU", ("gpkvs",), ("cpu", "gpm")),
        Experiment("gpm-fig1b", "native workloads against the CPU", NATIVE, ("cpu", "gpm")),
        Experiment("gpm-fig9", "speedup over CAP-fs", ALL, ("cap-fs", "cap-mm", "gpufs", "gpm")),
        Experiment(
            "gpm-fig10",
            "no direct persistence, and eADR",
            ALL,
            ("cap-fs", "cap-mm", "ndp", "gpm", "eadr", "cap-eadr"),
        ),
        Experiment("gpm-fig12", "write bandwidth to the medium", ALL, ("gpm",)),
        Experiment("gpm-table4", "write amplification of CAP", ALL, ("cap-mm", "gpm")),
        Experiment(
            "gpm-table5", "restoration latency", TRANSACTIONAL + CHECKPOINTING, restores=True
        ),
    )
}


def medians(result: Line) -> Line:
    """Returns what a results file keeps of a run."""
    seconds = result["step_seconds"]
    steps = len(seconds)
    return {
        "workload": result["workload"],
        "mode": result["mode"],
        "input": result["input"],
        "cpu_threads": result["cpu_threads"],
        "steps": steps,
        "step_seconds": statistics.median(seconds),
        "persist_seconds": statistics.median(result["persist_seconds"]),
        "bytes_per_step": result["bytes_written"] / steps,
        "verified": result["verified"],
        "projection": result["mode"] in workloads.PROJECTIONS,
    }


def _cost(line: Line) -> float:
    """Returns what is compared: of checkpointing workloads the checkpoint, as in the paper."""
    persists = line["workload"] in CHECKPOINTING
    return float(line["persist_seconds"] if persists else line["step_seconds"])


def measure(what: Run, threads: Iterable[int]) -> Line:
    """Runs a workload in a mode, with the number of CPU threads that serves the mode best."""
    if what.mode in ("gpm", "eadr", "gpufs"):
        threads = (0,)
    best: Line | None = None
    for count in threads:
        line = medians(workloads.run(replace(what, cpu_threads=count)))
        if best is None or _cost(line) < _cost(best):
            best = line
    assert best is not None
    return {"benchmark": "gpm_modes", **best, "cost_seconds": _cost(best)}


def measure_restore(what: Run, kills: int) -> Line:
    """Kills a workload and takes the longest recovery, against the time of the whole run."""
    for attempt in range(_MOST_CAMPAIGNS):
        with tempfile.TemporaryDirectory(prefix="holdfast-restore-") as folder:
            result = ResumeCampaign(what, kills, what.seed + attempt, folder).run()
        if result.recovery_seconds:
            break
    else:
        raise Error(f"no kill of {what.workload} leaves something to recover: raise --kills", "io")
    longest = max(result.recovery_seconds)
    return {
        "benchmark": "gpm_restores",
        "workload": what.workload,
        "input": result.input,
        "kills": result.kills,
        "wrong": len(result.wrong),
        "recovery_seconds": longest,
        "operation_seconds": result.run_seconds,
        "share": longest / result.run_seconds,
    }


def runs(
    names: Iterable[str], modes: Iterable[str], size: str, data: str | None, verify: bool
) -> Iterator[Run]:
    """Yields what is run for some workloads in some modes."""
    for name in names:
        steps = FEW_STEPS.get(name, 0) if size == "paper" else 0
        for mode in modes:
            yield Run(name, mode=mode, size=size, data=data, steps=steps, verify=verify)


def write(name: str, command: str, lines: list[Line], results: Path) -> Path:
    """Adds lines to a results file; those of the same workload, mode and size are replaced."""
    path = bench.results_path(results, name)
    kept: list[Line] = []
    if path.is_file():
        before = json.loads(path.read_text())
        # Lines of one file come from one commit and one machine.
        if before["commit"] == bench.commit() and before["machine"] == bench.machine():
            replaced = {_key(line) for line in lines}
            kept = [line for line in before["results"] if _key(line) not in replaced]
    return bench.write_results(
        path,
        program="holdfast-run",
        command=command,
        medium="dram",
        started=datetime.datetime.now(datetime.timezone.utc),
        lines=kept + lines,
    )


def _key(line: Line) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("workload", "mode", "size"))


def run(
    experiments: list[Experiment],
    size: str,
    data: str | None,
    results: Path,
    only: str | None = None,
    modes: str | None = None,
    kills: int = 10,
    verify: bool = True,
    tried: tuple[int, ...] = TRIED_THREADS,
    on_line: OnLine = lambda line: None,
) -> list[Path]:
    """Runs what some experiments need, each run once; returns the results files."""
    wanted = [n for n in ALL if only is None or n in only.split(",")]
    pairs = dict.fromkeys(
        (name, mode)
        for e in experiments
        for name in e.names
        for mode in e.modes
        if name in wanted and (modes is None or mode in modes.split(","))
    )
    command = f"holdfast bench {' '.join(e.name for e in experiments)} --size {size}"
    written = []
    lines: list[Line] = []
    for name, mode in sorted(pairs, key=lambda pair: ALL.index(pair[0])):
        for what in runs([name], [mode], size, data, verify):
            lines.append({**measure(what, tried), "size": size})
            on_line(lines[-1])
            written = [write(f"gpm_modes_{size}", command, lines, results)]
    restored: list[Line] = []
    for name in dict.fromkeys(n for e in experiments if e.restores for n in e.names):
        if name not in wanted:
            continue
        for what in runs([name], ["gpm"], size, data, verify):
            restored.append({**measure_restore(what, kills), "size": size})
            on_line(restored[-1])
            path = write(f"gpm_restores_{size}", command, restored, results)
            if path not in written:
                written.append(path)
    return written
