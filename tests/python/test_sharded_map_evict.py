"""Batches of a sharded map that evict: nothing is lost, and each pair goes to the right rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast._map_arrays import _Arrays
from maps import seed_of
from rank_groups import ThreadGroup, run_threads
from shards import done, shard_of

CAPACITY, BATCH = 64, 64


def names(keys: Any) -> list[Any]:
    return list(keys.tolist())


def drawn(rng: np.random.Generator, key: Any, count: int) -> tuple[Any, Any, Any]:
    numbers = rng.integers(0, 400, count)
    keys = (
        numbers.astype(np.int64) if key == "int64" else np.array([b"%d" % n for n in numbers], key)
    )
    return keys, rng.integers(0, 1 << 40, count), rng.integers(0, 1 << 20, count).astype(np.uint64)


def owners(table: holdfast.ShardedMap, keys: Any) -> list[int]:
    buffer = table.shard._given_keys(table.shard._arrays("owners", None), keys)
    rows = table._rows.own(buffer, table.shard.key.nbytes)
    return [int(rank) for rank in table._rows.owners(rows, table.ranks)]


@pytest.mark.parametrize("key", ["int64", "S16"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_does_not_stay_is_given_back(folder: Path, size: int, key: str) -> None:
    seed = seed_of()
    went: dict[int, list[Any]] = {}
    stayed: dict[int, dict[Any, int]] = {}
    evicted = 0

    def body(group: ThreadGroup) -> None:
        nonlocal evicted
        rng = np.random.default_rng(seed)
        table = shard_of(
            folder, group, key, "int64", capacity=CAPACITY, max_batch=BATCH, scores="custom"
        )
        before: dict[Any, int] = {}
        for step in range(30):
            # One chunk for each shard, several of them, and none of some ranks.
            most = BATCH // size if step % 2 else 3 * BATCH
            counts = rng.integers(0, most + 1, size) * rng.integers(0, 3, size).clip(0, 1)
            parts = [drawn(rng, key, int(count)) for count in counts]
            keys, rows, scores = parts[group.rank]
            got = table.insert_and_evict(keys, rows, scores)
            assert got.keys.dtype == keys.dtype and got.scores.dtype == np.uint64
            assert len(got.keys) == len(got.values) == len(got.scores)
            assert got.status.shape == (len(keys),)
            assert sum(got.result) == len(keys) and got.result.no_value == 0
            # What went is of this rank's shard.
            assert set(owners(table, got.keys)) <= {group.rank}
            columns = names(got.keys), got.values.tolist(), got.scores.tolist()
            went[group.rank] = list(zip(*columns, strict=True))
            own = table.export()
            stayed[group.rank] = dict(zip(names(own[0]), own[1].tolist(), strict=True))
            table.size()  # all ranks have come here
            new = {k: v for ks, vs, _ in parts for k, v in zip(names(ks), vs.tolist(), strict=True)}
            by = {k: s for ks, _, ss in parts for k, s in zip(names(ks), ss.tolist(), strict=True)}
            gone = [one for rank in range(size) for one in went[rank]]
            after = {k: v for rank in range(size) for k, v in stayed[rank].items()}
            assert len(after) == sum(len(stayed[rank]) for rank in range(size)) == table.size()
            last = {k: v for k, v, _ in gone}
            assert set(before) | set(new) == set(after) | set(last)
            for k in set(before) | set(new):
                newest = new.get(k, before.get(k))
                assert after.get(k, last.get(k)) == newest
            for k, v, score in gone:
                assert v in (before.get(k), new.get(k))
                assert v == before.get(k) or score == by[k]
            if step % 2:
                assert not set(after) & set(last) and len(last) == len(gone)
            table.size()
            if group.rank == 0:
                evicted += len(gone)
            before = after
        done(table)

    run_threads(size, body)
    assert evicted > 100


def test_scores_are_given_by_all_ranks_or_none(folder: Path) -> None:
    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group, capacity=CAPACITY, max_batch=BATCH, scores="lfu")
        keys = np.arange(10) + 100 * group.rank
        table.insert_and_evict(keys, keys)
        scores = np.ones(10, np.uint64) if group.rank else None
        with pytest.raises(holdfast.Error, match="all ranks give them, or none"):
            table.insert_and_evict(keys + 50, keys, scores)
        short = np.ones(9 if group.rank else 10, np.uint64)
        with pytest.raises(holdfast.Error, match="scores"):
            table.insert_and_evict(keys + 50, keys, short)
        with pytest.raises(holdfast.Error, match="all ranks make the same calls"):
            if group.rank:
                table.insert_and_evict(keys + 50, keys)
            else:
                table.insert_or_assign(keys + 50, keys)
        assert table.size() == 20
        assert table.insert_and_evict(keys + 50, keys, np.ones(10, np.uint64)).result.inserted == 10
        done(table)

    run_threads(2, body)


@pytest.mark.parametrize("size", [1, 2])
def test_a_map_without_scores_refuses(folder: Path, size: int) -> None:
    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group)
        keys = np.arange(10)
        with pytest.raises(holdfast.Error, match="scores"):
            table.insert_and_evict(keys, keys)
        assert table.size() == 0
        done(table)

    run_threads(size, body)


def test_what_cannot_be_given_back_is_refused_before_anything_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rooms for what goes may not be had on one rank: of NumPy for bfloat16, say."""
    zeros = _Arrays.zeros

    def none_on(rank: int, least: int) -> None:
        def refusing(self: Any, like: Any, what: str, element: Any, count: int) -> Any:
            if what == "evicted values" and like.keep is refused[rank] and count >= least:
                raise holdfast.Error("there is no room for evicted values")
            return zeros(self, like, what, element, count)

        monkeypatch.setattr(_Arrays, "zeros", refusing)

    refused: dict[int, Any] = {}

    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group, capacity=CAPACITY, max_batch=BATCH, scores="lru")
        first = np.arange(60) + 1000 * group.rank
        table.insert_and_evict(first, first)
        table.insert_and_evict(first + 100, first)
        refused[group.rank] = keys = first + 200
        size = table.size()
        if group.rank == 0:
            none_on(1, 0)
        table.size()
        before = pairs(table)
        with pytest.raises(holdfast.Error, match="no room for evicted values"):
            table.insert_and_evict(keys, keys)
        assert pairs(table) == before and table.size() == size
        # Too late to refuse it: all ranks know.
        if group.rank == 0:
            none_on(1, 1)
        table.size()
        with pytest.raises(holdfast.Error, match="no room for evicted values"):
            table.insert_and_evict(keys, keys)
        table.size()
        if group.rank == 0:
            monkeypatch.setattr(_Arrays, "zeros", zeros)
        table.size()
        assert table.insert_and_evict(keys, keys).result.not_done == 0
        done(table)

    run_threads(2, body)


def pairs(table: holdfast.ShardedMap) -> dict[int, int]:
    keys, values = table.export()
    return dict(zip(names(keys), names(values), strict=True))
