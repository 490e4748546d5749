"""The hash map on arrays of NumPy, PyTorch and CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ._backend import ext
from ._buffers import Buffer, is_array
from ._closing import Closing
from ._errors import Error, checked_number, checked_text
from ._map_arrays import _FOUND, _STATUS, _Arrays
from ._map_changes import MapChanges, MapVersion, native_version, version_of
from ._map_evict import MapEvicted, insert_and_evict, scores_of
from ._map_memory import MapCache, MapMemory, native_cache
from ._map_mixed import MapApplied, map_operations, numbers_of
from ._map_types import (
    Element,
    _agreed,
    _bytes_dtype,
    _is_of_bytes,
    _is_plain,
    _key_of,
    _remove_with_types,
    _store_types,
    _stored_types,
    _types_object,
    _value_of,
)
from ._region import Region, checked_region

# Operations that a batch can have.
MOST_OPERATIONS = 2**24
_ROOM_FOR_TYPES = 1 << 16  # bytes of a region, for the object that has their names
_EXPORTED = 1 << 16  # slots that are looked at in one step
# Elements of values that accumulate() adds to.
_TYPES_OF_SUMS = ("float32", "float64", "int32", "uint32", "int64", "uint64")


class Map(MapMemory, Closing):
    """A hash map in a region, updated in place on the GPU, a batch at a time (docs/map.md).

    >>> row = ("float32", 64)
    >>> table = holdfast.Map(region, "users", key="int64", value=row, capacity=1_000_000)
    >>> table.insert_or_assign(ids, rows)
    >>> rows, found = table.find(ids)

    key: int32, uint32, int64 or uint64, of which the key whose bits are all ones (-1) cannot be
    stored. Or 16 to 128 bytes, a multiple of 8: NumPy's "S32" or "V32", a structure of integers and
    bytes without padding, or a row of bytes, ("uint8", 32). Arrays of such keys are of any of these
    (a tensor: rows of bytes); what is exported is of the type that the map was opened with.
    value: a type, or a type and the extents of a row; 4 to 4,096 bytes, a multiple of 4. Of values
    of 8 bytes two bit patterns cannot be stored (EmptyValue in hash_map.hpp).

    Map(region, name) opens the map of this name, and puts in order what a crash cut off. With a
    capacity it makes one where there is none: for `capacity` slots, of which about nine tenths can
    be taken. The types may be left out of what Python has made. `max_batch` (65,536 of a new one):
    how many operations a batch can have; each takes about 60 bytes of the GPU's memory.
    `value_places`: places for values of more than 8 bytes (0: one for each slot, and max_batch
    more). `directory` says whether batches look into a copy of keys and slots in the GPU's memory:
    "on" (Error no_memory where there is no room), "off", or "automatic", where it pays and there is
    room. `changes`: how many operations of batches the map remembers for export_changes() (0: none,
    and then there are no versions); of a map that is there, what it was made with, or 0. `scores`:
    "lru", "lfu" or "custom", for insert_and_evict(); without it, or with "none", there are none.
    They take 8 bytes of the GPU's memory for each slot, and are all 0 when a map is opened.
    `cache`: a holdfast.MapCache, for values that lookups take from the GPU's memory; it is empty
    when a map is opened, and turns the directory on. reserve() makes a map larger that is there.

    Arrays are of NumPy, PyTorch or CuPy, or have __cuda_array_interface__ or __dlpack__; keys of
    shape (n,), values of (n, *row). They are contiguous and of the map's types, never converted;
    lists of numbers are. Once a call returned, what it did survives what the region's persist rung
    survives; of a call that a crash cuts off each operation is there whole or not at all. Of
    operations of a batch on one key the last one counts. `status` is an array of uint8 that gets a
    holdfast.MapStatus for each operation.

    Order of work: a call is done when it returns, and any stream may go on. What other streams
    still do to its arrays is waited for: all work of the GPU, or, if `stream` is given (a
    cudaStream_t as an int, a torch.cuda.Stream or a cupy.cuda.Stream), what is queued on that one.
    Arrays in the host's memory are waited for by nobody.

    Opening a map again ends the earlier object, which then raises Error (closed).
    Thread safety: any number of threads; calls are made one at a time.
    """

    def __init__(
        self,
        region: Region,
        name: str = "map",
        *,
        key: Any = None,
        value: Any = None,
        capacity: int | None = None,
        max_batch: int | None = None,
        value_places: int = 0,
        directory: str = "automatic",
        changes: int = 0,
        scores: str | None = None,
        cache: MapCache | None = None,
    ) -> None:
        self.region = checked_region(region, "a map")
        self.name = checked_text(name, "the name of a map")
        checked_text(directory, "directory")
        policy = "none" if scores is None else checked_text(scores, "scores")
        cached = native_cache(cache)
        self._bytes_key = _bytes_dtype(key) if key is not None else None
        most = (
            0 if max_batch is None else checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS)
        )
        has_header = f"{name}.header" in region
        if has_header and ext.has_map(region._handle, name):
            self._key, self._value = self._types_to_open(key, value)
            self._check_recorded(checked_number(changes, "changes"))
            self._map = ext.open_map(
                region._handle, name, self._key.nbytes, self._value.nbytes, most, directory, policy,
                cached,
            )  # fmt: skip
            return
        if capacity is None:
            cut_off = ", whose creation was cut off" if has_header else ""
            raise Error(
                f"region {region.path} has no map '{name}'{cut_off}: give a capacity, and the "
                "types of key and value, to make one",
                "not_found",
            )
        if key is None or value is None:
            raise Error(f"map '{name}' is made: give the types of its key and value")
        self._key, self._value = _key_of(key), _value_of(value)
        places = checked_number(value_places, "value_places")
        slots = checked_number(capacity, "capacity", 1)
        recorded = checked_number(changes, "changes")
        _store_types(region, name, self._key, self._value)
        try:
            self._map = ext.create_map(
                region._handle, name, self._key.nbytes, slots, self._value.nbytes,
                most or 1 << 16, places, recorded, directory, policy, cached,
            )  # fmt: skip
        except Error:
            region._handle.remove(_types_object(name))
            raise

    def _check_recorded(self, changes: int) -> None:
        has = ext.map_recorded(self.region._handle, self.name) if changes else 0
        if has == changes:
            return
        how = f"with changes={has}" if has else "without a record of changes"
        raise Error(
            f"map '{self.name}' of region {self.region.path} was made {how}, and is opened with "
            f"changes={changes}: leave changes out, or make another map with it, and insert there "
            "what this one has"
        )

    def _types_to_open(self, key: Any, value: Any) -> tuple[Element, Element]:
        stored = _stored_types(self.region, self.name) or (None, None)
        where = f"map '{self.name}' of region {self.region.path}"
        return (
            _agreed(where, "key", None if key is None else _key_of(key), stored[0]),
            _agreed(where, "value", None if value is None else _value_of(value), stored[1]),
        )

    @staticmethod
    def remove(region: Region, name: str = "map") -> None:
        """Removes the map of this name.

        One that is open is ended, and raises Error (closed) from then on. Raises Error (not_found;
        invalid_argument: it is none).
        """
        _remove_with_types(region, name, ext.remove_map)

    @staticmethod
    def region_bytes(
        capacity: int,
        key: Any,
        value: Any,
        max_batch: int = 1 << 16,
        value_places: int = 0,
        changes: int = 0,
    ) -> int:
        """Returns the size that a region must have for such a map and nothing else.

        For several maps in one region add the sizes up.
        """
        return _ROOM_FOR_TYPES + ext.map_region_bytes(
            _key_of(key).nbytes,
            checked_number(capacity, "capacity", 1),
            _value_of(value).nbytes,
            checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS),
            checked_number(value_places, "value_places"),
            checked_number(changes, "changes"),
        )

    # Batches.

    def insert(
        self, keys: Any, values: Any, *, status: Any = None, stream: Any = None
    ) -> ext.MapResult:
        """Inserts what is not there. Those that are keep their values."""
        return self._update("insert", keys, values, status, stream)

    def insert_or_assign(
        self, keys: Any, values: Any, *, status: Any = None, stream: Any = None
    ) -> ext.MapResult:
        return self._update("insert_or_assign", keys, values, status, stream)

    def assign(
        self, keys: Any, values: Any, *, status: Any = None, stream: Any = None
    ) -> ext.MapResult:
        """Assigns to what is there."""
        return self._update("assign", keys, values, status, stream)

    def accumulate(
        self, keys: Any, values: Any, *, status: Any = None, stream: Any = None
    ) -> ext.MapResult:
        """Adds to what is there, element by element; of one key all of the batch, in no order.

        Values are of float32, float64, or integers of 4 or 8 bytes, which wrap around. After a
        crash each is as it was, or has the whole sum: to call it again adds again.
        """
        if self._value.dtype not in _TYPES_OF_SUMS:
            raise self._no_sums()
        return self._update("accumulate", keys, values, status, stream)

    def _no_sums(self) -> Error:
        return Error(
            f"accumulate() of map '{self.name}': values are of {self._value.dtype}: it adds "
            f"{', '.join(_TYPES_OF_SUMS)}"
        )

    def erase(self, keys: Any, *, status: Any = None, stream: Any = None) -> ext.MapResult:
        return self._update("erase", keys, None, status, stream)

    def find_or_insert(
        self, keys: Any, values: Any, *, out: Any = None, status: Any = None, stream: Any = None
    ) -> tuple[Any, ext.MapResult]:
        """As insert(); returns what each key has then, and what became of the batch.

        The row of an operation that was not done, or is superseded, is 0, or as `out` had it.
        """
        arrays = self._arrays("find_or_insert", stream)
        given = self._given_keys(arrays, keys)
        count = given.shape[0]
        to = arrays.given(values, "values", self._value, count)
        out, written = self._out(arrays, out, given)
        if count > 0 and written.address == to.address:
            raise Error(f"find_or_insert() of map '{self.name}': out is values: give it another")
        result = self._call("find_or_insert", arrays, given, to, written, status)
        return out, result

    def apply(
        self,
        operations: Any,
        keys: Any,
        values: Any = None,
        *,
        out: Any = None,
        status: Any = None,
        stream: Any = None,
    ) -> MapApplied:
        """Makes operations of several kinds, as if one after the other; returns what came out.

        `operations` says what is made with each key: names of this class's methods, or an array of
        uint8 of the numbers of holdfast.MapOp. `values` has a row for each, which erase and find do
        not read; None: no operation sets one. None is superseded, and a find sees what came before
        it.
        docs/map.md, "Mixed batches".
        """
        arrays = self._arrays("apply", stream)
        given = self._given_keys(arrays, keys)
        count = given.shape[0]
        kinds = arrays.given(numbers_of(operations, map_operations()), "operations", _STATUS, count)
        to = 0
        if values is not None:
            to = arrays.given(values, "values", self._value, count).address
        out, written = self._out(arrays, out, given)
        status, became = arrays.taken(status, "status", _STATUS, given)
        streams = arrays.streams()
        result = self._map.apply(
            kinds.address, given.address, to, written.address, count, became.address, streams
        )
        return MapApplied(out, status, result)

    def insert_and_evict(
        self,
        keys: Any,
        values: Any,
        scores: Any = None,
        *,
        status: Any = None,
        stream: Any = None,
    ) -> MapEvicted:
        """As insert_or_assign(), of a map with scores; where no slot is free a pair goes.

        Of the pairs in the slots of a new key the one of the least score goes, but none that this
        batch has set; the new one goes instead, and is `full`, if its own score is less than all of
        theirs. Returns (keys, values, scores, status, result): the pairs that went, and those of
        the batch that are not in the map, in arrays as those of find().

        `scores`, (n,) of uint64: of a map with "custom" scores those of the keys; with "lfu" of how
        many accesses each operation is, or None for one; with "lru" None. What is returned is gone,
        durably. Of a call that a crash cuts off a pair may be gone that nobody was told of.
        docs/map.md, "Scores and eviction".
        """
        arrays = self._arrays("insert_and_evict", stream)
        return insert_and_evict(self, arrays, keys, values, scores, status)

    def scores(self, keys: Any, *, stream: Any = None) -> tuple[Any, Any]:
        """Returns (scores, found): for each key its score, 0 if it is not there; no access."""
        return scores_of(self, self._arrays("scores", stream), keys)

    def find(
        self, keys: Any, *, out: Any = None, found: Any = None, stream: Any = None
    ) -> tuple[Any, Any]:
        """Returns (values, found): for each key its value, and whether it is there.

        Unless `out` and `found` (of bool) are given they are arrays of PyTorch or CuPy where keys
        are, on the same device, and else NumPy's. The value of a key that is not there is 0, or as
        `out` had it.
        """
        arrays = self._arrays("find", stream)
        given = self._given_keys(arrays, keys)
        out, written = self._out(arrays, out, given)
        return out, self._find(arrays, given, written, found)

    def contains(self, keys: Any, *, found: Any = None, stream: Any = None) -> Any:
        """Returns for each key whether it is there."""
        arrays = self._arrays("contains", stream)
        given = self._given_keys(arrays, keys)
        return self._find(arrays, given, None, found)

    def _given_keys(self, arrays: _Arrays, keys: Any) -> Buffer:
        if self._bytes_key is not None and not is_array(keys):
            keys = self._bytes_made_of(keys, self._bytes_key)
        return arrays.given(self._rows_of(arrays, keys, "keys"), "keys", self._key, None)

    def _bytes_made_of(self, keys: Any, dtype: np.dtype[Any]) -> Any:
        try:
            made = np.asarray(keys, dtype=dtype)
            if dtype.kind == "S":  # NumPy would cut longer ones, and take numbers for their digits
                given = np.asarray(keys)
                if given.size and (given.dtype.kind != "S" or given.itemsize > dtype.itemsize):
                    raise ValueError(f"{given.dtype} is none of {dtype.itemsize} bytes or fewer")
        except (ValueError, TypeError) as error:
            raise Error(f"keys of map '{self.name}' are not made of {dtype}: {error}") from None
        return made.reshape(-1)

    def _room_for_keys(self, count: int) -> Any:
        shape = () if self._bytes_key is not None else self._key.shape
        return np.empty((count, *shape), self._bytes_key or self._key.numpy)

    def _rows_of(self, arrays: _Arrays, keys: Any, what: str) -> Any:
        """Keys that NumPy has as bytes or structures as rows of bytes; others as they are."""
        if not self._key.shape:
            return keys  # is refused as what it is
        size = self._key.nbytes
        if not isinstance(keys, np.ndarray):
            if self._bytes_key is None and _is_of_bytes(keys):
                raise arrays.wrong(
                    what,
                    f"is a list of bytes, and the map was opened without the type of its keys: "
                    f"open it with one, such as key='S{size}', or give an array of it",
                )
            return keys
        if keys.dtype.kind not in "SV" or isinstance(keys, np.ma.MaskedArray):
            return keys
        if keys.dtype.itemsize != size:
            raise arrays.wrong(
                what,
                f"has elements of type {keys.dtype}, which have {keys.dtype.itemsize} bytes, and "
                f"the map's keys have {size}: give them as 'S{size}', or another type of so many",
            )
        if not _is_plain(keys.dtype):
            raise arrays.wrong(
                what,
                f"has elements of type {keys.dtype}, of which equal values may have other bytes: "
                "give integers and bytes without padding",
            )
        if not keys.flags.c_contiguous:
            raise arrays.wrong(what, "is not contiguous in C's order: give a contiguous copy of it")
        return keys.view(np.uint8).reshape(*keys.shape, size)

    def _arrays(self, operation: str, stream: Any) -> _Arrays:
        return _Arrays(f"{operation}() of map '{self.name}'", stream)

    def _out(self, arrays: _Arrays, out: Any, keys: Buffer) -> tuple[Any, Buffer]:
        return arrays.taken(out, "out", self._value, keys)

    def _find(self, arrays: _Arrays, keys: Buffer, out: Buffer | None, found: Any) -> Any:
        count = keys.shape[0]
        found, flags = arrays.taken(found, "found", _FOUND, keys)
        streams = arrays.streams()
        self._map.find(keys.address, out.address if out else 0, flags.address, count, streams)
        return found

    def _update(
        self, operation: str, keys: Any, values: Any, status: Any, stream: Any
    ) -> ext.MapResult:
        arrays = self._arrays(operation, stream)
        given = self._given_keys(arrays, keys)
        count = given.shape[0]
        to = None
        if operation != "erase":
            to = arrays.given(values, "values", self._value, count)
        return self._call(operation, arrays, given, to, None, status)

    def _call(
        self,
        operation: str,
        arrays: _Arrays,
        keys: Buffer,
        values: Buffer | None,
        out: Buffer | None,
        status: Any,
    ) -> ext.MapResult:
        count = keys.shape[0]
        became = arrays.status(status, count)
        streams = arrays.streams()
        if operation == "accumulate":
            assert values is not None
            return self._map.accumulate(
                self._value.dtype, keys.address, values.address, count, became, streams
            )
        return self._map.update(
            operation,
            keys.address,
            values.address if values else 0,
            out.address if out else 0,
            count,
            became,
            streams,
        )

    # All pairs.

    def export_batch(
        self, first: int, slots: int, *, keys: Any = None, values: Any = None, stream: Any = None
    ) -> tuple[Any, Any]:
        """Returns (keys, values) of the pairs in slots `first` and on, `slots` of them at most.

        In no order; there are stats().capacity slots. They are NumPy arrays, or the beginnings of
        the arrays `keys` and `values` that are given, of `slots` elements each.
        """
        first = checked_number(first, "first")
        slots = checked_number(slots, "slots", 1, 2**32)
        arrays = self._arrays("export_batch", stream)
        if values is None and self._value.numpy is None:
            raise Error(f"values have to be given: NumPy has no {self._value.dtype}")
        try:
            if keys is None:
                keys = self._room_for_keys(slots)
            if values is None:
                values = np.empty((slots, *self._value.shape), self._value.numpy)
        except MemoryError:
            raise Error(f"no memory for {slots} pairs: give fewer slots", "no_memory") from None
        to_keys = arrays.given(
            self._rows_of(arrays, keys, "keys"), "keys", self._key, slots, written=True
        )
        to_values = arrays.given(values, "values", self._value, slots, written=True)
        streams = arrays.streams()
        pairs = self._map.export_batch(first, slots, to_keys.address, to_values.address, streams)
        return keys[:pairs], values[:pairs]

    def batches(self, slots: int = _EXPORTED) -> Iterator[tuple[Any, Any]]:
        """Gives (keys, values) of all pairs, as NumPy arrays, of so many slots at a time.

        Each pair comes once, if the map is not changed meanwhile.
        """
        capacity = self.stats().capacity
        step = min(checked_number(slots, "slots", 1, 2**32), capacity)
        firsts = range(0, capacity, step)
        return (self.export_batch(first, step) for first in firsts)

    def export(self) -> tuple[Any, Any]:
        """Returns (keys, values) of all pairs, as NumPy arrays, in no order."""
        parts = list(self.batches())
        return np.concatenate([keys for keys, _ in parts]), np.concatenate([v for _, v in parts])

    # What has changed.

    def version(self) -> MapVersion:
        """Returns where the record of changes ends now."""
        return version_of(self._map.version())

    def export_changes(
        self, since: MapVersion, most: int | None = None, *, values: Any = None, stream: Any = None
    ) -> MapChanges:
        """Returns what the next `most` operations that were recorded behind `since` have changed.

        They are max_batch at most, and without `most`. Each of their keys comes once: with the
        value that it has now, or as a tombstone. `since` is a version() of this map; the next page
        is since `to`, until that is version(). Keys and values are NumPy arrays, or the beginning
        of the array `values` that is given, of `most` elements.

        Raises Error not_found where the record does not reach back to `since`, or the map was set
        back to before it: then take a whole export(), from a version() before it on.
        """
        count = self.stats().max_batch if most is None else checked_number(most, "most", 1)
        count = min(count, self.stats().max_batch) if values is None else count
        arrays = self._arrays("export_changes", stream)
        if values is None:
            if self._value.numpy is None:
                raise Error(f"values have to be given: NumPy has no {self._value.dtype}")
            values = np.empty((count, *self._value.shape), self._value.numpy)
        keys, erased = (self._room_for_keys(count) for _ in range(2))
        to_keys = arrays.given(
            self._rows_of(arrays, keys, "keys"), "keys", self._key, count, written=True
        ).address
        to_values = arrays.given(values, "values", self._value, count, written=True).address
        gone = self._rows_of(arrays, erased, "erased")
        to_erased = arrays.given(gone, "erased", self._key, count, written=True).address
        begin = native_version(since, "since")
        streams = arrays.streams()
        found = self._map.export_changes(begin, count, to_keys, to_values, to_erased, streams)
        return MapChanges(
            (keys[: found.upserts], values[: found.upserts]),
            erased[: found.tombstones],
            MapVersion(*since),
            version_of(found.to),
        )

    def apply_changes(self, changes: MapChanges, *, stream: Any = None) -> ext.MapResult:
        """Makes the changes of another map here, and follows that map to `changes.to`.

        Raises Error conflict where they do not begin at followed(): there is a gap, or they are in
        already; and no_space where a pair found no room. The map stays at its version then. If a
        crash comes in between, the same are to be applied again.
        """
        arrays = self._arrays("apply_changes", stream)
        if not isinstance(changes, MapChanges):
            raise Error(f"changes are {type(changes).__name__}: give what export_changes() returns")
        if not isinstance(changes.upserts, (tuple, list)) or len(changes.upserts) != 2:
            raise arrays.wrong(
                "upserts", f"are {changes.upserts!r}: give (keys, values), as export_changes() does"
            )
        upserts, rows = changes.upserts
        keys = arrays.given(self._rows_of(arrays, upserts, "keys"), "keys", self._key, None)
        values = arrays.given(rows, "values", self._value, keys.shape[0])
        erased = arrays.given(
            self._rows_of(arrays, changes.tombstones, "tombstones"), "tombstones", self._key, None
        )
        counted = ext.MapChanges(
            native_version(changes.since, "since"),
            native_version(changes.to, "to"),
            keys.shape[0],
            erased.shape[0],
        )
        streams = arrays.streams()
        return self._map.apply_changes(
            counted, keys.address, values.address, erased.address, streams
        )

    def follow(self, version: MapVersion | None) -> None:
        """Says, durably, that this map has what another one had at that version().

        Behind a whole export that was inserted here: the version from before it, with the number
        of another one from behind it as `seen` (`before._replace(seen=behind.number)`). Both have
        to be of one opening; if not, the export begins again. None: it follows none, which it has
        to before it is emptied for a whole export.
        """
        given = MapVersion(0, 0) if version is None else version
        self._map.follow(native_version(given, "version"))

    def followed(self) -> MapVersion | None:
        """Returns how far this map has followed another one; None: it follows none."""
        version = version_of(self._map.followed())
        return None if version == MapVersion(0, 0) else version

    # The map itself.

    @property
    def key(self) -> Element:
        """What a key is: dtype, itemsize and shape."""
        return self._key

    @property
    def value(self) -> Element:
        """What a value is: dtype, itemsize and shape, that of a row."""
        return self._value

    @property
    def size(self) -> int:
        """Pairs."""
        return self.stats().size

    def stats(self) -> ext.MapStats:
        return self._map.stats()

    def recovery(self) -> ext.MapRecovery:
        """What opening the map found, and put in order."""
        return self._map.recovery()

    def timing(self) -> ext.MapTiming:
        """Milliseconds of the last batch's parts."""
        return self._map.timing()

    def set_order(self, order: str) -> None:
        """How a batch is laid out over the table: "automatic", "ordered" or "unordered"."""
        self._map.set_order(checked_text(order, "order"))

    def verify(self) -> str:
        """Checks the whole map on the host. Returns the empty string, or what is wrong."""
        return self._map.verify()

    def close(self) -> None:
        """Lets go of the map, and of its memory on the GPU; the region has it on."""
        self._map.close()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<holdfast.Map '{self.name}' in {self.region.path}: {self._key} to {self._value}>"
