"""What is run for each figure and table.

Each experiment is a set of runs of workloads and of benchmark programs; results files hold their
lines, of which tables.py and figures.py are made.
"""

from __future__ import annotations

import datetime
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import holdfast
from holdfast import Error, workloads
from holdfast.workloads import Run

from .. import runner
from .results import (
    CHECKPOINTING,
    DELTA,
    GATHERING,
    LOGGING,
    NATIVE,
    PAPER_VARIANTS,
    REAL_NUMBERS,
    RIVAL_VARIANTS,
    SORTING,
    TITLES,
    TRANSACTIONAL,
    VARIANTS,
    Line,
    base,
    has_mode,
    results_name,
)

OnLine = Callable[[Line], None]
OnNote = Callable[[str], None]

ALL = tuple(TITLES)

# At size paper, fewer steps than the size says where a run would take beyond two minutes: for the
# oracle's 43 G prices of BLK, a CAP that copies 96 MB after each of 5,866 levels, GPUfs's calls,
# and what a CPU computes for long.
# The line says `fewer_steps`.
FEWER_STEPS = {"black_scholes": 5, "bfs_costs": 20}
FEWER_STEPS_IN = {
    "gpufs": {"gpkvs": 2, "gpkvs_95_5": 2, "black_scholes": 2, "hotspot": 2, "srad": 2},
    "cpu": {"lenet": 20, "black_scholes": 2, "hotspot": 2},
}  # fmt: skip
# Under a medium each step takes the medium's time: some are a median, and all would take minutes.
FEWER_STEPS_UNDER_A_MEDIUM = {
    "gpkvs_95_5": 10, "black_scholes": 2, "hotspot": 3, "srad": 3, "prefix_sum": 4
}  # fmt: skip
# More than the size says: one is no median.
MORE_STEPS = {"gpdb_update": 5}
# Thread counts that are tried for the modes in which the CPU persists: the best counts.
TRIED_THREADS = (1, 4, 8, 16)


@dataclass(frozen=True)
class Program:
    """A benchmark program, and what it is given."""

    name: str
    # On the CPU backend (a thread is a fiber: what takes a GPU milliseconds takes it minutes) and
    # at size test; and else.
    few: tuple[str, ...] = ()
    many: tuple[str, ...] = ()
    by_size: dict[str, tuple[str, ...]] | None = None  # instead of both; a results file for each
    absent: str = ""  # what is said where it was not built; empty: that is an error

    def arguments(self, size: str, backend: str) -> list[str]:
        """Returns what it is given."""
        if self.by_size:
            return list(self.by_size[size])
        return list(self.few if backend == "cpu" or size == "test" else self.many)

    def results(self, size: str) -> str:
        """Returns the name of its results file, without the backend's."""
        return f"{self.name}_{size}" if self.by_size else self.name


# The sizes real and paper are one to these: one file serves both, and GPM's figure 3 persists 1 GB.
PERSIST = Program("persist_bench", few=("--mib=16", "--repeat=3"), many=("--mib=1024",))
CAP = Program("cap_bench", few=("--mib=128", "--repeat=3"), many=("--mib=1024",))
LOGS = Program("log_bench", few=("--max_threads=16384", "--repeat=3"), many=("--repeat=9",))
ROCKSDB = Program(
    "rocksdb_kvs",
    by_size={
        "test": ("--batches=2", "--sets=1000"),
        "real": ("--batches=10", "--sets=50000", "--keys=200000"),
        "paper": ("--batches=3", "--sets=2000000", "--keys=33554432", "--min_threads=4"),
    },
    absent="rocksdb_kvs was not built, so figure 1a has no RocksDB: install librocksdb-dev "
    "(Debian: apt-get install librocksdb-dev), configure anew and build the target rocksdb_kvs",
)


@dataclass(frozen=True)
class Experiment:
    """What a figure or table needs."""

    name: str
    what: str
    names: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    logs: bool = False  # with each log
    restores: bool = False
    programs: tuple[Program, ...] = ()
    results: str = "gpm_modes"  # where its lines of modes go


EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment(
            "gpm-fig1a",
            "key-value stores: gpKVS against the CPU's",
            ("gpkvs",),
            ("cpu", "gpm"),
            programs=(ROCKSDB,),
        ),
        Experiment("gpm-fig1b", "native workloads against the CPU", NATIVE, ("cpu", "gpm")),
        Experiment(
            "gpm-fig3", "what threads of the CPU and of the GPU persist", programs=(CAP, PERSIST)
        ),
        Experiment(
            "gpm-fig9",
            "speedup over CAP-fs",
            (*ALL, *PAPER_VARIANTS),
            ("cap-fs", "cap-mm", *DELTA, "gpufs", "gpm"),
        ),
        Experiment(
            "gpm-fig10",
            "no direct persistence, and eADR",
            ALL,
            ("cap-fs", "cap-mm", *DELTA, "ndp", "gpm", "eadr", "cap-eadr"),
        ),
        # Beside the others, so that it can be measured without them: its results are its own.
        Experiment(
            "gpm-delta",
            "CAP that knows what changed, and all else that GPM is measured against",
            GATHERING,
            ("cap-fs", "cap-mm", "ndp", "cpu", *DELTA, "gpm"),
            results="gpm_delta",
        ),
        # Every mode in its best form: all of a workload's lines are of one run.
        Experiment(
            "gpm-rivals",
            "every rival in its best form",
            (*ALL, *RIVAL_VARIANTS),
            ("cap-fs", "cap-mm", "ndp", "cpu", *DELTA, "cap-log", "gpm"),
            results="gpm_rivals",
        ),
        Experiment(
            "gpm-fig11",
            "the coalesced log against the conventional one",
            LOGGING,
            logs=True,
            programs=(LOGS,),
        ),
        Experiment("gpm-fig12", "write bandwidth to the medium", ALL, ("gpm",)),
        Experiment("gpm-table4", "write amplification of CAP", ALL, ("cap-mm", "gpm")),
        Experiment(
            "gpm-table5", "restoration latency", TRANSACTIONAL + CHECKPOINTING, restores=True
        ),
    )
}


@dataclass(frozen=True)
class Settings:
    """How experiments are run."""

    results: Path
    size: str = "real"
    data: str | None = None  # folder of real inputs
    only: tuple[str, ...] = ALL  # workloads, or variants of them
    variants: bool = True  # of the workloads, too
    modes: tuple[str, ...] = workloads.MODES
    kills: int = 10
    verify: bool = True
    tried: tuple[int, ...] = TRIED_THREADS
    medium: str = "dram"
    programs: Path | None = None  # folder of the benchmark programs
    with_programs: bool = True

    def wants(self, name: str) -> bool:
        """Says whether a workload, or a variant of one, is measured."""
        return name in self.only or (self.variants and base(name) in self.only)

    def fewer_steps(self, name: str, mode: str) -> int:
        """Returns how many steps are measured where they are fewer than the size says, or 0."""
        if self.size != "paper":
            return 0
        few = FEWER_STEPS_IN.get(mode, {})
        if self.medium != "dram":
            few = {**FEWER_STEPS_UNDER_A_MEDIUM, **few}
        return few.get(base(name)) or FEWER_STEPS.get(name, 0)

    def run(self, name: str, mode: str) -> Run:
        """Returns what is run of a workload, or of a variant of one, in a mode."""
        options = VARIANTS[name][1] if name in VARIANTS else {}
        steps = self.fewer_steps(name, mode) or (
            MORE_STEPS.get(name, 0) if self.size == "paper" else 0
        )
        name = base(name)
        return Run(
            name,
            mode=mode,
            size=self.size,
            data=self.data,
            steps=steps,
            verify=self.verify,
            medium=self.medium,
            options=options,
        )


def medians(result: Line) -> Line:
    """Returns what a results file keeps of a run."""
    seconds = result["step_seconds"]
    steps = len(seconds)
    kept = {
        "workload": result["workload"],
        "mode": result["mode"],
        "input": result["input"],
        "cpu_threads": result["cpu_threads"],
        "steps": steps,
        "step_seconds": statistics.median(seconds),
        "persist_seconds": statistics.median(result["persist_seconds"]),
        "bytes_per_step": result["bytes_written"] / steps,
        "streamed_bytes_per_step": result.get("bytes_streamed", 0) / steps,
        "unchanged_bytes_per_step": result.get("bytes_unchanged", 0) / steps,
        "verified": result["verified"],
        "verified_by": result["verified_by"],
        "verify_seconds": result["verify_seconds"],
        "digest": result["digest"],
        "state": result["state"],
        "projection": result["mode"] in workloads.PROJECTIONS,
    }
    for name in ("kernel_access", "facts", "file_io"):
        if result.get(name):
            kept[name] = result[name]
    if result["medium"] != "dram":
        kept["medium"] = result["medium"]
        kept["medium_seconds"] = statistics.median(result["medium_seconds"])
    return kept


def _cost(line: Line) -> float:
    """Returns what is compared: of checkpointing workloads the checkpoint, as in the paper."""
    persists = line["workload"] in CHECKPOINTING
    return float(line["persist_seconds"] if persists else line["step_seconds"])


class States:
    """What runs end with that an oracle verified, by workload, input and steps.

    The oracle is asked once for each; what else ends must end with the same bits. They are kept
    beside the results, for the calls that measure other modes.
    """

    def __init__(self, settings: Settings, command: str) -> None:
        self._settings = settings
        self._command = command
        before = runner.measured_here(runner.results_path(settings.results, self._name()))
        self._lines: list[Line] = before["results"] if before else []

    def _name(self) -> str:
        return results_name("gpm_states", self._settings.size)  # whatever the medium

    @staticmethod
    def _key(what: Run) -> Line:
        # Whatever the options of modes are, a workload's result is the same; but the CPU's program
        # rounds in its own way where numbers are not whole.
        rounds = "cpu" if what.mode == "cpu" and what.workload in REAL_NUMBERS else "kernels"
        return {
            "workload": what.workload,
            "computed_by": rounds,
            "data": Path(what.data or "").name,  # no path of one machine
            "seed": what.seed,
            "steps_asked": what.steps,
        }

    def find(self, what: Run) -> str:
        """Returns the state that a run must end with; empty where no oracle has seen it yet."""
        key = self._key(what)
        for line in self._lines:
            if key.items() <= line.items():
                return str(line["state"])
        return ""

    def run(self, what: Run) -> Line:
        """Runs a workload and has its end verified, where that is wanted.

        Raises Error where it does not end as it should.
        """
        expect = self.find(what) if what.verify else ""
        result = workloads.run(replace(what, expect=expect))
        if not result["ok"]:
            raise Error(
                f"{what.workload} in mode {what.mode} ends with another result than it should: "
                f"{result['wrong']}",
                "damaged",
            )
        if result["verified_by"] == "oracle":
            kept = ("input", "mode", "steps", "state", "verify_seconds")
            line = {"benchmark": "gpm_states", **self._key(what), **{n: result[n] for n in kept}}
            self._lines.append({**line, "size": self._settings.size})
            runner.write_results(
                runner.results_path(self._settings.results, self._name()),
                program="holdfast-run",
                command=self._command,
                medium="dram",
                started=datetime.datetime.now(datetime.timezone.utc),
                lines=self._lines,
            )
        return result


def measure(
    what: Run,
    threads: Iterable[int],
    orders: bool = False,
    run_one: Callable[[Run], Line] = workloads.run,
) -> Line:
    """Runs a workload in a mode, with the number of CPU threads that serves the mode best.

    With `orders`, also with either order of what CAP-delta's threads store, where there are two.
    """
    if what.mode in ("gpm", "eadr", "gpufs"):
        threads = (0,)
    tried = [what]
    if orders and what.mode in DELTA and what.workload in SORTING:
        tried = [
            replace(what, options={**what.options, "changes": order})
            for order in ("gathered", "sorted")
        ]
    best: Line | None = None
    for count in threads:
        for run in tried:
            line = {**medians(run_one(replace(run, cpu_threads=count))), **run.options}
            if best is None or _cost(line) < _cost(best):
                best = line
    assert best is not None
    return {"benchmark": "gpm_modes", **best, "cost_seconds": _cost(best)}


@contextmanager
def _modules_loaded_at_start() -> Iterator[None]:
    """Has CUDA load kernels when a process starts, and not in the first launch, which recovers."""
    name = "CUDA_MODULE_LOADING"
    before = os.environ.get(name)
    os.environ[name] = "EAGER"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def measure_restore(
    what: Run, crashes: int, run_one: Callable[[Run], Line] = workloads.run
) -> Line:
    """Takes the longest of some recoveries, against the time of the usual run.

    As in the paper a process dies in the last step just before that commits, where most is to be
    undone; the next one recovers, does the step, and must end as the usual run does.
    """
    with _modules_loaded_at_start():
        usual = run_one(what)
        operation = sum(usual["step_seconds"])
        recoveries = [_restore(what, usual) for _ in range(crashes)]
    return {
        "benchmark": "gpm_restores",
        "workload": what.workload,
        "input": usual["input"],
        "steps": usual["steps"],
        "kills": crashes,
        "crashed": "before the commit",
        "wrong": 0,
        "verified": usual["verified"],
        "recoveries": len(recoveries),
        "recovery_seconds": max(recoveries),
        "operation_seconds": operation,
        "share": max(recoveries) / operation,
    }


def _restore(what: Run, usual: Line) -> float:
    last = int(usual["steps"])
    with tempfile.TemporaryDirectory(prefix="holdfast-restore-") as folder:
        region = Path(folder) / "region"
        try:
            with workloads.Process(replace(what, verify=False, die_in_step=last), region) as dying:
                dying.wait_ready()
                if dying.wait_done() is not None:
                    raise Error(f"{what.workload} did not die in step {last}", "io")
            again = workloads.run(replace(what, verify=False), region)
        finally:
            workloads.remove(region)
    if again["first_step"] != last - 1 or again["digest"] != usual["digest"]:
        raise Error(
            f"{what.workload}, recovered from a crash in step {last}, goes on with step "
            f"{again['first_step'] + 1} and ends with {again['digest']}, not {usual['digest']}",
            "damaged",
        )
    return float(again["recovery_seconds"])


def write(
    name: str,
    command: str,
    lines: list[Line],
    settings: Settings,
    notes: Line | None = None,
) -> Path:
    """Adds lines to a results file; those of the same workload, mode, log and size are replaced."""
    return runner.add_results(
        runner.results_path(settings.results, results_name(name, settings.size, settings.medium)),
        _key,
        program="holdfast-run",
        command=command,
        medium=settings.medium,
        started=datetime.datetime.now(datetime.timezone.utc),
        lines=lines,
        notes=notes,
    )


def _key(line: Line) -> tuple[object, ...]:
    return tuple(line.get(name) for name in ("workload", "mode", "log", "size"))


def _check_ends(lines: list[Line]) -> None:
    """Raises Error where the last line's run ends with another result than one of another mode.

    The CPU's program may round in another way than a GPU's kernels: its end is not compared.
    """
    last = lines[-1]
    for line in lines[:-1]:
        same_run = all(line[name] == last[name] for name in ("workload", "input", "steps"))
        if not same_run or "cpu" in (line["mode"], last["mode"]):
            continue
        if line["digest"] != last["digest"]:
            raise Error(
                f"{last['workload']} ends with another result in mode {last['mode']} "
                f"({last['digest']}) than in mode {line['mode']} ({line['digest']})",
                "damaged",
            )


class _Session:
    """Runs what some experiments need, each run once, and writes it as it comes."""

    def __init__(
        self, experiments: list[Experiment], settings: Settings, on_line: OnLine, on_note: OnNote
    ) -> None:
        self._experiments = experiments
        self._settings = settings
        self._on_line = on_line
        self._on_note = on_note
        names = " ".join(e.name for e in experiments)
        self._command = f"holdfast bench {names} --size {settings.size}"
        if settings.medium != "dram":
            self._command += f" --medium {settings.medium}"
        self.written: dict[Path, None] = {}
        self._states = States(settings, self._command)

    def run(self) -> list[Path]:
        if self._settings.with_programs and self._settings.medium == "dram":
            programs = {p.name: p for e in self._experiments for p in e.programs}
            for program in programs.values():
                self._run_program(program)
        self._run_modes()
        self._run_logs()
        self._run_restores()
        return list(self.written)

    def _find(self, name: str) -> Path:
        """Returns a benchmark program. Raises Error where there is none."""
        for path in runner.programs(self._settings.programs, holdfast.backend):
            if path.name == name:
                return path
        raise Error(
            f"there is no benchmark program {name}: build it, or name its folder with --programs",
            "not_found",
        )

    def _run_program(self, program: Program) -> None:
        try:
            path = self._find(program.name)
        except Error:
            if not program.absent:
                raise
            self._on_note(program.absent)
            return
        size = self._settings.size
        written = runner.run(
            path,
            program.arguments(size, holdfast.backend),
            self._settings.results,
            self._on_line,
            program.results(size),
        )
        self.written[written] = None

    def _link(self) -> Line:
        """Measures the copy engine, for results that are set beside it."""
        if self._settings.size == "test" or self._settings.medium != "dram":
            return {}
        try:
            program = self._find("cap_bench")
        except Error:
            return {}
        (line,) = runner.measured(program, ["--only_link=1"])
        return {"copy_engine_gb_per_s": line["gb_per_s"]}

    def _keep(self, name: str, lines: list[Line], line: Line, notes: Line | None = None) -> None:
        lines.append({**line, "size": self._settings.size})
        self._on_line(lines[-1])
        self.written[write(name, self._command, lines, self._settings, notes)] = None

    def _run_modes(self) -> None:
        for results in dict.fromkeys(e.results for e in self._experiments):
            self._run_modes_for(results)

    def _run_modes_for(self, results: str) -> None:
        settings = self._settings
        pairs = dict.fromkeys(
            (name, mode)
            for e in self._experiments
            if e.results == results
            for name in e.names
            for mode in e.modes
            if settings.wants(name)
            and mode in settings.modes
            and has_mode(name, mode)
            and not (mode in DELTA and name in PAPER_VARIANTS)
        )
        lines: list[Line] = []
        notes = self._link() if pairs else {}
        for name, mode in sorted(pairs, key=lambda pair: ALL.index(base(pair[0]))):
            orders = results == "gpm_rivals"
            run = settings.run(name, mode)
            line = {**measure(run, settings.tried, orders, self._states.run), "workload": name}
            if settings.fewer_steps(name, mode):
                line["fewer_steps"] = True
            self._keep(results, lines, line, notes)
            _check_ends(lines)

    def _run_logs(self) -> None:
        lines: list[Line] = []
        for name in dict.fromkeys(n for e in self._experiments if e.logs for n in e.names):
            if name not in self._settings.only:
                continue
            for log in ("conventional", "coalesced"):
                what = self._settings.run(name, "gpm")
                what = replace(what, options={**what.options, "log": log})
                line = {**measure(what, (0,), run_one=self._states.run), "benchmark": "gpm_logs"}
                self._keep("gpm_logs", lines, line)

    def _run_restores(self) -> None:
        lines: list[Line] = []
        failed: list[str] = []
        for name in dict.fromkeys(n for e in self._experiments if e.restores for n in e.names):
            if name not in self._settings.only:
                continue
            what = self._settings.run(name, "gpm")
            try:
                restored = measure_restore(what, self._settings.kills, self._states.run)
                self._keep("gpm_restores", lines, restored)
            except Error as error:
                failed.append(str(error))  # the others are worth having
        if failed:
            raise Error("; ".join(failed), "io")


def run(
    experiments: list[Experiment],
    settings: Settings,
    on_line: OnLine = lambda line: None,
    on_note: OnNote = lambda note: None,
) -> list[Path]:
    """Runs what some experiments need, each run once; returns the results files."""
    return _Session(experiments, settings, on_line, on_note).run()
