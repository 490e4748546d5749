"""Batches of SETs made durable on a disk: what is run, its tables, its figure.

power_bench measures our store at the process rung and at the power rung, CAP with fsync, RocksDB
with its log synced, and a plain stream of as many bytes, all on one disk in one run.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast import Error

from . import runner
from .gpm.results import Line, Report
from .gpm.results import Results as Files
from .gpm.tables import table
from .kept import FIGURES, RESULTS
from .plots import pyplot

NAME = "power_bench"
FIGURE = FIGURES / "power.svg"
# Of a GPU alone: what the CPU backend takes is no result.
MEASURED = Files(RESULTS, ("cuda",))
BATCHES = (1, 1024, 65536, 2097152)


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    disk: Path
    batches: tuple[int, ...] = BATCHES
    table_mib: int = 1024
    warm: int = 3
    repeat: int = 5
    seconds: int = 60
    rocksdb: Path | None = None

    def arguments(self) -> list[str]:
        """Returns the program's, without those that say where things are."""
        return [
            f"--batches={','.join(map(str, self.batches))}",
            f"--table_mib={self.table_mib}",
            f"--warm={self.warm}",
            f"--repeat={self.repeat}",
            f"--seconds={self.seconds}",
        ]

    def command(self) -> str:
        """Returns what it takes to measure the same, on another machine's disk."""
        words = [f"--table-mib {self.table_mib}", f"--repeat {self.repeat}"]
        if self.batches != BATCHES:
            words.append(f"--batches {','.join(map(str, self.batches))}")
        return " ".join(["holdfast bench power", *words])


def run(
    settings: Settings,
    results: Path,
    *,
    program: Path | None = None,
    on_line: Callable[[Line], None] = lambda line: None,
) -> Path:
    """Runs the program and writes the results file, which it returns.

    Raises Error where the folder is none, or a system does not hold what was set; what was
    measured before is kept.
    """
    if not settings.disk.is_dir():
        raise Error(f"--disk {settings.disk}: there is no such folder", "not_found")
    found = program or runner.tree_program(NAME)
    arguments = [*settings.arguments(), f"--disk={settings.disk}"]
    if settings.rocksdb is not None:
        arguments.append(f"--rocksdb={settings.rocksdb}")
    started = datetime.datetime.now(datetime.timezone.utc)
    path = runner.results_path(results, NAME)
    lines: list[Line] = []
    try:
        for line in runner.measured(found, arguments):
            on_line(line)
            lines.append(line)
    finally:
        if any(line["benchmark"] == "power_set" for line in lines):
            media = sorted({str(line["medium"]) for line in lines if "medium" in line})
            runner.write_results(
                path,
                program=found.name,
                command=settings.command(),
                medium=", ".join(media),
                started=started,
                lines=lines,
            )
    return path


TITLES = {
    "holdfast": "Holdfast",
    "cap-pages": "CAP with fsync",
    "cap-log": "CAP with fsync",
    "rocksdb": "RocksDB",
}


def title(line: Line) -> str:
    """Returns what tables call a system in one of its forms."""
    name = TITLES[line["system"]]
    if line["system"] != "holdfast":
        return f"{name}, {line['form']}"
    if line["form"]:
        name += f", {line['form']}"
    if line["rung"] == "process":
        return f"{name}, the batch alone"
    count = line["batches_per_commit"]
    return f"{name}, a commit for {'each batch' if count == 1 else f'{count} batches'}"


def sets(report: Report) -> list[Line]:
    """Returns the measured systems: by batch, ours before its rivals."""
    lines = [line for line in report.lines if line["benchmark"] == "power_set"]
    order = list(TITLES)
    return sorted(
        lines,
        key=lambda x: (
            x["batch"], order.index(x["system"]), x["system"] == "holdfast" and x["form"],
            x["rung"] == "power", x["batches_per_commit"]
        ),
    )  # fmt: skip


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _bytes(count: float) -> str:
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count:.0f} B" if count else ""


def times(report: Report) -> str:
    """Returns the table of times: a row for each system and batch."""
    rows: list[list[object]] = []
    for line in sets(report):
        bound = line.get("ratio_to_plain")
        rows.append(
            [
                f"{line['batch']:,}",
                title(line),
                line["rung"],
                _ms(line["batch_ms"]),
                _ms(line["commit_ms"]) if line["rung"] == "power" else "",
                _ms(line["ms_per_batch"]),
                f"{line['million_sets_per_s']:.3g}",
                _bytes(line["disk_bytes"]),
                "" if bound is None else f"{bound:.2f}",
                f"{_ms(line['recovery_ms'])} ({line['batches']:,})",
            ]
        )
    header = [
        "SETs a batch",
        "system",
        "rung",
        "batch, ms",
        "commit, ms",
        "in all, ms a batch",
        "M SETs/s",
        "to the disk, a commit",
        "over a plain stream of as many",
        "opening again, ms (after so many batches)",
    ]
    return table(header, rows)


def promises(report: Report) -> str:
    """Returns the table of what each system promises."""
    rows: dict[str, list[object]] = {}
    for line in sets(report):
        name = title(line)
        whole = {"batches": "batches", "shares": "a writer's share", "nothing": "nothing"}
        writes = line.get("io", "")
        rows[name] = [name, line["guarantee"], whole[line["atomic"]], line["recovery"], writes]
    header = ["system", "guarantee", "whole or not at all", "to open it again", "writes"]
    return table(header, list(rows.values()))


def rocksdb(report: Report) -> str:
    """Says which RocksDB it was, or why there was none."""
    for line in report.lines:
        if line["benchmark"] == "power_rocksdb":
            version = line.get("version")
            return f"`{version}`" if version else f"not there ({line['not_there']})"
    return "not there"


def draw(report: Report, path: Path) -> bool:
    """Draws time over batch size; says whether there was anything to draw."""
    lines = sets(report)
    if not lines:
        return False
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7.5, 4.4))
    for name in dict.fromkeys(title(line) for line in lines):
        here = [line for line in lines if title(line) == name]
        ours = here[0]["system"] == "holdfast"
        axes.plot(
            [line["batch"] for line in here],
            [line["ms_per_batch"] for line in here],
            marker="o",
            linestyle="-" if ours else "--",
            label=name + (" (process rung)" if here[0]["rung"] == "process" else ""),
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="SETs in a batch", ylabel="ms a batch")
    axes.legend(fontsize="x-small")
    axes.set_title(f"Batches made durable on one disk ({report.where})", fontsize="medium")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def part() -> str:
    """Returns what the page of results shows."""
    report = MEASURED.report(NAME)
    lines = sets(report)
    if not lines:
        return "Not measured yet: `holdfast bench power --disk FOLDER`."
    head = report.head
    disk = next((line["medium"] for line in lines if line["rung"] == "power"), "")
    what = (
        f"{report.where}, {head['date'][:10]}, commit `{head['commit'][:9]}`, `{head['command']}`: "
        f"a table of {lines[0]['table_bytes'] / 2**30:g} GiB, {lines[0]['keys']:,} keys; {disk}; "
        f"RocksDB: {rocksdb(report)}."
    )
    figure = f"![time of a batch by its size](figures/{FIGURE.name})"
    return "\n\n".join([what, figure, times(report), promises(report)])


TABLES: dict[str, Callable[[], str]] = {"power": part}


def readme_rows() -> list[list[object]]:
    """Returns the README's row: the largest batch, ours beside the best of each rival."""
    report = MEASURED.report(NAME)
    lines = sets(report)
    if not lines:
        return []
    most = max(line["batch"] for line in lines)
    best: dict[str, Line] = {}
    for line in lines:
        if line["batch"] != most or line["rung"] != "power" or line["batches_per_commit"] != 1:
            continue
        known = best.get(TITLES[line["system"]])
        if known is None or line["ms_per_batch"] < known["ms_per_batch"]:
            best[TITLES[line["system"]]] = line
    if "Holdfast" not in best:
        return []
    rivals = [
        f"{title(line)} {_ms(line['ms_per_batch'])} ms"
        for name, line in best.items()
        if name != "Holdfast"
    ]
    form = best["Holdfast"]["form"]
    ours = f"{_ms(best['Holdfast']['ms_per_batch'])} ms" + (f" ({form})" if form else "")
    what = f"a batch of {most:,} SETs and its commit to a disk (power rung)"
    return [[what, report.where, "; ".join([ours, *rivals])]]


def draw_kept() -> None:
    """Draws the figure of the page, if it was measured."""
    draw(MEASURED.report(NAME), FIGURE)
