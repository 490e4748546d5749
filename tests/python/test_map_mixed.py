"""Batches of several kinds of operations, against a dict that makes them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import Map
from maps import MAX_BATCH, expect_refused, exported, region_for, rows_of, seed_of

KINDS = ["insert", "insert_or_assign", "assign", "find_or_insert", "erase", "find"]


@pytest.fixture
def table(path: Path) -> Iterator[Map]:
    with region_for(path, ("int64", ("float32", 4))) as region:
        yield Map(region, key="int64", value=("float32", 4), capacity=400, max_batch=MAX_BATCH)


def made_one(there: dict[int, bytes], kind: str, key: int, row: bytes) -> tuple[str, bytes | None]:
    """Makes one operation; returns its status, and what it gets."""
    before = there.get(key)
    if kind == "erase":
        there.pop(key, None)
        return ("absent" if before is None else "erased"), None
    if kind == "find" or (kind in ("insert", "find_or_insert") and before is not None):
        return ("absent" if before is None else "kept"), None if kind == "insert" else before
    if kind == "assign" and before is None:
        return "absent", None
    there[key] = row
    gets = row if kind == "find_or_insert" else None
    return ("inserted" if before is None else "assigned"), gets


@pytest.mark.parametrize(
    ("key", "value"), [("int64", ("float32", 16)), ("uint32", "int32"), ("S24", "int64")]
)
def test_random_batches_do_as_one_after_the_other(path: Path, key: str, value: Any) -> None:
    rng = np.random.default_rng(seed_of())
    row_type = np.dtype(value)
    there: dict[Any, bytes] = {}
    with region_for(path, (key, value)) as region:
        table = Map(region, "t", key=key, value=value, capacity=400, max_batch=MAX_BATCH)
        for _ in range(40):
            count = int(rng.integers(0, MAX_BATCH))
            names = rng.choice(KINDS, count).tolist()
            keys = rng.integers(0, int(rng.choice([3, 100])), count).astype(key)
            rows = rng.integers(0, 100, (count, *row_type.shape)).astype(row_type.base)
            operations = names
            if rng.integers(2):
                operations = np.array([getattr(holdfast.MapOp, name) for name in names], np.uint8)
            values, status, result = table.apply(operations, keys, rows)
            expected = [
                made_one(there, name, k, row.tobytes())
                for name, k, row in zip(names, keys.tolist(), rows, strict=True)
            ]
            assert [holdfast.MapStatus(number).name for number in status.tolist()] == [
                became for became, _ in expected
            ]
            nothing = bytes(row_type.itemsize)
            assert [row.tobytes() for row in values] == [row or nothing for _, row in expected]
            assert result.inserted == [became for became, _ in expected].count("inserted")
            assert len(table) == len(there)
        assert exported(table) == there
        assert table.verify() == ""


def test_arrays_that_are_given(table: Map) -> None:
    out, status = np.full((3, 4), 9, np.float32), np.zeros(3, np.uint8)
    applied = table.apply(
        [holdfast.MapOp.insert, "find", "erase"],
        [1, 1, 2],
        rows_of(5, 6, 7),
        out=out,
        status=status,
    )
    assert applied.values is out
    assert applied.status is status
    assert out[:, 0].tolist() == [9, 5, 9]  # of others it is as it was
    assert [holdfast.MapStatus(number).name for number in status] == ["inserted", "kept", "absent"]
    assert table.apply(["find", "erase"], [1, 1]).values[0].tolist() == [5] * 4
    assert len(table) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.apply(["put"], [1], rows_of(1)), ["'put'", "insert_or_assign"]),
        (lambda t: t.apply("find", [1]), ["operations are 'find'", "list"]),
        (lambda t: t.apply(3, [1]), ["operations are 3", "list"]),
        (lambda t: t.apply(["find"], [1, 2]), ["operations", "(1,)", "(2)"]),
        (lambda t: t.apply(np.array([6]), [1]), ["operations", "int64", "uint8"]),
        (lambda t: t.apply(np.array([7], np.uint8), [1]), ["1 operation(s)", "MapOp"]),
        (lambda t: t.apply(["insert"], [5]), ["1 operation(s)", "no values"]),
        (lambda t: t.apply(["erase"], [-1]), ["EmptyKey"]),
        (lambda t: t.apply(["find"], [1], rows_of(1, 2)), ["values", "(2, 4)", "(1, 4)"]),
        (lambda t: t.apply(["find"], [1], rows := rows_of(1), out=rows), ["meets `values`"]),
        (lambda t: t.apply(["find"], [1], status=np.zeros(1)), ["status", "float64"]),
    ],
)
def test_bad_input_is_named_and_changes_nothing(
    table: Map, call: Callable[[Map], Any], words: list[str]
) -> None:
    expect_refused(table, call, words)
