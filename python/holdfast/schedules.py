"""Adjoint computations by the schedules of the package checkpoint_schedules, over a history.

A schedule says which steps a program computes again, and what it stores on the way; a history
stores it. As the whole schedule is known before the first step, the history is told the exact order
of its restores, fetches ahead, and drops each checkpoint behind its last one.

The schedule's storage types are not tiers: a history decides by itself what is in which, and has
restart data that a schedule keeps both in RAM and on disk once.

How it is tested: every schedule of the package drives a recurrence whose reverse needs all states,
and the gradient is held beside its closed form; hints are compared with the restores that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ._errors import Error, checked_number, missing_extra
from ._history import History

__all__ = ["Report", "run"]

Forward = Callable[[int, int, bool], object]
Reverse = Callable[[int, int], object]


@dataclass(frozen=True)
class Report:
    """What a schedule took."""

    forward_steps: int  # those that were computed again included
    reverse_steps: int
    saves: int
    restores: int


@dataclass
class _Checkpoint:
    """One that the schedule stores, from its save to its last restore."""

    step: int
    end: int  # of the steps whose adjoint it serves; `step` itself for restart data
    restores_left: int = 0
    number: int = -1  # in the history; -1: not saved

    @property
    def restarts(self) -> bool:
        return self.end == self.step


@dataclass(frozen=True)
class _Action:
    kind: str  # save, restore, forward, reverse, prefetch
    checkpoint: _Checkpoint | None = None
    first: int = 0  # forward and reverse: from this step
    last: int = 0  # to this one
    record: bool = False


@dataclass
class _Plan:
    """Follows a schedule from action to action and refuses what a history cannot do."""

    steps: int | None
    actions: list[_Action] = field(default_factory=list)
    stored: dict[tuple[int, Any], _Checkpoint] = field(default_factory=dict)
    at: int | None = (
        0  # where the program's state stands; None: the adjoint's data are in its place
    )
    recorded: set[int] = field(default_factory=set)  # steps that the program could reverse now

    def take(self, action: Any, package: Any) -> None:
        storage = package.StorageType
        if isinstance(action, package.Forward):
            self.forward(action, action.storage in (storage.RAM, storage.DISK))
        elif isinstance(action, package.Reverse):
            self.reverse(action)
        elif isinstance(action, (package.Copy, package.Move)):
            found = self.load(action.n, action.from_storage, isinstance(action, package.Move))
            if action.to_storage == storage.WORK:
                self.restore(found)
            elif action.to_storage != storage.NONE:
                self.stored[action.n, action.to_storage] = found
        elif isinstance(action, package.EndForward):
            self.actions.append(_Action("prefetch"))
        elif not isinstance(action, package.EndReverse):
            raise Error(f"an unknown action of the schedule: {action!r}", "unsupported")

    def save(self, step: int, end: int, storage: Any) -> None:
        for (other, _), known in self.stored.items():
            if other == step and known.end == end:
                self.stored[step, storage] = known
                return
        checkpoint = _Checkpoint(step, end)
        self.stored[step, storage] = checkpoint
        self.actions.append(_Action("save", checkpoint))

    def forward(self, action: Any, storing: bool) -> None:
        first, last = action.n0, action.n1
        if self.steps is not None:
            last = min(last, self.steps)
        if first != self.at:
            where = "holds no state" if self.at is None else f"stands at step {self.at}"
            raise Error(
                f"the schedule goes forward from step {first}, and the program {where}: give a new "
                "schedule"
            )
        if action.write_ics and (action.write_adj_deps or not storing):
            raise Error(f"a history cannot do {action}: use another schedule", "unsupported")
        if action.write_ics:
            self.save(first, first, action.storage)
        self.actions.append(_Action("forward", None, first, last, action.write_adj_deps))
        self.at = last
        if action.write_adj_deps and storing:
            self.save(first, last, action.storage)
        elif action.write_adj_deps:
            self.recorded.update(range(first, last))

    def reverse(self, action: Any) -> None:
        missing = set(range(action.n0, action.n1)) - self.recorded
        if missing:
            raise Error(
                f"the schedule reverses step {max(missing)}, of which nothing was recorded: give a "
                "new schedule"
            )
        self.actions.append(_Action("reverse", None, action.n1, action.n0))
        if action.clear_adj_deps:
            self.recorded.clear()

    def load(self, step: int, source: Any, move: bool) -> _Checkpoint:
        checkpoint = self.stored.get((step, source))
        if checkpoint is None:
            raise Error(
                f"the schedule loads step {step} from {source}, where it has stored nothing: give "
                "a new schedule"
            )
        if move:
            del self.stored[step, source]
        return checkpoint

    def restore(self, checkpoint: _Checkpoint) -> None:
        checkpoint.restores_left += 1
        self.actions.append(_Action("restore", checkpoint))
        self.at = checkpoint.step if checkpoint.restarts else None
        self.recorded.update(range(checkpoint.step, checkpoint.end))


def _package() -> Any:
    try:
        import checkpoint_schedules
    except ImportError:
        raise missing_extra("schedules", "the package checkpoint_schedules is") from None
    return checkpoint_schedules


def _plan(schedule: Any, steps: int | None) -> _Plan:
    """Walks a schedule to the end of its first adjoint."""
    package = _package()
    if schedule.max_n is None and steps is None:
        raise Error("the schedule does not know the number of steps: give steps")
    if schedule.max_n is not None and steps not in (None, schedule.max_n):
        raise Error(f"steps is {steps}, and the schedule is made for {schedule.max_n}")
    plan = _Plan(steps)
    for action in schedule:
        plan.take(action, package)
        if isinstance(action, package.Forward):
            if schedule.max_n is None and steps is not None and action.n1 >= steps:
                schedule.finalize(steps)
        elif isinstance(action, package.EndReverse):
            break
        elif isinstance(action, package.EndForward) and schedule.is_exhausted:
            break  # there is no adjoint
    if not plan.actions:
        raise Error("the schedule has no action left: make a new one")
    return plan


class _Runner:
    def __init__(self, history: History, plan: _Plan, stream: Any) -> None:
        self.history = history
        self.stream = stream
        self.saves = self.restores = 0
        self.left: set[int] = set()  # that the history has
        restored = [
            action.checkpoint
            for action in plan.actions
            if action.kind == "restore" and action.checkpoint is not None
        ]
        first = max(history.steps(), default=-1) + 1
        for checkpoint in restored:
            if checkpoint.number < 0:
                checkpoint.number = first
                first += 1
        history.hint(checkpoint.number for checkpoint in restored)

    def save(self, checkpoint: _Checkpoint) -> None:
        if checkpoint.number < 0:
            return  # the schedule never loads it
        self.left.add(checkpoint.number)  # before: Ctrl-C may come behind the save
        self.history.save(checkpoint.number, self.stream)
        self.saves += 1

    def restore(self, checkpoint: _Checkpoint) -> None:
        checkpoint.restores_left -= 1
        last = checkpoint.restores_left == 0
        self.history.restore(checkpoint.number, self.stream, keep=not last)
        self.restores += 1
        if last:
            self.history.discard(checkpoint.number)
            self.left.remove(checkpoint.number)

    def discard_rest(self) -> None:
        for number in self.left:
            self.history.discard(number)


def run(
    schedule: Any,
    history: History,
    *,
    forward: Forward,
    reverse: Reverse,
    steps: int | None = None,
    stream: Any = None,
) -> Report:
    """Runs a computation and its adjoint by a schedule, once, with `history` as its storage.

    schedule: a new one of checkpoint_schedules, such as Revolve(1000, 20). steps: how many steps
    there are, for a schedule that does not know (max_n is None).
    forward(n0, n1, record): computes the steps n0 to n1 - 1; the program's state, of which the
    protected arrays hold what is needed to go on, is then that at the start of step n1. With
    `record` it also keeps what reverse() needs of these steps: anywhere, unless the schedule stores
    that, too (SingleDiskStorageSchedule, MixedCheckpointSchedule), which takes protected arrays.
    reverse(n1, n0): goes back over the steps n1 - 1 to n0.
    stream: as History.save() and restore() take it.

    The history may hold other checkpoints: numbers above theirs are used, and are gone when the
    call returns or raises. After a crash, discard what it left.
    Raises Error: unsupported (the package is not installed, or the schedule asks for what a history
    cannot do); invalid_argument (a history that drops checkpoints by itself: keep_last, keep_every;
    a schedule that was used before; steps), before anything is computed; and as save() and
    restore() do. What the functions raise.
    Source of the schedules: Dolci et al., "checkpoint_schedules" (JOSS 2024).
    """
    if history.drops_by_rule:
        raise Error(
            "a history with keep_last or keep_every drops what the schedule needs: open one without"
        )
    if steps is not None:
        checked_number(steps, "steps", 1)
    plan = _plan(schedule, steps)
    runner = _Runner(history, plan, stream)
    forward_steps = reverse_steps = 0
    try:
        for action in plan.actions:
            if action.kind == "forward":
                forward(action.first, action.last, action.record)
                forward_steps += action.last - action.first
            elif action.kind == "reverse":
                reverse(action.first, action.last)
                reverse_steps += action.first - action.last
            elif action.kind == "prefetch":
                history.prefetch_start()
            elif action.checkpoint is not None and action.kind == "save":
                runner.save(action.checkpoint)
            elif action.checkpoint is not None:
                runner.restore(action.checkpoint)
    finally:
        runner.discard_rest()
    return Report(forward_steps, reverse_steps, runner.saves, runner.restores)
