"""The hash map of byte strings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ._backend import ext
from ._closing import Closing
from ._errors import Error, checked_number, checked_text
from ._map import MOST_OPERATIONS
from ._region import Region, checked_region

MOST_KEY_BYTES = 64 << 10
MOST_VALUE_BYTES = 16 << 20
_EXPORTED = 1 << 14  # slots that are looked at in one step
_DAMAGED = 2  # BytesFound::damaged


class ByteStrings:
    """Byte strings one behind the other, as Arrow's large_binary has them.

    String i is data[offsets[i]:offsets[i + 1]]. data: an array of uint8; offsets: of uint64, one
    more than strings.

    >>> ByteStrings.of(["one", b"two"]).to_list()
    [b'one', b'two']
    """

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.uint64]) -> None:
        for array, name, kind in ((data, "data", np.uint8), (offsets, "offsets", np.uint64)):
            if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != 1:
                raise Error(
                    f"{name} of byte strings are no row of NumPy's {np.dtype(kind)}: convert them"
                )
        self.data = np.ascontiguousarray(data)
        self.offsets = np.ascontiguousarray(offsets)

    @classmethod
    def of(cls, strings: Iterable[bytes | str] | ByteStrings, what: str = "strings") -> ByteStrings:
        """Returns them of bytes, or of text, as UTF-8."""
        if isinstance(strings, ByteStrings):
            return strings
        if isinstance(strings, (str, bytes)):
            raise Error(f"{what} are one string, {strings[:20]!r}: give a list of them")
        made = [_bytes_of(each, what) for each in strings]
        offsets = np.zeros(len(made) + 1, np.uint64)
        np.cumsum([len(each) for each in made], out=offsets[1:])
        return cls(np.frombuffer(b"".join(made), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes:
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        i %= len(self)
        return self.data[int(self.offsets[i]) : int(self.offsets[i + 1])].tobytes()

    def to_list(self) -> list[bytes]:
        data, ends = self.data.tobytes(), self.offsets.tolist()
        return [data[first:end] for first, end in itertools.pairwise(ends)]


def _bytes_of(string: Any, what: str) -> bytes:
    if isinstance(string, str):
        try:
            return string.encode()
        except UnicodeEncodeError:
            raise Error(f"{what}: {string!r} has no UTF-8: give bytes") from None
    try:
        view = memoryview(string)
    except (TypeError, ValueError):
        raise Error(f"{what}: {string!r} is neither bytes nor text") from None
    if view.itemsize != 1:
        raise Error(f"{what}: {string!r} has elements of {view.itemsize} bytes: give its bytes")
    return bytes(view)


class BytesMap(Closing):
    """A hash map in a region, of byte strings of any length, a batch at a time (docs/bytes-map.md).

    >>> pages = holdfast.BytesMap(region, "pages", capacity=1_000_000, record_bytes=4 << 30)
    >>> pages.insert_or_assign(["https://a.example/"], [b"<html>..."])
    >>> pages.get("https://a.example/")
    b'<html>...'

    Keys have up to 64 KiB and values up to 16 MiB. Where byte strings are wanted there may be a
    list of bytes or of text, which is stored as UTF-8, or ByteStrings.

    BytesMap(region, name) opens the map of this name, and puts in order what a crash cut off. With
    a capacity (slots, of which about nine tenths can be taken) and record_bytes (for records:
    record_bytes_of() each) it makes one where there is none. `max_batch` (65,536 of a new one): how
    many operations a batch can have. reserve() makes one larger that is there.

    Once a call returned, what it did survives what the region's persist rung survives; of a call
    that a crash cuts off each operation is there whole or not at all. Of operations of a batch on
    one key the last one counts. Batches return how many operations had which holdfast MapStatus;
    one that is `full`, `no_value` (no room for its record) or `refused` (another key has its digest
    of 128 bits) was not done, and left all as it was.

    A record that is not as it was written raises Error (damaged), which names its key, where it is
    looked up; it can be replaced and erased.

    Opening a map again ends the earlier object, which then raises Error (closed).
    Thread safety: any number of threads; calls are made one at a time.
    """

    def __init__(
        self,
        region: Region,
        name: str = "map",
        *,
        capacity: int | None = None,
        record_bytes: int | None = None,
        max_batch: int | None = None,
    ) -> None:
        self.region = checked_region(region, "a map")
        self.name = checked_text(name, "the name of a map")
        most = (
            0 if max_batch is None else checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS)
        )
        opened = self._opened(most)
        self._map = opened if opened is not None else self._made(capacity, record_bytes, most)

    def _opened(self, max_batch: int) -> ext.BytesMap | None:
        """Returns what is there; None: nothing, or what a creation that was cut off has left."""
        try:
            return ext.open_bytes_map(self.region._handle, self.name, max_batch)
        except Error as error:
            if error.code != "not_found":
                raise
            return None

    def _made(self, capacity: int | None, record_bytes: int | None, max_batch: int) -> ext.BytesMap:
        name, region = self.name, self.region
        if capacity is None:
            cut_off = ", whose creation was cut off" if f"{name}.header" in region else ""
            raise Error(
                f"region {region.path} has no bytes map '{name}'{cut_off}: give a capacity, and "
                "record_bytes, to make one",
                "not_found",
            )
        if record_bytes is None:
            raise Error(f"bytes map '{name}' is made: give the record_bytes that it has room for")
        return ext.create_bytes_map(
            region._handle, name, checked_number(capacity, "capacity", 1),
            checked_number(record_bytes, "record_bytes", 1), max_batch or 1 << 16,
        )  # fmt: skip

    @staticmethod
    def remove(region: Region, name: str = "map") -> None:
        """Removes the map of this name; as Map.remove()."""
        handle = checked_region(region, "a map")._handle
        ext.remove_bytes_map(handle, checked_text(name, "the name of a map"))

    @staticmethod
    def region_bytes(capacity: int, record_bytes: int, max_batch: int = 1 << 16) -> int:
        """Returns the size that a region must have for such a map and nothing else."""
        return ext.bytes_map_region_bytes(
            checked_number(capacity, "capacity", 1),
            checked_number(record_bytes, "record_bytes", 1),
            checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS),
        )

    @staticmethod
    def record_bytes_of(key_bytes: int, value_bytes: int) -> int:
        """Returns how many bytes the record of a pair takes."""
        return ext.record_bytes_of(
            checked_number(key_bytes, "key_bytes", 0, MOST_KEY_BYTES),
            checked_number(value_bytes, "value_bytes", 0, MOST_VALUE_BYTES),
        )

    def reserve(self, capacity: int | None = None, record_bytes: int | None = None) -> None:
        """Grows until it has so many slots, and so many bytes for records; None: as they are.

        It does nothing where it has them. The index doubles, and records get another object, of an
        eighth of what there was at least where the region has room, and none stands in two. The
        region grows where it has no room, up to its max_size. A crash leaves each of the two as it
        was, or larger. Raises Error, with the map as it was: invalid_argument (more than a map can
        have), no_space (more than max_size; the message has the bytes), already_exists (the
        region has an array of yours by a name that is needed). Arrays of the region stay valid.
        """
        self._map.reserve(
            0 if capacity is None else checked_number(capacity, "capacity", 1),
            0 if record_bytes is None else checked_number(record_bytes, "record_bytes", 1),
        )

    def _update(
        self, operation: str, keys: Any, values: Any, status: npt.NDArray[np.uint8] | None
    ) -> ext.BytesMapResult:
        given = ByteStrings.of(keys, "keys")
        to = ByteStrings.of(values, "values")
        if status is not None and not (
            isinstance(status, np.ndarray)
            and status.dtype == np.uint8
            and status.shape == (len(given),)
            and status.flags.writeable
        ):
            raise Error(
                f"status is no NumPy array of uint8 that can be written, one for each of "
                f"{len(given)} keys"
            )
        result, became = self._map.update(operation, given.data, given.offsets, to.data, to.offsets)
        if status is not None:
            status[:] = became
        return result

    def insert(
        self, keys: Any, values: Any, *, status: npt.NDArray[np.uint8] | None = None
    ) -> ext.BytesMapResult:
        """Inserts what is not there. `status` gets a holdfast MapStatus for each operation."""
        return self._update("insert", keys, values, status)

    def insert_or_assign(
        self, keys: Any, values: Any, *, status: npt.NDArray[np.uint8] | None = None
    ) -> ext.BytesMapResult:
        return self._update("insert_or_assign", keys, values, status)

    def erase(
        self, keys: Any, *, status: npt.NDArray[np.uint8] | None = None
    ) -> ext.BytesMapResult:
        return self._update("erase", keys, [], status)

    def find(self, keys: Any) -> tuple[ByteStrings, npt.NDArray[np.bool_]]:
        """Returns values, empty ones for keys that are not there, and which are there."""
        given = ByteStrings.of(keys, "keys")
        values, found = self._map.find(given.data, given.offsets)
        return ByteStrings(*values), self._present(given, found)

    def get(self, key: bytes | str) -> bytes | None:
        """Returns the value of one key; None: it is not there."""
        values, found = self.find([key])
        return values[0] if found[0] else None

    def contains(self, keys: Any) -> npt.NDArray[np.bool_]:
        """Compares keys with those of the records; values are not read."""
        given = ByteStrings.of(keys, "keys")
        return self._present(given, self._map.contains(given.data, given.offsets))

    def _present(self, keys: ByteStrings, found: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        damaged = np.flatnonzero(found == _DAMAGED)
        if len(damaged):
            raise Error(
                f"bytes map '{self.name}' of region {self.region.path}: the record of key "
                f"{keys[int(damaged[0])][:100]!r} is damaged, and {len(damaged) - 1} more of this "
                "batch: replace it or erase it, or reopen the region from its last commit",
                "damaged",
            )
        return np.not_equal(found, 0)

    def export_batch(self, first: int, slots: int) -> tuple[ByteStrings, ByteStrings, int]:
        """Returns the pairs in slots `first` and on, `slots` of them at most, in no order.

        And how many were left out since their records are damaged. There are stats().capacity
        slots.
        """
        keys, values, damaged = self._map.export_batch(
            checked_number(first, "first"), checked_number(slots, "slots")
        )
        return ByteStrings(*keys), ByteStrings(*values), damaged

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields all pairs. Raises Error (damaged), behind all others, if records are damaged.

        Changes made meanwhile, reserve() among them, may have pairs yielded twice, or not at all.
        """
        left_out = 0
        for first in range(0, self.stats().capacity, _EXPORTED):
            keys, values, damaged = self.export_batch(first, _EXPORTED)
            left_out += damaged
            yield from zip(keys.to_list(), values.to_list(), strict=True)
        if left_out:
            raise Error(
                f"bytes map '{self.name}' of region {self.region.path}: {left_out} records are "
                "damaged, and were left out; verify() says where",
                "damaged",
            )

    # What there is.

    @property
    def size(self) -> int:
        """Pairs."""
        return self.stats().size

    def stats(self) -> ext.BytesMapStats:
        return self._map.stats()

    def recovery(self) -> ext.MapRecovery:
        """What opening it found cut off in the index, and put in order."""
        return self._map.recovery()

    def verify(self) -> str:
        """Checks the whole map on the host. Returns the empty string, or what is wrong."""
        return self._map.verify()

    def close(self) -> None:
        """Lets go of the map, and of its memory on the GPU; the region has it on."""
        self._map.close()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<holdfast.BytesMap '{self.name}' in {self.region.path}>"
