"""The key-value store on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._backend import ext
from ._errors import Error, checked_number
from ._map_mixed import numbers_of
from ._numbers import integers
from ._region import Region, checked_region

U64 = npt.NDArray[np.uint64]

# The one key that cannot be stored.
RESERVED_KEY = 2**64 - 1
# Operations that a batch can have.
MOST_OPERATIONS = 2**26
_OPERATIONS = {"set": 0, "erase": 1}


def _as_u64(values: Any, what: str) -> Any:
    """Returns `values` as the store takes them, without a copy where they are an array."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array: give a plain one of what is to be taken")
    if isinstance(values, np.ndarray):
        if values.dtype != np.uint64:
            raise TypeError(f"{what} has elements of type {values.dtype}: use .astype(np.uint64)")
        if values.ndim != 1:
            raise ValueError(f"{what} has {values.ndim} dimensions: use .ravel()")
        if not values.flags.c_contiguous:
            raise ValueError(f"{what} is not contiguous: use np.ascontiguousarray({what})")
        return values
    if hasattr(values, "__dlpack__"):
        return values
    try:
        made = integers(values, np.uint64)
    except (OverflowError, ValueError, TypeError) as error:
        raise ValueError(f"{what} must be integers from 0 to 2**64 - 1: {error}") from None
    if made.ndim > 1:
        raise ValueError(f"{what} is a list of lists: give one of integers")
    return made.reshape(-1)


def _checked(capacity: int, max_batch: int) -> tuple[int, int]:
    return (
        checked_number(capacity, "capacity", 1),
        checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS),
    )


def _create(
    region: Region,
    capacity: int,
    max_batch: int,
    cache: str,
    layout: str,
    log_records: int,
    index: str,
) -> Any:
    checked = _checked(capacity, max_batch)
    records = checked_number(log_records, "log_records", 0)
    return ext.create_store(region._handle, *checked, cache, layout, records, index)


class KeyValueStore:
    """gpKVS in a region: 64-bit keys and values, a batch of them at a time.

    Once set() or erase() returned, its batch survives what the region's persist rung survives;
    after any crash a batch is in the store whole or not at all.

    KeyValueStore(region) opens the store that is in the region, and recovers it. With a capacity
    it makes one where there is none. Of a region's store there is one object at a time: opening it
    again ends the earlier object, which then raises Error (closed).

    In a region that is open for reading the store is recovered in the region's private copy; set()
    and erase() raise Error (unsupported).

    `cache` says whether lookups read a copy of the table in GPU memory: "on" (Error no_memory
    where there is no room), "off", or "automatic", where it pays and there is room. What is
    durable is the table in the region.

    `layout` says how a new store keeps its pairs: "in_place", a table in which a full bucket
    evicts, or "log", to which batches are appended, and which is cleaned behind them
    (docs/kv-log.md). Of a log `log_records` is how many records of 16 bytes it takes (0: twice the
    capacity, and two batches), `cache` does not matter, and set() raises Error (no_space), with
    nothing stored, where there would be more pairs than its capacity, or its log is too full.

    `index` says what the index of a log has in GPU memory: "whole", all pairs, or "fingerprints",
    which take a third of that or less and lookups to the log across the link; "automatic" is whole
    where that leaves an eighth of the free memory. Each opening may choose another.
    """

    def __init__(
        self,
        region: Region,
        capacity: int | None = None,
        max_batch: int = 65536,
        cache: str = "automatic",
        layout: str = "in_place",
        log_records: int = 0,
        index: str = "automatic",
    ) -> None:
        self.region = checked_region(region, "a store")
        try:
            self._store = ext.open_store(region._handle, cache, index)
        except Error as error:  # nothing, or a creation that was cut off
            if error.code != "not_found":
                raise
            if capacity is None:
                raise Error(
                    f"region {region.path} has no store: give a capacity to make one", "not_found"
                ) from None
            self._store = _create(region, capacity, max_batch, cache, layout, log_records, index)

    @classmethod
    def create(
        cls,
        region: Region,
        capacity: int,
        max_batch: int = 65536,
        cache: str = "automatic",
        layout: str = "in_place",
        log_records: int = 0,
        index: str = "automatic",
    ) -> KeyValueStore:
        """Makes a store for `capacity` pairs. Raises Error (already_exists, no_space)."""
        store = cls.__new__(cls)
        store.region = checked_region(region, "a store")
        store._store = _create(region, capacity, max_batch, cache, layout, log_records, index)
        return store

    @classmethod
    def open(
        cls, region: Region, cache: str = "automatic", index: str = "automatic"
    ) -> KeyValueStore:
        """Opens and recovers the store in `region`. Raises Error (not_found, damaged)."""
        store = cls.__new__(cls)
        store.region = checked_region(region, "a store")
        store._store = ext.open_store(region._handle, cache, index)
        return store

    @staticmethod
    def remove(region: Region) -> None:
        """Removes the store of `region`; as Map.remove()."""
        ext.remove_store(checked_region(region, "a store")._handle)

    @staticmethod
    def region_bytes(
        capacity: int, max_batch: int = 65536, layout: str = "in_place", log_records: int = 0
    ) -> int:
        """Returns the size that a region must have for such a store."""
        records = checked_number(log_records, "log_records", 0)
        return ext.store_region_bytes(*_checked(capacity, max_batch), layout, records)

    def set(self, keys: npt.ArrayLike, values: npt.ArrayLike) -> ext.BatchResult:
        """Stores pairs as one transaction."""
        return self._store.set(_as_u64(keys, "keys"), _as_u64(values, "values"))

    def get(self, keys: npt.ArrayLike) -> tuple[U64, npt.NDArray[np.bool_]]:
        """Returns (values, found). A value is 0 where its key is absent."""
        return self._store.get(_as_u64(keys, "keys"))

    def erase(self, keys: npt.ArrayLike) -> ext.BatchResult:
        """Removes keys as one transaction; absent ones are passed over."""
        return self._store.erase(_as_u64(keys, "keys"))

    def apply(self, operations: Any, keys: npt.ArrayLike, values: npt.ArrayLike) -> ext.BatchResult:
        """Stores pairs and removes keys as one transaction.

        `operations` says what is made with each key: "set" or "erase", or an array of uint8, 0 or
        1. `values` has one for each, of which those of keys that are erased mean nothing. Of
        operations on one key the last one counts, alone.
        """
        kinds = numbers_of(operations, _OPERATIONS)
        if isinstance(kinds, np.ndarray):
            if kinds.dtype != np.uint8 or kinds.ndim != 1:
                raise Error(
                    f"operations are of type {kinds.dtype} and shape {kinds.shape}: give names, or "
                    "one number for each key, of uint8"
                )
            kinds = np.ascontiguousarray(kinds)
        return self._store.apply(kinds, _as_u64(keys, "keys"), _as_u64(values, "values"))

    def scan(self) -> tuple[U64, U64]:
        """Returns all keys and their values, in the order of the table, the index, or the log."""
        return self._store.scan()

    def verify(self) -> str:
        """Checks the whole store. Returns the empty string, or what is wrong."""
        return self._store.verify()

    def reserve(self, capacity: int, log_records: int = 0) -> None:
        """Gives it room for `capacity` pairs, and a log `log_records`, if it has less.

        It keeps all its pairs; a kill leaves it as it was, or with its new room. A table in place
        doubles. Old and new are there together for a while: the region is enlarged up to its
        max_size. Raises Error (invalid_argument, also for `log_records` in place; no_space,
        no_memory), and the store is as it was; the region may be larger.
        """
        records = checked_number(log_records, "log_records", 0)
        self._store.reserve(checked_number(capacity, "capacity", 0), records)

    def set_order(self, order: str) -> None:
        """How a batch is laid out over the table: "automatic", "ordered" or "unordered"."""
        self._store.set_order(order)

    def stats(self) -> ext.StoreStats:
        return self._store.stats()

    def recovery(self) -> ext.RecoveryReport:
        """What opening the store had to undo."""
        return self._store.recovery()

    def timing(self) -> ext.BatchTiming:
        """Milliseconds of the last batch's parts."""
        return self._store.timing()

    def __len__(self) -> int:
        return self.stats().records

    def __repr__(self) -> str:
        return f"<holdfast.KeyValueStore in {self.region.path}>"
