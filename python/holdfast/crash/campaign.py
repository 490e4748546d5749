"""Sends batches to a worker, kills it, and holds what it finds after against an oracle."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import _region
from .._errors import Error
from ..arena import choose_arena
from .apps import App, Batch, Table
from .plan import WARM_UP, Kill, make_plan
from .process import WorkerProcess

_MAX_RESENDS = 50
# What a step costs whatever its size, in operations: only the aim of kills depends on it.
_FIXED_COST = 256
# A transaction is waited for without pauses after this part of the shortest time that one took to
# come.
_OF_LEAD = 0.7


@dataclass
class Options:
    kills: int = 25
    seed: int = 1
    folder: str | None = None  # of the region's file; None: a temporary one
    arena_folder: str | None = None  # of its shared memory; None: chosen by size
    worker_command: list[str] | None = None  # for tests: another program to kill


@dataclass
class Event:
    """Something that a display may want to show."""

    kind: str  # "batch", "kill", "verified" or "image"
    detail: str = ""


@dataclass
class Result:
    """What a campaign counted. `ok` is what it claims."""

    app: str
    seed: int
    backend: str = ""
    device: str = ""
    arena_folder: str = ""
    guarantee: str = ""
    batches: int = 0  # in the workload
    sent: int = 0  # batches sent, those sent again after a crash included
    acknowledged: int = 0  # batches
    found_whole: int = 0  # batches that a kill kept from being acknowledged, found whole
    found_absent: int = 0  # and found absent; they were sent again
    operations: int = 0  # SETs and ERASEs of acknowledged and of whole batches
    records: int = 0  # in the store at the end
    kills: int = 0
    kills_in_batch: int = 0
    kills_between: int = 0  # planned so, or the step ended before the kill arrived
    kills_in_recovery: int = 0
    kills_in_commit: int = 0
    recoveries: int = 0  # openings that had something to undo
    recoveries_cut_off: int = 0  # of those, begun before and cut off by a kill
    verified: int = 0  # times that the whole table was compared
    images_verified: int = 0  # times that the file alone was, as after a power cut
    lost: int = 0  # acknowledged records missing or wrong
    torn: int = 0  # batches found in part
    inconsistent: int = 0  # times that the store's own check failed
    problems: list[str] = field(default_factory=list)
    batch_ms: float = 0.0  # median
    operations_per_second: float = 0.0  # while batches run
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not (self.lost or self.torn or self.inconsistent or self.problems)

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


class _Durations:
    """Predicts how long a step takes, and where to aim so that a kill lands inside it."""

    def __init__(
        self,
        first_guess: float,
        keep: int = 9,
        typical: Callable[[Iterable[float]], float] = statistics.median,
    ) -> None:
        self._guess = first_guess
        self._typical = typical
        self._last: deque[tuple[float, int]] = deque(maxlen=keep)
        self._aim = 1.0  # less than 1 where steps tend to end before they are predicted to

    def add(self, seconds: float, size: int = 0) -> None:
        self._last.append((seconds, size))

    def median(self) -> float:
        return statistics.median(seconds for seconds, _ in self._last) if self._last else 0.0

    def delay(self, fraction: float, size: int = 0) -> float:
        """Returns the seconds into a step of `size` operations at which to kill."""
        if not self._last:
            return self._guess * fraction
        per_operation = self._typical(
            seconds / (known + _FIXED_COST) for seconds, known in self._last
        )
        return per_operation * (size + _FIXED_COST) * fraction * self._aim

    def aimed(self, hit: bool) -> None:
        self._aim = min(1.0, self._aim * 1.05) if hit else max(0.02, self._aim * 0.8)


class Campaign:
    """One run. The oracle is in this process, which never opens the region."""

    def __init__(
        self,
        app: App,
        options: Options,
        batches: Iterable[Batch] | None = None,
        batch_count: int | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """batches: the workload, `batch_count` in all; None: drawn from the seed by the app."""
        self._app = app
        self._options = options
        self._batches = batches
        self._on_event = on_event
        self.plan, self._count = make_plan(options.seed, options.kills, batch_count)
        self.result = Result(app.name, options.seed, batches=self._count)
        self.table = Table()  # every acknowledged batch
        self._durations = {
            "batch": _Durations(0.002),
            # The shortest: what else runs makes them longer.
            "transaction": _Durations(0.0005, typical=min),
            "lead": _Durations(0.0, typical=min),  # from a batch's begin to its transaction's
            "open": _Durations(0.010),
            "recover": _Durations(0.002),
            "commit": _Durations(0.020),
        }
        self._seconds_in_batches = 0.0
        self._committed: list[Table] = []  # what the file may hold: last commit, attempted one
        self._spare: WorkerProcess | None = None
        self._worker: WorkerProcess | None = None
        self._cut_off = False  # a batch was cut off and no recovery has ended since

    def run(self) -> Result:
        start = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="holdfast-crash-", dir=self._options.folder))
        self._path = str(folder / "region.hf")
        try:
            self._arena = self._options.arena_folder or choose_arena(self._app.region_bytes())
            self.result.arena_folder = self._arena
            self._run()
        finally:
            self._clean_up(folder)
        self.result.seconds = round(time.monotonic() - start, 3)
        self.result.records = len(self.table)
        self.result.batch_ms = round(self._durations["batch"].median() * 1e3, 3)
        if self._seconds_in_batches:
            rate = self.result.operations / self._seconds_in_batches
            self.result.operations_per_second = round(rate, 1)
        return self.result

    # The workload.

    def _drawn(self) -> Iterator[Batch]:
        """Batches drawn by the app. The seed and the batches before fix each one."""
        rng = np.random.default_rng([self._options.seed, 2])
        while True:
            yield self._app.make_batch(rng, self.table)

    def _run(self) -> None:
        self._start()
        source = iter(self._batches) if self._batches is not None else self._drawn()
        kills = deque(self.plan)
        for number in range(self._count):
            if number == WARM_UP - 1:
                self._commit()
            batch = next(source)
            while kills and kills[0].batch == number and kills[0].kind != "batch":
                self._kill_outside_batch(kills.popleft())
            done = False
            while kills and kills[0].batch == number and not done:
                done = self._kill_in_batch(kills.popleft(), batch)
            # What is left of this batch's kills goes to the next one.
            for kill in kills:
                if kill.batch == number:
                    kill.batch = number + 1
            resends = 0
            while not done:
                done = self._send(batch)
                resends += 1
                if resends > _MAX_RESENDS:
                    raise Error(f"batch {number} was sent {resends} times in vain", "io")
            self._on_event(Event("batch"))
        assert self._worker is not None
        for kill in kills:
            self._kill_outside_batch(Kill(kill.batch, "between", 0.0, kill.recoveries))
        self._verify(None)
        self._worker.call("close", "close")

    def _start(self) -> None:
        worker = self._worker = self._next_worker()
        assert worker.identity is not None
        self.result.backend, self.result.device = worker.identity
        _, self.result.guarantee = worker.call(
            "create", "create", self._app, self._path, self._arena
        )

    def _next_worker(self) -> WorkerProcess:
        """Returns a worker that is ready; the one after it starts meanwhile."""
        command = self._options.worker_command
        worker = self._spare or WorkerProcess(command)
        self._spare = worker
        worker.wait_ready()
        self._spare = WorkerProcess(command)
        return worker

    def _send(self, batch: Batch) -> bool:
        assert self._worker is not None
        self.result.sent += 1
        seconds, report = self._worker.call("batch", "batch", batch)
        self._acknowledge(batch, seconds, report)
        return True

    def _acknowledge(self, batch: Batch, seconds: float, report: dict[str, Any]) -> None:
        self.table = self._app.expected(self.table, batch)
        self.result.acknowledged += 1
        self.result.operations += len(batch)
        self._durations["batch"].add(seconds, len(batch))
        if report.get("transaction_seconds"):
            self._durations["transaction"].add(report["transaction_seconds"], len(batch))
            self._durations["lead"].add(report["transaction_after"], len(batch))
        self._seconds_in_batches += seconds
        if report.get("evicted"):
            raise Error(
                f"the store evicted {report['evicted']} records: no oracle can tell these from "
                "losses. Use a larger capacity",
                "no_space",
            )

    def _commit(self) -> None:
        assert self._worker is not None
        seconds, _ = self._worker.call("commit", "commit")
        self._durations["commit"].add(seconds)
        self._committed = [self.table]

    # Kills.

    def _kill_in_batch(self, kill: Kill, batch: Batch) -> bool:
        """Kills the worker while it applies `batch`; returns whether the batch is in the store."""
        worker = self._worker
        assert worker is not None
        self.result.sent += 1
        in_transaction = kill.in_transaction and bool(self._app.transaction)
        durations = self._durations["transaction" if in_transaction else "batch"]
        delay = durations.delay(kill.fraction, len(batch))
        if in_transaction:
            if self._spare is not None:
                self._spare.wait_ready()  # what starts would keep the watch from a processor
            lead = self._durations["lead"].delay(_OF_LEAD, len(batch))
            messages = worker.kill_in_transaction(lead, delay, "batch", batch)
        else:
            messages = worker.kill_in("batch", delay, "batch", batch)
        done = next((message for message in messages if message[0] == "done"), None)
        self._count_kill("between" if done else "batch")
        if done:
            self._acknowledge(batch, done[2], done[3])
        self._cut_off = done is None
        recoveries = self.result.recoveries
        self._recover(kill)
        # A transaction ends a little before its batch does.
        in_time = self.result.recoveries > recoveries if in_transaction else done is None
        durations.aimed(in_time)
        if done:
            self._verify(None)
            return True
        return self._verify(batch)

    def _kill_outside_batch(self, kill: Kill) -> None:
        worker = self._worker
        assert worker is not None
        if kill.kind == "commit":
            delay = self._durations["commit"].delay(kill.fraction)
            messages = worker.kill_in("commit", delay, "commit")
            done = any(message[0] == "done" for message in messages)
            self._durations["commit"].aimed(not done)
            if done:
                self._committed = [self.table]
                self._count_kill("between")
            else:
                self._committed.append(self.table)
                self._count_kill("commit")
            self._verify_image()
        else:
            worker.kill()
            self._count_kill("between")
        self._recover(kill)
        self._verify(None)

    def _count_kill(self, kind: str) -> None:
        names = {
            "batch": "kills_in_batch",
            "between": "kills_between",
            "recovery": "kills_in_recovery",
            "commit": "kills_in_commit",
        }
        setattr(self.result, names[kind], getattr(self.result, names[kind]) + 1)
        self.result.kills += 1
        self._on_event(Event("kill", kind))

    def _recover(self, kill: Kill) -> None:
        """Opens the region in a new worker, which is killed as often as the plan says."""
        for stage, fraction in kill.recoveries:
            self._kill_in_recovery(stage, fraction)
        self._replace_worker()
        worker = self._worker
        assert worker is not None
        seconds, arena_found = worker.call("open", "open", self._app, self._path, self._arena)
        self._durations["open"].add(seconds)
        if not arena_found:
            self.result.problems.append(f"kill {self.result.kills}: the arena was not found again")
        worker.wait_begin("recover")
        seconds, report = worker.wait_done("recover")
        if report["needed"]:
            self.result.recoveries += 1
            self._durations["recover"].add(seconds)
        self._cut_off = False

    def _kill_in_recovery(self, stage: str, fraction: float) -> None:
        self._replace_worker()
        worker = self._worker
        assert worker is not None
        delay = self._durations[stage].delay(fraction)
        messages = worker.kill_in(stage, delay, "open", self._app, self._path, self._arena)
        finished = [message for message in messages if message[:2] == ("done", "recover")]
        self._durations[stage].aimed(not finished)
        begun = stage == "recover" or ("begin", "recover") in messages
        if finished:
            if finished[0][3]["needed"]:
                self.result.recoveries += 1
                self._durations["recover"].add(finished[0][2])
            self._cut_off = False
            self._count_kill("between")
        else:
            self.result.recoveries_cut_off += int(begun and self._cut_off)
            self._count_kill("recovery")

    def _replace_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = self._next_worker()

    # The oracle.

    def _verify(self, in_flight: Batch | None) -> bool:
        """Compares the whole store; returns whether the batch in flight is in it."""
        assert self._worker is not None
        _, (dump, complaint) = self._worker.call("dump", "dump")
        verdict = self._app.compare(dump, self.table, in_flight)
        self.result.verified += 1
        where = f"after kill {self.result.kills}"
        if complaint:
            self.result.inconsistent += 1
            self.result.problems.append(f"{where}: the store's own check says: {complaint}")
        if verdict.lost:
            self.result.lost += verdict.lost
            self.result.problems.append(f"{where}: {verdict.lost} acknowledged records are lost")
        if verdict.in_flight == "torn":
            self.result.torn += 1
            self.result.problems.append(f"{where}: the batch in flight is there in part")
        self.result.found_absent += verdict.in_flight == "absent"
        self.result.found_whole += verdict.in_flight == "whole"
        self._on_event(Event("verified", verdict.in_flight))
        if verdict.in_flight == "whole":
            assert in_flight is not None
            self.table = self._app.expected(self.table, in_flight)
            self.result.operations += len(in_flight)
        return verdict.in_flight == "whole"

    def _verify_image(self) -> None:
        """Opens a copy of the file without its shared memory, as after a power cut."""
        folder = Path(tempfile.mkdtemp(prefix="image-", dir=Path(self._path).parent))
        # A folder without the other arena, on the same kind of memory: a GPU cannot pin a disk's.
        arena = tempfile.mkdtemp(prefix="holdfast-image-", dir=self._arena)
        copy = str(folder / "region.hf")
        shutil.copyfile(self._path, copy)
        Path(copy).chmod(0o600)
        worker = self._next_worker()
        try:
            worker.call("open", "open", self._app, copy, arena)
            worker.wait_begin("recover")
            worker.wait_done("recover")
            _, (dump, complaint) = worker.call("dump", "dump")
            verdicts = [self._app.compare(dump, state, None) for state in self._committed]
            if complaint or all(verdict.lost for verdict in verdicts):
                self.result.torn += 1
                self.result.problems.append(
                    f"after kill {self.result.kills}: the file holds neither the last commit nor "
                    f"the one that was cut off {complaint}"
                )
            elif len(verdicts) > 1:
                # Whichever commit the file holds, it is the last one from here on.
                self._committed = [self._committed[-1 if verdicts[-1].lost == 0 else 0]]
            self.result.images_verified += 1
            self._on_event(Event("image"))
        finally:
            worker.end()
            shutil.rmtree(folder)
            shutil.rmtree(arena)

    def _clean_up(self, folder: Path) -> None:
        for worker in (self._worker, self._spare):
            if worker is not None:
                worker.end()
        try:
            _region.destroy(self._path, arena_folder=self.result.arena_folder)
        except Error as error:
            if error.code != "not_found":
                self.result.problems.append(f"removing the region: {error}")
        shutil.rmtree(folder, ignore_errors=True)
