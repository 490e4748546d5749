"""Removal of stores and maps: nothing of them is left, and one that is open is ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import BytesMap, KeyValueStore, LogMap, Map, ShardedMap
from rank_groups import ThreadGroup, run_threads

SIZE = 16 << 20
ROW = ("float32", 4)
KEYS = np.arange(100, dtype=np.uint64)
ROWS = np.ones((100, 4), np.float32)


def grown_map(region: holdfast.Region) -> Any:
    table = Map(region, "users", key="uint64", value=ROW, capacity=512, changes=500)
    table.reserve(2048)
    table.insert_or_assign(KEYS, ROWS)
    return table


def bytes_map(region: holdfast.Region) -> Any:
    table = BytesMap(region, "users", capacity=512, record_bytes=1 << 14)
    table.reserve(2048, 1 << 16)
    table.insert_or_assign(["a", "b"], [b"1", b"2"])
    return table


def log_map(region: holdfast.Region) -> Any:
    table = LogMap(region, "users", value=ROW, capacity=512)
    table.insert_or_assign(KEYS, ROWS)
    return table


def store(layout: str) -> Callable[[holdfast.Region], Any]:
    def make(region: holdfast.Region) -> Any:
        table = KeyValueStore(region, 4096, layout=layout)
        table.set(KEYS, KEYS)
        return table

    return make


def remove_store(region: holdfast.Region, name: str = "") -> None:
    KeyValueStore.remove(region)


KINDS = {
    "map": (grown_map, Map.remove),
    "bytes_map": (bytes_map, BytesMap.remove),
    "log_map": (log_map, LogMap.remove),
    "in_place": (store("in_place"), remove_store),
    "log": (store("log"), remove_store),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_and_an_open_one_is_ended(path: Path, kind: str) -> None:
    make, remove = KINDS[kind]
    with holdfast.create(path, SIZE) as region:
        with pytest.raises(holdfast.Error) as refused:
            remove(region, "users")
        assert refused.value.code == "not_found"
        with pytest.raises(holdfast.Error, match="the region of a"):
            remove(str(path), "users")  # type: ignore[arg-type]
        table = make(region)
        remove(region, "users")
        assert region.objects() == []
        with pytest.raises(holdfast.Error) as ended:
            table.stats()
        assert ended.value.code == "closed"
        again = make(region)
        with pytest.raises(holdfast.Error):
            table.stats()
        again.stats()
    with holdfast.open(path) as region:
        remove(region, "users")
        assert region.objects() == []


def test_one_of_another_kind_is_refused_and_stays(path: Path) -> None:
    with holdfast.create(path, SIZE) as region:
        table = grown_map(region)
        objects = [info.name for info in region.objects()]
        for remove in (BytesMap.remove, LogMap.remove, Map.remove):
            name = "users" if remove is not Map.remove else "user"
            with pytest.raises(holdfast.Error):
                remove(region, name)
        with pytest.raises(holdfast.Error) as refused:
            ShardedMap.remove(region, "users")
        assert refused.value.code == "not_found"
        assert [info.name for info in region.objects()] == objects
        assert table.contains(KEYS).all()


def test_a_map_that_python_has_not_made_leaves_what_has_the_name_of_its_types(path: Path) -> None:
    with holdfast.create(path, SIZE) as region:
        table = grown_map(region)
        region.remove("users_types")
        mine = region.allocate("users_types", (3,), "float64")
        mine[:] = 7
        Map.remove(region, "users")
        assert [info.name for info in region.objects()] == ["users_types"]
        assert mine.tolist() == [7, 7, 7]
        with pytest.raises(holdfast.Error):
            table.stats()
        del mine


def test_a_shard(path: Path) -> None:
    paths = [path.with_name(f"shard{rank}") for rank in range(2)]

    def life(group: ThreadGroup) -> int:
        with holdfast.create(paths[group.rank], SIZE) as region:
            size = 0
            for _ in range(2):
                table = ShardedMap(
                    region, "users", group=group, key="uint64", value=ROW, capacity=512
                )
                table.insert_or_assign(KEYS, ROWS)
                size = table.size()
                ShardedMap.remove(region, "users")
                assert region.objects() == []
            return size

    assert run_threads(2, life) == [100, 100]


@pytest.mark.parametrize("wrong", [{"directory": "off"}, {"max_batch": 1 << 20}])
def test_shards_that_cannot_all_be_made_leave_nothing(path: Path, wrong: dict[str, Any]) -> None:
    paths = [path.with_name(f"shard{rank}") for rank in range(2)]

    def life(group: ThreadGroup) -> None:
        options: dict[str, Any] = {"max_batch": 64, "cache": holdfast.MapCache(1 << 14)}
        size = ShardedMap.region_bytes(512, "uint64", ROW, 64)
        with holdfast.create(paths[group.rank], size) as region:
            with pytest.raises(holdfast.Error):
                ShardedMap(
                    region, "users", group=group, key="uint64", value=ROW, capacity=512,
                    **{**options, **(wrong if group.rank == 1 else {})},
                )  # fmt: skip
            assert region.objects() == []
            ShardedMap(
                region, "users", group=group, key="uint64", value=ROW, capacity=512, **options
            ).close()

    run_threads(2, life)
