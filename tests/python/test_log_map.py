"""The log map on arrays, against a dict."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
import log_map_worker
from holdfast import KeyValueStore, LogMap, Map, MapStatus
from maps import (
    MAX_BATCH,
    Array,
    ByDlpack,
    expect_refused,
    exported,
    lines_until_killed,
    rows_of,
    seed_of,
)

CAPACITY = 400
VALUES = ["float32", ("float32", 16), "int64", ("uint8", 4096), ("float16", (2, 3))]
FORMS = ["automatic", "whole", "fingerprints"]


def region_for(path: Path, *values: Any) -> holdfast.Region:
    return holdfast.create(
        path, sum(LogMap.region_bytes(CAPACITY, value, MAX_BATCH) for value in values)
    )


def made(region: holdfast.Region, name: Any = "map", **options: Any) -> Any:
    """A new map. Any: what tests of maps share is said to be of Map."""
    given = {"value": ("float32", 4), "capacity": CAPACITY, "max_batch": MAX_BATCH}
    return LogMap(region, name, **{**given, **options})


def numbered(*keys: int) -> Array:
    return np.array(keys, np.uint64)


@pytest.fixture
def table(path: Path) -> Iterator[Any]:
    with region_for(path, ("float32", 4), "int64") as region:
        yield made(region)


def check_status(operation: str, keys: list[int], status: list[int], before: set[int]) -> None:
    """`before`: the keys that were there."""
    last = {key: i for i, key in enumerate(keys)}
    done = {"erase": MapStatus.erased, "insert": MapStatus.inserted, "assign": MapStatus.assigned}
    for key, at in last.items():
        said = {status[i] for i in range(at + 1) if keys[i] == key}
        expected = done.get(operation)
        if operation == "insert_or_assign":
            expected = MapStatus.assigned if key in before else MapStatus.inserted
        if operation == "insert" and key in before:
            expected = MapStatus.kept
        if operation in ("assign", "erase") and key not in before:
            expected = MapStatus.absent
        assert expected is not None
        assert expected in said and said <= {expected, MapStatus.superseded}
        if operation != "erase":
            assert status[at] == expected


@pytest.mark.parametrize("value", VALUES)
def test_random_batches_leave_what_a_dict_has(path: Path, value: Any) -> None:
    rng = np.random.default_rng(seed_of())
    region = region_for(path, value)
    table: Any = made(region, "t", value=value, index=str(rng.choice(FORMS)))
    row_type = np.dtype(value)
    nothing = bytes(row_type.itemsize)
    oracle: dict[int, bytes] = {}
    for step in range(60):
        count = int(rng.integers(0, MAX_BATCH + 1))
        keys = rng.integers(0, 250, count).astype(np.uint64)
        # The last of a key's rows counts.
        rows = rng.integers(0, 100, (count, *row_type.shape)).astype(row_type.base)
        batch = {key: row.tobytes() for key, row in zip(keys.tolist(), rows, strict=True)}
        operation = str(rng.choice(log_map_worker.OPERATIONS))
        status = np.zeros(count, np.uint8) if rng.integers(2) else None
        before = set(oracle)
        old = batch.keys() & before
        if operation == "erase":
            result = table.erase(keys, status=status)
            assert (result.inserted, result.assigned, result.erased) == (0, 0, len(old))
            for key in old:
                del oracle[key]
        else:
            result = getattr(table, operation)(keys, rows, status=status)
            inserts, assigns = operation != "assign", operation != "insert"
            assert result.inserted == inserts * (len(batch) - len(old))
            assert result.assigned == assigns * len(old)
            assert result.erased == 0
            oracle.update({k: r for k, r in batch.items() if (assigns if k in old else inserts)})
        if status is not None:
            check_status(operation, keys.tolist(), status.tolist(), before)
        asked = rng.integers(0, 300, MAX_BATCH).astype(np.uint64)
        values, found = table.find(asked)
        assert (values.dtype, values.shape[1:]) == (row_type.base, row_type.shape)
        assert found.tolist() == [key in oracle for key in asked.tolist()]
        assert [row.tobytes() for row in values] == [
            oracle.get(key, nothing) for key in asked.tolist()
        ]
        assert (table.contains(asked) == found).all()
        assert len(table) == len(oracle)
        if step % 10 == 9:
            assert exported(table) == oracle
            region.abandon() if rng.integers(2) else region.close()
            region = holdfast.open(path)
            table = LogMap(region, "t", index=str(rng.choice(FORMS)))
            assert not table.recovery().needed
            assert table.verify() == ""
            assert exported(table) == oracle
    region.close()


def test_a_batch_of_both_kinds_says_what_became_of_each(table: Any) -> None:
    table.insert_or_assign([1, 2, 3, 4], rows_of(1, 2, 3, 4))
    each = [
        ("erase", 1, MapStatus.erased),
        ("insert_or_assign", 5, MapStatus.inserted),
        ("erase", 6, MapStatus.absent),
        ("erase", 2, MapStatus.superseded),
        ("insert_or_assign", 2, MapStatus.assigned),
        ("insert_or_assign", 3, MapStatus.superseded),
        ("erase", 3, MapStatus.erased),
        ("insert_or_assign", 7, MapStatus.superseded),
        ("erase", 7, MapStatus.absent),
    ]
    operations, keys, expected = zip(*each, strict=True)
    status = np.zeros(len(each), np.uint8)
    result = table.apply(list(operations), list(keys), rows_of(*range(10, 19)), status=status)
    assert (result.inserted, result.assigned, result.erased) == (1, 1, 2)
    assert status.tolist() == list(expected)
    held, rows = table.export()
    assert dict(zip(held.tolist(), rows[:, 0].tolist(), strict=True)) == {2: 14, 4: 4, 5: 11}
    assert table.verify() == ""


def test_what_a_call_gives_back(table: Any) -> None:
    result = table.insert_or_assign([3, 4, 3], rows_of(1, 2, 3))
    assert repr(result) == "LogMapResult(inserted=2, assigned=0, erased=0)"
    out, flags = np.full((3, 4), 7, np.float32), np.ones(3, bool)
    values, found = table.find([3, 5, 4], out=out, found=flags)
    assert values is out
    assert found is flags
    assert flags.tolist() == [True, False, True]
    assert out[:, 0].tolist() == [3, 7, 2]  # of 5 it is as it was
    assert table.find(9)[1].tolist() == [False]
    assert table.contains([4, 5], found=flags[:2]).tolist() == [True, False]
    keys = numbered(4, 6)
    keys.flags.writeable = False
    assert table.erase(keys).erased == 1
    stats = table.stats()
    assert (stats.size, stats.capacity, stats.max_batch) == (1, CAPACITY, MAX_BATCH)
    assert (stats.value_bytes, stats.places) == (16, CAPACITY + MAX_BATCH)
    assert stats.free_places == stats.places - 1
    assert stats.index.layout == "log"
    assert stats.index.write_amplification > 0
    assert stats.index.space_amplification > 0
    assert str(table.value) == "float32 x 4"
    assert "uint64 to float32 x 4" in repr(table)
    out = np.zeros((1, 4), np.float32)
    keys, values = table.export(values=out)
    assert values is out
    assert (keys.tolist(), out[:, 3].tolist()) == ([3], [3])
    assert table.insert_or_assign([], np.zeros((0, 4), np.float32)).inserted == 0


def test_all_keys_but_one_are_keys(table: Any) -> None:
    keys = numbered(0, 1, 2**63, 2**64 - 2)
    assert table.insert_or_assign(keys, rows_of(1, 2, 3, 4)).inserted == 4
    assert not table.contains([holdfast.RESERVED_KEY]).any()
    assert {key: row[:1] for key, row in zip(*table.export(), strict=True)} == {
        0: [1], 1: [2], 2**63: [3], 2**64 - 2: [4]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.find(np.arange(3)), ["find()", "keys", "int64", "uint64"]),
        (lambda t: t.find(np.zeros((2, 2), np.uint64)), ["(2, 2)", "(n)"]),
        (lambda t: t.find(np.zeros(6, np.uint64)[::2]), ["keys", "contiguous"]),
        (lambda t: t.find([1.5]), ["keys", "integers"]),
        (lambda t: t.erase([-1]), ["erase()", "keys", "uint64"]),
        (lambda t: t.insert_or_assign([1], np.zeros((1, 4))),
         ["insert_or_assign()", "values", "float64", "float32"]),
        (lambda t: t.insert_or_assign([1, 2], rows_of(1)), ["values", "(1, 4)", "(2, 4)"]),
        (lambda t: t.insert_or_assign(numbered(7, holdfast.RESERVED_KEY), rows_of(1, 2)),
         ["have the key", str(holdfast.RESERVED_KEY)]),
        (lambda t: t.erase(numbered(1, holdfast.RESERVED_KEY)), ["have the key"]),
        (lambda t: t.insert_or_assign(np.arange(MAX_BATCH + 1, dtype=np.uint64),
                                      np.zeros((MAX_BATCH + 1, 4), "f4")),
         ["129 operations", "128", "split"]),
        (lambda t: t.erase(np.zeros(MAX_BATCH + 1, np.uint64)), ["129 operations"]),
        (lambda t: t.find(np.zeros(MAX_BATCH + 1, np.uint64)), ["129 operations"]),
        (lambda t: t.find([1], out=np.zeros((1, 4))), ["out", "float64"]),
        (lambda t: t.find([1], found=np.zeros(2, bool)), ["found", "(2,)", "(1)"]),
        (lambda t: t.find([1], stream="s"), ["stream", "str"]),
        (lambda t: t.export(values=rows_of(1)), ["export()", "values", "(1, 4)", "(2, 4)"]),
        (lambda t: made(t.region, None), ["name of a map is None", "string"]),
        (lambda t: LogMap(None, "m"), ["region of a map is None"]),  # type: ignore[arg-type]
        (lambda t: made(t.region, "m", value="uint8"), ["uint8", "multiple of 4"]),
        (lambda t: made(t.region, "m", value=None), ["the type of its value"]),
        (lambda t: made(t.region, "m", capacity=1.5), ["capacity is 1.5"]),
        (lambda t: made(t.region, "m", capacity=0), ["capacity is 0"]),
        (lambda t: made(t.region, "m", max_batch=0), ["max_batch is 0"]),
        (lambda t: made(t.region, "m", log_records=-1), ["log_records is -1"]),
        (lambda t: made(t.region, "m", index="on"), ["'on'", "fingerprints"]),
        (lambda t: made(t.region, "n" * 41), ["41 bytes", "39", "shorter"]),
    ],
)  # fmt: skip
def test_bad_input_is_named_and_changes_nothing(
    table: Any, call: Callable[[Any], Any], words: list[str]
) -> None:
    objects = list(table.region)
    expect_refused(table, call, words)
    assert list(table.region) == objects
    assert table.verify() == ""


def test_empty_lists_are_a_batch_of_nothing(table: Any) -> None:
    table.insert_or_assign([1], rows_of(3))
    for call in (table.insert, table.insert_or_assign, table.assign):
        assert call([], []).inserted == 0
    assert table.erase([]).erased == 0
    assert table.apply([], [], []).inserted == 0
    values, found = table.find([])
    assert (values.shape, found.shape) == ((0, 4), (0,))
    assert exported(table) == {1: rows_of(3).tobytes()}


def test_what_does_not_fit_changes_nothing(path: Path) -> None:
    with region_for(path, "uint64") as region:
        table = made(region, value="uint64", capacity=100)
        keys = np.arange(150, dtype=np.uint64)
        table.insert_or_assign(keys[:90], keys[:90])
        with pytest.raises(holdfast.Error) as raised:
            table.insert_or_assign(keys[80:101], keys[:21])
        assert raised.value.code == "no_space"
        assert exported(table) == {key: key.to_bytes(8, "little") for key in range(90)}
        assert table.verify() == ""
        assert table.insert_or_assign(keys[80:100], keys[:20]).inserted == 10
        with pytest.raises(holdfast.Error) as raised:
            made(region, "more", value=("uint8", 4096))
        assert raised.value.code == "no_space"
        assert "more_types" not in region


def test_it_is_opened_with_its_type_alone(path: Path) -> None:
    with region_for(path, ("float32", 4)) as region:
        with pytest.raises(holdfast.Error, match="give a capacity") as raised:
            LogMap(region)
        assert raised.value.code == "not_found"
        # As a kill between the two steps of making one leaves it.
        region._handle.allocate("map_types", "u64:i64", 8, 1, "hashed")
        made(region).insert_or_assign([1], rows_of(3))
    with holdfast.open(path) as region:
        with pytest.raises(holdfast.Error, match="float32 x 4, and is opened for int32 x 4"):
            LogMap(region, value=("int32", 4))
        assert made(region, capacity=7).size == 1
        region._handle.remove("map_types")  # as of a map that C++ has made
        with pytest.raises(holdfast.Error, match="give the type of its value"):
            LogMap(region)
        with pytest.raises(holdfast.Error, match="16 bytes, and float32 has 4"):
            LogMap(region, value="float32")
        assert LogMap(region, value=("int32", 4)).contains([1]).tolist() == [True]
    with holdfast.open(path, read_only=True) as region, pytest.raises(holdfast.Error) as raised:
        LogMap(region, value=("float32", 4))
    assert raised.value.code == "unsupported"


def test_a_creation_that_was_cut_off_is_made_up_for(path: Path) -> None:
    with region_for(path, ("float32", 4)) as region:
        made(region, "m").close()
        # As a kill leaves it in front of the index, which comes last.
        for name in [name for name in region if name.startswith("m.index.")]:
            region.remove(name)
        with pytest.raises(holdfast.Error, match="give a capacity") as raised:
            LogMap(region, "m")
        assert raised.value.code == "not_found"
        with made(region, "m", value="int32") as table:  # another one
            assert table.insert_or_assign([1], [2]).inserted == 1
            assert table.verify() == ""
        assert str(LogMap(region, "m").value) == "int32"


def test_it_is_beside_others_in_a_region(path: Path) -> None:
    size = sum([
        2 * LogMap.region_bytes(CAPACITY, "int64", MAX_BATCH),
        Map.region_bytes(CAPACITY, "uint64", "int64", MAX_BATCH),
        KeyValueStore.region_bytes(CAPACITY, MAX_BATCH, "log"),
    ])  # fmt: skip
    with holdfast.create(path, size) as region:
        first, second = (made(region, name, value="int64") for name in ("first", "second"))
        other: Any = {"capacity": CAPACITY, "max_batch": MAX_BATCH}
        Map(region, "other", key="uint64", value="int64", **other).insert([1], [2])
        KeyValueStore(region, CAPACITY, MAX_BATCH, layout="log").set([1], [3])
        first.insert_or_assign([1, 2], [4, 5])
        with second:
            second.insert_or_assign([1], [6])
        with pytest.raises(holdfast.Error, match="'second' is closed") as raised:
            second.contains([1])
        assert raised.value.code == "closed"
        second.close()
        assert first.contains([1, 2]).all()
        for name, kind in (("other", LogMap), ("first", Map)):
            with pytest.raises(holdfast.Error) as raised:
                kind(region, name, value="int64")
            assert raised.value.code == "invalid_argument"
    first.close()  # its region has closed it
    with holdfast.open(path) as region:
        assert LogMap(region, "first").find([1])[0].tolist() == [4]
        assert LogMap(region, "second").find([1])[0].tolist() == [6]
        assert Map(region, "other").find(numbered(1))[0].tolist() == [2]
        assert KeyValueStore(region).get([1])[0].tolist() == [3]


def test_opened_again_the_earlier_one_is_closed(table: Any) -> None:
    table.insert_or_assign([1], rows_of(3))
    again = LogMap(table.region)
    for call in (lambda: table.find([1]), table.stats, table.verify, table.export):
        with pytest.raises(holdfast.Error) as raised:
            call()
        assert raised.value.code == "closed"
    assert again.contains([1]).all()


def test_arrays_of_other_libraries(table: Any) -> None:
    keys, rows = np.arange(20, dtype=np.uint64), np.full((20, 4), 3, np.float32)
    assert table.insert_or_assign(ByDlpack(keys), ByDlpack(rows)).inserted == 20
    values, found = table.find(ByDlpack(keys))
    assert isinstance(values, np.ndarray)
    assert found.all()
    assert (values == rows).all()


def test_tensors(path: Path) -> None:
    torch = pytest.importorskip("torch")
    device = "cuda" if holdfast.backend == "cuda" else "cpu"
    value = (torch.bfloat16, 8)
    with region_for(path, value) as region:
        table = made(region, value=value)
        keys = torch.arange(100, device=device).to(torch.uint64)
        rows = torch.arange(800, device=device).reshape(100, 8).to(torch.bfloat16)
        # Queued just in front of the call, which waits for its stream.
        stream = torch.cuda.current_stream() if device == "cuda" else None
        assert table.insert_or_assign(keys, rows * 1, stream=stream).inserted == 100
        values, found = table.find(keys, stream=stream)
        assert values.device == found.device == keys.device
        assert found.all()
        assert torch.equal(values, rows)
        with pytest.raises(holdfast.Error, match="NumPy has no bfloat16"):
            table.export()
        some_keys, some_rows = table.export(values=torch.zeros(100, 8, dtype=torch.bfloat16))
        assert torch.equal(some_rows, rows.cpu()[some_keys.astype(np.int64)])
        if device == "cuda":
            with pytest.raises(holdfast.Error, match="values is in device memory"):
                table.export(values=rows)


def test_a_killed_process_leaves_each_batch_whole_or_not_at_all(path: Path) -> None:
    seed = seed_of()
    dice = random.Random(seed)
    options: Any = {"value": ("float32", log_map_worker.ROW), "capacity": log_map_worker.KEYS}
    size = LogMap.region_bytes(max_batch=log_map_worker.MAX_BATCH, **options)
    with holdfast.create(path, size) as region:
        LogMap(region, "rows", max_batch=log_map_worker.MAX_BATCH, **options)
    there: dict[int, float] = {}
    number = cut = 0
    for life in range(8):
        for line in lines_until_killed(
            log_map_worker, path, seed, number, dice=dice, longest=0.03, at_least=life % 2
        ):
            assert line == f"done {number}\n"
            there = log_map_worker.after(there, log_map_worker.batch(seed, number))
            number += 1
        with holdfast.open(path) as region:
            table = LogMap(region, "rows")
            assert table.verify() == ""
            keys, values = table.export()
            assert table.stats().free_places == table.stats().places - len(keys)
        assert (values[:, 0] == keys).all()
        assert (values[:, 1:] == values[:, 1:2]).all()
        found = dict(zip(keys.tolist(), values[:, 1].tolist(), strict=True))
        if found != there:  # the batch that was cut off is there
            there = log_map_worker.after(there, log_map_worker.batch(seed, number))
            assert found == there, f"behind batch {number}"
            cut += 1
            number += 1
    print(f"{number} batches; {cut} that were cut off are there")
