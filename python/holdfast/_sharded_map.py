"""A hash map whose keys are shared out over the ranks of a group, a holdfast.Map on each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from . import _shard_set
from ._closing import Closing
from ._errors import Error, checked_number
from ._exchange import Exchange, exchange_of
from ._map import _ROOM_FOR_TYPES, _TYPES_OF_SUMS, Map
from ._map_arrays import _FOUND, _SCORE, _STATUS
from ._map_evict import rooms_for
from ._map_types import _types_text
from ._region import Region, checked_region
from ._region import open as open_region
from ._rows import Rows
from ._sharded_calls import Call, Calls, error_of

_CHUNK, _CHUNK_BYTES = 1 << 20, 1 << 27  # at most, of operations and of their rows
_LOADED = 1 << 16  # slots of an old shard that are read at once


class ShardedMapResult(NamedTuple):
    """How many of this rank's operations had which MapStatus."""

    inserted: int
    assigned: int
    kept: int
    erased: int
    absent: int
    superseded: int
    full: int
    no_value: int

    @property
    def not_done(self) -> int:
        return self.full + self.no_value


class ShardedMapEvicted(NamedTuple):
    """What this rank's shard let go in a call, whoever made it do so, and what became of ours.

    Of all ranks' `keys` together, less their `result.not_done`, so many pairs were in the map.
    """

    keys: Any  # of the pairs that went from this rank's shard, or found no room there
    values: Any  # that they had
    scores: Any  # likewise; of uint64
    status: Any  # by operation of this rank: a MapStatus
    result: ShardedMapResult  # how many of this rank's had which


class ShardedMap(Closing):
    """A hash map sharded by key over the ranks of a group, in a region of each (docs/map.md).

    >>> table = holdfast.ShardedMap(region, "users", group=group, key="int64", value=row,
    ...                             capacity=1_000_000)
    >>> table.insert_or_assign(ids, rows)  # all ranks, each with keys of its own choice
    >>> rows, found = table.find(ids)

    group: a torch.distributed.ProcessGroup, an mpi4py.MPI.Comm, or anything else that
    holdfast.ranks.of() takes. With NCCL rows are exchanged in memory of the GPU, else in the
    host's. `capacity`, and the parameters that are not named here, are those of a rank's own shard,
    as for holdfast.Map; give every rank the same. timeout: seconds that a rank waits for others.
    chunk: how many operations a shard gets at once, at most its max_batch, and no fewer than there
    are ranks, which may all have one on the same key; while it works on them
    the next ones are exchanged. Default: 2^20, or as many as have 128 MiB of rows.

    Making and opening a map, insert(), insert_or_assign(), find_or_insert(), assign(), erase(),
    accumulate(), insert_and_evict(), find(), contains(), size(), reserve() and load() are
    collective: all ranks call them, in the same order, with arguments of any count, also none. A
    call is one batch of all ranks' operations, in the order of ranks: of several on one key the
    last one of the highest rank counts, and the others are superseded. Once it has returned on one
    rank it is durable on all.
    Where one rank refuses its arguments, all raise Error, and nothing has changed. Of a call that
    ends in any other way (a crash, Error rank_lost, or an error of one shard, which all raise) each
    operation is there whole or not at all. After rank_lost all ranks have to end, and to open the
    map again.

    Arrays are of NumPy and PyTorch, otherwise as for holdfast.Map. What a call is given is waited
    for on PyTorch's current stream; when it returns it is done.
    Thread safety: one thread at a time.
    """

    def __init__(
        self,
        region: Region,
        name: str = "map",
        *,
        group: Any,
        key: Any = None,
        value: Any = None,
        capacity: int | None = None,
        timeout: float = 60.0,
        chunk: int | None = None,
        **options: Any,
    ) -> None:
        self.region, self.name = region, name
        self._exchange: Exchange = exchange_of(group, timeout)
        self._rows: Rows = self._exchange.rows
        self._where = f"sharded map '{name}'"
        found = self._look(key, value, chunk)
        made = self._agree_on(found, capacity)
        self.shard: Map

        def open_shard() -> None:
            if made and self._shard.rank < 0:
                self._marks.store_identity(self.rank, self.ranks, self.id)
            self.shard = Map(region, name, key=key, value=value, capacity=capacity, **options)

        error = error_of(open_shard)
        try:
            _shard_set.agree(self._exchange, self._where, error)
        except Error:
            if made:
                self._take_back()
            raise
        most = max(1, min(_CHUNK, _CHUNK_BYTES // self.shard.value.nbytes))
        self._calls = Calls(self._exchange, self.shard, self._where, self.id, chunk or most)
        self._calls.loads = next((one.loads for one in found if one.loads), "")
        if not self._shard.whole:
            error = error_of(self._marks.store_whole)
            _shard_set.agree(self._exchange, self._where, error)

    def _take_back(self) -> None:
        """Removes what this rank has made of a map that could not be made."""
        with suppress(Error):  # what is left is of a creation that was cut off
            if not self._shard.made and f"{self.name}.header" in self.region:
                Map.remove(self.region, self.name)
            if self._shard.rank < 0:
                self._marks.remove("shard")

    def _look(self, key: Any, value: Any, chunk: int | None) -> list[_shard_set.Shard]:
        """Returns what each rank has, by rank."""

        def look() -> None:
            checked_region(self.region, "a map")
            if chunk is not None:
                checked_number(chunk, "chunk", 1)
            if self.ranks > _shard_set.MOST_SHARDS:
                raise Error(f"{self.ranks} ranks: a map has {_shard_set.MOST_SHARDS} at most")
            self._marks = _shard_set.Marks(self.region, self.name)
            self._shard = self._marks.read()
            if not self._shard.made:
                self._shard.types = _shard_set.types_asked(key, value)

        _shard_set.agree(self._exchange, self._where, error_of(look))
        return [shards[0] for shards in _shard_set.shards_of(self._exchange, [self._shard])]

    def _agree_on(self, found: list[_shard_set.Shard], capacity: int | None) -> bool:
        """Checks what there is. Returns whether the map has to be made, and sets what it is."""
        making = _shard_set.check_opened(self._where, found)
        proposed = self._exchange.gather([int.from_bytes(os.urandom(6), "big")])
        if making and len({shard.types for shard in found}) > 1:
            differing = ", ".join(shard.types or "none" for shard in found)
            raise Error(f"{self._where}: the types of ranks differ: {differing}: give all the same")
        without = self._exchange.gather([capacity is None])[:, 0]
        if making and without.any():
            raise Error(
                f"{self._where}: {found[int(without.argmax())]}: give a capacity, and the types of "
                "key and value, to make one",
                "not_found",
            )
        ids = [shard.map_id for shard in found if shard.rank >= 0]
        self.id = ids[0] if ids else f"{int(proposed[0, 0]):012x}"
        return making

    @staticmethod
    def remove(region: Region, name: str = "map") -> None:
        """Removes the shard that `region` has; as Map.remove(). Not collective: of each rank."""
        marks = _shard_set.Marks(checked_region(region, "a map"), name)
        shard = marks.read()
        if shard.rank < 0:
            raise Error(f"region {region.path} has no shard of a map '{name}'", "not_found")
        # One that is cut off leaves the shard, or what a creation that is cut off leaves.
        marks.remove("loads")
        marks.remove("whole")
        if shard.made:
            Map.remove(region, name)
        marks.remove("shard")

    @staticmethod
    def region_bytes(
        capacity: int, key: Any, value: Any, max_batch: int = 1 << 16, value_places: int = 0,
        changes: int = 0,
    ) -> int:  # fmt: skip
        """Returns the size that each rank's region must have; as Map.region_bytes()."""
        whole = Map.region_bytes(capacity, key, value, max_batch, value_places, changes)
        return whole + _ROOM_FOR_TYPES

    # Collective operations.

    def insert(self, keys: Any, values: Any, *, status: Any = None) -> ShardedMapResult:
        """Inserts what is not there. Those that are keep their values."""
        return self._update("insert", keys, values, status)

    def insert_or_assign(self, keys: Any, values: Any, *, status: Any = None) -> ShardedMapResult:
        return self._update("insert_or_assign", keys, values, status)

    def assign(self, keys: Any, values: Any, *, status: Any = None) -> ShardedMapResult:
        """Assigns to what is there."""
        return self._update("assign", keys, values, status)

    def accumulate(self, keys: Any, values: Any, *, status: Any = None) -> ShardedMapResult:
        """Adds to what is there, element by element; of one key all ranks' values, in no order."""
        return self._update("accumulate", keys, values, status)

    def erase(self, keys: Any, *, status: Any = None) -> ShardedMapResult:
        return self._update("erase", keys, None, status)

    def find_or_insert(
        self, keys: Any, values: Any, *, out: Any = None, status: Any = None
    ) -> tuple[Any, ShardedMapResult]:
        """As insert(); returns what each key has then, and what became of this rank's operations.

        The row of an operation that was not done, or is superseded, is 0, or as `out` had it.
        """
        results: list[Any] = []

        def given() -> Call:
            call = self._given("find_or_insert", keys, values, status)
            rows, call.out = self.shard._out(
                self.shard._arrays("find_or_insert", None), out, call.keys
            )
            assert call.values is not None
            if call.count > 0 and call.out.address == call.values.address:
                raise Error(f"find_or_insert() of {self._where}: out is values: give it another")
            results.append(rows)
            return call

        counts = self._calls.call("find_or_insert", given)
        return results[0], ShardedMapResult(*counts[1:9])

    def insert_and_evict(
        self, keys: Any, values: Any, scores: Any = None, *, status: Any = None
    ) -> ShardedMapEvicted:
        """As insert_or_assign(), of a map with scores; where no slot is free a pair goes.

        As Map.insert_and_evict(), on each shard. All ranks give scores, or none does. What went is
        with the rank whose shard let it go, for a slower tier of that rank's; if the call is of
        more than a chunk for a shard, a pair that one chunk has set may go in a later one, a key
        that goes may come back, and of a key that is twice among them the later one is newer.
        """
        results: list[Any] = []
        calls: list[Call] = []

        def given() -> Call:
            call = self._given("insert_and_evict", keys, values, None)
            arrays = self.shard._arrays("insert_and_evict", None)
            flags, call.answers = arrays.taken(status, "status", _STATUS, call.keys)
            results.append(flags)
            if scores is not None:
                call.scores = arrays.given(scores, "scores", _SCORE, call.count)

            call.rooms = partial(rooms_for, self.shard, arrays, call.keys)
            call.rooms(0)  # what cannot be given back is refused before anything goes
            calls.append(call)
            return call

        counts = self._calls.call("insert_and_evict", given, scores is not None)
        went, rows, had = calls[0].gone
        result = ShardedMapResult(*counts[1:9])
        return ShardedMapEvicted(went, rows, had, results[0], result)

    def find(self, keys: Any, *, out: Any = None, found: Any = None) -> tuple[Any, Any]:
        """Returns (values, found), as holdfast.Map does."""
        results: list[Any] = []

        def given() -> Call:
            arrays = self.shard._arrays("find", None)
            buffer = self.shard._given_keys(arrays, keys)
            values, to = self.shard._out(arrays, out, buffer)
            flags, answers = arrays.taken(found, "found", _FOUND, buffer)
            results.extend([values, flags])
            return Call("find", buffer.shape[0], buffer, None, to, answers)

        self._calls.call("find", given)
        return results[0], results[1]

    def contains(self, keys: Any, *, found: Any = None) -> Any:
        """Returns for each key whether it is there."""
        results: list[Any] = []

        def given() -> Call:
            arrays = self.shard._arrays("contains", None)
            buffer = self.shard._given_keys(arrays, keys)
            flags, answers = arrays.taken(found, "found", _FOUND, buffer)
            results.append(flags)
            return Call("contains", buffer.shape[0], buffer, None, None, answers)

        self._calls.call("contains", given)
        return results[0]

    def size(self) -> int:
        """Pairs of all shards."""
        sizes: list[int] = []
        self._calls.agree("size", error_of(lambda: sizes.append(self.shard.size)))
        return int(self._exchange.gather([sizes[0]]).sum())

    def reserve(self, capacity: int) -> None:
        """Grows this rank's shard until it has so many slots, as Map.reserve(). Collective.

        Where one rank raises, all do; the shards of others may have grown.
        """
        self._calls.agree("reserve", error_of(lambda: self.shard.reserve(capacity)))

    def load(self, shards: Sequence[Region | str | os.PathLike[str]], name: str = "") -> int:
        """Takes over all pairs of a map with another number of shards. Returns how many.

        shards: regions of the old map, or their paths, that this rank reads, also none; each shard
        is given to one rank. name: of the old map (default: as this one's). This map is empty, or a
        load of the same shards into it was cut off, which is begun again so: until it has come to
        its end nothing else can be done with this map. The old shards keep all they have. Raises
        Error: shards are missing, or do not belong together; no_space, and then make one with more
        room.
        """
        with ExitStack() as opened:
            old: list[Map] = []
            found: list[_shard_set.Shard] = []
            read = error_of(lambda: self._sources(shards, name or self.name, opened, old, found))
            self._calls.agree("load", read)
            everything = _shard_set.shards_of(self._exchange, found)
            types = _types_text(self.shard.key, self.shard.value)
            source = _shard_set.check_sources(self._where, self.id, everything, types)
            self._begin_load(source)
            self._calls.loads = ""  # while this one runs
            try:
                total, lacking = self._copy(old)
            finally:
                self._calls.loads = source
            if lacking:
                raise Error(
                    f"{self._where}: {lacking} of the old shards' pairs found no room; they are "
                    "still there: reserve() more room and load() again, or load them into a map "
                    "with a larger capacity",
                    "no_space",
                )
            error = error_of(lambda: self._marks.remove("loads"))
            _shard_set.agree(self._exchange, self._where, error)
            self._calls.loads = ""
            return total

    # A rank's own.

    @property
    def rank(self) -> int:
        return self._exchange.rank

    @property
    def ranks(self) -> int:
        """The number of shards."""
        return self._exchange.size

    @property
    def loading(self) -> bool:
        """Whether a load() was cut off, so that another one has to be made first."""
        return bool(self._calls.loads)

    def batches(self, slots: int = _LOADED) -> Iterator[tuple[Any, Any]]:
        """As Map.batches(), of this rank's shard. Not collective."""
        return self.shard.batches(slots)

    def export(self) -> tuple[Any, Any]:
        """Returns (keys, values) of this rank's shard, in no order. Not collective."""
        return self.shard.export()

    def verify(self) -> str:
        """Checks this rank's shard. Returns the empty string, or what is wrong. Not collective."""
        wrong = self.shard.verify()
        if wrong:
            return wrong
        for keys, _ in self.batches():
            arrays = self.shard._arrays("verify", None)
            with self._rows.scope():
                rows = self._rows.own(self.shard._given_keys(arrays, keys), self.shard.key.nbytes)
                foreign = int((self._rows.owners(rows, self.ranks) != self.rank).sum())
            if foreign:
                return f"{foreign} keys of shard {self.rank} belong to another one"
        return ""

    def close(self) -> None:
        """Lets go of this rank's shard. Not collective."""
        self.shard.close()

    def __repr__(self) -> str:
        return (
            f"<holdfast.ShardedMap '{self.name}', shard {self.rank} of {self.ranks} in "
            f"{self.region.path}: {self.shard.key} to {self.shard.value}>"
        )

    # What a call is given.

    def _given(self, operation: str, keys: Any, values: Any, status: Any) -> Call:
        if operation == "accumulate" and self.shard.value.dtype not in _TYPES_OF_SUMS:
            raise self.shard._no_sums()
        arrays = self.shard._arrays(operation, None)
        buffer = self.shard._given_keys(arrays, keys)
        count, to, became = buffer.shape[0], None, None
        if operation != "erase":
            to = arrays.given(values, "values", self.shard.value, count)
        if status is not None:
            became = arrays.given(status, "status", _STATUS, count, written=True)
        return Call(operation, count, buffer, to, None, became)

    def _update(self, operation: str, keys: Any, values: Any, status: Any) -> ShardedMapResult:
        counts = self._calls.call(operation, lambda: self._given(operation, keys, values, status))
        return ShardedMapResult(*counts[1:9])

    # Loading.

    def _sources(
        self,
        shards: Sequence[Region | str | os.PathLike[str]],
        name: str,
        opened: ExitStack,
        old: list[Map],
        found: list[_shard_set.Shard],
    ) -> None:
        """Opens the old shards that this rank was given."""
        for shard in shards:
            if isinstance(shard, Region):
                region = shard
            else:
                region = opened.enter_context(open_region(shard))
            found.append(_shard_set.Marks(region, name).read())
            if found[-1].there and (region is not self.region or name != self.name):
                old.append(opened.enter_context(Map(region, name, directory="off")))

    def _begin_load(self, source: str) -> None:
        pairs = self.size()
        if not self._calls.loads and pairs > 0:
            raise Error(f"{self._where} has {pairs} pairs: load() into one that is empty")
        if self._calls.loads and self._calls.loads != source:
            raise Error(
                f"{self._where}: a load() from map {self._calls.loads} was cut off, and these "
                f"shards are of map {source}: give those of {self._calls.loads}",
                "conflict",
            )
        error = error_of(lambda: self._marks.store_loads(source))
        _shard_set.agree(self._exchange, self._where, error)

    def _copy(self, old: list[Map]) -> tuple[int, int]:
        """Inserts all pairs. Returns how many there are, and how many found no room."""
        source = self._exchange.gather([sum(-(-one.stats().capacity // _LOADED) for one in old)])
        pairs = (pair for one in old for pair in one.batches(_LOADED))
        total = lacking = 0
        nothing = next(iter(self.shard.batches(1)))
        for _ in range(int(source.max())):
            keys, values = next(pairs, (nothing[0][:0], nothing[1][:0]))
            lacking += self.insert(keys, values).not_done
            total += len(keys)
        totals = self._exchange.gather([total, lacking]).sum(axis=0)
        return int(totals[0]), int(totals[1])
