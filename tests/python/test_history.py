"""Histories of checkpoints."""

from __future__ import annotations

import functools
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import history_worker
import holdfast
from conftest import Full
from holdfast import History

MIB = 1 << 20
WORKER = Path(history_worker.__file__)
Array = np.ndarray[Any, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def history(folder: Path) -> Iterator[History]:
    with History(gpu=MIB, host=4 * MIB, disk=folder) as made:
        yield made


def refused(code: str, call: Callable[[], object], *words: str) -> None:
    """Expects an Error of this code whose message has these words."""
    with pytest.raises(holdfast.Error) as raised:
        call()
    assert raised.value.code == code, raised.value
    for word in words:
        assert word in str(raised.value)


def seed_of() -> int:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", random.randrange(2**32)))
    print(f"HOLDFAST_TEST_SEED={seed}")
    return seed


def run_program(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1000, 4), (2, 3, 5), (70001,)])
@pytest.mark.parametrize("dtype", ["bool", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c16"])
def test_round_trip(dtype: str, shape: tuple[int, ...]) -> None:
    bits = np.random.default_rng(1).integers(0, 2, shape)
    first, second = np.array(bits, dtype), np.array(1 - bits, dtype)
    array = first.copy()
    with History(host=4 * MIB) as history:
        history.protect("array", array)
        history.save(0)
        array[...] = second
        history.save(2**64 - 2)
        history.restore(0)
        np.testing.assert_array_equal(array, first)
        history.restore(2**64 - 2)
        np.testing.assert_array_equal(array, second)
        assert history.size(0, "array") == array.nbytes


def test_the_ten_lines(history: History, folder: Path) -> None:
    field = np.zeros(20_000)
    history.protect("field", field)
    for step in range(12):
        ticket = history.save(step)
        assert ticket.staged and ticket.step == step
        field += 1  # it is copied already
    history.hint(reversed(range(12)))
    history.prefetch_start()
    for step in reversed(range(12)):
        history.restore(step)
        assert (field == step).all()
    history.close()
    assert history.closed
    assert "closed" in repr(history)
    with History(disk=folder) as again:
        assert again.steps() == list(range(12))
        assert again.latest() == 11
        again.protect("field", field)
        again.restore(7)
        assert (field == 7).all()


def test_arrays_are_kept_alive() -> None:
    class Watched(np.ndarray[Any, Any]):
        """Can be watched."""

    array = np.full(1000, 5.0).view(Watched)
    gone = weakref.ref(array)
    history = History(host=MIB)
    history.protect("a", array)
    history.save(1)
    del array
    gc.collect()
    assert gone() is not None
    history.restore(1)
    history.unprotect("a")
    history.unprotect("a")
    gc.collect()
    assert gone() is None
    other = np.zeros(10).view(Watched)
    gone = weakref.ref(other)
    history.protect("a", other)
    del other
    history.protect("a", np.zeros(3))  # in its place
    gc.collect()
    assert gone() is None
    history.close()


def test_other_libraries_arrays(history: History) -> None:
    class Lent:
        """Has no more than DLPack."""

        def __init__(self) -> None:
            self.memory = np.arange(12, dtype=np.float32).reshape(3, 4)

        def __dlpack__(self, **options: Any) -> Any:
            return self.memory.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    lent = Lent()
    history.protect("lent", lent)
    history.save(1)
    lent.memory[:] = -1
    history.restore(1)
    np.testing.assert_array_equal(lent.memory, np.arange(12).reshape(3, 4))


def test_arrays_that_are_refused(history: History) -> None:
    square = np.zeros((4, 4))
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    for array, word in (
        (square[:, 1], "contiguous"),
        (frozen, "read-only"),
        ([1, 2], "list is no array"),
        (np.array(["a"]), "cannot be saved"),
        (np.zeros(0), "nothing to save"),
    ):
        refused("invalid_argument", lambda array=array: history.protect("a", array), word)  # type: ignore[misc]
    for name in ("", "a" * 112, "a\0b", 5, None, "\udcff"):
        refused("invalid_argument", lambda name=name: history.protect(name, square))  # type: ignore[misc]
    refused("invalid_argument", lambda: history.wait_for_all(None), "ticket")  # type: ignore[arg-type]
    refused("invalid_argument", lambda: history.save(1), "protect()")


def test_what_was_made_read_only_since_is_not_written(history: History) -> None:
    array, other = np.ones(4), np.ones(3)
    history.protect("other", other)
    history.protect("array", array)
    history.save(1)
    array[:] = other[:] = 2
    array.flags.writeable = False
    refused("invalid_argument", lambda: history.restore(1), "'array'", "read-only")
    assert array.tolist() == [2] * 4 and other.tolist() == [2] * 3
    history.save(2)  # reads
    array.flags.writeable = True
    history.restore(1)
    assert array.tolist() == [1] * 4


def test_tickets(history: History) -> None:
    history.protect("a", np.zeros(1000))
    ticket = history.save(5)
    ticket.wait_staged()
    ticket.wait("gpu")
    ticket.wait()
    assert ticket.durable and ticket.is_in("disk") and ticket.is_in("gpu")
    assert "5" in repr(ticket)
    refused("invalid_argument", lambda: ticket.is_in("tape"), "gpu, host, partner, disk or remote")
    refused("invalid_argument", lambda: ticket.wait("tape"))
    assert history.discard(5)
    assert not ticket.is_in("disk")  # its bytes are gone
    refused("not_found", ticket.wait)
    assert not history.discard(5)
    with History(host=MIB) as small:
        small.protect("a", np.zeros(1000))
        ticket = small.save(1)
        assert not ticket.durable
        refused("not_found", ticket.wait, "disk")


def test_waiting_lets_other_threads_run(folder: Path) -> None:
    """A thread of Python goes on while another waits for the disk: it has not the interpreter."""
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1

    with History(host=300 * MIB, disk=folder) as history:
        history.protect("large", np.ones(32 * MIB))  # 256 MiB: it takes a while
        thread = threading.Thread(target=count)
        thread.start()
        try:
            ticket = history.save(1)
            before = counted
            ticket.wait()
            after = counted
        finally:
            stop.set()
            thread.join()
    assert after > before


def test_threads(history: History) -> None:
    array = np.arange(5000)
    history.protect("a", array)
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for step in range(first, first + 30):
                history.save(step).wait("host" if step % 2 else "disk")
                history.restore(step)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(history.steps()) == 90
    np.testing.assert_array_equal(array, np.arange(5000))


@pytest.mark.parametrize("what", ["save", "restore", "unprotect"])
def test_arrays_that_others_replace_stay_while_calls_use_them(folder: Path, what: str) -> None:
    """Arrays of this size are given back to the system at once, so that a late copy ends it."""
    program = """
import sys, threading
import numpy as np
from holdfast import Error, History

what, cells, stop = sys.argv[2], 1_000_000, threading.Event()
history = History(disk=sys.argv[1])
history.protect("a", np.ones(cells))
history.save(0)

def work():
    step = 1
    while not stop.is_set():
        try:
            if what == "restore":
                history.restore(0, keep=True)
                continue
            history.save(step)
            history.discard(step)
            step += 1
        except Error as error:
            assert what == "unprotect" and error.code == "invalid_argument", error

worker = threading.Thread(target=work)
worker.start()
for _ in range(300):
    history.protect("a", np.ones(cells))
    if what == "unprotect":
        history.unprotect("a")
stop.set()
worker.join()
history.close()
print(len(history._arrays._replaced))
"""
    done = run_program(program, folder, what)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_steps_that_are_not_there_or_other(history: History) -> None:
    array = np.arange(10)
    history.protect("a", array)
    history.save(3)
    refused("already_exists", lambda: history.save(3), "discard()")
    refused("not_found", lambda: history.restore(4), "checkpoint 4")
    refused("not_found", lambda: history.size(3, "b"), "'b'")
    refused("not_found", lambda: history.size(4, "a"))
    refused("not_found", lambda: history.verify(4))
    for step in (-1, 2**64 - 1, 2**64):
        refused("invalid_argument", lambda step=step: history.save(step), "the step is")  # type: ignore[misc]
    history.protect("b", np.zeros(3))
    array[:] = 0
    refused("invalid_argument", lambda: history.restore(3), "'b'")
    assert (array == 0).all()
    history.unprotect("b")
    history.protect("a", np.zeros(11, np.int64))
    refused("invalid_argument", lambda: history.restore(3), "'a'")


def test_hints_take_numbers_and_whatever_can_be_iterated(history: History) -> None:
    array = np.zeros(10_000)
    history.protect("a", array)
    for step in range(30):
        array[:] = step
        history.save(step)
    history.flush()
    history.hint(29, [28, 27], range(26, 20, -1), (n for n in (20, 19)), np.int64(18))
    history.hint()
    history.hint(np.arange(17, 15, -1), np.array([15]))
    history.hint(999, 3, 3)  # what is not there, and what comes twice
    history.prefetch_start()
    for step in (*range(29, 14, -1), 3, 3, 0):
        history.restore(step)
        assert (array == step).all()
    history.hint(np.array(12))
    for unfit in ("12", b"1", 1.5, None, [1.5], ["1"]):
        refused("invalid_argument", functools.partial(history.hint, unfit))  # type: ignore[arg-type]
    refused("invalid_argument", lambda: history.hint(-1))
    refused("invalid_argument", lambda: history.save(1.5))  # type: ignore[arg-type]
    refused("invalid_argument", lambda: history.protect("m", np.ma.zeros(3)))


def test_what_is_hinted_first_is_fetched_first() -> None:
    array = np.zeros(8192)
    with History(gpu=array.nbytes, host=MIB) as history:
        history.protect("a", array)
        for step in range(4):
            history.save(step).wait("host")
        history.hint([2, 0], 1)
        history.prefetch_start()
        for _ in range(30_000):
            if history.stats().prefetch_distance == 1:
                break
            time.sleep(0.001)
        assert history.latest("gpu") == 2


def test_what_stays(folder: Path) -> None:
    array = np.zeros(100)
    with History(host=MIB, disk=folder, keep_last=2, keep_every=5) as history:
        history.protect("a", array)
        for step in range(13):
            history.save(step).wait()
        assert history.steps() == [0, 5, 10, 11, 12]
    with History(host=MIB, disk=folder, discard_consumed=True) as history:
        history.protect("a", array)
        history.restore(5)
        history.restore(10, keep=True)
        assert history.steps() == [0, 10, 11, 12]
    with History(disk=folder) as history:
        assert history.steps() == [0, 10, 11, 12]
        assert history.latest() == 12
        assert history.latest("gpu") is None
        history.protect("a", array)
        history.save(1)
        assert history.latest() == 1  # what came last, and not the largest number


def test_stats(history: History) -> None:
    array = np.zeros(1000)
    history.protect("a", array)
    for step in range(3):
        history.save(step)
    history.flush()
    history.restore(1)
    stats = history.stats()
    assert (stats.saves.checkpoints, stats.saves.bytes) == (3, 3 * array.nbytes)
    assert stats.restores.checkpoints == 1
    assert {tier: count.checkpoints for tier, count in stats.restored_from.items()} == {
        "gpu": 1,
        "host": 0,
        "partner": 0,
        "disk": 0,
        "remote": 0,
    }
    assert stats.flushed_to["disk"].checkpoints == 3
    assert stats.held_in["disk"].bytes == 3 * array.nbytes
    assert stats.save_seconds > 0 and stats.restore_seconds > 0
    assert stats.failed_transfers == 0
    assert "saves=3" in repr(stats)


@pytest.mark.parametrize("drops", [False, True])
def test_random_use_against_an_oracle(tmp_path: Path, drops: bool) -> None:
    dice = random.Random(seed_of())
    oracle: dict[int, Array] = {}
    sizes = [np.zeros(size, np.int64) for size in (1, 700, 30_000)]
    for number in range(4):
        tiers = dice.choice([(0, 0), (MIB // 2, 0), (0, MIB), (MIB // 4, MIB)])
        with History(
            gpu=tiers[0], host=tiers[1], disk=tmp_path / "run", discard_consumed=drops
        ) as history:
            assert history.steps() == sorted(oracle), number
            for _ in range(60):
                array = dice.choice(sizes)
                history.protect("a", array)
                step = dice.randrange(20)
                what = dice.randrange(5)
                if what <= 1 and step not in oracle:
                    array[:] = dice.randrange(2**62)
                    history.save(step, keep=dice.random() < 0.3)
                    oracle[step] = array.copy()
                elif what == 2 and step in oracle:
                    history.protect("a", found := np.zeros_like(oracle[step]))
                    history.restore(step, keep=True)
                    np.testing.assert_array_equal(found, oracle[step])
                elif what == 3:
                    assert history.discard(step) == (oracle.pop(step, None) is not None)
                elif what == 4:
                    history.hint(dice.choices(range(25), k=dice.randrange(8)))
                    history.prefetch_start()
                assert history.steps() == sorted(oracle)
            history.flush()
            for step in oracle:
                history.verify(step)


def test_options_that_are_refused(tmp_path: Path) -> None:
    refused("invalid_argument", History, "no tier")
    refused("invalid_argument", lambda: History(gpu=1), "at least 4096")
    refused("invalid_argument", lambda: History(host=-1), "host is -1")
    refused("invalid_argument", lambda: History(host=MIB, keep_last=0), "keep_last is 0")
    refused("invalid_argument", lambda: History(host=MIB, on_error="ignore"), "raise or warn")
    refused("invalid_argument", lambda: History(disk=""), "empty path")
    refused("invalid_argument", lambda: History(disk=b"\xff".decode(errors="surrogateescape")))
    refused("not_found", lambda: History(disk=tmp_path / "no" / "folder"))
    (tmp_path / "mine.txt").write_text("mine")
    refused("foreign", lambda: History(disk=tmp_path), "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with History(disk=tmp_path / "run"):
        refused("in_use", lambda: History(disk=tmp_path / "run"))


def test_a_closed_history_says_so(history: History) -> None:
    history.protect("a", np.zeros(10))
    history.save(1)
    history.close()
    history.close()
    for call in (
        lambda: history.save(2),
        lambda: history.restore(1),
        lambda: history.protect("a", np.zeros(10)),
        history.steps,
        history.stats,
        history.flush,
        history.prefetch_start,
        history.__enter__,
    ):
        refused("closed", call)


def test_no_room(tmp_path: Path) -> None:
    with History(host=MIB) as history:
        array = np.zeros(MIB // 16)  # half of it
        history.protect("a", array)
        history.save(1)
        history.save(2)
        refused("no_space", lambda: history.save(3), "discard checkpoints")
        history.restore(1)  # consumed, but nothing else has it: it stays
        refused("no_space", lambda: history.save(3))
        history.discard(1)
        history.save(3)
        assert history.steps() == [2, 3]
    with History(host=MIB, discard_consumed=True) as history:
        history.protect("a", array)
        for step in range(9):
            history.save(step)
            history.restore(step)
        assert history.steps() == []
    with History(disk=tmp_path / "run", disk_bytes=MIB) as history:
        history.protect("a", array)
        history.save(1)
        history.save(2)
        refused("no_space", lambda: history.save(3))


def test_a_full_disk_is_told_once(full: Full) -> None:
    array = np.zeros(MIB // 8)
    history = History(host=8 * MIB, disk=full.folder / "run")
    history.protect("a", array)
    history.save(1).wait()
    full.fill()
    ticket = history.save(2)
    refused("no_space", ticket.wait)
    refused("no_space", lambda: history.save(3))
    assert history.steps() == [1, 2]  # the cache has it
    assert history.latest() == 1
    full.free()
    history.save(3).wait()  # the error was told
    history.restore(2)
    history.close()
    with History(disk=full.folder / "run") as again:
        assert again.steps() == [1, 2, 3]  # tried again where there was room


def test_or_printed(full: Full) -> None:
    program = f"""
import holdfast, numpy, os
history = holdfast.History(host=1 << 23, disk={str(full.folder / "run")!r}, on_error="warn")
history.protect("a", numpy.zeros(1 << 17))
history.save(1).wait()
with open({str(full.folder / "ballast")!r}, "ab", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(1 << 16))
    except OSError:
        pass
for step in (2, 3):
    try:
        history.save(step).wait()
    except holdfast.Error as error:
        assert error.code == "no_space"
"""
    done = run_program(program)
    assert done.returncode == 1, done.stderr
    assert "closing a history" in done.stderr  # what is lost now is no warning
    assert "checkpoint 2" in done.stderr and "checkpoint 3" in done.stderr


def test_the_end_of_the_interpreter_closes(folder: Path) -> None:
    program = """
import holdfast, numpy, sys
history = holdfast.History(gpu=1 << 20, host=1 << 22, disk=sys.argv[1])
history.protect("a", numpy.arange(10_000))
for step in range(40):
    history.save(step)
raise SystemExit(int(sys.argv[2]))
"""
    done = run_program(program, folder, 7)
    assert (done.returncode, done.stderr) == (7, "")
    with History(disk=folder) as history:
        assert history.steps() == list(range(40))


def test_a_failure_at_the_end_is_the_exit_status(full: Full) -> None:
    program = """
import holdfast, numpy, sys
history = holdfast.History(host=1 << 23, disk=sys.argv[1])
history.protect("a", numpy.zeros(1 << 17))
with open(sys.argv[1] + "/../ballast", "ab", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(1 << 16))
    except OSError:
        pass
history.save(1)
"""
    done = run_program(program, full.folder / "run")
    assert done.returncode == 1
    assert "closing a history" in done.stderr


@pytest.mark.skipif(holdfast.backend == "cuda", reason="a forked child cannot use CUDA")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_leaves_the_history_alone(history: History) -> None:
    history.protect("a", np.arange(10))
    ticket = history.save(1)
    child = os.fork()
    if child == 0:
        codes = set()
        for call in (lambda: history.save(2), ticket.wait, history.steps, history.close):
            try:
                call()
            except holdfast.Error as error:
                codes.add(error.code)
        del history, ticket
        gc.collect()
        os._exit(0 if codes == {"in_use"} else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    history.save(2).wait()
    assert history.steps() == [1, 2]


@pytest.mark.skipif(holdfast.backend == "cuda", reason="a forked child cannot use CUDA")
def test_a_child_may_drop_its_copy(folder: Path) -> None:
    program = """
import gc, holdfast, numpy, os, sys
history = holdfast.History(gpu=1 << 20, host=1 << 20, disk=sys.argv[1])
history.protect("a", numpy.arange(10))
ticket = history.save(1)
child = os.fork()
if child == 0:
    del history, ticket
    gc.collect()
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
history.save(2)
"""
    done = run_program(program, folder)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    with History(disk=folder) as history:
        assert history.steps() == [1, 2]


@pytest.mark.skipif(holdfast.backend == "cuda", reason="a forked child cannot use CUDA")
def test_a_child_does_not_hold_folder_and_regions(tmp_path: Path) -> None:
    program = """
import holdfast, numpy, os, signal, sys
own = {"host": 1 << 20, "host_region": "host", "partner": 1 << 20, "partner_region": "partner"}
history = holdfast.History(**own, disk="run")
history.protect("a", numpy.arange(10))
history.save(1)
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, b"x")
    signal.pause()
os.read(reader, 1)
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    started = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    try:
        group = int(started.stdout.readline())
        started.wait(60)
        with History(
            host=MIB,
            host_region=tmp_path / "host",
            partner=MIB,
            partner_region=tmp_path / "partner",
            disk=tmp_path / "run",
        ) as history:
            assert history.steps() == [1]
    finally:
        os.killpg(group, signal.SIGKILL)
        started.stdout.close()


LOST = """
import os, signal, sys
import numpy as np
import holdfast
node, partner, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
array = np.zeros(50_000)
own = {"gpu": 1 << 20, "host": 1 << 20, "host_region": node + "/host", "disk": node + "/disk"}
history = holdfast.History(
    **own, partner=4 << 20, partner_region=partner, partner_owner="rank 1"
)
history.protect("a", array)
for step in range(steps):
    array[:] = step
    history.save(step).wait("partner")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lost_node_is_restored_from_its_partner(tmp_path: Path) -> None:
    node, partner = tmp_path / "node", tmp_path / "partner"
    node.mkdir()
    assert run_program(LOST, node, partner, 25).returncode == -signal.SIGKILL
    holdfast.destroy(node / "host")  # its memory, too
    shutil.rmtree(node)
    array = np.zeros(50_000)
    settings: dict[str, Any] = {
        "partner": 4 * MIB,
        "partner_region": partner,
        "disk": tmp_path / "new",
    }
    refused("invalid_argument", lambda: History(**settings), "rank 1", "partner_owner")
    refused("invalid_argument", lambda: History(partner=MIB), "partner_region")
    refused("invalid_argument", lambda: History(partner=MIB, partner_region=""), "partner_region")
    with History(**settings, partner_owner="rank 1") as history:
        history.protect("a", array)
        steps = history.steps()
        assert steps[-3:] == [22, 23, 24]  # of ten that fit
        assert history.latest("partner") == 24
        for step in steps:
            history.restore(step, keep=True)
            assert (array == step).all()
        assert history.stats().restored_from["partner"].checkpoints == len(steps)
        history.flush()
        assert history.stats().flushed_to["disk"].checkpoints == len(steps)
    with History(disk=tmp_path / "new") as history:
        assert history.steps() == steps


def test_kills(folder: Path) -> None:
    """What was reported durable is there, and right, after any kill."""
    dice = random.Random(seed_of())
    durable: set[int] = set()
    seen = 0
    for _ in range(int(os.environ.get("HOLDFAST_HISTORY_KILLS", "8"))):
        worker = subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), str(dice.randrange(2**32))],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "open\n"
        killer = threading.Timer(dice.random() * 0.3, worker.kill)
        killer.start()
        lines = [line.split() for line in worker.stdout if line.endswith("\n")]
        killer.join()
        assert worker.wait() == -signal.SIGKILL
        worker.stdout.close()
        assert ["wrong"] not in lines
        new = {int(line[1]) for line in lines if line[0] == "durable"}
        seen += len(new)
        durable = (durable | new) - {int(line[1]) for line in lines if line[0] == "discarding"}
        check_folder(folder, durable)
    assert seen > 0, "no save came through: the test tested nothing"


def check_folder(folder: Path, durable: set[int]) -> None:
    field = np.zeros(history_worker.CELLS, np.int64)
    number = np.zeros(1, np.int64)
    with History(disk=folder) as history:
        steps = history.steps()
        assert durable <= set(steps), durable - set(steps)
        assert history.latest() is None if not steps else history.latest() in steps
        history.protect("field", field)
        history.protect("number", number)
        for step in steps:
            history.verify(step)
            history.restore(step)
            assert number[0] == step
            np.testing.assert_array_equal(field, history_worker.content(step))
