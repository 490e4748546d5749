"""What the tests of the sharded map share: ranks with regions in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import holdfast
from holdfast import ShardedMap
from rank_groups import ThreadGroup

CAPACITY = 600


def region_path(folder: Path, rank: int, name: str = "shard") -> Path:
    return folder / f"{name}-{rank}.hf"


def shard_of(
    folder: Path, group: ThreadGroup, key: Any = "int64", value: Any = "int64", name: str = "shard",
    capacity: int = CAPACITY, **options: Any,
) -> ShardedMap:  # fmt: skip
    """This rank's shard, opened, or made where there is none."""
    given: dict[str, Any] = {"max_batch": 64, "timeout": 20, **options}
    size = ShardedMap.region_bytes(capacity, key, value, given["max_batch"])
    path = region_path(folder, group.rank, name)
    region = holdfast.open_or_create(path, size, max_size=64 << 20)
    return ShardedMap(region, "m", group=group, key=key, value=value, capacity=capacity, **given)


def done(table: ShardedMap) -> None:
    assert table.verify() == ""
    table.close()
    table.region.close()
