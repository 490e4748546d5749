"""The experiments of GPHash (FAST '25), of the map's rivals: what is run, tables, figures.

map_rivals_bench runs workloads for contestants. An experiment is a list of its command lines, which
run one behind the other, contestant by contestant.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import holdfast
from holdfast import Error

from . import runner
from .gpm.results import Line, Report
from .gpm.results import Results as Files
from .gpm.tables import table
from .plots import pyplot

PROGRAM = "map_rivals_bench"
CONTESTANTS = {
    "holdfast": "Holdfast",
    "holdfast-no-directory": "Holdfast without its directory",
    "holdfast-log": "Holdfast's log map",
    "slabhash-gpm": "SlabHash-GPM",
    "clevel-gpm": "Clevel-GPM",
    "cpu-assisted": "CPU-assisted",
    "volatile": "volatile, in GPU memory",
}
MICRO = ("search-present", "search-absent", "update", "insert", "erase")
MACRO = ("a", "b", "c", "f", "d", "load")
FITTED = ("dlrm", "pagerank")
BATCHES = tuple(1 << bits for bits in (12, 14, 16, 18, 20))
DEFAULT_BATCH = 1 << 12
CURVE_BATCH = 1 << 14  # insertions between two load factors
FORMS = ("given", "ordered")  # of a contestant's batches
KEY_BYTES = (8, 16, 32, 64, 128)
RIVALS_KEY_BYTES = (8, 32)  # of contestants that are not the map of this project
# Of those that are.
OUR_KEY_BYTES = {"holdfast": KEY_BYTES, "holdfast-no-directory": KEY_BYTES, "holdfast-log": (8,)}
ORDERS_BY_ITSELF = "holdfast-log"
SKEWS = (0, 0.5, 0.8, 0.9, 0.99, 1.1, 1.2)  # theta
# Of the keys: what the first levels of a map that grows are made for.
FIRST_SHARE = 1 / 64


@dataclass(frozen=True)
class Size:
    """Keys that are loaded, and operations of each run."""

    keys: int
    micro: int
    macro: int
    batches: tuple[int, ...] = BATCHES


SIZES = {
    "tiny": Size(2_000, 1_000, 1_000, (256, 512)),
    "quarter": Size(4_000_000, 4_000_000, 16_000_000),
    "paper": Size(16_000_000, 16_000_000, 64_000_000),
}


@dataclass(frozen=True)
class Settings:
    """How experiments are run."""

    results: Path
    size: str = "paper"
    contestants: tuple[str, ...] = tuple(CONTESTANTS)
    distribution: str = "scrambled"  # YCSB's own
    threads: int = 16
    seconds: int = 20  # no run is longer
    minutes: float | None = None  # no command line begins later
    program: Path | None = None
    # Of what an experiment has: nothing stands for all.
    batches: tuple[int, ...] = ()
    operations: int | None = None
    workloads: tuple[str, ...] = ()
    forms: str = ""  # given, ordered
    add: bool = False  # to what the results file has of this commit


Arguments = dict[str, str | int]


def _sweep(key_bytes: int) -> Callable[[Size], Iterator[Arguments]]:
    def runs(size: Size) -> Iterator[Arguments]:
        batches = ",".join(map(str, size.batches))
        # Those that leave the same keys there on one map, which has room for no more of them.
        for workloads, operations in (
            (MICRO[:-2] + MICRO[-1:], size.micro),
            (MICRO[-2:-1], size.micro),
            (MACRO[:-1], size.macro),
            (MACRO[-1:], size.macro),
        ):
            yield {
                "workloads": ",".join(workloads),
                "batches": batches,
                "operations": operations,
                "key_bytes": key_bytes,
            }

    return runs


def _fig7(size: Size) -> Iterator[Arguments]:
    yield {
        "workloads": "load",
        "batches": min(CURVE_BATCH, size.keys // 8),
        "operations": size.keys,
        "first_keys": max(1, int(size.keys * FIRST_SHARE)),
        "ordered": 0,
        "curve": 1,
    }


def _fig8(size: Size) -> Iterator[Arguments]:
    for log in (1, 0):
        yield {
            "workloads": ",".join((*MICRO, *MACRO)),
            "batches": min(DEFAULT_BATCH, size.batches[0]),
            "operations": size.micro,
            "ordered": 0,
            "log": log,
        }


def _fig9(size: Size) -> Iterator[Arguments]:
    for run in _sweep(8)(size):
        if set(str(run["workloads"]).split(",")) <= set(MICRO):
            yield {**run, "batches": size.batches[-1]}


def _fig10(size: Size) -> Iterator[Arguments]:
    yield {
        "workloads": ",".join(FITTED),
        "batches": ",".join(map(str, size.batches)),
        "operations": size.micro,
        # The columns of DLRM that do not grow have some hundreds of keys.
        "keys": max(size.keys, 200_000),
    }


def _fig12a(size: Size) -> Iterator[Arguments]:
    for key_bytes in KEY_BYTES:
        yield {
            "workloads": "c",
            "batches": min(DEFAULT_BATCH, size.batches[0]),
            "operations": size.micro,
            "key_bytes": key_bytes,
        }


def _fig12(size: Size) -> Iterator[Arguments]:
    yield {
        "workloads": "c",
        "batches": min(DEFAULT_BATCH, size.batches[0]),
        "operations": size.micro,
        "distribution": "zipf",
        "thetas": ",".join(map(str, SKEWS)),
    }


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper."""

    what: str
    runs: Callable[[Size], Iterator[Arguments]]
    contestants: tuple[str, ...] = tuple(CONTESTANTS)


EXPERIMENTS = {
    "gphash-fig5": Experiment("throughput and latency, keys of 8 bytes", _sweep(8)),
    "gphash-fig6": Experiment(
        "throughput and latency, keys of 32 bytes",
        _sweep(32),
    ),
    "gphash-fig7": Experiment(
        "load factor behind every 2^14 insertions",
        _fig7,
        ("holdfast", "slabhash-gpm", "clevel-gpm"),
    ),
    "gphash-fig8": Experiment("what a batch's time goes to", _fig8, tuple(CONTESTANTS)[:-1]),
    "gphash-fig9": Experiment(
        "what our map's directory and its ordering bring, and a log for its index",
        _fig9,
        tuple(OUR_KEY_BYTES),
    ),
    "gphash-fig10": Experiment("DLRM and PageRank, by fitted generators", _fig10),
    "gphash-fig12a": Experiment("the size of YCSB C's keys", _fig12a),
    "gphash-fig12": Experiment("the skewness of YCSB C's keys, which are Zipf's", _fig12),
}


def results_name(name: str, size: str) -> str:
    """Returns the name of an experiment's results file."""
    return f"{name.replace('-', '_')}_{size}"


def _takes_part(contestant: str, run: Arguments) -> bool:
    if run.get("log") == 0 and contestant != "slabhash-gpm":
        return False  # no other has one
    return run.get("key_bytes", 8) in OUR_KEY_BYTES.get(contestant, RIVALS_KEY_BYTES)


def _command_lines(name: str, settings: Settings) -> Iterator[list[str]]:
    experiment, size = EXPERIMENTS[name], SIZES[settings.size]
    if settings.operations is not None:
        size = replace(size, micro=settings.operations, macro=settings.operations)
    size = replace(size, batches=settings.batches or size.batches)
    for contestant in settings.contestants:
        if contestant not in experiment.contestants:
            continue
        for run in experiment.runs(size):
            if not _takes_part(contestant, run):
                continue
            given: Arguments = {
                "contestants": contestant,
                "keys": size.keys,
                "distribution": settings.distribution,
                "threads": settings.threads,
                "seconds": settings.seconds,
                **run,
            }
            if settings.forms:
                given["ordered"] = FORMS.index(settings.forms)
            if contestant == ORDERS_BY_ITSELF:
                given["ordered"] = FORMS.index("ordered")
            if settings.workloads:
                of_run = str(given["workloads"]).split(",")
                asked = [one for one in of_run if one in settings.workloads]
                if not asked:
                    continue
                given["workloads"] = ",".join(asked)
            yield [f"--{option}={value}" for option, value in given.items()]


def _command(name: str, settings: Settings) -> str:
    """Returns the call, but for the part of an experiment that it was for."""
    given = f"holdfast bench {name} --size {settings.size} --distribution {settings.distribution}"
    if settings.operations is not None:
        given += f" --operations {settings.operations}"
    if settings.batches:
        given += f" --batches {','.join(map(str, settings.batches))}"
    for option in ("threads", "seconds"):
        value = getattr(settings, option)
        if value != getattr(Settings, option):
            given += f" --{option} {value}"
    return given


_CELL = ("contestant", "form", "logged", "workload", "drawn_from", "theta", "key_bytes", "batch")


def _of_before(path: Path, lines: list[Line]) -> list[Line]:
    """Returns what the file has of this commit and machine and was not measured again."""
    before = runner.measured_here(path)
    if before is None:
        return []
    again = {tuple(line.get(part) for part in _CELL) for line in lines}
    return [one for one in before["results"] if tuple(map(one.get, _CELL)) not in again]


def run(
    name: str, settings: Settings, on_line: Callable[[Line], None], note: Callable[[str], None]
) -> Path:
    """Runs an experiment, writes its results file, and returns that.

    Raises Error where a contestant fails or gives a wrong value back; what was measured is kept.
    """
    program = settings.program or runner.tree_program(PROGRAM)
    started = datetime.datetime.now(datetime.timezone.utc)
    clock = time.monotonic()
    path = runner.results_path(settings.results, results_name(name, settings.size))
    lines: list[Line] = []
    left = 0
    try:
        for arguments in _command_lines(name, settings):
            if settings.minutes is not None and time.monotonic() - clock > 60 * settings.minutes:
                left += 1
                continue
            for line in runner.measured(program, arguments):
                lines.append({**line, "logged": "--log=0" not in arguments})
                on_line({k: v for k, v in line.items() if not isinstance(v, list)})
    finally:
        if lines:
            if settings.add:
                lines = _of_before(path, lines) + lines
            runner.write_results(
                path,
                program=PROGRAM,
                command=_command(name, settings),
                medium="dram",
                started=started,
                lines=lines,
                notes={"size": settings.size},
            )
    if not lines:
        raise Error(f"{name}: nothing was measured", "not_found")
    if left:
        note(f"{name}: {left} command lines were left for lack of time")
    return path


def title(line: Line) -> str:
    """Returns what tables call a contestant in one of its forms."""
    name = f"{CONTESTANTS.get(line['contestant'], line['contestant'])}, {line['form']}"
    return name if line.get("logged", True) else f"{name}, without its log"


def _of(report: Report, workload: str) -> list[Line]:
    return [line for line in report.lines if line["workload"] == workload]


def _workloads(report: Report) -> list[str]:
    return list(dict.fromkeys(line["workload"] for line in report.lines))


def throughputs(report: Report) -> str:
    """Returns a table of each workload: M operations/s (µs a batch) by batch."""
    parts = []
    for workload in _workloads(report):
        lines = _of(report, workload)
        batches = sorted({line["batch"] for line in lines})
        rows: list[list[object]] = []
        for name in dict.fromkeys(map(title, lines)):
            cells = {line["batch"]: line for line in lines if title(line) == name}
            shown = [
                f"{cells[b]['million_operations_per_s']:.3g} ({cells[b]['batch_us']:,.0f})"
                if b in cells
                else ""
                for b in batches
            ]
            rows.append([name, *shown])
        keys = lines[0]["keys"]
        head = f"{workload} ({lines[0]['drawn_from']}, {keys:,} keys), M operations/s (µs a batch)"
        parts.append(f"{head}\n\n{table(['', *(f'{b:,}' for b in batches)], rows)}")
    return "\n\n".join(parts)


def load_factors(report: Report) -> str:
    """Returns the table of load factors."""
    rows: list[list[object]] = []
    for line in report.lines:
        factors = line["load_factors"]
        rows.append([title(line), f"{max(factors):.3f}", f"{factors[-1]:.3f}", line["no_room"]])
    return table(["", "highest load factor", "at the end", "keys without a place"], rows)


def _rates_by(report: Report, field: str, name_of_field: str) -> str:
    values = sorted({line[field] for line in report.lines})
    rows: list[list[object]] = []
    for name in dict.fromkeys(map(title, report.lines)):
        rates = {
            line[field]: f"{line['million_operations_per_s']:.3g}"
            for line in report.lines
            if title(line) == name
        }
        rows.append([name, *(rates.get(value, "") for value in values)])
    return table([f"M operations/s, {name_of_field}", *(f"{value:g}" for value in values)], rows)


def skews(report: Report) -> str:
    """Returns the table of M operations/s by theta."""
    return _rates_by(report, "theta", "theta")


def key_sizes(report: Report) -> str:
    """Returns the table of M operations/s by the bytes of a key."""
    return _rates_by(report, "key_bytes", "bytes of a key")


PARTS = ("order", "to_cpu", "to_gpu", "operations", "commit")


def shares(report: Report) -> str:
    """Returns the table of what a batch's time goes to.

    What a log takes is the difference to a run without it, of the same contestant.
    """
    rows: list[list[object]] = []
    for line in report.lines:
        if not line["logged"]:
            continue
        without = [
            other["mean_us"]
            for other in report.lines
            if not other["logged"]
            and all(other[k] == line[k] for k in ("contestant", "form", "workload", "batch"))
        ]
        mean = line["mean_us"]
        measured = [f"{100 * line[f'{part}_us'] / mean:.1f} %" for part in PARTS]
        log = f"{100 * (1 - without[0] / mean):.1f} %" if without else ""
        rows.append([title(line), line["workload"], f"{mean:,.0f}", *measured, log])
    header = ["", "workload", "µs a batch", *(p.replace("_", " ") for p in PARTS), "of it the log"]
    return table(header, rows)


def factors(report: Report) -> str:
    """Returns the table of M operations/s by form, and of how many times the first one's."""
    names = sorted(dict.fromkeys(map(title, report.lines)), key=lambda name: "without" not in name)
    workloads = _workloads(report)
    rates = {(title(line), line["workload"]): line["million_operations_per_s"]
             for line in report.lines}  # fmt: skip

    def cell(name: str, workload: str) -> str:
        rate, first = rates.get((name, workload)), rates.get((names[0], workload))
        if rate is None:
            return ""
        return f"{rate:.3g}" if first is None else f"{rate:.3g} ({rate / first:.2f}x)"

    rows: list[list[object]] = [[name, *(cell(name, one) for one in workloads)] for name in names]
    return table(["M operations/s", *workloads], rows)


TABLES: dict[str, Callable[[Report], str]] = {
    "gphash-fig5": throughputs,
    "gphash-fig6": throughputs,
    "gphash-fig7": load_factors,
    "gphash-fig8": shares,
    "gphash-fig9": factors,
    "gphash-fig10": throughputs,
    "gphash-fig12a": key_sizes,
    "gphash-fig12": skews,
}


def measured(name: str, settings: Settings) -> Report:
    """Returns the results of an experiment, of the backend in use."""
    files = Files(settings.results, (holdfast.backend,))
    return files.report(results_name(name, settings.size))


_CURVE = {
    "xlabel": "M operations/s",
    "ylabel": "µs a batch",
    "xscale": "log",
    "yscale": "log",
}
_AXES: dict[str, dict[str, object]] = {
    "gphash-fig7": {"xlabel": "keys", "ylabel": "load factor", "ylim": (0, 1)},
    "gphash-fig12a": {"xlabel": "bytes of a key", "ylabel": "M operations/s"},
    "gphash-fig12": {"xlabel": "theta", "ylabel": "M operations/s"},
}


def _points(name: str, lines: list[Line]) -> tuple[list[float], list[float]]:
    """Returns a contestant's curve: throughput and latency, or what else a figure shows."""
    rates = [line["million_operations_per_s"] for line in lines]
    if name == "gphash-fig7":
        factors = lines[0]["load_factors"]
        return [lines[0]["batch"] * (i + 1) for i in range(len(factors))], factors
    if name == "gphash-fig12a":
        return [line["key_bytes"] for line in lines], rates
    if name == "gphash-fig12":
        return [line["theta"] for line in lines], rates
    return rates, [line["batch_us"] for line in lines]


def draw(name: str, report: Report, path: Path) -> bool:
    """Draws throughput over latency, or load factors; says whether there was anything to draw."""
    if not report.lines or name in ("gphash-fig8", "gphash-fig9"):
        return False
    plt = pyplot()
    panels = _workloads(report)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.4 * columns, 3.2 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, workload in zip(axes.flat, panels, strict=False):
        lines = _of(report, workload)
        for label in dict.fromkeys(map(title, lines)):
            here = [line for line in lines if title(line) == label]
            better = "ordered" in label or "gathered" in label
            axis.plot(*_points(name, here), linestyle=":" if better else "-", label=label)
        axis.set(**_AXES.get(name, _CURVE))
        axis.set_title(workload, fontsize="small")
    axes.flat[0].legend(fontsize="xx-small")
    figure.suptitle(f"{name} ({report.where})", fontsize="medium")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True
