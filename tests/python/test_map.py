"""The hash map on arrays, against a dict."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import holdfast
import map_worker
from holdfast import Map
from holdfast._backend import ext

MAX_BATCH = 128
Array = npt.NDArray[Any]
KINDS = [
    ("uint32", "float32"),
    ("int64", ("float32", 16)),
    ("uint64", "int64"),
    ("int32", ("uint8", 4096)),
    ("int64", ("float16", (2, 3))),
]


def seed_of() -> int:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", random.randrange(2**32)))
    print(f"HOLDFAST_TEST_SEED={seed}")
    return seed


def region_for(path: Path, *kinds: tuple[Any, Any], capacity: int = 400) -> holdfast.Region:
    size = sum(Map.region_bytes(capacity, key, value, MAX_BATCH) for key, value in kinds)
    return holdfast.create(path, size)


@pytest.fixture
def table(path: Path) -> Iterator[Map]:
    with region_for(path, ("int64", ("float32", 4))) as region:
        yield Map(region, key="int64", value=("float32", 4), capacity=400, max_batch=MAX_BATCH)


def rows_of(*numbers: float) -> Array:
    return np.array([[number] * 4 for number in numbers], np.float32)


class Oracle:
    """What a map holds, as bytes, and what becomes of a batch."""

    def __init__(self) -> None:
        self.there: dict[int, bytes] = {}

    def statuses(self, operation: str, keys: list[int], rows: list[bytes]) -> list[str]:
        last = {key: i for i, key in enumerate(keys)}
        return [
            self._one(operation, key, row) if last[key] == i else "superseded"
            for i, (key, row) in enumerate(zip(keys, rows, strict=True))
        ]

    def _one(self, operation: str, key: int, row: bytes) -> str:
        was_there = key in self.there
        if operation == "erase":
            self.there.pop(key, None)
            return "erased" if was_there else "absent"
        if operation == "assign" and not was_there:
            return "absent"
        if operation in ("insert", "find_or_insert") and was_there:
            return "kept"
        self.there[key] = row
        return "assigned" if was_there else "inserted"


def exported(table: Map) -> dict[int, bytes]:
    keys, values = table.export()
    assert len(set(keys.tolist())) == len(keys)
    return dict(zip(keys.tolist(), [row.tobytes() for row in values], strict=True))


@pytest.mark.parametrize(("key", "value"), KINDS)
def test_random_programs_leave_what_a_dict_has(path: Path, key: str, value: Any) -> None:
    seed = seed_of()
    rng = np.random.default_rng(seed)
    region = region_for(path, (key, value))
    table = Map(region, "t", key=key, value=value, capacity=400, max_batch=MAX_BATCH)
    row_type = np.dtype(value)
    shape, dtype = row_type.shape, row_type.base
    oracle = Oracle()
    for step in range(60):
        operation = str(rng.choice(["insert", "insert_or_assign", "assign", "erase",
                                    "find_or_insert", "find"]))  # fmt: skip
        count = int(rng.integers(0, MAX_BATCH))
        keys = rng.integers(0, 250, count).astype(key)
        # No NaN: one of them is a bit pattern that cannot be stored.
        rows = rng.integers(0, 100, (count, *shape)).astype(dtype)
        if operation == "find":
            values, found = table.find(keys)
            assert values.dtype == dtype
            assert found.tolist() == [k in oracle.there for k in keys.tolist()]
            nothing = bytes(row_type.itemsize)
            assert [row.tobytes() for row in values] == [
                oracle.there.get(k, nothing) for k in keys.tolist()
            ]
            assert (table.contains(keys) == found).all()
            continue
        expected = oracle.statuses(operation, keys.tolist(), [row.tobytes() for row in rows])
        status = np.full(count, 99, np.uint8)
        if operation == "erase":
            result = table.erase(keys, status=status)
        elif operation == "find_or_insert":
            out, result = table.find_or_insert(keys, rows, status=status)
            for k, row, became in zip(keys.tolist(), out, expected, strict=True):
                assert row.tobytes() == (bytes(row_type.itemsize) if became == "superseded"
                                         else oracle.there[k])  # fmt: skip
        else:
            result = getattr(table, operation)(keys, rows, status=status)
        assert [ext.MapStatus(number).name for number in status.tolist()] == expected
        for name in ("inserted", "assigned", "kept", "erased", "absent", "superseded"):
            assert getattr(result, name) == expected.count(name)
        assert len(table) == len(oracle.there)
        if step % 10 == 9:
            assert exported(table) == oracle.there
            region.abandon() if rng.integers(2) else region.close()
            region = holdfast.open(path)
            table = Map(region, "t")
            assert table.recovery().pairs == len(oracle.there)
            assert not table.recovery().needed
            assert table.verify() == ""
    region.close()


def test_what_a_call_gives_back(table: Map) -> None:
    result = table.insert_or_assign([3, 4, 3], rows_of(1, 2, 3))
    assert (result.inserted, result.superseded, result.not_done) == (2, 1, 0)
    assert "inserted=2" in repr(result)
    out, flags = np.full((3, 4), 7, np.float32), np.ones(3, bool)
    values, found = table.find([3, 5, 4], out=out, found=flags)
    assert values is out
    assert found is flags
    assert flags.tolist() == [True, False, True]
    assert out[:, 0].tolist() == [3, 7, 2]  # of 5 it is as it was
    assert table.find(9)[1].tolist() == [False]
    out, result = table.find_or_insert([4, 6], rows_of(8, 9), out=rows_of(0, 0))
    assert (result.kept, result.inserted) == (1, 1)
    assert out[:, 0].tolist() == [2, 9]
    read_only = np.array([6])
    read_only.flags.writeable = False
    assert table.erase(read_only).erased == 1
    stats = table.stats()
    assert (stats.size, stats.value_bytes, stats.max_batch) == (2, 16, MAX_BATCH)
    assert stats.capacity >= 400
    assert stats.free_places == stats.value_places - 2
    assert table.timing().apply >= 0
    assert (str(table.key), str(table.value)) == ("int64", "float32 x 4")
    assert "int64 to float32 x 4" in repr(table)
    table.set_order("ordered")
    assert table.contains([3, 6]).tolist() == [True, False]


def test_export_in_parts(table: Map) -> None:
    table.insert(np.arange(100), np.arange(400, dtype=np.float32).reshape(100, 4))
    seen: dict[int, float] = {}
    for keys, values in table.batches(70):
        assert len(keys) <= 70
        seen.update(zip(keys.tolist(), values[:, 0].tolist(), strict=True))
    assert seen == {key: 4 * key for key in range(100)}
    keys, values = np.zeros(500, np.int64), np.zeros((500, 4), np.float32)
    some_keys, some_values = table.export_batch(0, 500, keys=keys, values=values)
    assert len(some_keys) == len(some_values) == 100
    assert np.shares_memory(some_keys, keys)
    assert np.shares_memory(some_values, values)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.find(np.arange(3, dtype=np.int32)), ["find()", "keys", "int32", "int64"]),
        (lambda t: t.find(np.arange(3, dtype=np.uint64)), ["uint64", "int64"]),
        (lambda t: t.find(np.zeros((2, 2), np.int64)), ["(2, 2)", "(n)"]),
        (lambda t: t.find(np.arange(6)[::2]), ["keys", "contiguous"]),
        (lambda t: t.find([1.5]), ["keys", "integers"]),
        (lambda t: t.find([2**63]), ["keys", "int64"]),
        (lambda t: t.find(np.array([1], ">i8")), [">i8", "int64"]),
        (lambda t: t.insert([1], np.zeros((1, 4))), ["insert()", "values", "float64", "float32"]),
        (lambda t: t.insert([1], np.zeros((1, 5), "f4")), ["values", "(1, 5)", "(1, 4)"]),
        (lambda t: t.insert([1, 2], rows_of(1)), ["values", "(1, 4)", "(2, 4)"]),
        (lambda t: t.insert([1], np.frombuffer(bytes(17), "u1")[1:].view("f4").reshape(1, 4)),
         ["values", "multiple of 4"]),
        (lambda t: t.insert([-1], rows_of(1)), ["EmptyKey", "nothing of this batch"]),
        (lambda t: t.insert(np.arange(MAX_BATCH + 1), np.zeros((MAX_BATCH + 1, 4), "f4")),
         ["129 operations", "128", "split"]),
        (lambda t: t.find([1], out=np.zeros((1, 4))), ["out", "float64"]),
        (lambda t: t.find([1], out=[[0.0] * 4]), ["out", "list is no array"]),
        (lambda t: t.find_or_insert([1], rows := rows_of(1), out=rows), ["out is values"]),
        (lambda t: t.find([1], found=np.zeros(2, bool)), ["found", "(2,)", "(1)"]),
        (lambda t: t.find([1], found=np.zeros(1, np.uint8)), ["found", "uint8", "bool"]),
        (lambda t: t.erase([1], status=np.zeros(1)), ["status", "float64", "uint8"]),
        (lambda t: t.find([1], stream="s"), ["stream", "str"]),
        (lambda t: t.set_order("random"), ["random", "ordered"]),
        (lambda t: t.export_batch(-1, 4), ["first"]),
        (lambda t: t.export_batch(0, 0), ["slots"]),
    ],
)  # fmt: skip
def test_bad_input_is_named_and_changes_nothing(
    table: Map, call: Callable[[Map], Any], words: list[str]
) -> None:
    table.insert_or_assign([1, 2], rows_of(5, 6))
    before = exported(table)
    with pytest.raises(holdfast.Error) as raised:
        call(table)
    assert raised.value.code == "invalid_argument"
    for word in words:
        assert word in str(raised.value)
    assert exported(table) == before


def test_types_that_cannot_be_are_refused(path: Path) -> None:
    with holdfast.create(path, 1 << 20) as region:
        for key, value, words in [
            ("float32", "float32", ["float32", "int64"]),
            (("int64", 2), "float32", ["int64 x 2"]),
            ("int16", "float32", ["int16"]),
            ("int64", "uint8", ["uint8", "1 bytes", "multiple of 4"]),
            ("int64", ("float16", 3), ["float16 x 3", "6 bytes"]),
            ("int64", ("float32", 1025), ["4100 bytes", "4,096"]),
            ("int64", ("float32", 0), ["at least 1"]),
            ("int64", "U4", ["U4"]),
            ("int64", object, ["object"]),
            ("int64", ("float32", 1, 2), ["how many"]),
        ]:
            with pytest.raises(holdfast.Error) as raised:
                Map(region, key=key, value=value, capacity=10)
            for word in words:
                assert word in str(raised.value)
        with pytest.raises(holdfast.Error, match="give a capacity") as raised:
            Map(region, "none")
        assert raised.value.code == "not_found"
        with pytest.raises(holdfast.Error, match="types of its key and value"):
            Map(region, capacity=10, key="int64")
        with pytest.raises(holdfast.Error) as raised:
            Map(region, capacity=1 << 20, key="int64", value="float32")
        assert raised.value.code == "no_space"
        assert region.objects() == []
        with pytest.raises(holdfast.Error, match="automatic, on or off"):
            Map(region, capacity=10, key="int64", value="float32", directory="yes")
        assert region.objects() == []
        # As a kill between the two steps of making one leaves it.
        region._handle.allocate("map_types", "i64:f32", 8, 1, "hashed")
        table = Map(region, capacity=10, key="uint32", value=("float32", 2))
        assert (str(table.key), str(table.value)) == ("uint32", "float32 x 2")
    with holdfast.open(path) as region:
        assert str(Map(region).value) == "float32 x 2"


def test_it_is_opened_with_its_types_alone(path: Path) -> None:
    with region_for(path, ("int64", ("float32", 4))) as region:
        table = Map(region, key="int64", value=("float32", 4), capacity=400, max_batch=MAX_BATCH)
        table.insert([1], rows_of(3))
    with holdfast.open(path) as region:
        wrong: list[tuple[dict[str, Any], list[str]]] = [
            ({"key": "uint64"}, ["int64", "uint64"]),
            ({"value": "float32"}, ["float32 x 4", "for float32"]),
            ({"value": ("int32", 4)}, ["float32 x 4", "int32 x 4"]),
        ]
        for types, words in wrong:
            with pytest.raises(holdfast.Error) as raised:
                Map(region, **types)
            for word in words:
                assert word in str(raised.value)
        assert Map(region, key="int64", value=("float32", 4), capacity=7).size == 1
        region._handle.remove("map_types")  # as of a map that C++ has made
        with pytest.raises(holdfast.Error, match="give the type of its key"):
            Map(region)
        with pytest.raises(holdfast.Error, match="16 bytes"):
            Map(region, key="int64", value="float32")
        with pytest.raises(holdfast.Error, match="8 bytes"):
            Map(region, key="int32", value=("float32", 4))
        table = Map(region, key="uint64", value=("int32", 4))
        assert table.contains(np.array([1], np.uint64)).tolist() == [True]
        del table
    with holdfast.open(path, read_only=True) as region, pytest.raises(holdfast.Error) as raised:
        Map(region, key="int64", value=("float32", 4))
    assert raised.value.code == "unsupported"


def test_two_maps_of_a_region(path: Path) -> None:
    with region_for(path, ("int64", "float32"), ("uint32", ("uint8", 64))) as region:
        common: Any = {"capacity": 400, "max_batch": MAX_BATCH}
        first = Map(region, "first", key="int64", value="float32", **common)
        second = Map(region, "second", key="uint32", value=("uint8", 64), **common)
        keys = np.arange(100)
        first.insert(keys, keys.astype(np.float32))
        second.insert(keys.astype(np.uint32), np.full((100, 64), 3, np.uint8))
        with second:
            assert second.erase(np.array([5], np.uint32)).erased == 1
        with pytest.raises(holdfast.Error, match="'second' is closed") as raised:
            second.contains(np.array([5], np.uint32))
        assert raised.value.code == "closed"
        second.close()
        assert first.contains([5]).all()
    first.close()  # its region has closed it
    with holdfast.open(path) as region:
        assert len(Map(region, "first")) == 100
        assert len(Map(region, "second")) == 99


def test_opened_again_the_earlier_one_is_closed(table: Map) -> None:
    table.insert([1], rows_of(3))
    again = Map(table.region)
    for call in (lambda: table.find([1]), table.stats, table.verify, table.export):
        with pytest.raises(holdfast.Error) as raised:
            call()
        assert raised.value.code == "closed"
    assert again.contains([1]).all()


def test_what_does_not_fit_is_counted(path: Path) -> None:
    with region_for(path, ("uint64", "uint64"), capacity=40) as region:
        table = Map(region, key="uint64", value="uint64", capacity=40, max_batch=MAX_BATCH)
        keys = np.arange(100, dtype=np.uint64)
        status = np.zeros(100, np.uint8)
        result = table.insert(keys, keys, status=status)
        assert result.full == result.not_done > 0
        assert len(table) == result.inserted == 100 - result.full
        assert (table.contains(keys) == (status == ext.MapStatus.inserted)).all()
        with pytest.raises(holdfast.Error, match="EmptyValue"):
            table.insert_or_assign(keys[:1], np.array([0x7FF49B1E66D50C3A], np.uint64))


def test_calls_of_several_threads(table: Map) -> None:
    def work(first: int) -> None:
        for key in range(first, first + 20):
            table.insert([key], rows_of(key))

    threads = [threading.Thread(target=work, args=(20 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values, found = table.find(np.arange(80))
    assert found.all()
    assert values[:, 2].tolist() == list(range(80))


class OnDevice:
    """Claims to be memory of a GPU."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._array.__array_interface__, "version": 3}


class ByDlpack:
    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_arrays_of_other_libraries(table: Map) -> None:
    keys, rows = np.arange(20), np.full((20, 4), 3, np.float32)
    assert table.insert(ByDlpack(keys), ByDlpack(rows)).inserted == 20
    values, found = table.find(ByDlpack(keys))
    assert isinstance(values, np.ndarray)
    assert found.all()
    assert (values == rows).all()
    out = np.zeros_like(rows)
    table.find(keys, out=ByDlpack(out))
    assert (out == rows).all()
    if holdfast.backend == "cpu":
        with pytest.raises(holdfast.Error, match="HOLDFAST_BACKEND=cuda") as raised:
            table.find(OnDevice(keys))
        assert raised.value.code == "unsupported"


def test_tensors(path: Path) -> None:
    torch = pytest.importorskip("torch")
    device = "cuda" if holdfast.backend == "cuda" else "cpu"
    value = (torch.bfloat16, 8)
    with region_for(path, (torch.int64, value)) as region:
        table = Map(region, key=torch.int64, value=value, capacity=400, max_batch=MAX_BATCH)
        assert (table.value.dtype, table.value.nbytes) == ("bfloat16", 16)
        keys = torch.arange(100, device=device)
        rows = torch.arange(800, device=device).reshape(100, 8).to(torch.bfloat16)
        status = torch.zeros(100, dtype=torch.uint8, device=device)
        stream = torch.cuda.current_stream() if device == "cuda" else None
        assert (
            table.insert(keys, rows.requires_grad_(), status=status, stream=stream).inserted == 100
        )
        assert (status == int(ext.MapStatus.inserted)).all()
        asked = keys + 50
        values, found = table.find(asked, stream=stream)
        assert values.device == found.device == keys.device
        assert found.tolist() == [key < 100 for key in asked.tolist()]
        assert torch.equal(values[:50], rows[50:])
        assert not values[50:].any()
        out = torch.ones_like(values)
        assert table.find(asked, out=out, found=found)[0] is out
        assert (out[50:] == 1).all()
        assert torch.equal(out[:50], rows[50:])
        with pytest.raises(holdfast.Error, match="give a tensor"):
            table.insert([1], [[1.0] * 8])
        with pytest.raises(holdfast.Error, match="NumPy has no bfloat16"):
            table.find([1])
        with pytest.raises(holdfast.Error, match="has elements of type int32"):
            table.find(asked.int())
        with pytest.raises(holdfast.Error, match="not contiguous"):
            table.insert(keys[:50], rows.reshape(50, 16)[:, :8])
        some_keys, some_rows = table.export_batch(
            0, 500, keys=keys.new_zeros(500), values=rows.new_zeros(500, 8)
        )
        assert torch.equal(some_rows, rows[some_keys])
    with holdfast.open(path) as region:
        assert str(Map(region).value) == "bfloat16 x 8"


@pytest.mark.skipif(holdfast.backend != "cuda", reason="needs the CUDA backend")
def test_arrays_of_the_device(path: Path) -> None:
    with region_for(path, ("int64", ("float32", 4))) as region:
        table = Map(region, key="int64", value=("float32", 4), capacity=400, max_batch=MAX_BATCH)
        with holdfast.create(path.with_name("arrays.hf"), 1 << 20) as arrays:
            arrays.allocate("keys", 100, "int64")[:] = np.arange(100)
            arrays.allocate("rows", (100, 4), "float32")[:] = 2
            arrays.allocate("out", (100, 4), "float32")
            keys, rows, out = map(arrays.on_device, ("keys", "rows", "out"))
            assert table.insert(keys, rows).inserted == 100
            for stream in (None, 0):
                arrays["out"][:] = 0
                _, found = table.find(keys, out=out, stream=stream)
                assert isinstance(found, np.ndarray)
                assert found.all()
                assert (arrays["out"] == 2).all()
            del keys, rows, out  # they keep their region open
        holdfast.destroy(path.with_name("arrays.hf"))


def after(there: dict[int, float], changed: dict[int, float | None]) -> dict[int, float]:
    return {key: row for key, row in {**there, **changed}.items() if row is not None}


def test_a_killed_process_loses_nothing_that_was_acknowledged(path: Path) -> None:
    seed = seed_of()
    dice = random.Random(seed)
    value = ("float32", map_worker.ROW)
    with region_for(path, ("int64", value), capacity=1200) as region:
        Map(region, "rows", key="int64", value=value, capacity=1200, max_batch=256)
    there: dict[int, float] = {}
    number = cut = 0
    for _ in range(8):
        worker = subprocess.Popen(
            [sys.executable, map_worker.__file__, str(path), str(seed), str(number)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert worker.stdout is not None
        assert worker.stdout.readline() == "open\n"
        timer = threading.Timer(dice.random() * 0.03, worker.kill)
        timer.start()
        lines = [line for line in worker.stdout if line.endswith("\n")]
        assert worker.wait() == -9
        worker.stdout.close()
        for line in lines:
            assert line == f"done {number}\n"
            changed = dict(map_worker.changes(map_worker.batch(seed, number), there))
            there = after(there, changed)
            number += 1
        # The batch that was cut off: of each of its operations all or nothing.
        with holdfast.open(path) as region:
            table = Map(region, "rows")
            assert table.verify() == ""
            keys, values = table.export()
        assert (values[:, 0] == keys).all()
        assert (values[:, 1:] == values[:, 1:2]).all()
        found = dict(zip(keys.tolist(), values[:, 1].tolist(), strict=True))
        changed = dict(map_worker.changes(map_worker.batch(seed, number), there))
        for key in range(map_worker.KEYS):
            may_be = {there.get(key), changed.get(key, there.get(key))}
            assert found.get(key) in may_be, f"key {key} behind batch {number}"
        cut += found != there
        there = found
        number += 1
    assert number > 8, "no batch came through: the test tested nothing"
    print(f"{number} batches; of {cut} that were cut off something is there")
