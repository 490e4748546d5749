"""The arrays of a call of a map: those that are given, those that it makes, and their streams."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ._backend import ext
from ._buffers import Buffer, buffer_of, is_array, is_torch
from ._errors import Error
from ._map_types import Element
from ._numbers import integers
from ._streams import stream_number

_FOUND = Element("bool", 1)
_STATUS = Element("uint8", 1)
_SCORE = Element("uint64", 8)


class _Arrays:
    """The arrays of one call: checks them, makes those that are not given, and orders streams."""

    def __init__(self, where: str, stream: Any) -> None:
        self.where = where
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
            raise self.wrong(what, f"has the shape {buffer.shape}: give ({wanted})")
        if element.nbytes >= 4 and buffer.address % 4:
            raise self.wrong(what, "does not begin at a multiple of 4 bytes: give a copy of it")
        return self._keep(buffer)

    def status(self, status: Any, count: int) -> int:
        """Returns where the status of each operation goes; 0: nobody asks."""
        if status is None:
            return 0
        return self.given(status, "status", _STATUS, count, written=True).address

    def taken(self, array: Any, what: str, element: Element, keys: Buffer) -> tuple[Any, Buffer]:
        """Returns an array that is written, one for each key, and its memory; None: it is made."""
        count = keys.shape[0]
        if array is None:
            return self.zeros(keys, what, element, count)
        return array, self.given(array, what, element, count, written=True)

    def _buffer(self, array: Any, what: str, element: Element, written: bool) -> Buffer:
        if isinstance(array, np.ma.MaskedArray):
            raise self.wrong(what, "is a masked array: give a plain one of what is to be taken")
        if isinstance(array, np.ndarray) and array.dtype != element.numpy:
            raise self._type(what, str(array.dtype), element)
        buffer = buffer_of(array, f"{self.where}: {what}", only_read=not written)
        if buffer.dtype != element.dtype:
            raise self._type(what, buffer.dtype, element)
        return buffer

    def wrong(self, what: str, why: str) -> Error:
        return Error(f"{self.where}: {what} {why}")

    def _type(self, what: str, found: str, element: Element) -> Error:
        return self.wrong(
            what, f"has elements of type {found}, and the map has {element.dtype}: convert it"
        )

    def _made_of(self, values: Any, what: str, element: Element) -> Any:
        if element.numpy is None:
            raise self.wrong(what, f"is no array: NumPy has no {element.dtype}, give a tensor")
        try:
            if np.dtype(element.numpy).kind in "iu":
                made = integers(values, element.numpy)
            else:
                made = np.asarray(values, dtype=element.numpy)
        except (OverflowError, ValueError, TypeError) as error:
            raise self.wrong(what, f"is not made of {element.dtype}: {error}") from None
        if made.shape == (0,):  # an empty list says nothing of its rows
            return made.reshape(0, *element.shape)
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
            raise self.wrong(what, f"has to be given: NumPy has no {element.dtype}")
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
