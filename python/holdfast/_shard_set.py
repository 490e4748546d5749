"""Which shards belong together: what stands beside a shard in its region, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from ._errors import Error
from ._exchange import Exchange
from ._map_types import _key_of, _stored_types, _types_text, _value_of
from ._region import Region

MOST_SHARDS = 9999
HASH = "1"  # of keys to owners; a set of shards has one
_IDENTITY = re.compile(r"h(\w):([0-9]+):([0-9]+):([0-9a-f]{12})")


@dataclass
class Shard:
    """What a region says of its shard of a map; each part is durable by one store."""

    path: str
    types: str = ""
    hash: str = ""
    rank: int = -1  # -1: there is none
    size: int = 0
    map_id: str = ""  # of the whole map
    made: bool = False  # there is a table, too
    whole: bool = False  # all shards had been made
    loads: str = ""  # the map whose pairs were being loaded into this one

    @property
    def there(self) -> bool:
        return self.rank >= 0 and self.made

    def __str__(self) -> str:
        if self.rank < 0:
            return (
                f"{self.path} has a map that is no shard" if self.made else f"{self.path} has none"
            )
        return f"{self.path} has shard {self.rank} of {self.size} of map {self.map_id}"


class Marks:
    """The objects beside a shard, by which it is known again."""

    def __init__(self, region: Region, name: str) -> None:
        self._region, self._name = region, name

    def read(self) -> Shard:
        region, name = self._region, self._name
        types = {info.name: info.type for info in region.objects()}
        shard = Shard(str(region.path), made=f"{name}.header" in types)
        identity = _IDENTITY.fullmatch(types.get(f"{name}_shard", ""))
        if identity is not None:
            shard.hash, shard.map_id = identity[1], identity[4]
            shard.rank, shard.size = int(identity[2]), int(identity[3])
        if shard.made:
            stored = _stored_types(region, name)
            shard.types = _types_text(*stored) if stored else ""
        shard.whole = f"{name}_whole" in types
        shard.loads = types.get(f"{name}_loads", "")
        return shard

    def _store(self, suffix: str, text: str) -> None:
        self.remove(suffix)
        self._region._handle.allocate(f"{self._name}_{suffix}", text, 8, 1, "hashed")

    def remove(self, suffix: str) -> None:
        if f"{self._name}_{suffix}" in self._region:
            self._region._handle.remove(f"{self._name}_{suffix}")

    def store_identity(self, rank: int, size: int, map_id: str) -> None:
        self._store("shard", f"h{HASH}:{rank}:{size}:{map_id}")

    def store_whole(self) -> None:
        self._store("whole", "whole")

    def store_loads(self, map_id: str) -> None:
        self._store("loads", map_id)


def types_asked(key: Any, value: Any) -> str:
    """Returns the name of a pair's type; empty: it was not given."""
    if key is None or value is None:
        return ""
    return _types_text(_key_of(key), _value_of(value))


def agree(exchange: Exchange, what: str, error: Exception | None) -> None:
    """Raises on all ranks what one of them has met. Collective."""
    if not exchange.gather([error is not None]).any():
        return
    raise_first(exchange, what, error)


def raise_first(exchange: Exchange, what: str, error: Exception | None) -> None:
    """Raises this rank's error, or that of the first rank that has one. Collective."""
    code = error.code if isinstance(error, Error) else "io"
    said = "" if error is None else json.dumps([str(error) or type(error).__name__, code])
    texts = exchange.gather_bytes(said.encode())
    if error is not None:
        raise error
    for rank, text in enumerate(texts):
        if text:
            message, code = json.loads(text)
            raise Error(f"{what}: rank {rank} refused, and so all do: {message}", code)


def shards_of(exchange: Exchange, mine: list[Shard]) -> list[list[Shard]]:
    """Returns by rank the shards that each has looked at. Collective."""
    texts = exchange.gather_bytes(json.dumps([asdict(shard) for shard in mine]).encode())
    return [[Shard(**fields) for fields in json.loads(text)] for text in texts]


def check_set(where: str, found: list[Shard], size: int) -> None:
    """Refuses shards of several maps, of another hash, or of other types."""
    first = found[0]
    for shard in found[1:]:
        for part, one, other in [
            ("the map", first.map_id, shard.map_id),
            ("the number of shards", first.size, shard.size),
            ("the types", first.types, shard.types),
        ]:
            if one != other:
                raise Error(
                    f"{where}: shards differ in {part}: {first}, and {shard} ({one}, {other}); "
                    "give those of one map",
                    "conflict",
                )
    if first.hash != HASH:
        raise Error(
            f"{where}: {first}, whose keys went to shards by hash {first.hash}, and this library "
            f"has hash {HASH}: use the library that made it",
            "newer_version",
        )
    if first.size != size:
        raise Error(
            f"{where}: {first}, and there are {size} here: open it with {first.size} ranks, or "
            "make a new map, and load() the shards into it",
            "conflict",
        )


def check_opened(where: str, found: list[Shard]) -> bool:
    """Checks what all ranks have, by rank. Returns whether it has to be made.

    Where a creation was cut off some ranks have a shard, which is empty, and none says that the map
    was whole.
    """
    there = [shard for shard in found if shard.rank >= 0]
    for shard in found:
        if shard.made and shard.rank < 0:
            raise Error(
                f"{where}: {shard}: open it as holdfast.Map, or give another name", "conflict"
            )
        if shard.whole and not shard.made:
            raise Error(
                f"{where}: {shard}, whose table is gone: reopen the regions from their last "
                "commits, or remove() what there is of the map and make it again",
                "damaged",
            )
    if there:
        check_set(where, there, len(found))
    for rank, shard in enumerate(found):
        if shard.rank not in (-1, rank):
            raise Error(
                f"{where}: rank {rank} was given another one's: {shard}; give each rank its own",
                "conflict",
            )
    lacking = next((rank for rank, shard in enumerate(found) if not shard.there), None)
    if lacking is None:
        return False
    if any(shard.whole for shard in there):
        raise Error(
            f"{where}: shard {lacking} is missing: {found[lacking]}, and {there[0]}, all of whose "
            "shards had been made",
            "conflict",
        )
    return True


def check_sources(where: str, mine: str, found: list[list[Shard]], types: str) -> str:
    """Checks that all ranks together have each shard of one map once. Returns that map."""
    given = [shard for of_rank in found for shard in of_rank]
    for shard in given:
        if not shard.there:
            raise Error(f"{where}: {shard}: give regions with shards of a map", "not_found")
    if not given:
        raise Error(f"{where}: no rank gave a shard: give each of them to one rank")
    check_set(where, given, given[0].size)
    if given[0].map_id == mine:
        raise Error(f"{where}: {given[0]}, which is this map: give the shards of another one")
    if given[0].types != types:
        raise Error(
            f"{where}: {given[0]}, whose types are {given[0].types}, and here they are {types}: "
            "make the map with the types of the old one",
            "conflict",
        )
    if given[0].loads:
        raise Error(
            f"{where}: {given[0]}, whose own load() was cut off: end that first", "conflict"
        )
    _check_each_once(where, given)
    return given[0].map_id


def _check_each_once(where: str, given: list[Shard]) -> None:
    by_rank: dict[int, Shard] = {}
    for shard in given:
        if shard.rank in by_rank:
            raise Error(
                f"{where}: {shard}, and so has {by_rank[shard.rank].path}: give one of them"
            )
        by_rank[shard.rank] = shard
    for rank in range(given[0].size):
        if rank not in by_rank:
            raise Error(
                f"{where}: shard {rank} of {given[0].size} of map {given[0].map_id} was given to "
                "no rank: give each to one",
                "not_found",
            )
