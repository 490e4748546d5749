"""Batches that evict pairs by their scores, against a dict."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import Map, MapStatus
from maps import MAX_BATCH, exported, region_for, seed_of

CAPACITY = 40
WORKER = Path(__file__).parent / "map_evict_worker.py"


def made(region: holdfast.Region, scores: str | None, key: Any = "int64", **options: Any) -> Map:
    return Map(region, key=key, capacity=CAPACITY, max_batch=MAX_BATCH, scores=scores, **options)


class Oracle:
    """Pairs as bytes, and their scores."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.there: dict[Any, tuple[bytes, int]] = {}
        self.batches = 0

    def score(self, key: Any, given: int) -> int:
        if self.policy == "lru":
            return self.batches
        before = self.there[key][1] if self.policy == "lfu" and key in self.there else 0
        return before + given

    def check(
        self, keys: list[Any], rows: list[bytes], given: list[int], said: holdfast.MapEvicted
    ) -> None:
        """Compares a batch with what was there, and makes what it did."""
        self.batches += 1
        before = dict(self.there)
        last = {key: i for i, key in enumerate(keys)}
        names = [MapStatus(number).name for number in said.status.tolist()]
        for i, (key, name) in enumerate(zip(keys, names, strict=True)):
            if last[key] != i:
                assert name == "superseded"
            elif key in before:
                assert name == "assigned"
            else:
                assert name in ("inserted", "full")
            if name in ("inserted", "assigned"):
                self.there[key] = rows[i], self.score(key, given[i])
        went = dict(
            zip(
                said.keys.tolist(), zip(said.values, said.scores.tolist(), strict=True), strict=True
            )
        )
        assert len(went) == len(said.keys) == said.evicted + said.result.full
        for key, (row, score) in went.items():
            if key in last:
                assert names[last[key]] == "full"
                own = rows[last[key]], self.batches if self.policy == "lru" else given[last[key]]
                assert (row.tobytes(), score) == own
            else:
                assert (row.tobytes(), score) == before[key]
                del self.there[key]
        assert names.count("full") == said.result.full == len(went) - said.evicted


@pytest.mark.parametrize("policy", ["lru", "lfu", "custom"])
@pytest.mark.parametrize(
    ("key", "value"), [("int64", ("float32", 16)), ("uint32", "int32"), ("S24", "int64")]
)
def test_random_batches_lose_nothing(path: Path, key: str, value: Any, policy: str) -> None:
    rng = np.random.default_rng(seed_of())
    row_type = np.dtype(value)
    oracle = Oracle(policy)
    evicted = 0
    with region_for(path, (key, value), capacity=CAPACITY) as region:
        table = made(region, policy, key, value=value)
        for step in range(60):
            count = int(rng.integers(1, MAX_BATCH))
            keys = rng.integers(0, 300, count).astype(key)
            rows = rng.integers(0, 100, (count, *row_type.shape)).astype(row_type.base)
            given = (rng.integers(0, 50, count) + step).astype(np.uint64)
            gives = policy == "custom" or (policy == "lfu" and rng.integers(2) == 1)
            said = table.insert_and_evict(keys, rows, given if gives else None)
            counts = given.tolist() if gives else [1] * count
            oracle.check(keys.tolist(), [row.tobytes() for row in rows], counts, said)
            evicted += said.evicted
            assert exported(table) == {k: row for k, (row, _) in oracle.there.items()}
            there = list(oracle.there)
            scores, found = table.scores(np.array(there, key))
            assert scores.tolist() == [oracle.there[k][1] for k in there]
            assert found.all()
        assert table.verify() == ""
        assert evicted > 50


def test_a_lookup_is_an_access(path: Path) -> None:
    with region_for(path, ("int64", "int64"), capacity=CAPACITY) as region:
        table = made(region, "lru", value="int64")
        key = 0
        while len(table) < table.stats().capacity:
            table.insert([key], [key])
            key += 1
        for key in range(10_000, 10_200):
            table.find([10_000])
            table.contains([10_001])  # is none
            table.insert_and_evict([key], [key])
        scores, found = table.scores([10_000, 10_001])
        assert found.tolist() == [True, False]
        assert scores[1] == 0


def test_an_opened_map_has_other_scores_or_none(path: Path) -> None:
    with region_for(path, ("int64", "int64"), capacity=CAPACITY) as region:
        table = made(region, "custom", value="int64")
        table.insert_and_evict([1, 2], [1, 2], [5, 6])
        assert table.scores([1, 2, 3])[0].tolist() == [5, 6, 0]
        again = Map(region, scores="lfu")
        assert again.scores([1, 2])[0].tolist() == [0, 0]
        assert again.insert_and_evict([1], [1]).result.assigned == 1
        assert again.scores([1, 2])[0].tolist() == [1, 0]
        plain = Map(region)
        with pytest.raises(holdfast.Error, match=r"opened without.*give `scores`"):
            plain.insert_and_evict([1], [1])
        with pytest.raises(holdfast.Error, match="opened without"):
            plain.scores([1])


def test_what_cannot_be_is_refused_and_changes_nothing(path: Path) -> None:
    with region_for(path, ("int64", "int64"), capacity=CAPACITY) as region:
        with pytest.raises(holdfast.Error, match="scores are 'mru': use none, lru, lfu or custom"):
            made(region, "mru", value="int64")
        table = made(region, "custom", value="int64")
        table.insert([1], [2])

        def refused(words: str, call: Callable[[], Any]) -> None:
            with pytest.raises(holdfast.Error, match=words):
                call()
            assert exported(table) == {1: np.int64(2).tobytes()}

        refused("without scores", lambda: table.insert_and_evict([1], [3]))
        refused("not made of uint64", lambda: table.insert_and_evict([1], [3], [-1]))
        refused("no integers", lambda: table.insert_and_evict([1], [3], [0.5]))
        refused(r"give \(1\)", lambda: table.insert_and_evict([1], [3], [1, 2]))
        refused(
            "int64, and the map has uint64",
            lambda: table.insert_and_evict([1], [3], np.array([1], np.int64)),
        )
        refused("EmptyKey", lambda: table.insert_and_evict([-1], [3], [1]))
        empty = table.insert_and_evict(np.empty(0, np.int64), np.empty(0, np.int64), [])
        assert len(empty.keys) == empty.evicted == 0


def test_killed_at_any_moment_nothing_that_returned_is_lost(path: Path) -> None:
    rng = np.random.default_rng(seed_of())
    region_for(path, ("int64", ("int64", 4)), capacity=CAPACITY).close()
    there: dict[int, int] = {}
    batches = lives = 0
    while lives < 4 or batches <= 4:  # a busy machine is killed before it has done much
        lives += 1
        assert lives < 60
        child = subprocess.Popen(
            [sys.executable, str(WORKER), str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        lines = [child.stdout.readline()]
        time.sleep(float(rng.uniform(0, 0.2)))
        child.kill()
        lines += child.stdout.readlines()
        child.wait()
        begun: list[int] = []
        for line in lines:
            if not line.endswith("\n"):
                continue
            what, *numbers = line.split()
            keys = [int(number) for number in numbers]
            if what == "begins":
                begun = keys
            else:
                there.update(dict.fromkeys(begun, keys[0]))
                for key in keys[1:]:
                    del there[key]
                begun = []
                batches += 1
        with holdfast.open(path) as region:
            table = Map(region, "rows")
            rows = dict(zip(*(array.tolist() for array in table.export()), strict=True))
            assert table.verify() == ""
        assert all(len(set(row)) == 1 for row in rows.values())
        gone = [key for key in there if key not in rows]
        assert len(gone) <= len(begun)
        assert not set(gone) & set(begun)
        for key, row in rows.items():
            assert row[0] == there.get(key) or key in begun
        there = {key: row[0] for key, row in rows.items()}
