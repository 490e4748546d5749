"""What asynchronous commits hold, and what becomes of those that fail."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import holdfast
from conftest import Full
from holdfast import KeyValueStore

if TYPE_CHECKING:
    from holdfast._cpu import Commit

MIB = 1 << 20

# Opens a copy of a region's file without its shared memory, as after a power cut.
AfterPowerCut = Callable[[Path], holdfast.Region]


@pytest.fixture
def after_power_cut(tmp_path: Path) -> Iterator[AfterPowerCut]:
    copy = tmp_path / "copy.hf"
    folder = Path("/dev/shm") / f"holdfast-test-{os.getpid()}-{tmp_path.name}-{id(copy)}"
    folder.mkdir()

    def open_copy(path: Path) -> holdfast.Region:
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o600)
        return holdfast.open(copy, arena_folder=folder)

    yield open_copy
    for left in folder.iterdir():
        left.unlink()
    folder.rmdir()


def test_a_commit_holds_what_was_stored_before_it(
    path: Path, after_power_cut: AfterPowerCut
) -> None:
    with holdfast.create(path, 66 * MIB) as region:
        array = region.allocate("a", 64 * MIB // 8, "uint64")
        for _ in range(20):
            array[:] = 1
            region.commit()
            array[:] = 2
            pending = region.commit_async()
            array[:] = 3
            pending.wait()
            with after_power_cut(path) as copy:
                values, counts = np.unique(copy["a"], return_counts=True)
            assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == {2: array.size}
        del array


def test_a_commit_holds_whole_batches_of_a_store(
    path: Path, after_power_cut: AfterPowerCut
) -> None:
    count, capacity = 2_000, 1 << 14
    keys = np.arange(count, dtype=np.uint64)
    size = KeyValueStore.region_bytes(capacity, count) + 132 * MIB
    with holdfast.create(path, size, max_size=size) as region:
        # Copying it aside takes longer than a batch, and comes before the store.
        other = region.allocate("other", 128 * MIB // 8, "uint64")
        store = KeyValueStore(region, capacity, count)
        for value in range(0, 20, 2):
            other[:] = value + 1
            store.set(keys, np.full(count, value, np.uint64))
            pending = region.commit_async()
            store.set(keys, np.full(count, value + 1, np.uint64))
            pending.wait()
            with after_power_cut(path) as copy:
                found = KeyValueStore(copy)
                assert found.verify() == ""
                assert not found.recovery().needed
                assert set(found.scan()[1].tolist()) == {value}
                del found
        del other


def test_a_commit_comes_between_the_batches_of_other_threads(
    path: Path, after_power_cut: AfterPowerCut
) -> None:
    count = 5_000
    keys = np.arange(count, dtype=np.uint64)
    ended = threading.Event()
    with holdfast.create(path, KeyValueStore.region_bytes(1 << 18, count)) as region:
        store = KeyValueStore(region, 1 << 18, count)
        store.set(keys, keys)

        def work() -> None:
            value = 0
            while not ended.is_set():
                value += 1
                store.set(keys, np.full(count, value, np.uint64))

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for _ in range(10):
                region.commit_async().wait()
                with after_power_cut(path) as copy:
                    found = KeyValueStore(copy)
                    assert not found.recovery().needed
                    assert found.verify() == ""
                    del found
        finally:
            ended.set()
            worker.join()


def test_a_commit_waits_for_saves(path: Path, after_power_cut: AfterPowerCut) -> None:
    data = np.zeros(4 * MIB, np.uint8)
    with holdfast.create(path, 12 * MIB) as region:
        checkpoint = holdfast.Checkpoint(region, "c")
        checkpoint.add("g", "data", data)
        for tag in range(1, 11):
            data[:] = tag
            checkpoint.save_async("g", tag)
            region.commit_async().wait()
            data[:] = 0
            with after_power_cut(path) as copy:
                again = holdfast.Checkpoint(copy, "c")
                again.add("g", "data", data)
                assert again.restore("g") == tag
                assert (data == tag).all()


def fail_a_commit(full: Full, region: holdfast.Region) -> Commit:
    """Makes a commit that finds no room; there is room again."""
    full.fill()
    pending = region.commit_async()
    while not pending.done:
        time.sleep(0.001)
    full.free()
    return pending


@contextmanager
def failed_commit(full: Full) -> Iterator[tuple[holdfast.Region, Commit]]:
    """A region of which a commit has failed that no one waited for; there is room again."""
    with holdfast.create(full.folder / "region.hf", 8 * MIB) as region:
        region.allocate("a", 4 * MIB, "uint8")[:] = np.arange(4 * MIB) % 251
        yield region, fail_a_commit(full, region)


@pytest.mark.parametrize("call", ["commit", "commit_async"])
def test_a_commit_that_no_one_waits_for_is_heard_of(full: Full, call: str) -> None:
    with failed_commit(full) as (region, pending):
        generation = region.generation
        with pytest.raises(holdfast.Error, match=r"no one waited.*not (made|started)") as told:
            getattr(region, call)()
        assert told.value.code == "no_space"
        assert region.generation == generation
        getattr(region, call)()  # said once
        region.commit()
        assert region.generation > generation
        with pytest.raises(holdfast.Error) as raised:
            pending.wait()
        assert raised.value.code == "no_space"


def test_who_waited_has_been_told(full: Full) -> None:
    with failed_commit(full) as (region, pending):
        with pytest.raises(holdfast.Error) as raised:
            pending.wait()
        assert raised.value.code == "no_space"
        region.commit()
        region.close()


@pytest.mark.parametrize("end", ["close", "block", "block with an array"])
def test_the_end_of_a_region_says_what_failed(full: Full, end: str) -> None:
    path = full.folder / "region.hf"
    with (
        pytest.raises(holdfast.Error, match=r"no one waited.*committed what"),
        failed_commit(full) as (region, _),
    ):
        array = region["a"] if end == "block with an array" else None
        if end == "close":
            region.close()
    assert region.closed
    del array
    with holdfast.open(path) as again:  # nothing is lost all the same
        assert not again.open_report.arena_found
        np.testing.assert_array_equal(again["a"], np.arange(4 * MIB) % 251)


def test_an_abandoned_region_says_nothing(full: Full) -> None:
    with failed_commit(full) as (region, _):
        region.abandon()


PROGRAM = """
import atexit, holdfast, numpy, os, sys
from pathlib import Path

folder = Path(sys.argv[1])
atexit.register(lambda: print("a handler of before"))
region = holdfast.create(folder / "region.hf", 8 << 20)
array = region.allocate("a", 4 << 20, "uint8")
array[:] = numpy.arange(4 << 20) % 251
ballast = (folder / "ballast").open("wb", buffering=0)
def fill():
    try:
        while True:
            ballast.write(bytes(1 << 16))
    except OSError:
        pass
def free():
    ballast.truncate(0)
"""


@pytest.mark.parametrize(
    ("ending", "status", "message"),
    [
        ("fill(); c = region.commit_async(); exec('while not c.done: pass'); free()", 1, "waited"),
        (
            "fill(); c = region.commit_async(); exec('while not c.done: pass'); free(); del c\n"
            "del array, region",
            1,
            "waited",
        ),
        ("fill()", 1, "closing"),
        ("fill(); sys.exit(3)", 3, "closing"),
        ("fill(); 1 / 0", 1, "ZeroDivisionError"),
        ("fill(); region.abandon()", 0, ""),
        ("region.commit_async()", 0, ""),
    ],
)
def test_the_exit_status_says_what_failed(
    full: Full, ending: str, status: int, message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{PROGRAM}\nprint('to the end')\n{ending}\n", str(full.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert bool(message) == bool(done.stderr)
    # Nothing of the interpreter's own end is skipped.
    assert done.stdout.split("\n")[:2] == ["to the end", "a handler of before"]
    (full.folder / "ballast").unlink()
    with holdfast.open(full.folder / "region.hf") as region:
        np.testing.assert_array_equal(region["a"], np.arange(4 * MIB) % 251)
