"""The hash map on arrays of NumPy, PyTorch and CuPy."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from . import _types
from ._backend import ext
from ._buffers import Buffer, buffer_of, is_array, is_torch
from ._errors import Error, checked_number
from ._region import Region
from ._streams import stream_number

KEY_TYPES = ("int32", "uint32", "int64", "uint64")
# Operations that a batch can have.
MOST_OPERATIONS = 2**24
_LEAST_VALUE, _MOST_VALUE = 4, 4096  # bytes
_ROOM_FOR_TYPES = 1 << 16  # bytes of a region, for the object that has their names
_EXPORTED = 1 << 16  # slots that are looked at in one step


@dataclass(frozen=True)
class Element:
    """What one key or value is."""

    dtype: str  # NumPy's or PyTorch's name
    itemsize: int  # bytes
    shape: tuple[int, ...] = ()  # of a row

    @property
    def nbytes(self) -> int:
        total = self.itemsize
        for extent in self.shape:
            total *= extent
        return total

    @property
    def numpy(self) -> np.dtype[Any] | None:
        """The type as NumPy has it; None: it has none."""
        try:
            return np.dtype(self.dtype)
        except TypeError:
            return None

    def __str__(self) -> str:
        return " x ".join([self.dtype, *map(str, self.shape)])


def _dtype_name(spec: Any, what: str) -> str:
    name = str(spec).removeprefix("torch.")
    if type(spec).__module__.partition(".")[0] != "torch" and not _types.is_buffer_type(name):
        try:
            name = np.dtype(spec).name
        except TypeError:
            name = ""
    if not _types.is_buffer_type(name):
        raise Error(f"{what} is {spec!r}: give one of {_types.buffer_types()}")
    return name


def element_of(spec: Any, what: str) -> Element:
    """Returns what a dtype, or a tuple of one and the extents of a row, stands for."""
    shape: tuple[int, ...] = ()
    if isinstance(spec, tuple):
        if len(spec) != 2:
            raise Error(f"{what} is {spec!r}: give a type, or a type and how many in a row")
        spec, extents = spec
        shape = (extents,) if isinstance(extents, int) else tuple(extents)
    elif isinstance(spec, np.dtype) and spec.subdtype is not None:
        spec, shape = spec.subdtype
    if not all(isinstance(extent, int) and extent >= 1 for extent in shape):
        raise Error(f"{what} has the row {shape!r}: every extent must be at least 1")
    name = _dtype_name(spec, what)
    try:
        itemsize = np.dtype(name).itemsize
    except TypeError:  # bfloat16, float8_e5m2
        itemsize = int(re.findall("[0-9]+", name)[0]) // 8
    return Element(name, itemsize, shape)


def _key_of(spec: Any) -> Element:
    key = element_of(spec, "key")
    if key.dtype not in KEY_TYPES or key.shape:
        raise Error(f"key is {key}: a map's keys are {', '.join(KEY_TYPES)}")
    return key


def _value_of(spec: Any) -> Element:
    value = element_of(spec, "value")
    if value.nbytes % 4 or not _LEAST_VALUE <= value.nbytes <= _MOST_VALUE:
        raise Error(
            f"value is {value}, which has {value.nbytes} bytes: a value has {_LEAST_VALUE} to "
            f"{_MOST_VALUE:,} bytes, a multiple of 4; pad its row"
        )
    return value


def _types_object(name: str) -> str:
    return f"{name}_types"


def _types_text(key: Element, value: Element) -> str:
    """Returns the name of a pair's type on the medium, such as "i64:f32x64"."""
    words = []
    for one in (key, value):
        base, _, _ = _types.to_buffer(one.dtype, one.itemsize, (1,))
        words.append("x".join([base, *map(str, one.shape)]))
    return ":".join(words)


def _stored_types(region: Region, name: str) -> tuple[Element, Element] | None:
    """Returns what a map of Python's was made with; None: it was not made by Python."""
    wanted = _types_object(name)
    for info in region.objects():
        if info.name == wanted:
            names = [_types.from_buffer(word, 1) for word in info.type.split(":")]
            key, value = (element_of((dtype, shape[1:]), name) for dtype, shape in names)
            return key, value
    return None


def _store_types(region: Region, name: str, key: Element, value: Element) -> None:
    wanted = _types_object(name)
    if wanted in region:  # of a map whose creation was cut off
        region._handle.remove(wanted)
    text = _types_text(key, value)
    try:
        region._handle.allocate(wanted, text, 8, 1, "hashed")
    except Error as error:
        raise Error(f"map '{name}' with the types {text}: {error}", error.code) from None


class _Arrays:
    """The arrays of one call: checks them, makes those that are not given, and orders streams."""

    def __init__(self, where: str, stream: Any) -> None:
        self._where = where
        self._stream = stream_number(stream)
        self._on_device = False
        self.kept: list[Buffer] = []

    def given(
        self, array: Any, what: str, element: Element, count: int | None, *, written: bool = False
    ) -> Buffer:
        """Returns the memory of an array of `count` elements. Of a key's, any count."""
        if not written and not is_array(array):
            array = self._made_of(array, what, element)
        buffer = self._buffer(array, what, element, written)
        expected = (buffer.shape[0] if buffer.shape else 1, *element.shape)
        if count is not None:
            expected = (count, *element.shape)
        if buffer.shape != expected:
            wanted = ", ".join(["n" if count is None else str(count), *map(str, element.shape)])
            raise self._wrong(what, f"has the shape {buffer.shape}: give ({wanted})")
        if element.nbytes >= 4 and buffer.address % 4:
            raise self._wrong(what, "does not begin at a multiple of 4 bytes: give a copy of it")
        return self._keep(buffer)

    def _buffer(self, array: Any, what: str, element: Element, written: bool) -> Buffer:
        if isinstance(array, np.ndarray) and array.dtype != element.numpy:
            raise self._type(what, str(array.dtype), element)
        buffer = buffer_of(array, f"{self._where}: {what}", only_read=not written)
        if buffer.dtype != element.dtype:
            raise self._type(what, buffer.dtype, element)
        return buffer

    def _wrong(self, what: str, why: str) -> Error:
        return Error(f"{self._where}: {what} {why}")

    def _type(self, what: str, found: str, element: Element) -> Error:
        return self._wrong(
            what, f"has elements of type {found}, and the map has {element.dtype}: convert it"
        )

    def _made_of(self, values: Any, what: str, element: Element) -> Any:
        if element.numpy is None:
            raise self._wrong(what, f"is no array: NumPy has no {element.dtype}, give a tensor")
        try:
            made = np.asarray(values, dtype=element.numpy)
            if (
                element.dtype in KEY_TYPES
                and np.asarray(values).dtype.kind not in "iu"
                and made.size
            ):
                raise ValueError(f"{values!r} are no integers")
        except (OverflowError, ValueError, TypeError) as error:
            raise self._wrong(what, f"is not made of {element.dtype}: {error}") from None
        return made.reshape(1, *made.shape) if made.ndim == len(element.shape) else made

    def _keep(self, buffer: Buffer) -> Buffer:
        self._on_device |= buffer.on_device
        self.kept.append(buffer)
        return buffer

    def zeros(self, like: Buffer, what: str, element: Element, count: int) -> tuple[Any, Buffer]:
        """Makes an array of the library of keys and on their device, or else of NumPy."""
        shape = (count, *element.shape)
        array: Any
        source = like.keep
        if is_torch(source):
            torch = sys.modules["torch"]
            array = torch.zeros(shape, dtype=getattr(torch, element.dtype), device=source.device)
        elif type(source).__module__.partition(".")[0] == "cupy":
            array = sys.modules["cupy"].zeros(shape, dtype=element.numpy)
        elif element.numpy is None:
            raise self._wrong(what, f"has to be given: NumPy has no {element.dtype}")
        else:
            array = np.zeros(shape, element.numpy)
        return array, self._keep(buffer_of(array, what))

    def streams(self) -> list[int]:
        """Returns the streams that the map waits for, once all arrays are there.

        Without a stream it is all work of the device, here and now.
        """
        if ext.backend_name() != "cuda" or not self._on_device:
            return []
        if self._stream is None:
            ext.synchronize(0)
            return []
        current = [self._stream]
        for module, of in (("torch", _torch_stream), ("cupy", _cupy_stream)):
            if module in sys.modules:  # what zeros() has made
                current += of(sys.modules[module])
        return list(dict.fromkeys(current))


def _torch_stream(torch: Any) -> list[int]:
    return [torch.cuda.current_stream().cuda_stream] if torch.cuda.is_initialized() else []


def _cupy_stream(cupy: Any) -> list[int]:
    return [cupy.cuda.get_current_stream().ptr]


_FOUND = Element("bool", 1)
_STATUS = Element("uint8", 1)


class Map:
    """A hash map in a region, updated in place on the GPU, a batch at a time (docs/map.md).

    >>> row = ("float32", 64)
    >>> table = holdfast.Map(region, "users", key="int64", value=row, capacity=1_000_000)
    >>> table.insert_or_assign(ids, rows)
    >>> rows, found = table.find(ids)

    key: int32, uint32, int64 or uint64. The key whose bits are all ones (-1) cannot be stored.
    value: a type, or a type and the extents of a row; 4 to 4,096 bytes, a multiple of 4. Of values
    of 8 bytes two bit patterns cannot be stored (EmptyValue in hash_map.hpp).

    Map(region, name) opens the map of this name, and puts in order what a crash cut off. With a
    capacity it makes one where there is none: for `capacity` slots, of which about nine tenths can
    be taken. The types may be left out of what Python has made. `max_batch` (65,536 of a new one):
    how many operations a batch can have; each takes about 60 bytes of the GPU's memory.
    `value_places`: places for values of more than 8 bytes (0: one for each slot, and max_batch
    more). `directory` says whether batches look into a copy of keys and slots in the GPU's memory:
    "on" (Error no_memory where there is no room), "off", or "automatic", where it pays and there is
    room.

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
    ) -> None:
        self.region = region
        self.name = name
        most = (
            0 if max_batch is None else checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS)
        )
        if f"{name}.header" in region:
            self._key, self._value = self._types_to_open(key, value)
            self._map = ext.open_map(
                region._handle, name, self._key.nbytes, self._value.nbytes, most, directory
            )
            return
        if capacity is None:
            raise Error(
                f"region {region.path} has no map '{name}': give a capacity, and the types of key "
                "and value, to make one",
                "not_found",
            )
        if key is None or value is None:
            raise Error(f"map '{name}' is made: give the types of its key and value")
        self._key, self._value = _key_of(key), _value_of(value)
        places = checked_number(value_places, "value_places")
        slots = checked_number(capacity, "capacity", 1)
        _store_types(region, name, self._key, self._value)
        try:
            self._map = ext.create_map(
                region._handle, name, self._key.nbytes, slots, self._value.nbytes,
                most or 1 << 16, places, directory,
            )  # fmt: skip
        except Error:
            region._handle.remove(_types_object(name))
            raise

    def _types_to_open(self, key: Any, value: Any) -> tuple[Element, Element]:
        stored = _stored_types(self.region, self.name) or (None, None)
        return (
            self._agreed("key", None if key is None else _key_of(key), stored[0]),
            self._agreed("value", None if value is None else _value_of(value), stored[1]),
        )

    def _agreed(self, what: str, asked: Element | None, has: Element | None) -> Element:
        where = f"map '{self.name}' of region {self.region.path}"
        if asked is not None and has is not None and asked != has:
            raise Error(
                f"{where} has {what}s of {has}, and is opened for {asked}: give what it has, or "
                "nothing"
            )
        one = asked or has
        if one is None:
            raise Error(f"{where} was not made by Python: give the type of its {what}")
        return one

    @staticmethod
    def region_bytes(
        capacity: int, key: Any, value: Any, max_batch: int = 1 << 16, value_places: int = 0
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

    def erase(self, keys: Any, *, status: Any = None, stream: Any = None) -> ext.MapResult:
        return self._update("erase", keys, None, status, stream)

    def find_or_insert(
        self, keys: Any, values: Any, *, out: Any = None, status: Any = None, stream: Any = None
    ) -> tuple[Any, ext.MapResult]:
        """As insert(); returns what each key has then, and what became of the batch.

        The row of an operation that was not done, or is superseded, is 0, or as `out` had it.
        """
        arrays = self._arrays("find_or_insert", stream)
        given = arrays.given(keys, "keys", self._key, None)
        count = given.shape[0]
        to = arrays.given(values, "values", self._value, count)
        out, written = self._out(arrays, out, given)
        if count > 0 and written.address == to.address:
            raise Error(f"find_or_insert() of map '{self.name}': out is values: give it another")
        result = self._call("find_or_insert", arrays, given, to, written, status)
        return out, result

    def find(
        self, keys: Any, *, out: Any = None, found: Any = None, stream: Any = None
    ) -> tuple[Any, Any]:
        """Returns (values, found): for each key its value, and whether it is there.

        Unless `out` and `found` (of bool) are given they are arrays of PyTorch or CuPy where keys
        are, on the same device, and else NumPy's. The value of a key that is not there is 0, or as
        `out` had it.
        """
        arrays = self._arrays("find", stream)
        given = arrays.given(keys, "keys", self._key, None)
        out, written = self._out(arrays, out, given)
        return out, self._find(arrays, given, written, found)

    def contains(self, keys: Any, *, found: Any = None, stream: Any = None) -> Any:
        """Returns for each key whether it is there."""
        arrays = self._arrays("contains", stream)
        given = arrays.given(keys, "keys", self._key, None)
        return self._find(arrays, given, None, found)

    def _arrays(self, operation: str, stream: Any) -> _Arrays:
        return _Arrays(f"{operation}() of map '{self.name}'", stream)

    def _out(self, arrays: _Arrays, out: Any, keys: Buffer) -> tuple[Any, Buffer]:
        count = keys.shape[0]
        if out is None:
            return arrays.zeros(keys, "out", self._value, count)
        return out, arrays.given(out, "out", self._value, count, written=True)

    def _find(self, arrays: _Arrays, keys: Buffer, out: Buffer | None, found: Any) -> Any:
        count = keys.shape[0]
        if found is None:
            found, flags = arrays.zeros(keys, "found", _FOUND, count)
        else:
            flags = arrays.given(found, "found", _FOUND, count, written=True)
        streams = arrays.streams()
        self._map.find(keys.address, out.address if out else 0, flags.address, count, streams)
        return found

    def _update(
        self, operation: str, keys: Any, values: Any, status: Any, stream: Any
    ) -> ext.MapResult:
        arrays = self._arrays(operation, stream)
        given = arrays.given(keys, "keys", self._key, None)
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
        became = 0
        if status is not None:
            became = arrays.given(status, "status", _STATUS, count, written=True).address
        streams = arrays.streams()
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
        checked_number(first, "first")
        checked_number(slots, "slots", 1, 2**32)
        arrays = self._arrays("export_batch", stream)
        if keys is None:
            keys = np.empty(slots, self._key.numpy)
        if values is None:
            if self._value.numpy is None:
                raise Error(f"values have to be given: NumPy has no {self._value.dtype}")
            values = np.empty((slots, *self._value.shape), self._value.numpy)
        to_keys = arrays.given(keys, "keys", self._key, slots, written=True)
        to_values = arrays.given(values, "values", self._value, slots, written=True)
        streams = arrays.streams()
        pairs = self._map.export_batch(first, slots, to_keys.address, to_values.address, streams)
        return keys[:pairs], values[:pairs]

    def batches(self, slots: int = _EXPORTED) -> Iterator[tuple[Any, Any]]:
        """Yields (keys, values) of all pairs, as NumPy arrays, of so many slots at a time.

        Each pair comes once, if the map is not changed meanwhile.
        """
        for first in range(0, self.stats().capacity, slots):
            yield self.export_batch(first, slots)

    def export(self) -> tuple[Any, Any]:
        """Returns (keys, values) of all pairs, as NumPy arrays, in no order."""
        parts = list(self.batches())
        return np.concatenate([keys for keys, _ in parts]), np.concatenate([v for _, v in parts])

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
        self._map.set_order(order)

    def verify(self) -> str:
        """Checks the whole map on the host. Returns the empty string, or what is wrong."""
        return self._map.verify()

    def close(self) -> None:
        """Lets go of the map, and of its memory on the GPU; the region has it on."""
        self._map.close()

    def __enter__(self) -> Map:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<holdfast.Map '{self.name}' in {self.region.path}: {self._key} to {self._value}>"
