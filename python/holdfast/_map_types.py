"""What a map's keys and values are: types as they are given, in memory, and on the medium."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _types
from ._backend import ext
from ._buffers import is_array
from ._errors import Error, checked_text, extents_of
from ._region import Region, checked_region

KEY_TYPES = ("int32", "uint32", "int64", "uint64")
_LEAST_LONG_KEY, _MOST_LONG_KEY = 16, 128  # bytes; a multiple of 8
_LEAST_VALUE, _MOST_VALUE = 4, 4096  # bytes


@dataclass(frozen=True)
class Element:
    """What one key or value is."""

    dtype: str  # NumPy's or PyTorch's name
    itemsize: int  # bytes
    shape: tuple[int, ...] = ()  # of a row

    @property
    def nbytes(self) -> int:
        return self.itemsize * math.prod(self.shape)

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
        except (TypeError, ValueError):
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
        shape = extents_of(extents, f"the row of {what}")
    elif isinstance(spec, np.dtype) and spec.subdtype is not None:
        spec, shape = spec.subdtype
    if not all(extent >= 1 for extent in shape):
        raise Error(f"{what} has the row {shape!r}: every extent must be at least 1")
    name = _dtype_name(spec, what)
    try:
        itemsize = np.dtype(name).itemsize
    except TypeError:  # bfloat16, float8_e5m2
        itemsize = int(re.findall("[0-9]+", name)[0]) // 8
    return Element(name, itemsize, shape)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether equal values of the type have equal bytes, each of one field: no padding, objects or
    floating point.
    """
    if dtype.subdtype is not None:
        return _is_plain(dtype.subdtype[0])
    if dtype.names is None or dtype.fields is None:
        return dtype.kind in "SViub"
    end = 0
    for part, offset in sorted(
        (dtype.fields[name][:2] for name in dtype.names), key=lambda f: f[1]
    ):
        if offset != end or not _is_plain(part):
            return False
        end += part.itemsize
    return end == dtype.itemsize


def _is_of_bytes(keys: Any) -> bool:
    """Whether it is a value of bytes or text, or a list of them, and no array."""
    if is_array(keys):
        return False
    try:
        return np.asarray(keys).dtype.kind in "SU"
    except ValueError:  # of rows that are not alike
        return False


def _bytes_dtype(spec: Any) -> np.dtype[Any] | None:
    """The type of a key that NumPy has as bytes or as a structure; None: it is another one."""
    if isinstance(spec, tuple) or type(spec).__module__.partition(".")[0] == "torch":
        return None
    try:
        dtype = np.dtype(spec)
    except (TypeError, ValueError):
        return None
    return dtype if dtype.kind in "SV" and dtype.subdtype is None else None


def _key_of(spec: Any) -> Element:
    """Long keys are rows of bytes, whatever NumPy calls them."""
    dtype = _bytes_dtype(spec)
    if dtype is not None and not _is_plain(dtype):
        raise Error(
            f"key is {dtype}, of which equal values may have other bytes: give a structure of "
            "integers and bytes without padding, of which no two overlap"
        )
    key = element_of(spec, "key") if dtype is None else Element("uint8", 1, (dtype.itemsize,))
    if key.dtype in KEY_TYPES and not key.shape:
        return key
    if key.dtype != "uint8" or len(key.shape) != 1:
        raise Error(
            f"key is {key}: a map's keys are {', '.join(KEY_TYPES)}, or {_LEAST_LONG_KEY} to "
            f"{_MOST_LONG_KEY} bytes, such as 'S32', a structure, or ('uint8', 32)"
        )
    if key.nbytes % 8 or not _LEAST_LONG_KEY <= key.nbytes <= _MOST_LONG_KEY:
        raise Error(
            f"key is {spec!r}, which has {key.nbytes} bytes: a key that is no integer has "
            f"{_LEAST_LONG_KEY} to {_MOST_LONG_KEY} bytes, a multiple of 8; pad it"
        )
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
            return _types_of(info.type)
    return None


def _types_of(text: str) -> tuple[Element, Element] | None:
    """Returns what _types_text() has made; None: it is the type of another object."""
    names = [_types.from_buffer(word, 1) for word in text.split(":")]
    if len(names) != 2:
        return None
    try:
        key, value = (element_of((dtype, shape[1:]), "a map's type") for dtype, shape in names)
    except Error:
        return None
    return key, value


def _agreed(where: str, what: str, asked: Element | None, has: Element | None) -> Element:
    """Returns what the keys or values of a map are that is opened."""
    if asked is not None and has is not None and asked != has:
        raise Error(
            f"{where} has {what}s of {has}, and is opened for {asked}: give what it has, or nothing"
        )
    one = asked or has
    if one is None:
        raise Error(f"{where} was not made by Python: give the type of its {what}")
    return one


def _store_types(region: Region, name: str, key: Element, value: Element) -> None:
    wanted = _types_object(name)
    if wanted in region:
        if _stored_types(region, name) is None:
            raise Error(
                f"map '{name}' of region {region.path} would have its types in '{wanted}', and "
                "there is another object of that name: give the map another name, or remove that "
                "first",
                "already_exists",
            )
        region._handle.remove(wanted)  # of a map whose creation was cut off
    text = _types_text(key, value)
    try:
        region._handle.allocate(wanted, text, 8, 1, "hashed")
    except Error as error:
        raise Error(f"map '{name}' with the types {text}: {error}", error.code) from None


def _remove_with_types(
    region: Region, name: str, remove: Callable[[ext.Region, str], None]
) -> None:
    handle = checked_region(region, "a map")._handle
    remove(handle, checked_text(name, "the name of a map"))
    if _stored_types(region, name) is not None:
        handle.remove(_types_object(name))
