"""What a map takes: growth against a dict, and a cache that serves what it has loaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import Map, MapCache, ShardedMap
from maps import MAX_BATCH, exported, rows_of, seed_of
from rank_groups import ThreadGroup, run_threads

ROW = ("float32", 4)
MOST = 64 << 20


def small_region(path: Path, capacity: int = 64, max_batch: int = MAX_BATCH) -> holdfast.Region:
    size = ShardedMap.region_bytes(capacity, "int64", ROW, max_batch)
    return holdfast.create(path, size, max_size=MOST)


@pytest.mark.parametrize("in_steps", [False, True])
def test_a_map_grows_where_it_is(path: Path, in_steps: bool) -> None:
    dice = random.Random(seed_of())
    oracle: dict[int, bytes] = {}
    region = small_region(path)
    table = Map(region, key="int64", value=ROW, capacity=64, max_batch=MAX_BATCH)
    first, growths, reopened = table.stats().capacity, 0, 0
    for number in range(40):
        keys = np.array([dice.randrange(3000) for _ in range(60)])
        rows = np.array([[dice.random()] * 4 for _ in keys], np.float32)
        status = np.zeros(len(keys), np.uint8)
        result = table.insert_or_assign(keys, rows, status=status)
        for key, row, became in zip(keys.tolist(), rows, status.tolist(), strict=True):
            if holdfast.MapStatus(became).name in ("inserted", "assigned"):
                oracle[key] = row.tobytes()
        slots = table.stats().capacity
        if result.full or result.no_value:
            growths += 1
            if in_steps:
                table.grow()
                assert table.stats().left_to_move > 0
            else:
                table.reserve(slots + 1)
                assert table.stats().capacity == 2 * slots
        if in_steps and table.stats().left_to_move > 0:
            assert table.migrate(1) == (table.stats().left_to_move > 0)
        assert exported(table) == oracle
        if number % 7 == 6:
            reopened += table.stats().left_to_move > 0
            region.close()
            region = holdfast.open(path, max_size=MOST)
            table = Map(region)
    assert growths > 2
    assert reopened > 0 or not in_steps
    while table.migrate(1 << 20):
        pass
    table.reserve(1)  # it has them
    assert table.stats().capacity > first and table.verify() == ""
    region.close()


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda table: table.reserve(1 << 60), "invalid_argument", "fewer"),
        (lambda table: table.reserve(1 << 26), "no_space", "max_size"),
        (lambda table: table.reserve(0), "invalid_argument", "capacity"),
        (lambda table: table.reserve("7"), "invalid_argument", "capacity"),
        (lambda table: table.migrate(-1), "invalid_argument", "buckets"),
        (lambda table: table.load_cache(), "invalid_argument", "cache"),
        (lambda table: table.await_cache(), "invalid_argument", "cache"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    path: Path, call: Callable[[Map], Any], code: str, words: str
) -> None:
    with small_region(path) as region:
        table = Map(region, key="int64", value=ROW, capacity=64, max_batch=MAX_BATCH)
        table.insert([1, 2], rows_of(1, 2))
        before = [info.name for info in region.objects()]
        with pytest.raises(holdfast.Error, match=words) as refused:
            call(table)
        assert refused.value.code == code
        assert [info.name for info in region.objects()] == before
        assert exported(table) == {1: rows_of(1).tobytes(), 2: rows_of(2).tobytes()}


@pytest.mark.parametrize("policy", ["lfu", "lru", "frozen", "random"])
def test_a_cache_serves_what_it_has_loaded(path: Path, policy: str) -> None:
    keys = np.arange(50)
    rows = rows_of(*range(50))
    with small_region(path, 400) as region:
        how = MapCache(100 * 16, policy)
        table = Map(region, key="int64", value=ROW, capacity=400, max_batch=MAX_BATCH, cache=how)
        assert table.stats().cache.rows == 100 and table.stats().directory
        table.insert(keys, rows)
        assert (table.find(keys)[0] == rows).all()
        table.load_cache()
        table.await_cache()
        assert (table.find(keys)[0] == rows).all()
        seen = table.stats().cache
        assert (seen.hits, seen.misses, seen.loads) == (50, 50, 1)
        table.assign(keys, rows + 1)
        assert (table.find(keys)[0] == rows + 1).all()
        assert table.verify() == ""
        table = Map(region)  # without one
        assert table.stats().cache.rows == 0
        assert (table.find(keys)[0] == rows + 1).all()


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        (1 << 20, "MapCache"),
        (MapCache(0), "bytes"),
        (MapCache(1 << 20, "mru"), "mru"),
        (MapCache(1 << 20, "lfu", -1), "load_every"),
        (MapCache("1"), "bytes"),  # type: ignore[arg-type]
    ],
)
def test_a_cache_that_cannot_be_is_refused(path: Path, cache: Any, words: str) -> None:
    with small_region(path) as region:
        for capacity in (64, None):
            with pytest.raises(holdfast.Error, match=words) as refused:
                Map(region, key="int64", value=ROW, capacity=capacity, cache=cache)
            assert refused.value.code == "invalid_argument"
        assert region.objects() == []


def test_loads_are_cut_off_by_the_regions_end(path: Path) -> None:
    with small_region(path, 4000, 4096) as region:
        Map(region, key="int64", value=ROW, capacity=4000, max_batch=4096).insert(
            np.arange(3000), np.ones((3000, 4), np.float32)
        )
    for _ in range(20):
        region = holdfast.open(path)
        table = Map(region, cache=MapCache(1 << 20, load_every=1))
        assert table.find(np.arange(3000))[1].all()
        table.load_cache()
        region.close()
        with pytest.raises(holdfast.Error):
            table.load_cache()


def test_shards_grow(path: Path) -> None:
    def life(group: ThreadGroup) -> tuple[int, int]:
        with small_region(path.with_name(f"shard{group.rank}"), 400, 4096) as region:
            table = ShardedMap(
                region, "users", group=group, key="int64", value=ROW, capacity=400, max_batch=4096,
                cache=MapCache(1 << 14),
            )  # fmt: skip
            keys = np.arange(3000)
            table.insert(keys, np.ones((3000, 4), np.float32))
            before = table.size()
            with pytest.raises(holdfast.Error, match="capacity"):
                table.reserve(400 if group.rank == 0 else 0)
            table.reserve(4000)
            assert table.insert(keys, np.ones((3000, 4), np.float32)).full == 0
            return before, table.size()

    for before, behind in run_threads(2, life):
        assert before < 1000 and behind == 3000
