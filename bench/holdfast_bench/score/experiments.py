"""What is run for each figure: cells, each one shot of one store.

A cell is a word, STORE/SIZES/ORDER/HINTS/WAIT[/SETTING=VALUE...], as score_bench takes it; adios
and dcp are stores that programs of this package drive. All have the same schedule and intervals.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast import Error

from .. import runner
from ..gpm.results import Line
from ..kept import ROOT
from .results import results_name

OnLine = Callable[[Line], None]
OnNote = Callable[[str], None]

ORDERS = ("sequential", "reverse", "irregular")
HINTS = ("none", "single", "all")
TABLE_1 = (("history", HINTS), ("pager", HINTS), ("buffers", ("all",)), ("adios", ("none",)),
           ("dcp", ("none",)))  # fmt: skip
SCRIPTS = {
    "adios": ("adios2", "ADIOS2 is not installed, so it is left out: pip install adios2"),
    "dcp": ("torch", "PyTorch is not installed, so its checkpoints are left out"),
}


@dataclass(frozen=True)
class Size:
    """A scale of the shots."""

    snapshots: int
    bytes: int  # of a uniform snapshot
    page_bytes: int
    gpu_bytes: int
    host_bytes: int
    interval_us: int

    def arguments(self) -> list[str]:
        """Returns what score_bench is given."""
        return [f"--{name}={value}" for name, value in vars(self).items()]


SIZES = {
    # Of tests: it says that everything works, and nothing of speed.
    "tiny": Size(24, 1 << 20, 1 << 16, 4 << 20, 16 << 20, 500),
    "quarter": Size(384, 32 << 20, 2 << 20, 1 << 30, 8 << 30, 2_500),
    "paper": Size(384, 128 << 20, 2 << 20, 4 << 30, 32 << 30, 10_000),
}


@dataclass(frozen=True)
class Experiment:
    """What a figure needs: cells as a function of the size, each with its number of ranks."""

    name: str
    what: str
    cells: Callable[[Size, int], Iterable[tuple[str, int]]]
    is_figure: bool = True


def _table_1(wait: str) -> Callable[[Size, int], Iterator[tuple[str, int]]]:
    def cells(_size: Size, _gpus: int) -> Iterator[tuple[str, int]]:
        for sizes in ("uniform", "variable"):
            for order in ORDERS:
                # Those that a ratio is made of run one behind the other.
                for hints in HINTS:
                    for store, given in TABLE_1:
                        if hints in given:
                            yield f"{store}/{sizes}/{order}/{hints}/{wait}", 1

    return cells


def _fig7(_size: Size, _gpus: int) -> Iterator[tuple[str, int]]:
    for hints in HINTS:
        for store in ("history", "pager"):
            yield f"{store}/uniform/sequential/{hints}/nowait", 1


def _fig8(size: Size, _gpus: int) -> Iterator[tuple[str, int]]:
    variations = [f"interval_us={times * size.interval_us}" for times in (1, 2, 3)]
    variations += [f"gpu_bytes={times * size.gpu_bytes}" for times in (2, 4)]
    for variation in variations:
        for hints in ("none", "all"):
            for store in ("history", "pager"):
                yield f"{store}/variable/irregular/{hints}/nowait/{variation}", 1
        yield f"adios/variable/irregular/none/nowait/{variation}", 1


def _fig9(_size: Size, gpus: int) -> Iterator[tuple[str, int]]:
    for ranks in (1, 2, 4, 8):
        if ranks > max(1, gpus):
            break
        yield "together", ranks
        for coupled in (0, 1):
            for hints in HINTS:
                for store in ("history", "pager"):
                    yield f"{store}/variable/irregular/{hints}/nowait/coupled={coupled}", ranks


def _fits(size: Size, _gpus: int) -> Iterator[tuple[str, int]]:
    room = f"host_bytes={size.snapshots * size.bytes * 5 // 4}"
    for hints in ("all", "none"):
        for store in ("history", "pager"):
            for setting in (room, f"host_bytes={size.host_bytes}"):
                yield f"{store}/variable/irregular/{hints}/wait/{setting}", 1


def _costs(_size: Size, _gpus: int) -> Iterator[tuple[str, int]]:
    for word in ("copies", "host", "eviction", "slowdown"):
        yield word, 1


EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment("score-fig5", "throughput, waiting for flushes between the passes",
                   _table_1("wait")),
        Experiment("score-fig6", "throughput, restoring at once", _table_1("nowait")),
        Experiment("score-fig7", "rate and prefetch distance by iteration", _fig7),
        Experiment("score-fig8", "intervals and sizes of the GPU's cache", _fig8),
        Experiment("score-fig9", "several GPUs, coupled and not", _fig9),
        Experiment("score-fits", "a shot that the caches hold, and one that they do not", _fits,
                   is_figure=False),
        Experiment("score-costs", "beside plain copies; the host's time, what kernels lose",
                   _costs, is_figure=False),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How experiments are run."""

    results: Path
    size: str = "quarter"
    disk: Path | None = None  # a folder for checkpoints; None: a temporary one
    compute: str = "sleep"
    seed: int = 1
    gpus: int = 1
    only: tuple[str, ...] = ()  # stores; none: all
    having: str = ""  # cells have this text
    program: Path | None = None
    minutes: float | None = None  # no cell begins later
    resume: bool = False  # cells that the results file has are not run again


def cells_of(name: str, settings: Settings) -> list[tuple[str, int]]:
    """Returns an experiment's cells, and the ranks of each."""
    size = SIZES[settings.size]
    found = EXPERIMENTS[name].cells(size, settings.gpus)
    return [
        (cell, ranks)
        for cell, ranks in found
        if settings.having in cell
        and (not settings.only or "/" not in cell or cell.split("/")[0] in settings.only)
    ]


def _program(settings: Settings) -> Path:
    program = settings.program or ROOT / "build" / holdfast.backend / "bench" / "score_bench"
    if not program.is_file():
        raise Error(
            f"{program} is not there: build it (cmake --build --preset {holdfast.backend} "
            "--target score_bench), or name it with --program",
            "not_found",
        )
    return program


def _batches(cells: list[tuple[str, int]]) -> Iterator[tuple[str, int, list[str]]]:
    """Yields runs of neighbours that one process can do: kind of program, ranks, cells."""
    batch: list[str] = []
    now: tuple[str, int] | None = None
    for cell, ranks in cells:
        store = cell.split("/")[0]
        kind = (store if store in SCRIPTS else "score_bench", ranks)
        if now is not None and kind != now:
            yield *now, batch
            batch = []
        now = kind
        batch.append(cell)
    if now is not None:
        yield *now, batch


def _commands(
    settings: Settings, cells: list[tuple[str, int]], disk: Path, note: OnNote
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yields programs, their arguments before the cells, and the cells."""
    common = [*SIZES[settings.size].arguments(), f"--disk={disk}", f"--seed={settings.seed}"]
    missing = set()
    for kind, ranks, batch in _batches(cells):
        if kind not in SCRIPTS:
            more = [f"--compute={settings.compute}", f"--ranks={ranks}", f"--gpus={settings.gpus}"]
            yield _program(settings), [*common, *more], batch
            continue
        module, why = SCRIPTS[kind]
        if importlib.util.find_spec(module) is None:
            if kind not in missing:
                note(why)
            missing.add(kind)
            continue
        script = ["-m", f"holdfast_bench.score.{kind}", f"--program={_program(settings)}"]
        yield Path(sys.executable), [*script, *common], batch


def _key(line: Line) -> tuple[object, ...]:
    names = ("cell", "call", "path", "fragments", "kernel")
    what = next((line[name] for name in names if name in line), None)
    return (line["benchmark"], what, line.get("ranks", 1), line.get("rank", 0))


def _kept(path: Path, settings: Settings) -> list[Line]:
    """Returns the lines of the results file that a run may go on from."""
    if not settings.resume or not path.is_file():
        return []
    report = json.loads(path.read_text())
    here = (runner.commit(), runner.machine())
    if (report["commit"], report["machine"]) != here:
        raise Error(
            f"{path} is of another commit or machine, which one run cannot be made of: "
            "run without --resume, and it is written anew"
        )
    return list(report["results"])


def _small(line: Line) -> Line:
    """Drops what each iteration took, but where a figure shows it."""
    if line.get("cell", "").split("/")[1:3] == ["uniform", "sequential"]:
        return line
    return {k: v for k, v in line.items() if not isinstance(v, list)}


def run(name: str, settings: Settings, on_line: OnLine, note: OnNote) -> Path:
    """Runs an experiment's cells, writes its results file, and returns that.

    Raises Error where a store fails or gives a wrong byte back; what was measured is kept.
    """
    path = runner.results_path(settings.results, results_name(name, settings.size))
    started = datetime.datetime.now(datetime.timezone.utc)
    lines = _kept(path, settings)
    done = {(line["cell"], line["ranks"]) for line in lines if "cell" in line}
    cells = [pair for pair in cells_of(name, settings) if pair not in done]
    clock = time.monotonic()
    late = False

    def take(line: Line) -> None:
        lines[:] = [other for other in lines if _key(other) != _key(line)]
        lines.append(_small(line))
        on_line({k: v for k, v in line.items() if not isinstance(v, list)})

    with tempfile.TemporaryDirectory(dir=settings.disk, prefix="holdfast-score-") as folder:
        try:
            for program, arguments, batch in _commands(settings, cells, Path(folder), note):
                if settings.minutes is not None:
                    left = 60 * settings.minutes - (time.monotonic() - clock)
                    if left < 1:
                        late = True
                        break
                    arguments.append(f"--seconds={int(left)}")
                for line in runner.measured(program, [*arguments, *batch]):
                    take(line)
                # A program that was stopped by the time it had leaves cells of its own.
                seen = {line.get("cell") for line in lines}
                late |= any("/" in cell and cell not in seen for cell in batch)
        finally:
            if lines:
                runner.write_results(
                    path,
                    program="score_bench",
                    command=f"holdfast bench {name} --size {settings.size}",
                    medium="dram",
                    started=started,
                    lines=lines,
                    notes={"size": settings.size},
                )
    if not lines:
        raise Error(f"{name}: nothing was measured", "not_found")
    if late:
        measured = {(line["cell"], line["ranks"]) for line in lines if "cell" in line}
        count = sum(pair not in measured for pair in cells)
        note(f"{name}: {count} cells are left: the same command with --resume runs them")
    return path
