"""Batches that set and erase, of stores and log maps, against a dict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import KeyValueStore, LogMap
from maps import seed_of

MAX_BATCH = 2000
CAPACITY = 4096


def store(layout: str, capacity: int) -> Callable[[holdfast.Region], Any]:
    return lambda region: KeyValueStore(region, capacity, MAX_BATCH, layout=layout)


def log_map(region: holdfast.Region) -> Any:
    return LogMap(region, value="uint64", capacity=CAPACITY, max_batch=MAX_BATCH)


# Of a table that is nearly empty no bucket is full, which would evict.
OBJECTS = {
    "in_place": store("in_place", 1 << 17),
    "log": store("log", CAPACITY),
    "log_map": log_map,
}


def contents(table: Any) -> dict[int, int]:
    keys, values = table.export() if isinstance(table, LogMap) else table.scan()
    return dict(zip(keys.tolist(), values.tolist(), strict=True))


@pytest.fixture(params=OBJECTS)
def make(request: pytest.FixtureRequest) -> Callable[[holdfast.Region], Any]:
    return OBJECTS[request.param]


def test_random_batches_leave_what_a_dict_has(path: Path, make: Any) -> None:
    rng = np.random.default_rng(seed_of())
    oracle: dict[int, int] = {}
    region = holdfast.create(path, 8 << 20)
    table = make(region)
    for step in range(30):
        count = int(rng.integers(0, MAX_BATCH + 1))
        keys = rng.integers(0, 900, count).astype(np.uint64)
        values = rng.integers(0, 2**63, count).astype(np.uint64)
        kinds = (rng.random(count) < rng.random()).astype(np.uint8)
        before = dict(oracle)
        for key, value, erases in zip(keys.tolist(), values.tolist(), kinds, strict=True):
            if erases:
                oracle.pop(key, None)
            else:
                oracle[key] = value
        result = table.apply(kinds, keys, values)
        touched = set(keys.tolist())
        assert result.inserted == len(oracle.keys() - before.keys())
        gone = result.erased if isinstance(table, LogMap) else result.removed
        assert gone == len(before.keys() - oracle.keys())
        updated = result.assigned if isinstance(table, LogMap) else result.updated
        assert updated == len(before.keys() & oracle.keys() & touched)
        assert contents(table) == oracle
        if step % 10 == 9:
            region.abandon()
            region = holdfast.open(path)
            table = make(region)
            assert table.verify() == ""
            assert contents(table) == oracle
    region.close()


def test_names_and_lists(path: Path, make: Any) -> None:
    with holdfast.create(path, 8 << 20) as region:
        table = make(region)
        set_name = "insert_or_assign" if isinstance(table, LogMap) else "set"
        table.apply([set_name] * 3, [1, 2, 3], [4, 5, 6])
        result = table.apply(["erase", set_name, set_name, "erase"], [1, 1, 9, 3], [0, 7, 8, 0])
        assert result.inserted == 1
        assert contents(table) == {1: 7, 2: 5, 9: 8}
        for operations, keys, words in [
            (["put"], [1], f"'put'.*{set_name}, erase"),
            ("erase", [1], "a list"),
            (7, [1], "a list"),
            (["erase"], [1, 2], "operations"),
            (np.array([0.5]), [1], "operations"),
            (np.array([[1]], np.uint8), [1], "operations"),
            (np.array([1, 5], np.uint8), [1, 2], "operation 1 .* is 5"),
        ]:
            with pytest.raises(holdfast.Error, match=words) as refused:
                table.apply(operations, keys, keys)
            assert refused.value.code == "invalid_argument"
            assert contents(table) == {1: 7, 2: 5, 9: 8}


def test_lists_are_of_integers_of_any_size(path: Path, make: Any) -> None:
    with holdfast.create(path, 8 << 20) as region:
        table = make(region)
        names = ["insert_or_assign" if isinstance(table, LogMap) else "set"] * 2
        table.apply(names, [2**63 + 5, 2], [2**64 - 1, 7])
        held = {2**63 + 5: 2**64 - 1, 2: 7}
        assert contents(table) == held
        for keys in ([1.2, 1.9], ["7", "8"], [True, False], [-1, 2], [2**64, 1], [None, 1]):
            for given in ((keys, [1, 1]), ([1, 2], keys)):
                with pytest.raises((holdfast.Error, ValueError), match=r"keys|values"):
                    table.apply(names, *given)
                assert contents(table) == held
        with pytest.raises(holdfast.Error, match="1 operation"):
            table.apply(names, [2**64 - 1, 2], [1, 1])
        assert contents(table) == held
