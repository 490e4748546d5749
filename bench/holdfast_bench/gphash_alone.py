"""The figures of GPHash (FAST '25) that are of the map alone: its cache, shapes, resizing, opening.

Each runs map_bench or map_shapes_bench several times and keeps the lines that the figure is of.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast

from . import runner
from .gphash import results_name
from .gpm.results import Line, Report
from .gpm.results import Results as Files
from .gpm.tables import table
from .plots import pyplot

POLICIES = {3: "random", 2: "lru", 1: "lfu", 0: "frozen"}  # MapCache::Policy
SMALL_LOG = 12  # of the paper's batches
GROWN = (16, 4, 1)  # shares of the keys that a table has when it grows, or is opened


@dataclass(frozen=True)
class Size:
    """Pairs of a table, and operations of a batch."""

    keys: int
    batch_log: int
    warm: int  # batches in front of a cache's load
    batches: int


SIZES = {
    "tiny": Size(8_192, 8, 2, 1),
    "quarter": Size(4_000_000, 18, 64, 5),
    "paper": Size(16_000_000, 20, 64, 9),
}


def _caches(policies: tuple[int, ...], small: bool) -> Callable[[Size], Iterator[dict[str, int]]]:
    """`small`: by the paper's batches, too, of 2^12."""

    def runs(size: Size) -> Iterator[dict[str, int]]:
        given = {"cache": 1, "keys": size.keys, "value_bytes": 128}
        if small and size.batch_log > SMALL_LOG:
            batch = {"least": SMALL_LOG, "most": SMALL_LOG, "batches": 99, "warm": 2048}
            yield from ({**given, "policy": policy, **batch} for policy in policies)
        batch = {"least": size.batch_log, "most": size.batch_log, "batches": size.batches}
        yield from ({**given, "policy": policy, "warm": size.warm, **batch} for policy in policies)

    return runs


def _shapes(size: Size) -> Iterator[dict[str, int]]:
    yield {"slots": size.keys, "batch": 1 << size.batch_log, "batches": size.batches}


def _grown(size: Size) -> Iterator[dict[str, int]]:
    for share in GROWN:
        pairs = size.keys // share
        yield {"resize_items": pairs, "value_bytes": 8, "resize_steps": 32, **_within(size, pairs)}
    for share in GROWN:
        pairs = size.keys // share
        yield {"keys": pairs, "value_bytes": 128, "batches": 1, "order": 1, "fill_slots": 0,
               **_within(size, pairs)}  # fmt: skip


def _within(size: Size, pairs: int) -> dict[str, int]:
    """Returns the batches' logarithms: a batch has no more operations than there are pairs."""
    log = min(size.batch_log, pairs.bit_length() - 1)
    return {"least": log, "most": log}


def policies(report: Report) -> str:
    """Returns the table of M lookups/s, and hits, by cache and policy."""
    parts = []
    all_lines = _of(report, "map_cache")
    for exponent, batch in dict.fromkeys((line["exponent"], line["batch"]) for line in all_lines):
        lines = [x for x in all_lines if (x["exponent"], x["batch"]) == (exponent, batch)]
        shares = sorted({round(line["cache_share"], 3) for line in lines})
        rows: list[list[object]] = []
        for policy, name in POLICIES.items():
            cells = {round(x["cache_share"], 3): x for x in lines if x["policy"] == policy}
            if cells:
                rows.append([name, *(_rate_and_hits(cells.get(share)) for share in shares)])
        head = f"keys by a power law of {exponent:g}, batches of {batch:,}"
        words = f"M lookups/s (hits), {head}, by the cache's share of the rows"
        parts.append(f"{words}\n\n{table(['', *(f'{s:g}' for s in shares)], rows)}")
    return "\n\n".join(parts)


def _rate_and_hits(line: Line | None) -> str:
    if line is None:
        return ""
    return f"{line['million_per_s']:.3g} ({100 * (1 - line['miss_share']):.0f} %)"


def shapes(report: Report) -> str:
    """Returns the table of load factors and M operations/s by the shape of a table."""
    rows: list[list[object]] = [
        [line["shape"], f"{line['load_factor_at_first_failure']:.3f}",
         *(f"{line[f'{kind}_million_per_s']:.3g}" for kind in ("insert", "find", "find_absent"))]
        for line in _of(report, "map_shapes")
    ]  # fmt: skip
    return table(["levels, hashes, slots", "load factor", "insert", "find", "find absent"], rows)


def grown(report: Report) -> str:
    """Returns the table of what growth and opening take."""
    rows: list[list[object]] = []
    for line in _of(report, "map_resize"):
        rows.append(["doubled", f"{line['pairs']:,}", line["directory"],
                     f"{line['resize_ms']:.3g}", ""])  # fmt: skip
    for line in _of(report, "map_open"):
        rows.append(["opened", f"{line['pairs']:,}", line["directory"], f"{line['open_ms']:,.3g}",
                     f"{line['pin_ms']:,.3g}"])  # fmt: skip
    return table(["", "pairs", "directory", "ms", "beside it pinning, ms"], rows)


def loads(report: Report) -> str:
    """Returns the table of what the load of a cache takes, and of lookups beside it."""
    rows: list[list[object]] = []
    steady = {x["exponent"]: x for x in _of(report, "map_cache") if x["cache_share"] == 0}
    for line in _of(report, "map_cache_load"):
        without = steady[line["exponent"]]["million_per_s"]
        beside = line["million_per_s_beside"]
        rows.append([line["exponent"], f"{line['rows']:,}", f"{line['load_ms']:.3g}",
                     f"{beside:.3g}", f"{beside / without:.2f}"])  # fmt: skip
    header = ["exponent", "rows of the cache", "loaded in, ms", "M lookups/s meanwhile"]
    return table([*header, "over those without a cache"], rows)


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper."""

    what: str
    program: str
    runs: Callable[[Size], Iterator[dict[str, int]]]
    kept: tuple[str, ...]  # the benchmarks that it is of
    table: Callable[[Report], str]


EXPERIMENTS = {
    "gphash-fig11": Experiment("the cache by its policy and its size, with hit rates",
                               "map_bench", _caches(tuple(POLICIES), True), ("map_cache",),
                               policies),
    "gphash-fig13": Experiment("load factor and throughput by the shape of a table",
                               "map_shapes_bench", _shapes, ("map_shapes",), shapes),
    "gphash-fig14": Experiment("what resizing and opening take", "map_bench", _grown,
                               ("map_resize", "map_open"), grown),
    "gphash-fig15": Experiment("what loading the cache takes beside lookups", "map_bench",
                               _caches((1,), False), ("map_cache", "map_cache_load"), loads),
}  # fmt: skip


def _of(report: Report, benchmark: str) -> list[Line]:
    return [line for line in report.lines if line["benchmark"] == benchmark]


def run(
    name: str, size: str, results: Path, programs: Path | None, on_line: Callable[[Line], None]
) -> Path:
    """Runs an experiment, writes its results file, and returns that; what was measured is kept.

    Raises Error where a program is not there or fails.
    """
    experiment = EXPERIMENTS[name]
    program = runner.tree_program(experiment.program, programs)
    started = datetime.datetime.now(datetime.timezone.utc)
    path = runner.results_path(results, results_name(name, size))
    lines: list[Line] = []
    try:
        for arguments in experiment.runs(SIZES[size]):
            given = [f"--{option}={value}" for option, value in arguments.items()]
            for line in runner.measured(program, given):
                if line["benchmark"] in experiment.kept:
                    lines.append(line)
                    on_line(line)
    finally:
        if lines:
            runner.write_results(
                path,
                program=experiment.program,
                command=f"holdfast bench {name} --size {size}",
                medium="dram",
                started=started,
                lines=lines,
                notes={"size": size},
            )
    return path


def measured(name: str, size: str, results: Path) -> Report:
    """Returns the results of an experiment, of the backend in use."""
    return Files(results, (holdfast.backend,)).report(results_name(name, size))


def _draw_policies(axes: Any, report: Report) -> None:
    lines = _of(report, "map_cache")
    exponent = lines[0]["exponent"]
    lines = [x for x in lines if x["batch"] == lines[-1]["batch"]]
    for policy, label in POLICIES.items():
        here = [x for x in lines if (x["policy"], x["exponent"]) == (policy, exponent)]
        shares = [100 * x["cache_share"] for x in here]
        axes[0].plot(shares, [x["million_per_s"] for x in here], marker="o", label=label)
        axes[1].plot(shares, [100 * (1 - x["miss_share"]) for x in here], marker="o", label=label)
    for axis, words in zip(axes, ("M lookups/s", "hits, %"), strict=True):
        axis.set(xlabel=f"cache, % of the rows (power law of {exponent:g})", ylabel=words)


def _draw_shapes(axes: Any, report: Report) -> None:
    for axis, kind in zip(axes, ("find", "insert"), strict=True):
        for line in _of(report, "map_shapes"):
            point = line["load_factor_at_first_failure"], line[f"{kind}_million_per_s"]
            axis.plot(*point, marker="o", label=line["shape"])
        axis.set(xlabel="load factor", ylabel=f"M {kind}s/s")


def _draw_grown(axes: Any, report: Report) -> None:
    for axis, what, ms in zip(
        axes, ("map_resize", "map_open"), ("resize_ms", "open_ms"), strict=True
    ):
        for directory in ("off", "on"):
            here = [x for x in _of(report, what) if x["directory"] == directory]
            here.sort(key=lambda line: int(line["pairs"]))
            points = [x["pairs"] for x in here], [x[ms] for x in here]
            axis.plot(*points, marker="o", label=f"directory {directory}")
        axis.set(xlabel="pairs", ylabel=f"ms ({what.removeprefix('map_')})")


def _draw_loads(axes: Any, report: Report) -> None:
    lines = _of(report, "map_cache_load")
    for exponent in dict.fromkeys(x["exponent"] for x in lines):
        here = [x for x in lines if x["exponent"] == exponent]
        rows = [x["rows"] for x in here]
        axes[0].plot(rows, [x["load_ms"] for x in here], marker="o", label=f"{exponent:g}")
        rates = [x["million_per_s_beside"] for x in here]
        axes[1].plot(rows, rates, marker="o", label=f"{exponent:g}")
    for axis, words in zip(axes, ("loaded in, ms", "M lookups/s meanwhile"), strict=True):
        axis.set(xlabel="rows of the cache", ylabel=words)


_DRAWN: dict[str, Callable[[Any, Report], None]] = {
    "gphash-fig11": _draw_policies,
    "gphash-fig13": _draw_shapes,
    "gphash-fig14": _draw_grown,
    "gphash-fig15": _draw_loads,
}


def draw(name: str, report: Report, path: Path) -> bool:
    """Draws the two panels of a figure; says whether there was anything to draw."""
    if not report.lines:
        return False
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    _DRAWN[name](axes, report)
    axes[0].legend(fontsize="xx-small")
    figure.suptitle(f"{name} ({report.where})", fontsize="medium")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True
