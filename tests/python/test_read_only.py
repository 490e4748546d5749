"""Regions that are opened for reading, and backups."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import holdfast
from holdfast import Checkpoint, KeyValueStore

MIB = 1 << 20


@pytest.fixture
def arenas(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of this test's own for shared memory."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir="/dev/shm") as folder:
        monkeypatch.setenv("HOLDFAST_ARENA_DIR", folder)
        yield Path(folder)
        gc.collect()


def make(path: Path, value: int = 1) -> holdfast.Region:
    """A region whose array `a` was committed with `value`, and then has `value + 1`."""
    region = holdfast.create(path, MIB)
    array = region.allocate("a", 1000, "int32")
    array[:] = value
    region.commit()
    array[:] = value + 1
    return region


def crash(path: Path, value: int = 1) -> None:
    make(path, value).abandon()


def value(path: Path, last_commit: bool = False) -> int:
    with holdfast.open(path, read_only=True, last_commit=last_commit) as region:
        array = region["a"]
        assert array.min() == array.max()
        return int(array[0])


def snapshot(path: Path, arenas: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in [path, *arenas.iterdir()]}


def code_of(function: Callable[[], object]) -> str:
    with pytest.raises(holdfast.Error) as raised:
        function()
    assert str(raised.value)
    return raised.value.code


def test_beside_a_writer_it_is_the_last_commit(path: Path, arenas: Path) -> None:
    writer = make(path)
    before = snapshot(path, arenas)
    with holdfast.open(path, read_only=True) as reader:
        assert (reader.read_only, writer.read_only) == (True, False)
        assert reader["a"][0] == 1
        assert writer["a"][0] == 2
        assert reader.generation == 1
        assert "read-only" in repr(reader)
    assert snapshot(path, arenas) == before
    writer.commit()
    assert value(path) == 2
    writer.close()


def test_nothing_of_it_can_be_stored_to(path: Path, arenas: Path) -> None:
    make(path).close()
    before = snapshot(path, arenas)
    reader = holdfast.open(path, read_only=True)
    array = reader["a"]
    view = reader.find("a")[3:]
    for target in (array, view):
        with pytest.raises(ValueError, match="read-only"):
            target[0] = 9
        with pytest.raises(ValueError, match="WRITEABLE"):
            target.flags.writeable = True
    assert code_of(lambda: reader.allocate("b", 1)) == "unsupported"
    assert code_of(lambda: reader.remove("a")) == "unsupported"
    assert code_of(lambda: reader.grow(2 * MIB)) == "unsupported"
    assert code_of(reader.commit) == "unsupported"
    assert code_of(reader.commit_async) == "unsupported"
    assert reader.guarantee().commit == "none"
    del array, view, target
    reader.close()
    assert reader.closed
    assert snapshot(path, arenas) == before


def test_it_ends_without_a_commit_and_without_an_error(path: Path, arenas: Path) -> None:
    make(path).close()
    before = snapshot(path, arenas)
    with holdfast.open(path, read_only=True) as region:
        array = region["a"]
    assert array[0] == 2  # it outlives the block
    del array
    with pytest.raises(ZeroDivisionError), holdfast.open(path, read_only=True) as region:
        _ = 1 / 0
    holdfast.open(path, read_only=True).abandon()
    program = (
        "import holdfast\n"
        f"region = holdfast.open({str(path)!r}, read_only=True)\n"
        "array = region['a']\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert snapshot(path, arenas) == before


def test_after_a_crash_it_is_what_was_stored(path: Path, arenas: Path) -> None:
    crash(path)
    before = snapshot(path, arenas)
    assert len(before) == 2
    reader = holdfast.open(path, read_only=True)
    assert reader.open_report.arena_found
    assert reader["a"][0] == 2
    assert code_of(lambda: holdfast.open(path)) == "in_use"  # it would change what is read
    reader.close()
    assert value(path, last_commit=True) == 1
    assert snapshot(path, arenas) == before
    with holdfast.open(path) as region:
        assert region.open_report.arena_found
        assert region.open_report.arena_set_aside == ""
        assert region["a"][0] == 2


def test_last_commit_sets_the_arena_aside(path: Path, arenas: Path, tmp_path: Path) -> None:
    crash(path)
    (arena,) = arenas.iterdir()
    content = arena.read_bytes()
    with holdfast.open(path, last_commit=True) as region:
        aside = Path(region.open_report.arena_set_aside)
        assert region["a"][0] == 1
    assert aside.name.startswith(arena.name)
    assert aside.read_bytes() == content
    assert not arena.exists()
    assert value(path) == 1
    report = holdfast.backup(aside, tmp_path / "rescued.hf")
    assert (report.arena_found, report.generation) == (True, 0)
    assert value(tmp_path / "rescued.hf") == 2


def test_an_arena_that_is_gone_is_a_conflict(path: Path, arenas: Path) -> None:
    crash(path)
    (arena,) = arenas.iterdir()
    arena.unlink()
    before = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(holdfast.Error, match="last_commit") as raised:
            holdfast.open(path, read_only=read_only)
        assert raised.value.code == "conflict"
        assert arena.name in str(raised.value)
    assert path.read_bytes() == before
    assert value(path, last_commit=True) == 1
    with holdfast.open(path, last_commit=True) as region:
        assert region["a"][0] == 1
        assert region.open_report.arena_set_aside == ""
    assert value(path) == 1


def test_backup(path: Path, arenas: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.hf"
    writer = make(path)
    report = holdfast.backup(path, copy)
    assert (report.arena_found, report.generation, report.region_bytes) == (False, 1, MIB)
    assert report.pages_written > 0
    assert report.uuid in repr(report)
    with holdfast.open(copy) as second:  # while the other is open
        assert second.uuid == report.uuid != writer.uuid
        assert second["a"][0] == 1
        second["a"][:] = 7
    assert writer["a"][0] == 2
    assert code_of(lambda: holdfast.backup(path, copy)) == "already_exists"
    writer.abandon()
    before = snapshot(path, arenas)
    assert holdfast.backup(path, tmp_path / "crashed.hf").arena_found
    assert not holdfast.backup(path, tmp_path / "older.hf", last_commit=True).arena_found
    assert code_of(lambda: holdfast.backup(tmp_path / "none", tmp_path / "b")) == "not_found"
    assert code_of(lambda: holdfast.backup(path, tmp_path / "none" / "b")) == "not_found"
    assert snapshot(path, arenas) == before
    found = {name: value(tmp_path / f"{name}.hf") for name in ("copy", "crashed", "older")}
    assert found == {"copy": 7, "crashed": 2, "older": 1}
    assert not (tmp_path / "b").exists()


BATCHES = """
import holdfast, sys
import numpy as np
store = holdfast.KeyValueStore(holdfast.open(sys.argv[1]))
keys = np.arange(1, 20001, dtype=np.uint64)
for number in range(10**9):
    store.set(keys, keys + np.uint64(number))
"""


def kill_in_a_batch(path: Path, arenas: Path, transaction: int) -> None:
    """Kills a process once its transaction, whose object has this offset, is under way."""
    process = subprocess.Popen([sys.executable, "-c", BATCHES, str(path)])
    deadline = time.monotonic() + 60
    while not list(arenas.iterdir()):
        assert time.monotonic() < deadline and process.poll() is None
    (arena,) = arenas.iterdir()
    with arena.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        state = 4096 + transaction + 8  # behind the arena's own page and a magic number
        while not memory[state] & 1:  # it is active
            assert time.monotonic() < deadline and process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_store_recovers_in_memory(path: Path, arenas: Path) -> None:
    count = 20_000
    with holdfast.create(path, KeyValueStore.region_bytes(1 << 18, count)) as region:
        store = KeyValueStore(region, 1 << 18, count)
        keys = np.arange(1, count + 1, dtype=np.uint64)
        store.set(keys, keys)
        (transaction,) = (info.offset for info in region.objects() if info.name == "kvs.tx")
    for _ in range(20):
        kill_in_a_batch(path, arenas, transaction)
        before = snapshot(path, arenas)
        with holdfast.open(path, read_only=True) as region:
            store = KeyValueStore(region)
            cut_off = store.recovery().needed
            assert store.verify() == ""
            assert len(store) == store.stats().records == count
            found_keys, found = store.scan()
            assert len(set((found - found_keys).tolist())) == 1  # of one batch
            assert store.get([1])[0][0] - 1 == found[0] - found_keys[0]
            assert code_of(lambda: store.set([1], [2])) == "unsupported"  # noqa: B023
            assert code_of(lambda: store.erase([1])) == "unsupported"  # noqa: B023
            assert store.verify() == ""
        assert snapshot(path, arenas) == before
        with holdfast.open(path) as region:
            assert KeyValueStore(region).recovery().needed == cut_off
        if cut_off:
            return
    pytest.fail("20 kills met no batch")


def test_no_store_is_made_in_it(path: Path, arenas: Path) -> None:
    holdfast.create(path, KeyValueStore.region_bytes(64, 64)).close()
    with holdfast.open(path, read_only=True) as region:
        assert code_of(lambda: KeyValueStore(region, 64, 64)) == "unsupported"
        assert code_of(lambda: KeyValueStore(region)) == "not_found"


def test_a_checkpoint_restores_and_does_not_save(path: Path, arenas: Path) -> None:
    data = np.arange(100, dtype=np.float64)
    with holdfast.create(path, MIB) as region:
        checkpoint = Checkpoint(region, "training")
        checkpoint.add("model", "data", data)
        checkpoint.save("model", 7)
        holdfast.save_state(region, "state", {"x": data, "n": 3}, tag=9)
    before = snapshot(path, arenas)
    data[:] = 0
    with holdfast.open(path, read_only=True) as region:
        checkpoint = Checkpoint(region, "training")
        checkpoint.add("model", "data", data)
        assert checkpoint.restore("model") == 7
        assert data.tolist() == list(range(100))
        assert code_of(lambda: checkpoint.save("model", 8)) == "unsupported"
        assert code_of(lambda: checkpoint.save_async("model", 8)) == "unsupported"
        checkpoint.add("other", "data", data)
        assert checkpoint.restore("other") is None
        found = holdfast.restore_state(region, "state")
        assert found is not None
        assert (found.tag, found.state["n"]) == (9, 3)
        assert code_of(lambda: holdfast.save_state(region, "state", {"x": data, "n": 4})) == (
            "unsupported"
        )
    assert snapshot(path, arenas) == before


def test_a_forked_child_leaves_a_reader_alone(path: Path, arenas: Path) -> None:
    crash(path)
    region = holdfast.open(path, read_only=True)
    child = os.fork()
    if child == 0:
        try:
            region.find("a")
        except holdfast.Error as error:
            os._exit(0 if error.code == "in_use" else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert region["a"][0] == 2
    region.close()
    holdfast.open(path).close()


def test_on_a_device_it_says_that_it_is_read_only(path: Path, arenas: Path) -> None:
    make(path).close()
    with holdfast.open(path, read_only=True) as region:
        array = holdfast.DeviceArray(region._handle, "a")  # as on_device() makes one
        assert array.__cuda_array_interface__["data"][1] is True
        with pytest.raises(BufferError, match="open for reading"):
            array.__dlpack__()
        if holdfast.backend == "cpu":
            taken = np.from_dlpack(array)
            assert taken[0] == 2
            assert not taken.flags.writeable
            del taken
        del array
