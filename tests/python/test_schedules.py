"""holdfast.schedules: every schedule of checkpoint_schedules over a history, on a toy adjoint.

The toy squares its state n times, so that the gradient has a closed form: the derivative of
x ** (2 ** n). Going back over a step takes the state before it.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import pytest

import holdfast
from holdfast import schedules

package = pytest.importorskip("checkpoint_schedules")
RAM, DISK, WORK, NONE = (
    getattr(package.StorageType, name) for name in ("RAM", "DISK", "WORK", "NONE")
)

CELLS = 700
STEPS = 14


class Watched(holdfast.History):
    """Notes what it is asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.calls: list[tuple[Any, ...]] = []

    def save(self, step: SupportsIndex, stream: Any = None, *, keep: bool = False) -> Any:
        self.calls.append(("save", step))
        return super().save(step, stream, keep=keep)

    def restore(self, step: SupportsIndex, stream: Any = None, *, keep: bool = False) -> None:
        self.calls.append(("restore", step))
        super().restore(step, stream, keep=keep)

    def discard(self, step: SupportsIndex) -> bool:
        self.calls.append(("discard", step))
        return super().discard(step)

    def hint(self, *steps: Any) -> None:
        flat = [n for item in steps for n in (item if not isinstance(item, int) else [item])]
        self.calls.append(("hint", flat))
        super().hint(flat)

    def prefetch_start(self) -> None:
        self.calls.append(("prefetch_start",))
        super().prefetch_start()

    def of(self, kind: str) -> list[Any]:
        return [call[1] for call in self.calls if call[0] == kind]


class Toy:
    """x -> x * x, and its adjoint. `tape` has the state before the last recorded step."""

    def __init__(self, seed: int, steps: int = STEPS, protect_tape: bool = True) -> None:
        self.steps = steps
        self.start = 1 + 1e-4 * np.random.default_rng(seed).random(CELLS)
        self.x = self.start.copy()
        self.tape = np.zeros(CELLS)
        self.protect_tape = protect_tape
        self.memory: dict[int, np.ndarray[Any, Any]] = {}  # of recordings over many steps
        self.adjoint = np.ones(CELLS)
        self.reversed: list[int] = []

    def protect(self, history: holdfast.History) -> None:
        history.protect("x", self.x)
        if self.protect_tape:
            history.protect("tape", self.tape)

    def forward(self, n0: int, n1: int, record: bool) -> None:
        for n in range(n0, n1):
            if record and n1 == n0 + 1:
                self.tape[:] = self.x
            elif record:
                self.memory[n] = self.x.copy()
            self.x *= self.x

    def reverse(self, n1: int, n0: int) -> None:
        for n in reversed(range(n0, n1)):
            self.adjoint *= 2 * self.memory.pop(n, self.tape)
            self.reversed.append(n)

    def check(self) -> None:
        assert self.reversed == list(reversed(range(self.steps)))
        power = 2.0**self.steps
        np.testing.assert_allclose(self.adjoint, power * self.start ** (power - 1), rtol=1e-10)


SCHEDULES: dict[str, Callable[[int], Any]] = {
    "revolve": lambda n: package.Revolve(n, 3),
    "revolve-1": lambda n: package.Revolve(n, 1),
    "h-revolve": lambda n: package.HRevolve(n, 2, 2),
    "disk-revolve": lambda n: package.DiskRevolve(n, 2),
    "periodic": lambda n: package.PeriodicDiskRevolve(n, 2),
    "multistage": lambda n: package.MultistageCheckpointSchedule(n, 2, 2),
    "mixed": lambda n: package.MixedCheckpointSchedule(n, 3),
    "two-level": lambda n: package.TwoLevelCheckpointSchedule(4, 2),
    "disk-copy": lambda n: package.SingleDiskStorageSchedule(),
    "disk-move": lambda n: package.SingleDiskStorageSchedule(move_data=True),
    "memory": lambda n: package.SingleMemoryStorageSchedule(),
}

BYTES = 2 * 4096 + 8192  # of a checkpoint in a cache, rounded up
PLACES: dict[str, dict[str, Any]] = {
    "host": {"host": 40 * BYTES},
    "small": {"gpu": 2 * BYTES, "host": 3 * BYTES, "disk": "run"},
    "disk": {"disk": "run"},
    "consuming": {"gpu": 2 * BYTES, "disk": "run", "discard_consumed": True},
}


def make(name: str, steps: int = STEPS) -> Any:
    with warnings.catch_warnings():  # of numba, which is not there
        warnings.simplefilter("ignore")
        return SCHEDULES[name](steps)


@pytest.fixture
def place() -> str:
    return "small"


@pytest.fixture
def history(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.chdir(tmp_path)
    made = Watched(**PLACES[place])
    with made:
        yield made


@pytest.mark.filterwarnings("ignore:Numba")
@pytest.mark.parametrize(
    ("place", "name"),
    [
        *itertools.product(["host", "small"], SCHEDULES),
        *itertools.product(["disk", "consuming"], ["h-revolve", "mixed", "disk-move"]),
    ],
)
def test_gradients(history: Watched, name: str) -> None:
    toy = Toy(seed=3)
    toy.protect(history)
    report = schedules.run(
        make(name), history, forward=toy.forward, reverse=toy.reverse, steps=STEPS
    )
    toy.check()
    saves, restores, hints = (history.of(kind) for kind in ("save", "restore", "hint"))
    # The hints are the order of the restores, given before anything is stored.
    assert hints == [restores]
    assert history.calls[0] == ("hint", restores)
    assert len(saves) == len(set(saves)) == report.saves
    assert set(saves) == set(restores)  # none for nothing
    assert report.restores == len(restores)
    assert report.reverse_steps == STEPS <= report.forward_steps
    # Each goes with its last restore.
    for number in saves:
        asked = [call for call in history.calls if call[1:] == (number,)]
        assert asked[-2:] == [("restore", number), ("discard", number)]
    assert history.steps() == []
    assert history.calls.count(("prefetch_start",)) == 1


@pytest.mark.filterwarnings("ignore:Numba")
@pytest.mark.parametrize("name", ["revolve", "h-revolve", "multistage", "mixed"])
def test_many_lengths(name: str) -> None:
    for steps in (2, 3, 5, 9, 20):
        with holdfast.History(gpu=3 * BYTES, host=40 * BYTES) as history:
            toy = Toy(seed=steps, steps=steps)
            toy.protect(history)
            schedules.run(make(name, steps), history, forward=toy.forward, reverse=toy.reverse)
            toy.check()


def test_what_is_recorded_need_not_be_protected(history: Watched) -> None:
    toy = Toy(seed=5, protect_tape=False)
    toy.protect(history)
    schedules.run(make("h-revolve"), history, forward=toy.forward, reverse=toy.reverse)
    toy.check()
    assert history.stats().saves.bytes == len(history.of("save")) * toy.x.nbytes


def test_restart_data_in_two_storages_are_saved_once(history: Watched) -> None:
    stored = [
        (action.n0, action.storage)
        for action in make("h-revolve")
        if isinstance(action, package.Forward) and action.write_ics
    ]
    assert (0, DISK) in stored and (0, RAM) in stored  # or this shows nothing
    toy = Toy(seed=6)
    toy.protect(history)
    report = schedules.run(make("h-revolve"), history, forward=toy.forward, reverse=toy.reverse)
    assert report.saves < len(stored)
    toy.check()


def test_other_checkpoints_stay(history: Watched) -> None:
    other = np.full(10, 7)
    history.protect("other", other)
    history.save(41)
    history.unprotect("other")
    toy = Toy(seed=7)
    toy.protect(history)
    schedules.run(make("revolve"), history, forward=toy.forward, reverse=toy.reverse)
    toy.check()
    assert history.steps() == [41]
    assert min(history.of("save")[1:]) == 42


def test_a_function_that_raises_leaves_nothing(history: Watched) -> None:
    toy = Toy(seed=8)
    toy.protect(history)

    def stop(n1: int, n0: int) -> None:
        if n0 == 9:
            raise KeyError("stop")
        toy.reverse(n1, n0)

    with pytest.raises(KeyError, match="stop"):
        schedules.run(make("multistage"), history, forward=toy.forward, reverse=stop)
    assert history.steps() == []
    again = Toy(seed=8)
    again.protect(history)
    schedules.run(make("multistage"), history, forward=again.forward, reverse=again.reverse)
    again.check()


def test_no_adjoint() -> None:
    with holdfast.History(host=40 * BYTES) as history:
        toy = Toy(seed=9)
        toy.protect(history)
        report = schedules.run(
            package.NoneCheckpointSchedule(),
            history,
            forward=toy.forward,
            reverse=toy.reverse,
            steps=STEPS,
        )
        assert report == schedules.Report(STEPS, 0, 0, 0)
        np.testing.assert_allclose(toy.x, toy.start ** (2.0**STEPS), rtol=1e-10)


class Written(package.CheckpointSchedule):  # type: ignore[misc, name-defined]
    """A schedule that has these actions."""

    def __init__(self, actions: Sequence[Any], steps: int | None = 2) -> None:
        super().__init__(steps)
        self._actions = actions

    def _iterator(self) -> Iterator[Any]:
        return iter(self._actions)

    @property
    def is_exhausted(self) -> bool:
        return False

    def uses_storage_type(self, storage_type: Any) -> bool:
        return True


def test_data_that_move_between_storages() -> None:
    actions = [
        package.Forward(0, 1, True, False, DISK),
        package.Forward(1, 2, False, True, WORK),
        package.EndForward(),
        package.Reverse(2, 1, True),
        package.Copy(0, DISK, RAM),
        package.Move(0, DISK, NONE),
        package.Move(0, RAM, WORK),
        package.Forward(0, 1, False, True, WORK),
        package.Reverse(1, 0, True),
        package.EndReverse(),
    ]
    with holdfast.History(host=40 * BYTES) as history:
        toy = Toy(seed=10, steps=2)
        toy.protect(history)
        report = schedules.run(Written(actions), history, forward=toy.forward, reverse=toy.reverse)
        toy.check()
        assert report == schedules.Report(3, 2, 1, 1)


def used() -> Any:
    schedule = make("revolve")
    list(itertools.islice(schedule, 5))
    return schedule


REFUSED: list[tuple[str, Callable[[], Any], int | None, str]] = [
    ("no number of steps", lambda: make("two-level"), None, "give steps"),
    ("another number", lambda: make("revolve"), 5, "made for 14"),
    ("zero steps", lambda: make("two-level"), 0, "steps is 0"),
    ("used up", lambda: Written([]), None, "make a new one"),
    ("in the middle", used, None, "give a new schedule"),
    (
        "both at once",
        lambda: Written([package.Forward(0, 1, True, True, RAM)]),
        None,
        "use another schedule",
    ),
    (
        "restart data in working memory",
        lambda: Written([package.Forward(0, 1, True, False, WORK)]),
        None,
        "use another schedule",
    ),
    (
        "loads what is not there",
        lambda: Written([package.Copy(0, RAM, WORK)]),
        None,
        "stored nothing",
    ),
    (
        "loads what was moved away",
        lambda: Written(
            [
                package.Forward(0, 1, True, False, RAM),
                package.Move(0, RAM, WORK),
                package.Move(0, RAM, WORK),
            ]
        ),
        None,
        "stored nothing",
    ),
    (
        "reverses what was not recorded",
        lambda: Written([package.Forward(0, 2, False, False, WORK), package.Reverse(2, 1, True)]),
        None,
        "nothing was recorded",
    ),
    (
        "goes on from data of the adjoint",
        lambda: Written(
            [
                package.Forward(0, 1, False, True, DISK),
                package.Copy(0, DISK, WORK),
                package.Forward(0, 1, False, False, WORK),
            ]
        ),
        None,
        "holds no state",
    ),
    ("no action at all", lambda: Written(["forward"]), None, "unknown action"),
]


@pytest.mark.parametrize(
    ("schedule", "steps", "words"),
    [pytest.param(*case, id=name) for name, *case in REFUSED],
)
def test_refused_before_anything_is_computed(
    schedule: Callable[[], Any], steps: int | None, words: str
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("called")

    with holdfast.History(host=40 * BYTES) as history:
        history.protect("x", np.zeros(CELLS))
        with pytest.raises(holdfast.Error, match=words):
            schedules.run(schedule(), history, forward=never, reverse=never, steps=steps)
        assert history.steps() == []


def test_a_history_that_drops_by_a_rule_is_refused() -> None:
    for rule in ({"keep_last": 3}, {"keep_every": 2}):
        with (
            holdfast.History(host=40 * BYTES, **rule) as history,  # type: ignore[arg-type]
            pytest.raises(holdfast.Error, match="open one without"),
        ):
            schedules.run(make("revolve"), history, forward=print, reverse=print)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = make("revolve")
    monkeypatch.setitem(sys.modules, "checkpoint_schedules", None)
    with (
        holdfast.History(host=40 * BYTES) as history,
        pytest.raises(holdfast.Error, match=r"pip install 'holdfast\[schedules\]'") as raised,
    ):
        schedules.run(schedule, history, forward=print, reverse=print)
    assert raised.value.code == "unsupported"
