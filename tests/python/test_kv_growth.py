"""Stores of numbers and a log map that are given more room, also by `holdfast kv grow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from conftest import Run
from holdfast import Error, KeyValueStore


def _filled(path: Path, layout: str = "log") -> tuple[holdfast.Region, KeyValueStore]:
    region = holdfast.create(path, KeyValueStore.region_bytes(600, 200, layout))
    store = KeyValueStore.create(region, 600, 200, layout=layout)
    for first in range(0, 600, 200):
        keys = np.arange(first, first + 200, dtype=np.uint64)
        store.set(keys, keys * 7)
    store.erase(np.arange(100, dtype=np.uint64))
    return region, store


def _expect(store: KeyValueStore) -> None:
    keys, values = store.scan()
    assert sorted(keys.tolist()) == list(range(100, 600))
    assert np.array_equal(values, keys * 7)
    assert store.verify() == ""


def test_a_log_has_all_that_it_had_and_room_for_more(tmp_path: Path) -> None:
    region, store = _filled(tmp_path / "a.hf")
    with region:
        before = store.stats()
        with pytest.raises(Error, match="capacity") as told:
            store.set(np.arange(700, 900, dtype=np.uint64), np.zeros(200, np.uint64))
            store.set(np.arange(900, 1100, dtype=np.uint64), np.zeros(200, np.uint64))
        assert told.value.code == "no_space"
        store.reserve(2000)
        _expect(store)
        now = store.stats()
        assert (now.capacity, now.batches) == (2000, before.batches)
        for first in range(1000, 2400, 200):
            store.set(np.arange(first, first + 200, dtype=np.uint64), np.ones(200, np.uint64))
        assert store.stats().records == 500 + 1400
        store.reserve(10, log_records=100_000)
        assert store.stats().log_records >= 100_000
    with holdfast.open(tmp_path / "a.hf") as again:
        assert KeyValueStore(again).stats().records == 1900


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    region, store = _filled(tmp_path / "a.hf")
    with region:
        for capacity, records, code in (
            (1 << 30, 0, "invalid_argument"),
            (1 << 26, 0, "no_space"),
            (1000, 1 << 40, "invalid_argument"),
        ):
            with pytest.raises(Error) as told:
                store.reserve(capacity, records)
            assert told.value.code == code
        wrong: Any
        for wrong in (-1, 1 << 64, "many", 1.5):
            with pytest.raises(Error, match="capacity"):
                store.reserve(wrong)
        _expect(store)
    region, store = _filled(tmp_path / "b.hf", "in_place")
    with region:
        for capacity, records, code in (
            (1 << 36, 0, "invalid_argument"),
            (1 << 32, 0, "no_space"),
            (1 << 12, 1, "invalid_argument"),
        ):
            with pytest.raises(Error) as told:
                store.reserve(capacity, records)
            assert told.value.code == code
        assert store.stats().capacity == 1024


def test_a_table_in_place_has_all_that_it_had_and_room_for_more(tmp_path: Path) -> None:
    path = tmp_path / "a.hf"
    keys = np.arange(1000, dtype=np.uint64)
    with holdfast.create(path, KeyValueStore.region_bytes(8, 1000)) as region:
        store = KeyValueStore.create(region, 8, 1000)
        assert store.set(keys, keys * 3).evicted == 992
        held = store.scan()
        store.reserve(100_000)
        assert store.stats().capacity == 131_072
        assert store.stats().total.evicted == 992
        for was, now in zip(held, store.scan(), strict=True):
            assert sorted(was.tolist()) == sorted(now.tolist())
        assert store.verify() == ""
        assert store.set(keys, keys * 5).evicted == 0
    with holdfast.open(path) as region:
        again = KeyValueStore(region)
        values, found = again.get(keys)
        assert found.all()
        assert np.array_equal(values, keys * 5)


def test_kv_grow_of_a_table_in_place(run: Run) -> None:
    run("kv", "create", "a.hf", "--capacity", 8, "--max-batch", 64)
    run("kv", "put", "a.hf", "1=2", "3=4")
    answer = run("kv", "grow", "a.hf", "--capacity", 1_000_000, "--json")
    assert answer.status == 0, answer.err
    assert answer.json["capacity"] == 1 << 20
    stat = run("kv", "stat", "a.hf", "--json").json
    assert (stat["capacity"], stat["layout"]) == (1 << 20, "in_place")
    assert run("kv", "get", "a.hf", "1", "3", "--json").json["values"] == {"1": 2, "3": 4}
    assert "1,048,576 pairs" in run("kv", "grow", "a.hf", "--capacity", 10).out
    verified = run("kv", "verify", "a.hf", "--json").json
    assert verified == {"ok": True, "records": 2, "problem": ""}
    for words, says in (
        (["--record-bytes", 1000], "--record-bytes"),
        (["--log-records", 1000], "in_place"),
        ([], "--capacity"),
    ):
        refused = run("kv", "grow", "a.hf", *words, "--json")
        assert refused.status == (1 if words else 2), words
        assert says in refused.json["error"]["message"]
    assert not run("inspect", "a.hf", "--json").json["arena"]["exists"]  # a refusal is no crash


def test_kv_grow_of_a_log(run: Run) -> None:
    run("kv", "create", "a.hf", "--capacity", 100, "--layout", "log", "--max-batch", 64)
    run("kv", "put", "a.hf", "1=2", "3=4")
    answer = run("kv", "grow", "a.hf", "--capacity", 50_000, "--json")
    assert answer.status == 0, answer.err
    assert answer.json["capacity"] == 50_000
    stat = run("kv", "stat", "a.hf", "--json").json
    assert stat["capacity"] == 50_000
    assert answer.json["log_records"] == stat["log_records"] >= 100_000
    assert run("kv", "get", "a.hf", "1", "3", "--json").json["values"] == {"1": 2, "3": 4}
    assert run("kv", "grow", "a.hf", "--capacity", 10, "--json").json["capacity"] == 50_000
    more = run("kv", "grow", "a.hf", "--log-records", 400_000, "--json").json
    assert more["capacity"] == 50_000
    assert more["log_records"] >= 400_000
    assert "50,000 pairs" in run("kv", "grow", "a.hf", "--capacity", 10).out
    verified = run("kv", "verify", "a.hf", "--json").json
    assert verified == {"ok": True, "records": 2, "problem": ""}
    # What is there is more than these.
    grown = run("kv", "grow", "a.hf", "--capacity", 60_000, "--log-records", 1, "--json")
    assert grown.json["capacity"] == 60_000
    assert grown.json["log_records"] >= 400_000
    for words, says in (
        (["--record-bytes", 1000], "--log-records"),
        (["--capacity", 1 << 30], "capacity"),
        ([], "--capacity"),
    ):
        refused = run("kv", "grow", "a.hf", *words, "--json")
        assert refused.status == (1 if words else 2), words
        assert says in refused.json["error"]["message"]
    assert run("kv", "get", "a.hf", "1", "3", "--json").json["values"] == {"1": 2, "3": 4}
    assert not run("inspect", "a.hf", "--json").json["arena"]["exists"]  # a refusal is no crash
    run("kv", "create", "map.hf", "--capacity", 100, "--layout", "map")
    refused = run("kv", "grow", "map.hf", "--log-records", 1000, "--json")
    assert "--record-bytes" in refused.json["error"]["message"]


def test_a_log_map_has_all_that_it_had_and_room_for_more(tmp_path: Path) -> None:
    size = holdfast.LogMap.region_bytes(500, ("float32", 4), 200)
    with holdfast.create(tmp_path / "map.hf", size) as region:
        rows = holdfast.LogMap(region, capacity=500, value=("float32", 4), max_batch=200)
        keys = np.arange(200, dtype=np.uint64)
        values = np.arange(800, dtype=np.float32).reshape(200, 4)
        rows.insert_or_assign(keys, values)
        rows.reserve(4000)
        assert rows.stats().capacity == 4000
        for first in range(1000, 4000, 200):
            more = np.arange(first, first + 200, dtype=np.uint64)
            rows.insert_or_assign(more, values)
        assert rows.size == 200 + 3000
        found, there = rows.find(keys)
        assert there.all()
        assert np.array_equal(found, values)
        assert rows.verify() == ""
        with pytest.raises(Error) as told:
            rows.reserve(50_000_000)
        assert told.value.code == "no_space"
        with pytest.raises(Error, match="capacity"):
            rows.reserve(-1)
    with holdfast.open(tmp_path / "map.hf") as region:
        again = holdfast.LogMap(region)
        assert (again.size, again.stats().capacity) == (3200, 4000)
