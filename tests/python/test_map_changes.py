"""Two maps that are kept in step by what changes in one of them, against a dict."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
import map_worker
from holdfast import Map, MapChanges, MapVersion
from maps import lines_until_killed, seed_of

CAPACITY, MAX_BATCH, CHANGES = 1200, 256, 2000
VALUE = ("float32", map_worker.ROW)


def make(path: Path, name: str, changes: int = CHANGES) -> None:
    size = Map.region_bytes(CAPACITY, "int64", VALUE, MAX_BATCH, changes=changes)
    with holdfast.create(path, size) as region:
        Map(region, name, key="int64", value=VALUE, capacity=CAPACITY, max_batch=MAX_BATCH,
            changes=changes)  # fmt: skip


def contents(table: Map) -> dict[int, bytes]:
    keys, values = table.export()
    return {int(key): value.tobytes() for key, value in zip(keys, values, strict=True)}


def contents_of(path: Path) -> dict[int, bytes]:
    with holdfast.open(path) as region:
        return contents(Map(region, "rows"))


def catch_up(source: Map, follower: Map, most: int | None = None) -> None:
    since = follower.followed()
    while since is not None and since != source.version():
        changes = source.export_changes(since, most)
        assert changes.since == since
        follower.apply_changes(changes)
        since = follower.followed()
        assert since == changes.to


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Map, Map]]:
    make(tmp_path / "source", "rows")
    make(tmp_path / "follower", "rows")
    with holdfast.open(tmp_path / "source") as one, holdfast.open(tmp_path / "follower") as other:
        yield Map(one, "rows"), Map(other, "rows")


def rows_of(*numbers: float) -> np.ndarray[Any, Any]:
    return np.array([[number] * map_worker.ROW for number in numbers], np.float32)


def test_keys_of_bytes_are_followed(tmp_path: Path) -> None:
    def made(name: str) -> Map:
        size = Map.region_bytes(100, "S16", "int64", MAX_BATCH, changes=100)
        region = holdfast.create(tmp_path / name, size)
        return Map(region, key="S16", value="int64", capacity=100, max_batch=MAX_BATCH, changes=100)

    source, follower = made("source"), made("follower")
    follower.follow(source.version())
    source.insert([b"one", b"two"], [1, 2])
    source.erase([b"one"])
    changes = source.export_changes(follower.followed() or source.version())
    assert changes.upserts[0].tolist() == [b"two"]
    assert changes.tombstones.tolist() == [b"one"]
    follower.apply_changes(changes)
    assert follower.export()[0].tolist() == [b"two"]
    for table in (source, follower):
        table.close()
        table.region.close()


def test_random_programs_leave_the_same_in_both(two: tuple[Map, Map]) -> None:
    source, follower = two
    seed = seed_of()
    dice = random.Random(seed)
    follower.follow(source.version())
    there: dict[int, float] = {}
    for number in range(40):
        batch = map_worker.batch(seed, number)
        operation, keys, rows = batch
        there.update({
            key: row for key, row in map_worker.changes(batch, dict(there)) if row is not None
        })  # fmt: skip
        if operation == "erase":
            source.erase(keys)
            there = {key: row for key, row in there.items() if key not in keys}
        else:
            getattr(source, operation)(keys, rows)
        since = follower.followed()
        assert since is not None
        late = source.version().number - since.number > CHANGES - 300
        if late or dice.random() < 0.3:
            catch_up(source, follower, dice.choice([None, 1 + dice.randrange(300)]))
            found = dict(zip(*(part.tolist() for part in follower.export()), strict=True))
            assert {key: row[1] for key, row in found.items()} == there


def test_what_a_page_has(two: tuple[Map, Map]) -> None:
    source, follower = two
    begin = source.version()
    assert follower.followed() is None
    source.insert([1, 2, 3, 2], rows_of(1, 2, 3, 4))
    source.erase([3])
    changes = source.export_changes(begin)
    (keys, values), tombstones, since, to = changes
    assert dict(zip(keys.tolist(), values[:, 0].tolist(), strict=True)) == {1: 1, 2: 4}
    assert tombstones.tolist() == [3]
    assert (since, to) == (begin, source.version())
    assert isinstance(to, MapVersion) and to.number == 5
    assert source.export_changes(to).tombstones.size == 0
    out = np.zeros((7, map_worker.ROW), np.float32)
    given = source.export_changes(begin, 7, values=out)
    assert np.shares_memory(given.upserts[1], out)
    follower.follow(begin)
    follower.insert([3], rows_of(9))
    assert follower.apply_changes(changes).erased == 1
    assert follower.followed() == to
    assert contents(follower) == contents(source)


def test_what_is_refused(two: tuple[Map, Map]) -> None:
    source, follower = two
    begin = source.version()
    source.insert([1], rows_of(1))
    changes = source.export_changes(begin)

    def refused(code: str, match: str, call: Any, *arguments: Any) -> None:
        with pytest.raises(holdfast.Error, match=match) as raised:
            call(*arguments)
        assert raised.value.code == code

    refused("not_found", "follows none", follower.apply_changes, changes)
    refused("not_found", "none of this map's", source.export_changes, follower.version())
    refused("invalid_argument", "since is 3", source.export_changes, 3)
    refused("invalid_argument", "since is -1", source.export_changes, (begin.opening, -1))
    refused("invalid_argument", "most is 0", source.export_changes, begin, 0)
    refused("invalid_argument", "tuple", follower.apply_changes, (changes.upserts,))
    for upserts in (None, changes.upserts[:1], (*changes.upserts, 3), 7):
        odd = changes._replace(upserts=upserts)  # type: ignore[arg-type]
        refused("invalid_argument", r"upserts are .*\(keys, values\)", follower.apply_changes, odd)
    refused(
        "invalid_argument", "tombstones", follower.apply_changes, changes._replace(tombstones=None)
    )
    follower.follow(begin)
    follower.apply_changes(changes)
    refused("conflict", "in already", follower.apply_changes, changes)
    later = MapChanges(changes.upserts, changes.tombstones, MapVersion(begin.opening, 7), begin)
    refused(
        "conflict", "gap", follower.apply_changes, later._replace(to=MapVersion(begin.opening, 9))
    )
    wide = changes._replace(upserts=(changes.upserts[0], np.zeros((1, 3), np.float32)))
    refused("invalid_argument", "values has the shape", follower.apply_changes, wide)
    for _ in range(CHANGES // 200 + 1):
        source.insert_or_assign(np.arange(200), np.zeros((200, map_worker.ROW), np.float32))
    refused("not_found", "too old.*whole export", source.export_changes, begin)


def test_off_by_default(path: Path) -> None:
    make(path, "rows", changes=0)
    with holdfast.open(path) as region:
        table = Map(region, "rows")
        for call in (table.version, table.followed, lambda: table.follow(MapVersion(1, 2))):
            with pytest.raises(holdfast.Error, match="without a record of changes") as raised:
                call()
            assert raised.value.code == "unsupported"


def test_a_record_of_another_size_is_refused(path: Path) -> None:
    size = 2 * Map.region_bytes(9, "int64", "int64", 9, changes=20)
    with holdfast.create(path, size) as region:
        options: dict[str, Any] = {"key": "int64", "value": "int64", "capacity": 9, "max_batch": 9}
        plain = Map(region, "plain", **options)
        recorded = Map(region, "recorded", changes=20, **options)
        version = recorded.version()
        for name, changes, has in [
            ("plain", 10, "without a record"), ("recorded", 10, "changes=20")
        ]:  # fmt: skip
            with pytest.raises(
                holdfast.Error, match=f"'{name}'.*{has}.*leave changes out"
            ) as raised:
                Map(region, name, changes=changes, **options)
            assert raised.value.code == "invalid_argument"
        # Nothing has happened to those that are open.
        assert plain.insert([1], [2]).inserted == 1
        assert recorded.version() == version
        recorded.close()
        Map(region, "recorded").close()
        Map(region, "recorded", changes=20, **options).close()


def test_a_follower_gets_in_step_behind_kills(tmp_path: Path) -> None:
    """Of the map's process; what it had acknowledged, and what was cut off, is in the changes."""
    seed = seed_of()
    dice = random.Random(seed)
    paths = tmp_path / "source", tmp_path / "follower"
    for path in paths:
        make(path, "rows", changes=1_000_000)
    with holdfast.open(paths[0]) as one, holdfast.open(paths[1]) as other:
        for unfit in (np.zeros(2), 3, (1,)):
            with pytest.raises(holdfast.Error, match="a MapVersion"):
                Map(other, "rows").follow(unfit)  # type: ignore[arg-type]
        Map(other, "rows").follow(Map(one, "rows").version())
    number = 0
    for life in range(6):
        number += 1 + len(lines_until_killed(
            map_worker, paths[0], seed, number, dice=dice, longest=0.03, at_least=life % 2
        ))  # fmt: skip
        with holdfast.open(paths[0]) as one, holdfast.open(paths[1]) as other:
            source, follower = Map(one, "rows"), Map(other, "rows")
            catch_up(source, follower)
            assert contents(follower) == contents(source)
    assert len(contents_of(paths[1])) > 0
