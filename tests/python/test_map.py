"""The hash map on arrays, against a dict."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
import map_worker
from holdfast import Map
from holdfast._backend import ext
from maps import (
    MAX_BATCH,
    Array,
    ByDlpack,
    expect_refused,
    exported,
    lines_until_killed,
    region_for,
    rows_of,
    seed_of,
)

KINDS = [
    ("uint32", "float32"),
    ("int64", ("float32", 16)),
    ("uint64", "int64"),
    ("int32", ("uint8", 4096)),
    ("int64", ("float16", (2, 3))),
]


@pytest.fixture
def table(path: Path) -> Iterator[Map]:
    with region_for(path, ("int64", ("float32", 4))) as region:
        yield Map(region, key="int64", value=("float32", 4), capacity=400, max_batch=MAX_BATCH)


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def made(table: Map, **options: Any) -> Map:
    """A second map in the region of this one, with these options."""
    given = {"region": table.region, "name": "more", "key": "int64", "value": "int64"}
    return Map(**{**given, "capacity": 9, **options})


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


EDGE = np.dtype([("from", "u8"), ("to", "u4"), ("kind", "S4")])


@pytest.mark.parametrize("key", ["S16", "V32", EDGE, ("uint8", 128), "S24"])
def test_long_keys_leave_what_a_dict_has(path: Path, key: Any) -> None:
    rng = np.random.default_rng(seed_of())
    size = np.dtype(key).itemsize
    # Keys that differ in their last bytes, and in their first ones.
    pool = np.zeros((60, size), np.uint8)
    pool[:30, -1], pool[30:, 0] = np.arange(1, 31), np.arange(1, 31)
    pool[1::2, -2] = 255

    def named(rows: Array) -> Array:
        return rows if isinstance(key, tuple) else rows.reshape(-1).view(key)

    region = region_for(path, (key, "int64"))
    table = Map(region, "t", key=key, value="int64", capacity=400, max_batch=MAX_BATCH)
    oracle: dict[bytes, int] = {}
    for step in range(30):
        rows = pool[rng.integers(0, len(pool), int(rng.integers(1, MAX_BATCH)))]
        keys, values = named(rows), rng.integers(0, 1000, len(rows))
        last = {row.tobytes(): int(value) for row, value in zip(rows, values, strict=True)}
        if step % 3 == 2:
            assert table.erase(keys).erased == len(last.keys() & oracle.keys())
            for one in last:
                oracle.pop(one, None)
        else:
            result = table.insert_or_assign(keys, values)
            assert (result.inserted, result.assigned) == (
                len(last.keys() - oracle.keys()), len(last.keys() & oracle.keys()),
            )  # fmt: skip
            assert result.superseded == len(rows) - len(last)
            oracle.update(last)
        found_values, found = table.find(named(pool))
        assert [int(v) if f else None for v, f in zip(found_values, found, strict=True)] == [
            oracle.get(row.tobytes()) for row in pool
        ]
        out, out_values = table.export()
        assert out.dtype == (np.dtype("u1") if isinstance(key, tuple) else np.dtype(key))
        out = out.view(np.uint8).reshape(-1, size)  # of "S" NumPy shows no zeros at the end
        assert {k.tobytes(): int(v) for k, v in zip(out, out_values, strict=True)} == oracle
        assert table.verify() == ""
        if step == 15:
            table.close()
            region.close()
            region = holdfast.open(path)
            table = Map(region, "t", key=key)
    table.close()
    table = Map(region, "t")  # as rows of bytes
    assert table.export()[0].shape == (len(oracle), size)
    region.close()


def test_bytes_are_keys(path: Path) -> None:
    with region_for(path, ("S16", "int64")) as region:
        table = Map(region, key="S16", value="int64", capacity=400, max_batch=MAX_BATCH)
        table.insert([b"a", b"b" * 16], [1, 2])
        assert table.find([b"b" * 16, b"b" * 15, b"a"])[0].tolist() == [2, 0, 1]
        assert sorted(table.export()[0].tolist()) == [b"a", b"b" * 16]
        assert table.contains(np.array([b"a"], "S16").view("V16")).tolist() == [True]
        for keys, words in [
            ([b"b" * 17], ["S16", "S17"]),
            ([1], ["S16", "int64"]),
            (np.array([b"a"], "S8"), ["keys", "S8", "8 bytes", "S16"]),
            (np.zeros((1, 8), np.uint8), ["keys", "(1, 8)", "(n, 16)"]),
            (np.array([b"a", b"c"] * 2, "S16")[::2], ["keys", "contiguous"]),
        ]:
            with pytest.raises(holdfast.Error) as raised:
                table.erase(keys)
            for word in words:
                assert word in str(raised.value)
        assert table.size == 2


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


def test_empty_lists_are_a_batch_of_nothing(table: Map) -> None:
    table.insert([1], rows_of(3))
    for call in (table.insert, table.insert_or_assign, table.assign, table.accumulate):
        assert call([], []).inserted == 0
    values, result = table.find_or_insert([], [])
    assert (values.shape, result.inserted) == ((0, 4), 0)
    assert table.erase([]).erased == 0
    assert table.apply([], [], []).result.inserted == 0
    assert exported(table) == {1: rows_of(3).tobytes()}


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
        (lambda t: t.set_order("\udcff"), ["order"]),
        (lambda t: Map.region_bytes(64, "\udcff", "int64"), ["key"]),
        (lambda t: t.export_batch(0, 2.5), ["slots", "2.5"]),
        (lambda t: t.batches(-1), ["slots is -1", "from 1"]),
        (lambda t: t.batches(0), ["slots is 0"]),
        (lambda t: t.find([1], out=read_only(rows_of(1))), ["find()", "out", "read-only", "copy"]),
        (lambda t: t.erase([1], status=read_only(np.zeros(1, "u1"))), ["status", "read-only"]),
        (lambda t: t.set_order(3), ["order is 3"]),
        (lambda t: made(t, name=None), ["name of a map is None", "string"]),
        (lambda t: made(t, region=None), ["region of a map is None"]),
        (lambda t: made(t, capacity=1.5), ["capacity is 1.5"]),
        (lambda t: made(t, capacity="9"), ["capacity is '9'"]),
        (lambda t: made(t, directory=None), ["directory is None"]),
        (lambda t: made(t, max_batch=2.0), ["max_batch is 2.0"]),
        (lambda t: made(t, changes=-1), ["changes is -1"]),
        (lambda t: made(t, changes="n"), ["changes is 'n'"]),
        (lambda t: made(t, name="n" * 47), ["47 bytes", "46", "shorter"]),
    ],
)  # fmt: skip
def test_bad_input_is_named_and_changes_nothing(
    table: Map, call: Callable[[Map], Any], words: list[str]
) -> None:
    expect_refused(table, call, words)


def test_types_that_cannot_be_are_refused(path: Path) -> None:
    with holdfast.create(path, 1 << 20) as region:
        for key, value, words in [
            ("float32", "float32", ["float32", "int64"]),
            (("int64", 2), "float32", ["int64 x 2"]),
            ("int16", "float32", ["int16"]),
            ("S8", "float32", ["S8", "8 bytes", "pad"]),
            ("S20", "float32", ["20 bytes", "multiple of 8"]),
            ("V136", "float32", ["136 bytes", "128"]),
            (np.dtype([("a", "u8"), ("b", "f8")]), "float32", ["other", "bytes"]),
            (np.dtype([("a", "u4"), ("b", "u8")], align=True), "float32", ["padding"]),
            (("uint8", (4, 4)), "float32", ["uint8 x 4 x 4"]),
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
            del keys, rows, out, _  # they keep their region open
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
    for life in range(8):
        for line in lines_until_killed(
            map_worker, path, seed, number, dice=dice, longest=0.03, at_least=life % 2
        ):
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
    print(f"{number} batches; of {cut} that were cut off something is there")


OVERLAPPING = np.dtype(
    {"names": ["a", "b"], "formats": ["i8", "i8"], "offsets": [0, 0], "itemsize": 16}
)
GAP = np.dtype({"names": ["a", "b"], "formats": ["i8", "i4"], "offsets": [0, 8], "itemsize": 16})


def test_arrays_of_keys_that_are_refused_say_why(path: Path) -> None:
    with region_for(path, ("S16", "int64")) as region:
        table = Map(region, key="S16", value="int64", capacity=400, max_batch=MAX_BATCH)
        keys = np.array([b"a", b"b", b"c"], "S16")
        table.insert(keys, [1, 2, 3])
        floats = np.zeros(1, [("x", "f8"), ("y", "f8")])
        for wrong, why in [
            (np.ma.array(keys, mask=[False, True, False]), "keys is a masked array"),
            (keys[::2], "keys is not contiguous"),
            (keys.astype("S8"), "8 bytes, and the map's keys have 16: give them as 'S16'"),
            (floats, "equal values may have other bytes"),
            (np.zeros(1, OVERLAPPING), "equal values may have other bytes"),
            (np.zeros(1, GAP), "equal values may have other bytes"),
        ]:
            with pytest.raises(holdfast.Error, match=why) as raised:
                table.contains(wrong)
            assert raised.value.code == "invalid_argument"
        with pytest.raises(holdfast.Error, match="values is a masked array"):
            table.assign(keys, np.ma.array([1, 2, 3], mask=[True, False, False]))
        for dtype in (OVERLAPPING, GAP, floats.dtype):
            with pytest.raises(holdfast.Error, match="without padding, of which no two overlap"):
                made(table, key=dtype)
        fields: Any = {
            "names": ["b", "a"],
            "formats": ["i8", "i8"],
            "offsets": [8, 0],
            "itemsize": 16,
        }
        back_to_front = np.dtype(fields)
        assert not table.contains(np.zeros(1, back_to_front)).any()
        table = Map(region)  # without the type of its keys
        for given in ([b"a"], ["a"], b"a"):
            with pytest.raises(holdfast.Error, match="open it with one, such as key='S16'"):
                table.contains(given)
        assert table.contains(keys).all()
        assert sorted(table.export()[1].tolist()) == [1, 2, 3]


# Makes maps until it is killed.
MAKER = """
import sys, holdfast
key, changes = sys.argv[2], int(sys.argv[3])
with holdfast.open(sys.argv[1]) as region:
    print("open", flush=True)
    for i in range(40):
        holdfast.Map(region, f"m{i}", key=key, value="int64", capacity=100, max_batch=64,
                     changes=changes).close()
    print("made", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("key", "changes"), [("int64", 0), ("S32", 50)])
def test_a_creation_that_a_kill_cut_off_is_made_up_for(path: Path, key: str, changes: int) -> None:
    dice = random.Random(seed_of())
    options: dict[str, Any] = {"key": key, "value": "int64", "capacity": 100, "max_batch": 64,
                               "changes": changes}  # fmt: skip
    size = 40 * Map.region_bytes(100, key, "int64", 64, changes=changes)
    cut = 0
    for _ in range(6):
        holdfast.create(path, size).close()
        maker = subprocess.Popen(
            [sys.executable, "-c", MAKER, str(path), key, str(changes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert maker.stdout is not None and maker.stdin is not None
        assert maker.stdout.readline() == "open\n"
        time.sleep(dice.random() * 0.02)
        maker.kill()
        assert maker.wait() == -9
        maker.stdin.close()
        maker.stdout.close()
        with holdfast.open(path) as region:
            names = sorted({name.split(".")[0].removesuffix("_types") for name in region})
            for name in names:
                try:
                    Map(region, name).close()
                except holdfast.Error as error:
                    assert error.code == "not_found" and f"no map '{name}'" in str(error)
                    cut += 1
                with Map(region, name, **options) as table:
                    assert table.insert(np.zeros(1, key), [7]).inserted == 1
                    assert table.verify() == ""
        holdfast.destroy(path)
    print(f"{cut} creations were cut off")


# How far a creation came that was cut off: the first bytes of the header, and what parts there are.
@pytest.mark.parametrize(
    ("began", "parts"), [(bytes(8), 0), (b"HLDMAKE1", 0), (b"HLDMAKE1", 1), (b"HLDMAKE1", 2)]
)
def test_however_far_a_creation_came_it_is_made_anew(
    arenas: Path, path: Path, began: bytes, parts: int
) -> None:
    options: dict[str, Any] = {"value": "int64", "capacity": 100, "max_batch": 64}
    with holdfast.create(path, 1 << 22, arena_folder=arenas) as region:
        Map(region, "m", key="S32", changes=9, **options).close()
        for part in ("growth", "table")[: 2 - parts]:
            region.remove(f"m.{part}")
        header = next(info for info in region.objects() if info.name == "m.header")
        with next(arenas.glob("*.arena")).open("r+b") as arena:
            arena.seek(4096 + header.offset)
            arena.write(began)
        with pytest.raises(
            holdfast.Error, match="no map 'm', whose creation was cut off"
        ) as raised:
            Map(region, "m")
        assert raised.value.code == "not_found"
        # The next one may be another.
        with Map(region, "m", key="int64", **options) as table:
            table.insert([1], [2])
            assert table.key.dtype == "int64"
        assert "m.changes.header" not in region


# A header that reads as zeros is as that of a creation that was cut off, but for what is behind it.
def test_a_lost_header_is_damage_and_costs_nothing(arenas: Path, path: Path) -> None:
    options: dict[str, Any] = {"key": "int64", "value": "int64", "capacity": 100, "max_batch": 64}
    with holdfast.create(path, 1 << 22, arena_folder=arenas) as region:
        with Map(region, "m", changes=9, **options) as table:
            table.insert([1, 2], [3, 4])
        objects = list(region)
        header = next(info for info in region.objects() if info.name == "m.header")
        with next(arenas.glob("*.arena")).open("r+b") as arena:
            arena.seek(4096 + header.offset)
            before = arena.read(header.nbytes)
            arena.seek(4096 + header.offset)
            arena.write(bytes(header.nbytes))
            arena.flush()
            for how in ({}, options, {**options, "capacity": 300}):
                with pytest.raises(
                    holdfast.Error, match=r"'m'.*damaged header.*'m\.header'.*last commit"
                ) as raised:
                    Map(region, "m", **how)
                assert raised.value.code == "damaged"
            assert list(region) == objects
            arena.seek(4096 + header.offset)
            arena.write(before)
        table = Map(region, "m")
        assert sorted(table.export()[1].tolist()) == [3, 4]
        assert table.version().number == 2


def test_an_array_that_is_called_as_a_maps_types_stays(path: Path) -> None:
    with holdfast.create(path, 1 << 22) as region:
        region.allocate("m_types", 4, "int64")[:] = 7
        for _ in range(2):
            with pytest.raises(holdfast.Error, match="'m_types'") as raised:
                Map(region, "m", key="int64", value="int64", capacity=9, max_batch=9)
            assert raised.value.code == "already_exists"
        assert region["m_types"].tolist() == [7] * 4
        assert list(region) == ["m_types"]
