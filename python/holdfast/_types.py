"""NumPy's element types under the names that a region's directory uses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import Error

_NAMES: dict[np.dtype[Any], str] = {
    np.dtype(np.int8): "i8",
    np.dtype(np.uint8): "u8",
    np.dtype(np.int16): "i16",
    np.dtype(np.uint16): "u16",
    np.dtype(np.int32): "i32",
    np.dtype(np.uint32): "u32",
    np.dtype(np.int64): "i64",
    np.dtype(np.uint64): "u64",
    np.dtype(np.float16): "f16",
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_MAX_TYPE_NAME = 23  # bytes, of the format


def _known() -> str:
    return ", ".join(map(str, _NAMES))


def to_medium(shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[str, int, int]:
    """Returns the type's name, its bytes, and the count of elements.

    The first dimension is the count; the others belong to the element's type, so that an array
    of shape (1000, 4) and type float32 is 1000 elements of type "f32x4".
    """
    try:
        resolved = np.dtype(dtype)
    except (TypeError, ValueError):
        raise Error(f"{dtype!r} is no type of elements: use one of {_known()}") from None
    if resolved not in _NAMES:
        raise Error(f"a region cannot hold elements of type {resolved}: use one of {_known()}")
    if not shape or any(extent < 1 for extent in shape):
        raise Error(f"the shape is {shape}: every extent must be at least 1")
    name = "x".join([_NAMES[resolved], *map(str, shape[1:])])
    if len(name) > _MAX_TYPE_NAME:
        raise Error(f"the shape {shape} does not fit into a type name: use fewer dimensions")
    elements = 1
    for extent in shape[1:]:
        elements *= extent
    if resolved.itemsize * elements * shape[0] >= 2**63:
        raise Error(f"the shape is {shape}: that is more than can be addressed")
    return name, resolved.itemsize * elements, shape[0]


def from_medium(name: str, element_bytes: int, count: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Returns shape and element type. A type that is not Python's is seen as bytes."""
    base, *extents = name.split("x")
    if base in _DTYPES and all(re.fullmatch("[0-9]+", extent) for extent in extents):
        shape = (count, *map(int, extents))
        dtype = _DTYPES[base]
        if int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize == element_bytes:
            return shape, dtype
    return (count, element_bytes), np.dtype(np.uint8)


# What checkpoints hold besides: NumPy's and PyTorch's names of types, and the medium's.
_BUFFER_NAMES = {
    **{dtype.name: name for dtype, name in _NAMES.items()},
    "bool": "bool",
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
    **{f"float8_{kind}": f"f8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")},
}
_BUFFER_DTYPES = {name: dtype for dtype, name in _BUFFER_NAMES.items()}
_MAX_ELEMENT_BYTES = 2**32 - 1  # of the format


def is_buffer_type(dtype: str) -> bool:
    """Whether checkpoints know elements of this type by name."""
    return dtype in _BUFFER_NAMES


def buffer_types() -> str:
    return ", ".join(_BUFFER_NAMES)


def to_buffer(dtype: str, itemsize: int, shape: tuple[int, ...]) -> tuple[str, int, int]:
    """Returns type, bytes of an element and count, as a checkpoint names them.

    As to_medium() does for arrays of a region. A shape that has no room in a type's name counts as
    flat. `dtype` is NumPy's or PyTorch's name, `itemsize` its bytes.
    """
    base = _BUFFER_NAMES.get(dtype, dtype)
    elements = 1
    for extent in shape[1:]:
        elements *= extent
    count = shape[0] if shape else 1
    name = "x".join([base, *map(str, shape[1:])])
    if len(name) > _MAX_TYPE_NAME or elements * itemsize > _MAX_ELEMENT_BYTES:
        return base, itemsize, count * elements
    return name, itemsize * elements, count


def from_buffer(name: str, count: int) -> tuple[str, tuple[int, ...]]:
    """Returns the name of the element type and the shape; the name as it is if it is unknown."""
    base, *extents = name.split("x")
    if base in _BUFFER_DTYPES and all(re.fullmatch("[0-9]+", extent) for extent in extents):
        return _BUFFER_DTYPES[base], (count, *map(int, extents))
    return name, (count,)
