"""What a map takes: its table's growth in the region, and its cache in the GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

from ._backend import ext
from ._errors import Error, checked_number, checked_text


@dataclass(frozen=True)
class MapCache:
    """A cache of a map's values in the GPU's memory (docs/map.md, "The cache").

    bytes: for values, each in a multiple of 16 bytes; beside it the cache takes 8 bytes for each
    of the map's value_places, and 13 for each value that it has room for. policy: which values a
    load takes: "lfu", those with the most accesses since the map was opened; "lru", those of the
    latest batch; "frozen", as "lfu" in the first load, and then no others; "random". load_every:
    batches from a load to the next, which begins by itself; 0: load_cache() alone begins one.
    """

    bytes: int
    policy: str = "lfu"
    load_every: int = 0


def native_cache(cache: MapCache | None) -> ext.MapCache:
    if cache is None:
        return ext.MapCache(0, "lfu", 0)
    if not isinstance(cache, MapCache):
        raise Error(f"cache is {cache!r}: give a holdfast.MapCache, or leave it out")
    return ext.MapCache(
        checked_number(cache.bytes, "bytes of a cache", 1, 2**63 - 1),
        checked_text(cache.policy, "policy of a cache"),
        checked_number(cache.load_every, "load_every of a cache", 0, 2**32 - 1),
    )


class MapMemory:
    """Methods of Map."""

    _map: ext.Map

    # Resizing. A table doubles: a level comes on top, and the pairs of the lowest one move there.

    def reserve(self, capacity: int) -> None:
        """Grows, at once and to the end, until there are so many slots.

        The region grows where it has no room, up to its max_size. Raises Error: no_space (the
        message has the bytes), no_shared_memory, no_memory, invalid_argument (more than a table can
        have), already_exists (the region has an array of yours by a name that is needed),
        unsupported (a map of version 1). Pairs stay as they are; arrays of the region stay valid.
        """
        self._map.reserve(checked_number(capacity, "capacity", 1))

    def grow(self) -> None:
        """Begins to double the table, behind the end of a growth that is under way.

        From here on there is room; migrate() moves what is there already, in steps between other
        calls. Raises as reserve(), with nothing changed.
        """
        self._map.grow()

    def migrate(self, buckets: int) -> bool:
        """Moves the pairs of so many buckets of a growth. Returns whether it goes on.

        stats().left_to_move buckets are left, also behind a crash.
        """
        return self._map.migrate(checked_number(buckets, "buckets", 1))

    # The cache.

    def load_cache(self) -> None:
        """Begins to load the cache, beside what calls do, and returns.

        Its values serve from a batch on that finds it done; stats().cache counts. Nothing if a load
        is under way. Raises Error (invalid_argument: the map was opened without a cache).
        """
        self._map.load_cache()

    def await_cache(self) -> None:
        """Waits for a load that is under way: it serves the next batch."""
        self._map.await_cache()
