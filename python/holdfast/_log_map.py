"""The log map on arrays of NumPy, PyTorch and CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._backend import ext
from ._closing import Closing
from ._errors import Error, checked_number, checked_text
from ._map import _ROOM_FOR_TYPES, MOST_OPERATIONS
from ._map_arrays import _FOUND, _STATUS, _Arrays
from ._map_mixed import numbers_of
from ._map_types import (
    Element,
    _agreed,
    _remove_with_types,
    _store_types,
    _stored_types,
    _types_object,
    _value_of,
)
from ._region import Region, checked_region

_KEY = Element("uint64", 8)
_OPERATIONS = {"insert_or_assign": 0, "erase": 1}


class LogMap(Closing):
    """A hash map in a region, changed a batch at a time, each a transaction (docs/log-map.md).

    >>> row = ("float32", 64)
    >>> table = holdfast.LogMap(region, "users", value=row, capacity=1_000_000)
    >>> table.insert_or_assign(ids, rows)
    >>> rows, found = table.find(ids)

    Keys are uint64; the key whose bits are all ones (holdfast.RESERVED_KEY) cannot be stored.
    value: a type, or a type and the extents of a row; 4 to 4,096 bytes, a multiple of 4.

    LogMap(region, name) opens the map of this name, and takes back a batch that a crash cut off.
    With a capacity, in pairs, it makes one where there is none. The type may be left out of what
    Python has made. Of a new one `max_batch` is how many operations a batch can have, and
    `log_records` how many records of 16 bytes the log takes (0: twice the capacity, and two
    batches). `index` says what the index has in the GPU's memory: "whole", "fingerprints", or
    "automatic", as of KeyValueStore; each opening may choose another.

    Arrays and `stream` are as of Map. Once a call returned, its batch survives what the region's
    persist rung survives; after a crash a batch is there whole or not at all. Of operations of a
    batch on one key the last one counts. Error no_space (more pairs than the capacity, or the log
    is too full) leaves the map as it was.

    Opening a map again ends the earlier object, which then raises Error (closed), also where it is
    refused because of the type of its values.
    Thread safety: any number of threads; calls are made one at a time.
    """

    def __init__(
        self,
        region: Region,
        name: str = "map",
        *,
        value: Any = None,
        capacity: int | None = None,
        max_batch: int = 1 << 16,
        log_records: int = 0,
        index: str = "automatic",
    ) -> None:
        self.region = checked_region(region, "a map")
        self.name = checked_text(name, "the name of a map")
        checked_text(index, "index")
        asked = None if value is None else _value_of(value)
        opened = self._opened(index)
        if opened is not None:
            self._map = opened
            try:
                self._value = self._value_to_open(asked)
            except Error:
                self.close()
                raise
            return
        if capacity is None:
            raise Error(
                f"region {region.path} has no map '{name}': give a capacity, and the type of its "
                "value, to make one",
                "not_found",
            )
        if asked is None:
            raise Error(f"map '{name}' is made: give the type of its value")
        self._value = asked
        pairs = checked_number(capacity, "capacity", 1)
        most = checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS)
        records = checked_number(log_records, "log_records")
        _store_types(region, name, _KEY, asked)
        try:
            self._map = ext.create_log_map(
                region._handle, name, pairs, asked.nbytes, most, records, index
            )
        except Error:
            region._handle.remove(_types_object(name))
            raise

    def _opened(self, index: str) -> ext.LogMap | None:
        """Returns what is there; None: nothing, or what a creation that was cut off has left."""
        try:
            return ext.open_log_map(self.region._handle, self.name, index)
        except Error as error:
            if error.code != "not_found":
                raise
            return None

    def _value_to_open(self, asked: Element | None) -> Element:
        where = f"map '{self.name}' of region {self.region.path}"
        _, stored = _stored_types(self.region, self.name) or (None, None)
        value = _agreed(where, "value", asked, stored)
        has = self.stats().value_bytes
        if value.nbytes != has:
            raise Error(
                f"{where} has values of {has} bytes, and {value} has {value.nbytes}: give the type "
                "that it was made for"
            )
        return value

    @staticmethod
    def remove(region: Region, name: str = "map") -> None:
        """Removes the map of this name; as Map.remove()."""
        _remove_with_types(region, name, ext.remove_log_map)

    @staticmethod
    def region_bytes(
        capacity: int, value: Any, max_batch: int = 1 << 16, log_records: int = 0
    ) -> int:
        """Returns the size that a region must have for such a map and nothing else.

        For several maps in one region add the sizes up.
        """
        return _ROOM_FOR_TYPES + ext.log_map_region_bytes(
            checked_number(capacity, "capacity", 1),
            _value_of(value).nbytes,
            checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS),
            checked_number(log_records, "log_records"),
        )

    # Batches.

    # `status`: an array of uint8 that gets the MapStatus of each operation.

    def insert_or_assign(
        self, keys: Any, values: Any, *, status: Any = None, stream: Any = None
    ) -> ext.LogMapResult:
        """Stores pairs as one transaction."""
        return self._store("insert_or_assign", keys, values, status, stream)

    def insert(
        self, keys: Any, values: Any, *, status: Any = None, stream: Any = None
    ) -> ext.LogMapResult:
        """Stores what is not there, as one transaction. Those that are keep their values."""
        return self._store("insert", keys, values, status, stream)

    def assign(
        self, keys: Any, values: Any, *, status: Any = None, stream: Any = None
    ) -> ext.LogMapResult:
        """Stores to what is there, as one transaction."""
        return self._store("assign", keys, values, status, stream)

    def _store(
        self, operation: str, keys: Any, values: Any, status: Any, stream: Any
    ) -> ext.LogMapResult:
        arrays = self._arrays(operation, stream)
        given = arrays.given(keys, "keys", _KEY, None)
        count = given.shape[0]
        rows = arrays.given(values, "values", self._value, count)
        became = arrays.status(status, count)
        call: Callable[..., ext.LogMapResult] = getattr(self._map, operation)
        return call(given.address, rows.address, count, became, arrays.streams())

    def erase(self, keys: Any, *, status: Any = None, stream: Any = None) -> ext.LogMapResult:
        """Removes keys as one transaction; those that are absent are passed over.

        Of several operations on one key any is said to have erased it.
        """
        arrays = self._arrays("erase", stream)
        given = arrays.given(keys, "keys", _KEY, None)
        became = arrays.status(status, given.shape[0])
        return self._map.erase(given.address, given.shape[0], became, arrays.streams())

    def apply(
        self, operations: Any, keys: Any, values: Any, *, status: Any = None, stream: Any = None
    ) -> ext.LogMapResult:
        """Stores pairs and removes keys as one transaction.

        `operations` says what is made with each key: "insert_or_assign" or "erase", or an array of
        uint8, 0 or 1. `values` has a row for each, of which those of keys that are erased mean
        nothing. Of operations on one key the last one counts, alone; of several that erase it any
        is said to have done so.
        """
        arrays = self._arrays("apply", stream)
        given = arrays.given(keys, "keys", _KEY, None)
        count = given.shape[0]
        kinds = arrays.given(numbers_of(operations, _OPERATIONS), "operations", _STATUS, count)
        rows = arrays.given(values, "values", self._value, count)
        became = arrays.status(status, count)
        streams = arrays.streams()
        return self._map.apply(kinds.address, given.address, rows.address, count, became, streams)

    def find(
        self, keys: Any, *, out: Any = None, found: Any = None, stream: Any = None
    ) -> tuple[Any, Any]:
        """Returns (values, found): for each key its value, and whether it is there.

        Unless `out` and `found` (of bool) are given they are arrays of PyTorch or CuPy where keys
        are, on the same device, and else NumPy's. The value of a key that is not there is 0, or as
        `out` had it.
        """
        arrays = self._arrays("find", stream)
        given = arrays.given(keys, "keys", _KEY, None)
        out, rows = arrays.taken(out, "out", self._value, given)
        found, flags = arrays.taken(found, "found", _FOUND, given)
        streams = arrays.streams()
        self._map.find(given.address, rows.address, flags.address, given.shape[0], streams)
        return out, found

    def contains(self, keys: Any, *, found: Any = None, stream: Any = None) -> Any:
        """Returns for each key whether it is there."""
        arrays = self._arrays("contains", stream)
        given = arrays.given(keys, "keys", _KEY, None)
        found, flags = arrays.taken(found, "found", _FOUND, given)
        streams = arrays.streams()
        self._map.find(given.address, 0, flags.address, given.shape[0], streams)
        return found

    def export(self, *, values: Any = None) -> tuple[Any, Any]:
        """Returns (keys, values) of all pairs, as NumPy arrays, in no order.

        `values`: an array in the host's memory, of len(map) values, that gets them.
        """
        arrays = self._arrays("export", None)
        count = self.size
        keys = np.empty(count, np.uint64)
        given = values
        if values is None:
            if self._value.numpy is None:
                raise Error(f"values have to be given: NumPy has no {self._value.dtype}")
            values = np.empty((count, *self._value.shape), self._value.numpy)
        to_keys = arrays.given(keys, "keys", _KEY, count, written=True)
        to_values = arrays.given(values, "values", self._value, count, written=True)
        if to_values.on_device:
            raise arrays.wrong("values", "is in device memory: give an array of the host's")
        if self._map.scan(to_keys.address, to_values.address, count) == count:
            return keys, values
        return self.export(values=given)  # another thread came between

    # The map itself.

    @property
    def value(self) -> Element:
        """What a value is: dtype, itemsize and shape, that of a row."""
        return self._value

    @property
    def size(self) -> int:
        """Pairs."""
        return self.stats().size

    def stats(self) -> ext.LogMapStats:
        return self._map.stats()

    def reserve(self, capacity: int, log_records: int = 0) -> None:
        """Makes it a map for `capacity` pairs, of `log_records`, if it has room for fewer.

        It has all its pairs; a kill leaves it as it was, or with its new room. All of it is there
        twice meanwhile: the region is enlarged up to its max_size. Raises Error (no_space,
        no_memory; invalid_argument: of a map whose name has more than 32 bytes), and the map is as
        it was; the region may be larger.
        """
        records = checked_number(log_records, "log_records", 0)
        self._map.reserve(checked_number(capacity, "capacity", 0), records)

    def recovery(self) -> ext.RecoveryReport:
        """What opening the map had to undo."""
        return self._map.recovery()

    def verify(self) -> str:
        """Checks the log, its index and the places of values, which have no checksums.

        Returns the empty string, or what is wrong.
        """
        return self._map.verify()

    def _arrays(self, operation: str, stream: Any) -> _Arrays:
        return _Arrays(f"{operation}() of map '{self.name}'", stream)

    def close(self) -> None:
        """Lets go of the map, and of its memory on the GPU; the region has it on."""
        self._map.close()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<holdfast.LogMap '{self.name}' in {self.region.path}: uint64 to {self._value}>"
