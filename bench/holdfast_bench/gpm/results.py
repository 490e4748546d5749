"""Reads the results files of GPM's experiments, of the GPU where there are any."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import Error

Line = dict[str, Any]

SIZES = ("paper", "real", "test")
TITLES = {
    "gpkvs": "gpKVS",
    "gpkvs_95_5": "gpKVS (95:5)",
    "gpdb_insert": "gpDB (I)",
    "gpdb_update": "gpDB (U)",
    "lenet": "DNN",
    "cfd": "CFD",
    "black_scholes": "BLK",
    "hotspot": "HS",
    "bfs": "BFS",
    "srad": "SRAD",
    "prefix_sum": "PS",
}
# Workloads with an option that changes what a figure compares: of which, with what option, and
# what it is called. A figure or table shows them only if it asks for them.
VARIANTS = {
    "bfs_costs": ("bfs", {"publish_costs": "1"}, "BFS (CAP copies costs each level)"),
    "bfs_steps": ("bfs", {"publish": "step"}, "BFS (published once a step)"),
    "gpdb_update_uncached": ("gpdb_update", {"cache": "off"}, "gpDB (U, rows read from the table)"),
    "gpkvs_log": ("gpkvs", {"layout": "log"}, "gpKVS, as a log"),
    "gpkvs_device": ("gpkvs", {"input": "device"}, "gpKVS (input in device memory)"),
    "gpkvs_log_device": (
        "gpkvs",
        {"layout": "log", "input": "device"},
        "gpKVS, as a log (input in device memory)",
    ),
    "gpkvs_95_5_log": ("gpkvs_95_5", {"layout": "log"}, "gpKVS (95:5), as a log"),
    "gpkvs_95_5_device": (
        "gpkvs_95_5",
        {"input": "device"},
        "gpKVS (95:5, input in device memory)",
    ),
    "gpkvs_95_5_log_device": (
        "gpkvs_95_5",
        {"layout": "log", "input": "device"},
        "gpKVS (95:5), as a log (input in device memory)",
    ),
    "lenet_engine": ("lenet", {"checkpoint": "engine"}, "DNN (by the copy engine)"),
    "cfd_engine": ("cfd", {"checkpoint": "engine"}, "CFD (by the copy engine)"),
    "black_scholes_engine": ("black_scholes", {"checkpoint": "engine"}, "BLK (by the copy engine)"),
    "hotspot_engine": ("hotspot", {"checkpoint": "engine"}, "HS (by the copy engine)"),
}
PAPER_VARIANTS = ("bfs_costs",)  # of the paper's figures
RIVAL_VARIANTS = tuple(name for name in VARIANTS if name not in PAPER_VARIANTS)
# Variants that mode gpm alone has: the rivals are those of another row, with the same input.
RIVALS_OF = {
    "gpkvs_log": "gpkvs",
    "gpkvs_log_device": "gpkvs_device",
    "gpkvs_95_5_log": "gpkvs_95_5",
    "gpkvs_95_5_log_device": "gpkvs_95_5_device",
}
TRANSACTIONAL = ("gpkvs", "gpkvs_95_5", "gpdb_insert", "gpdb_update")
CHECKPOINTING = ("lenet", "cfd", "black_scholes", "hotspot")
NATIVE = ("bfs", "srad", "prefix_sum")
REAL_NUMBERS = (*CHECKPOINTING, "srad")  # elsewhere results are of whole numbers
STORING = ("gpm", "ndp", "eadr")  # modes whose kernels store to the medium
DELTA = ("cap-delta", "cap-delta-raw")  # CAP whose kernels gather what they change
GATHERING = ("gpkvs", "gpkvs_95_5", "gpdb_update", "bfs")  # elsewhere DELTA is CAP-mm
REPLAYING = ("gpkvs", "gpkvs_95_5")  # elsewhere cap-log is CAP-mm
SORTING = ("gpkvs", "gpkvs_95_5", "gpdb_update")  # with option "changes"
# What GPM is measured against: the best of them counts. Projections do not.
RIVALS = ("cap-fs", "cap-mm", *DELTA, "cap-log", "gpufs", "ndp", "cpu")
MODE_TITLES = {
    "cap-fs": "CAP-fs",
    "cap-mm": "CAP-mm",
    "cap-delta": "CAP-delta",
    "cap-delta-raw": "CAP-delta-raw",
    "cap-log": "CAP-log",
    "gpufs": "GPUfs",
    "ndp": "GPM-NDP",
    "gpm": "GPM",
    "eadr": "GPM-eADR (projection)",
    "cap-eadr": "CAP-eADR (projection)",
    "cpu": "CPU alone",
}
LOGGING = ("gpkvs", "gpdb_update")  # of GPM's figure 11: those that log what they overwrite


def title_of(name: str) -> str:
    """Returns what tables call a workload, or a variant of one."""
    return TITLES[name] if name in TITLES else VARIANTS[name][2]


def base(name: str) -> str:
    """Returns the workload that a variant is of; a workload's own name."""
    return VARIANTS[name][0] if name in VARIANTS else name


def has_mode(name: str, mode: str) -> bool:
    """Says whether a mode is one of its own for a workload or a variant, and there at all."""
    workload = base(name)
    if name in RIVALS_OF:
        return mode == "gpm"
    if mode in DELTA:
        return workload in GATHERING
    if mode == "cap-log":
        return workload in REPLAYING
    # There host threads read a batch.
    return not (mode == "cpu" and name in VARIANTS and VARIANTS[name][1].get("input") == "device")


def copied_by_engine(line: Line) -> bool:
    """Says whether a checkpoint of GPM's modes was copied by the copy engine.

    Older results do not tell: there it did for 4 MiB and more, and in mode ndp always.
    """
    if base(line["workload"]) not in CHECKPOINTING or line["mode"] not in STORING:
        return False
    told = fact(line, "checkpoint")
    if told is not None:
        return told == "engine"
    return line["mode"] == "ndp" or float(line["bytes_per_step"]) >= 4 << 20


def of_another_run(line: Line, beside: Line) -> bool:
    """Says whether two lines of a row are of different runs: what was added names its commit."""
    return bool(line.get("commit") != beside.get("commit"))


def best_rival(lines: dict[str, Line]) -> str | None:
    """Returns the mode of these, measured in one run with GPM, that it has the least over."""
    gpm = lines.get("gpm", {})
    there = [mode for mode in RIVALS if mode in lines and not of_another_run(lines[mode], gpm)]
    return min(there, key=lambda mode: float(lines[mode]["cost_seconds"]), default=None)


def by_mode(lines: list[Line]) -> dict[str, dict[str, Line]]:
    """Returns the lines of one run by workload or variant and by mode, rivals in every row."""
    found: dict[str, dict[str, Line]] = {}
    for line in lines:
        found.setdefault(line["workload"], {})[line["mode"]] = line
    for name, other in RIVALS_OF.items():
        if name in found:
            found[name] = {**found.get(other, {}), **found[name]}
    return found


def fact(line: Line, name: str) -> str | None:
    """Returns a fact that holdfast-run told of a run; of older results an option of that name."""
    value = line.get("facts", {}).get(name, line.get(name))
    return None if value is None else str(value)


def results_name(experiment: str, size: str, medium: str = "dram") -> str:
    """Returns the name of a results file, without the backend's: gpm_modes_paper."""
    name = f"{experiment}_{size}"
    return name if medium == "dram" else f"{name}_{re.sub('[^A-Za-z0-9.]+', '-', medium)}"


@dataclass(frozen=True)
class Report:
    """A results file. An empty one is false."""

    head: Line = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def where(self) -> str:
        """Says what it was measured on."""
        machine = self.head["machine"]
        if self.head["backend"] == "cuda":
            return str(machine["device"])
        return f"CPU backend, no GPU ({machine['processor']}, {machine['cores']} cores)"


class Results:
    """The results files of a folder. Of two of one name, that of the first backend counts."""

    def __init__(self, folder: Path, backends: tuple[str, ...] = ("cuda", "cpu")) -> None:
        self.folder = folder
        self.backends = backends

    def report(self, name: str) -> Report:
        """Returns the file of a name; an empty report where there is none."""
        for backend in self.backends:
            path = self.folder / f"{name}-{backend}.json"
            if not path.is_file():
                continue
            try:
                head = json.loads(path.read_text())
                return Report(head, head.pop("results"))
            except (json.JSONDecodeError, KeyError, AttributeError) as error:
                raise Error(f"{path} is not a results file: {error}", "damaged") from None
        return Report()

    def sizes(self, experiment: str = "gpm_modes") -> list[str]:
        """Returns the sizes that something was measured at; that of tests only by itself."""
        found = [size for size in SIZES if self.report(f"{experiment}_{size}")]
        return [size for size in found if size != "test"] or found

    def modes(
        self, size: str, medium: str = "dram", variants: bool = False
    ) -> dict[str, dict[str, Line]]:
        """Returns the lines of a size by workload and mode, in the paper's order.

        Of what the figures' own run left out, those of gpm-rivals, which measures the same: also
        modes of a workload, where both are of one commit. What was added of other runs is last, but
        for all of a workload that this run left out.
        """
        usual = self.report(results_name("gpm_modes", size, medium))
        name = results_name("gpm_rivals", size, medium)
        others = self._beside(name, usual) if usual else {}
        own = by_mode([line for line in usual.lines if "commit" not in line])
        added = by_mode([line for line in usual.lines if "commit" in line])
        found = {**others, **own}
        if others and self.report(name).head["commit"] == usual.head["commit"]:
            found |= {name: {**others.get(name, {}), **lines} for name, lines in own.items()}
        for name, lines in added.items():
            whole = name not in own and "gpm" in lines
            found[name] = lines if whole else {**lines, **found.get(name, {})}
        wanted = [
            name
            for workload in TITLES
            for name in (workload, *(v for v in VARIANTS if variants and base(v) == workload))
        ]
        return {name: found[name] for name in wanted if name in found}

    def _beside(self, name: str, usual: Report) -> dict[str, dict[str, Line]]:
        """Returns the lines of a file by workload and mode; none if of another backend."""
        report = self.report(name)
        if report and usual and report.head["backend"] != usual.head["backend"]:
            return {}
        return by_mode(report.lines)

    def _runs(self, size: str) -> list[dict[str, dict[str, Line]]]:
        """Returns the lines of a size by workload and mode, run by run, most rivals of GPM last."""
        usual = self.report(f"gpm_modes_{size}")
        runs = [by_mode(self.report(f"gpm_gpufs_{size}").lines), self.modes(size, variants=True)]
        for name, others in (("gpm_delta", set(DELTA)), ("gpm_rivals", set(RIVALS))):
            found = self._beside(f"{name}_{size}", usual)
            runs.append({w: by for w, by in found.items() if "gpm" in by and others & set(by)})
        return runs

    def beside(self, size: str) -> dict[str, dict[str, Line]]:
        """Returns the lines of a size by workload and mode, of the run with the most rivals of GPM.

        That is gpm-rivals' or gpm-delta's where there is one for the workload that has a mode which
        that of modes() lacks, and otherwise this one.
        """
        found: dict[str, dict[str, Line]] = {}
        for run in self._runs(size):
            for name, lines in run.items():
                if not set(lines) <= set(found.get(name, {})):
                    found[name] = lines
        return {name: found[name] for name in (*TITLES, *VARIANTS) if name in found}

    def pair(self, size: str, name: str, mode: str, over: str) -> tuple[Line, Line] | None:
        """Returns the lines of two modes in one run; None: not measured.

        Of the runs that have both, that with the most rivals. Modes that no run has both of:
        as modes() has them, one of another run.
        """
        for run in [self.beside(size), *reversed(self._runs(size))]:
            lines = run.get(name, {})
            if mode in lines and over in lines:
                return lines[mode], lines[over]
        return None

    def speedup(self, size: str, name: str, mode: str, over: str) -> float | None:
        """Returns how many times as fast a mode is as another, by pair(); None: not measured."""
        if (both := self.pair(size, name, mode, over)) is None:
            return None
        return float(both[1]["cost_seconds"] / both[0]["cost_seconds"])

    def where(self, size: str) -> str:
        """Says what the modes of a size were measured on."""
        return self.report(f"gpm_modes_{size}").where

    def copy_engine(self, size: str) -> float | None:
        """Returns the copy engine's GB/s: of the size's own run, or else the best that is known."""
        report = self.report(f"gpm_modes_{size}")
        own = report.head.get("copy_engine_gb_per_s") if report else None
        if own:
            return float(own)
        for name in ("cap_bench", "persist_bench", "log_bench"):
            other = self.report(name)
            if other and report and other.where == report.where:
                key = "copy_engine_gb_per_s"
                return float(max(line[key] for line in other.lines if key in line))
        return None

    def log_speedups(self, size: str) -> dict[str, tuple[Line, Line]]:
        """Returns, by workload, the lines with the coalesced and with the conventional log."""
        lines: dict[str, dict[str, Line]] = {}
        for line in self.report(f"gpm_logs_{size}").lines:
            lines.setdefault(line["workload"], {})[line["log"]] = line
        return {
            name: (lines[name]["coalesced"], lines[name]["conventional"])
            for name in LOGGING
            if {"coalesced", "conventional"} <= set(lines.get(name, {}))
        }

    def media(self) -> list[tuple[str, str]]:
        """Returns medium and size of all results under a medium other than DRAM."""
        found = set()
        for size in SIZES:
            for path in sorted(self.folder.glob(f"gpm_modes_{size}_*.json")):
                if path.stem.rsplit("-", 1)[-1] in self.backends:
                    found.add((str(json.loads(path.read_text())["medium"]), size))
        return sorted(found)
