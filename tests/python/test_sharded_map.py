"""The sharded map against a dict, by threads as ranks, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import holdfast
from holdfast import Map, ShardedMap, _sharded_calls
from holdfast._backend import ext
from holdfast._rows import DeviceRows, HostRows
from maps import seed_of
from rank_groups import ThreadGroup, run_threads
from shards import CAPACITY, done, region_path, shard_of

Array = npt.NDArray[Any]
KINDS = [
    ("uint32", "int32"),
    ("int64", ("float32", 4)),
    ("uint64", "int64"),
    ("S16", ("uint8", 12)),
    (("uint8", 24), ("int64", 3)),
]
UPDATES = ["insert", "insert_or_assign", "find_or_insert", "assign", "erase", "accumulate"]


class Oracle:
    """What a call leaves: one batch of all ranks' operations, in their order."""

    def __init__(self, dtype: Any) -> None:
        self.there: dict[bytes, bytes] = {}
        self.dtype = dtype

    def statuses(self, operation: str, keys: list[bytes], rows: list[bytes]) -> list[str]:
        last = {key: i for i, key in enumerate(keys)}
        sums: dict[bytes, Array] = {}
        for key, row in zip(keys, rows, strict=True):
            sums[key] = sums.get(key, 0) + np.frombuffer(row, self.dtype)
        return [
            self._one(operation, key, row, sums[key]) if last[key] == i else "superseded"
            for i, (key, row) in enumerate(zip(keys, rows, strict=True))
        ]

    def _one(self, operation: str, key: bytes, row: bytes, total: Array) -> str:
        was_there = key in self.there
        if operation == "erase":
            self.there.pop(key, None)
            return "erased" if was_there else "absent"
        if operation in ("assign", "accumulate") and not was_there:
            return "absent"
        if operation in ("insert", "find_or_insert") and was_there:
            return "kept"
        if operation == "accumulate":
            row = (np.frombuffer(self.there[key], self.dtype) + total).tobytes()
        self.there[key] = row
        return "assigned" if was_there else "inserted"

    def rows(self, keys: list[bytes], shape: tuple[int, ...]) -> list[bytes]:
        """What memory full of 7 has behind a lookup."""
        nothing = np.full(shape, 7, self.dtype).tobytes()
        return [self.there.get(key, nothing) for key in keys]


def update(
    table: ShardedMap, operation: str, keys: Array, rows: Array, out: Array, status: Array
) -> Any:
    if operation == "find_or_insert":
        return table.find_or_insert(keys, rows, out=out, status=status)[1]
    given = (keys,) if operation == "erase" else (keys, rows)
    return getattr(table, operation)(*given, status=status)


def drawn(rng: np.random.Generator, key: Any, value: Any, count: int) -> tuple[Array, Array]:
    """Keys, of few, so that many come several times, and rows."""
    row_type = np.dtype(value)
    rows = rng.integers(0, 100, (count, *row_type.shape)).astype(row_type.base)
    # A fifth of the keys are of three alone.
    hot = rng.integers(0, 3, count)
    numbers = np.where(rng.random(count) < 0.2, hot, rng.integers(0, 300, count))
    if key == "S16":
        return np.array([b"key-%d" % n for n in numbers], "S16"), rows
    if isinstance(key, tuple):
        keys = np.zeros((count, 24), np.uint8)
        keys[:, :2], keys[:, 23] = numbers.astype("<u2")[:, None].view(np.uint8), 1
        return keys, rows
    return (numbers * (3 if key == "uint32" else 2**40 + 7)).astype(key), rows


def bytes_of(rows: Array) -> list[bytes]:
    width = rows.itemsize * int(np.prod(rows.shape[1:]))
    text = rows.tobytes()
    return [text[i : i + width] for i in range(0, len(text), width)]


@pytest.mark.parametrize(("key", "value"), KINDS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_random_programs_leave_what_a_dict_has(
    folder: Path, size: int, key: Any, value: Any
) -> None:
    seed = seed_of()
    dtype = np.dtype(value).base
    oracle = Oracle(dtype)
    operations = UPDATES if dtype != np.uint8 else UPDATES[:-1]

    def body(group: ThreadGroup) -> tuple[dict[bytes, bytes], int]:
        rng = np.random.default_rng(seed)
        table = shard_of(folder, group, key, value)
        for step in range(16):
            operation = str(rng.choice([*operations, "find"])) if step else "insert"
            # Also none, and more than the shards take at once.
            counts = rng.integers(0, 300, size) * rng.integers(0, 3, size).clip(0, 1)
            parts = [drawn(rng, key, value, int(count)) for count in counts]
            keys, rows = parts[group.rank]
            if operation == "find":
                found = table.find(keys, out=(out := np.full(rows.shape, 7, dtype)))[1]
                assert found.tolist() == [k in oracle.there for k in bytes_of(keys)]
                assert bytes_of(out) == oracle.rows(bytes_of(keys), rows.shape[1:])
                assert (table.contains(keys) == found).all()
                continue
            status, out = np.full(len(keys), 99, np.uint8), np.full(rows.shape, 7, dtype)
            result = update(table, operation, keys, rows, out, status)
            if group.rank == 0:
                all_keys = bytes_of(np.concatenate([k for k, _ in parts]))
                all_rows = bytes_of(np.concatenate([r for _, r in parts]))
                expected[step] = oracle.statuses(operation, all_keys, all_rows)
            assert table.size() == len(oracle.there)  # and all wait for the oracle
            begin = int(counts[: group.rank].sum())
            mine = expected[step][begin : begin + len(keys)]
            assert [ext.MapStatus(number).name for number in status.tolist()] == mine
            for name in ("inserted", "assigned", "kept", "erased", "absent", "superseded"):
                assert getattr(result, name) == mine.count(name)
            read = operation == "find_or_insert"
            asked = [
                k if read and name != "superseded" else b""
                for k, name in zip(bytes_of(keys), mine, strict=True)
            ]
            assert bytes_of(out) == oracle.rows(asked, rows.shape[1:])
            if step % 6 == 5:
                table.close()
                table.region.abandon() if rng.integers(2) else table.region.close()
                table = shard_of(folder, group, key, value)
        keys, rows = table.export()
        if key == "S16":
            keys = keys.view(np.uint8).reshape(-1, 16)
        own = dict(zip(bytes_of(keys), bytes_of(rows), strict=True))
        assert len(own) == len(keys)
        done(table)
        return own, len(own)

    expected: dict[int, list[str]] = {}
    shards = run_threads(size, body)
    union: dict[bytes, bytes] = {}
    for own, count in shards:
        union.update(own)
        assert size == 1 or len(oracle.there) < 20 or 0 < count < len(oracle.there)
    assert union == oracle.there
    assert len(union) == sum(count for _, count in shards)


def test_owners_of_keys_stay_what_they_are(folder: Path) -> None:
    """Else the shards that are on a medium would not be found again."""

    def mixed(bits: int) -> int:
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
        return bits ^ bits >> 31

    def owner(words: list[int], size: int) -> int:
        digest = 0
        for word in words:
            digest = mixed(((digest ^ word) + 0x9E3779B97F4A7C15) % 2**64)
        return (digest >> 32) * size >> 32

    def body(group: ThreadGroup) -> None:
        cases: list[tuple[Array, Callable[[Array], list[int]]]] = [
            (np.arange(-100, -2, dtype=np.int32), lambda k: [int(k) % 2**32]),
            (np.arange(-100, -2, dtype=np.int64), lambda k: [int(k) % 2**64]),
            (np.array([[i, 2, 255 - i] for i in range(90)], "<u8").view(np.uint8),
             lambda k: k.view("<u8").tolist()),
        ]  # fmt: skip
        for key, words_of in cases:
            kind: Any = key.dtype.name if key.ndim == 1 else ("uint8", 24)
            table = shard_of(folder, group, kind, "int32", name=f"{key.dtype}")
            count = len(key) if group.rank == 1 else 0
            table.insert(key[:count], np.zeros(count, np.int32))
            kept = {k.tobytes() for k in table.export()[0]}
            assert kept == {k.tobytes() for k in key if owner(words_of(k), 3) == group.rank}
            done(table)

    run_threads(3, body)


def test_of_one_key_the_last_operation_of_the_highest_rank_counts(folder: Path) -> None:
    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group)
        status = np.zeros(2, np.uint8)
        table.insert([5, 5], [10 * group.rank + 1, 10 * group.rank + 2], status=status)
        inserted, superseded = int(ext.MapStatus.inserted), int(ext.MapStatus.superseded)
        assert status.tolist() == [superseded, inserted if group.rank == 2 else superseded]
        assert table.find([5])[0].tolist() == [22]
        # Also where rank 2 gives none, and where ranks give so many that they go in chunks.
        assert table._calls._chunk < 100
        keys = np.arange(500) if group.rank < 2 else np.arange(0)
        result = table.insert_or_assign(keys, np.full(len(keys), group.rank))
        assert result.superseded == (500 if group.rank == 0 else 0)
        assert (table.find(np.arange(500))[0] == 1).all()
        done(table)

    run_threads(3, body)


def test_chunks_that_would_be_too_large_are_cut_finer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sharded_calls, "_BINS_OF_A_CHUNK", 1)
    monkeypatch.setattr(_sharded_calls, "_BINS", 1)

    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group)
        keys = np.arange(450)
        assert table.insert(keys, keys + group.rank).superseded == (450 if group.rank == 0 else 0)
        values, found = table.find(keys)
        assert found.all() and (values == keys + 1).all()
        table._exchange.gather([0])
        monkeypatch.setattr(_sharded_calls, "_MOST_BINS", 1)
        with pytest.raises(holdfast.Error, match="larger max_batch"):
            table.erase(keys)
        assert table.size() == 450
        done(table)

    run_threads(2, body)


BAD: list[tuple[Callable[[ShardedMap], Any], list[str]]] = [
    (lambda t: t.insert(np.arange(3, dtype=np.int32), [1, 2, 3]), ["keys", "int32", "int64"]),
    (lambda t: t.insert([1, 2], [1]), ["values", "(1,)", "(2)"]),
    (lambda t: t.insert([7, -1], [1, 2]), ["EmptyKey", "nothing of this call"]),
    (lambda t: t.insert([7], [0x7FF49B1E66D50C3B]), ["EmptyValue", "nothing of this call"]),
    (lambda t: t.insert([1.5], [2]), ["integers"]),
    (lambda t: t.insert([7], [8], status=np.zeros(1)), ["status", "float64"]),
]


def test_bad_input_of_one_rank_is_refused_by_all(folder: Path) -> None:
    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group)
        table.insert([group.rank], [5])
        for number, (call, words) in enumerate(BAD):
            with pytest.raises(holdfast.Error) as refused:
                if group.rank == number % 3:
                    call(table)
                else:
                    table.insert([100, 101], [1, 2])
            assert refused.value.code == "invalid_argument"
            if group.rank != number % 3:
                assert f"rank {number % 3} refused" in str(refused.value)
            for word in words:
                assert word in str(refused.value)
            assert table.size() == 3
        with pytest.raises(holdfast.Error, match=r"rank 0 calls erase\(\), rank 1 size\(\)"):
            table.size() if group.rank == 1 else table.erase([1])
        assert table.contains([0, 1, 2, 100]).tolist() == [True, True, True, False]
        done(table)

    run_threads(3, body)


def test_sums_of_other_types_are_refused(folder: Path) -> None:
    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group, "int64", ("float16", 2))
        with pytest.raises(holdfast.Error, match="float16"):
            table.accumulate([1], np.zeros((1, 2), np.float16))
        with pytest.raises(holdfast.Error, match="float16"):
            table.shard.accumulate([1], np.zeros((1, 2), np.float16))
        done(table)

    run_threads(2, body)


def test_an_error_of_one_shard_is_raised_by_all(folder: Path) -> None:
    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group)
        table.insert(np.arange(40), np.arange(40))
        if group.rank == 1:
            table.shard.close()
        with pytest.raises(holdfast.Error, match="closed"):
            table.erase(np.arange(40) if group.rank == 0 else [])
        table.region.close()

    run_threads(2, body)


def test_what_does_not_fit_is_counted(folder: Path) -> None:
    def body(group: ThreadGroup) -> tuple[int, int]:
        table = shard_of(folder, group, capacity=40)
        keys = np.arange(200 * group.rank, 200 * group.rank + 200)
        result = table.insert(keys, keys)
        assert result.not_done == result.full == 200 - result.inserted > 0
        assert int(table.contains(keys).sum()) == result.inserted
        size = table.size()
        done(table)
        return result.inserted, size

    results = run_threads(2, body)
    assert results[0][1] == results[1][1] == results[0][0] + results[1][0]


def make_empty(folder: Path, size: int, name: str) -> None:
    run_threads(size, lambda group: done(shard_of(folder, group, name=name)))


def refused_by_all(size: int, body: Callable[[ThreadGroup], Any], *words: str) -> None:
    """Runs what must raise a conflict with these words on every rank."""

    def run(group: ThreadGroup) -> None:
        with pytest.raises(holdfast.Error) as refused:
            body(group)
        assert refused.value.code == "conflict"
        for word in words:
            assert word in str(refused.value)

    run_threads(size, run)


def test_a_wrong_set_of_shards_is_refused(folder: Path) -> None:
    for name, size in (("shard", 2), ("other", 2)):
        make_empty(folder, size, name)

    def opened(paths: list[Path], **options: Any) -> Callable[[ThreadGroup], None]:
        def body(group: ThreadGroup) -> None:
            size = ShardedMap.region_bytes(CAPACITY, "int64", "int64", 64)
            with holdfast.open_or_create(paths[group.rank], size) as region:
                ShardedMap(region, "m", group=group, timeout=20, **options)

        return body

    mine = [region_path(folder, rank) for rank in range(2)]
    other = [region_path(folder, rank, "other") for rank in range(2)]
    fresh = region_path(folder, 0, "fresh")
    common: Any = {"key": "int64", "value": "int64", "capacity": CAPACITY}
    refused_by_all(2, opened(mine[::-1]), "rank 0", "shard 1 of 2", str(mine[1]))
    refused_by_all(2, opened([mine[0], other[1]]), "differ in the map", str(other[1]))
    refused_by_all(2, opened([mine[0], fresh], **common), "shard 1 is missing", str(fresh))
    refused_by_all(3, opened([*mine, fresh], **common), "shard 0 of 2", "3 here", "load()")
    refused_by_all(1, opened([mine[1]]), "shard 1 of 2", "1 here")
    with holdfast.open(mine[0]) as region:  # nothing has become of them
        Map(region, "m").insert([-7], [3])
        region._handle.remove("m_shard")
    refused_by_all(2, opened(mine), "no shard", "holdfast.Map")
    run_threads(2, opened(other))
    with pytest.raises(holdfast.Error, match="give a capacity"):
        run_threads(1, opened([region_path(folder, 0, "none")]))

    def mixed(group: ThreadGroup) -> None:
        with holdfast.create(region_path(folder, group.rank, "mixed"), 1 << 20) as region:
            value = ("int64", "float64")[group.rank]
            ShardedMap(region, "m", group=group, key="int64", value=value, capacity=9, timeout=20)

    with pytest.raises(holdfast.Error, match="types of ranks differ: i64:i64, i64:f64"):
        run_threads(2, mixed)


def test_a_creation_that_was_cut_off_is_made_again(folder: Path) -> None:
    run_threads(3, lambda group: done(shard_of(folder, group)))
    # As kills leave it: one rank has all but the last mark, one no table, one nothing.
    with holdfast.open(region_path(folder, 0)) as region:
        region._handle.remove("m_whole")
        identity = next(info.type for info in region.objects() if info.name == "m_shard")
    for rank in (1, 2):
        holdfast.destroy(region_path(folder, rank))
    size = ShardedMap.region_bytes(CAPACITY, "int64", "int64", 64)
    with holdfast.create(region_path(folder, 1), size) as region:
        text = identity.replace(":0:3:", ":1:3:")
        region._handle.allocate("m_shard", text, 8, 1, "hashed")

    def body(group: ThreadGroup) -> str:
        table = shard_of(folder, group)
        table.insert([group.rank], [1])
        assert table.size() == 3
        done(table)
        return table.id

    assert {*run_threads(3, body)} == {identity.rpartition(":")[2]}


def filled(folder: Path, size: int, pairs: int) -> None:
    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group)
        keys = np.arange(group.rank, pairs, size)
        assert table.insert(keys, 3 * keys).inserted == len(keys)
        done(table)

    run_threads(size, body)


def pairs_of(folder: Path, size: int, name: str) -> dict[int, int]:
    def body(group: ThreadGroup) -> dict[int, int]:
        table = shard_of(folder, group, name=name)
        keys, values = table.export()
        done(table)
        return dict(zip(keys.tolist(), values.tolist(), strict=True))

    return {k: v for one in run_threads(size, body) for k, v in one.items()}


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 2), (2, 1)])
def test_another_number_of_shards(folder: Path, old: int, new: int) -> None:
    filled(folder, old, 500)
    paths = [region_path(folder, rank) for rank in range(old)]

    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group, name="new")
        assert table.load(paths[group.rank :: new]) == 500
        assert table.size() == 500
        done(table)

    run_threads(new, body)
    everything = {key: 3 * key for key in range(500)}
    assert pairs_of(folder, new, "new") == everything
    assert pairs_of(folder, old, "shard") == everything  # as it was


def test_a_load_refuses_what_is_no_whole_set(folder: Path) -> None:
    filled(folder, 2, 100)
    run_threads(2, lambda group: done(shard_of(folder, group, name="other")))
    run_threads(2, lambda group: done(shard_of(folder, group, value="float64", name="floats")))

    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group, name="new")
        first, second = (region_path(folder, rank) for rank in range(2))
        other = region_path(folder, 1, "other")
        floats = [region_path(folder, rank, "floats") for rank in range(2)]
        wrong: list[tuple[list[Any], str]] = [
            ([], "no rank gave a shard"),
            ([first], "shard 1 of 2 .* to no rank"),
            ([first, other], "differ in the map"),
            ([first, second, other], "differ in the map"),
            (floats, "i64:f64"),
            ([folder / "none.hf"], "none.hf"),
            ([table.region, first], "differ in the map"),
        ]
        for given, words in wrong:
            with pytest.raises(holdfast.Error, match=words):
                table.load(given if group.rank == 0 else [])
        with pytest.raises(holdfast.Error, match="this map"):
            table.load([table.region])
        assert not table.loading
        table.insert([1], [2])
        with pytest.raises(holdfast.Error, match="has 1 pairs"):
            table.load([first, second] if group.rank == 0 else [])
        table.erase([1])
        assert table.load([first] if group.rank else [second]) == 100
        done(table)

    run_threads(2, body)


def test_a_load_into_too_small_a_map_can_be_made_elsewhere_or_again(folder: Path) -> None:
    filled(folder, 2, 500)
    paths = [region_path(folder, rank) for rank in range(2)]

    def small(group: ThreadGroup) -> None:
        table = shard_of(folder, group, name="small", capacity=100)
        with pytest.raises(holdfast.Error, match="pairs found no room") as full:
            table.load([paths[group.rank]])
        assert full.value.code == "no_space"
        with pytest.raises(holdfast.Error, match=r"load\(\) from map .* was cut off"):
            table.insert([1], [2])
        done(table)

    def larger(group: ThreadGroup) -> None:
        table = shard_of(folder, group, name="small", capacity=100)
        table.reserve(1000)
        assert table.load([paths[group.rank]]) == 500
        done(table)

    run_threads(2, small)
    run_threads(2, larger)
    assert len(pairs_of(folder, 2, "small")) == len(pairs_of(folder, 2, "shard")) == 500


@pytest.mark.parametrize("words", [("int32", 1), ("int64", 1), ("int64", 3)])
def test_rows_of_a_gpu_are_ordered_as_the_hosts(words: tuple[str, int]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed_of())
    keys = rng.integers(-40, 40, (500, words[1])).astype(words[0]) * np.array(1 - 2**20, words[0])
    host, device = HostRows(), DeviceRows(torch, torch.device("cpu"))
    there = torch.from_numpy(keys)
    ours, theirs = host.ordered(keys), device.ordered(there)
    for part in ("kept", "superseded", "by", "group_of", "whole"):
        assert getattr(ours, part).tolist() == getattr(theirs, part).tolist(), part
    assert ours.hashes.view(np.int64).tolist() == theirs.hashes.tolist()
    for size, bins in [(1, 4), (3, 16), (7, 1)]:
        ends = host.ends(ours.hashes, size, bins).tolist()
        assert ends == device.ends(theirs.hashes, size, bins).tolist()
        owners = host.owners(keys, size)
        assert owners.tolist() == device.owners(there, size).tolist()
        per_owner = np.bincount(owners[ours.kept].astype(int), minlength=size)
        assert np.diff(ends[::bins]).tolist() == per_owner.tolist()
    for dtype in ("float32", "uint32", "int64", "float64"):
        rows = rng.integers(0, 9, (500, 4)).astype(dtype).view(np.int64)
        mine = host.summed(rows, ours, dtype)
        assert (mine == device.summed(torch.from_numpy(rows), theirs, dtype).numpy()).all()
        totals = mine[ours.kept].view(dtype).sum(axis=0)
        assert totals.tolist() == rows.view(dtype).sum(axis=0).tolist()
