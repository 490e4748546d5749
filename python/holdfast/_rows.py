"""Rows of words in the memory where ranks exchange them: hashed, ordered by owner, gathered.

A row is a key, a value or a status as it is in memory, seen as words of 8, 4 or 1 bytes. HostRows
works by NumPy, DeviceRows by PyTorch on a GPU; both give the same numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._buffers import Buffer, is_torch
from ._errors import Error

# The finalizer of SplitMix64, and its step. A map's table has another one (MapHash), so that a
# shard's keys have all of its buckets.
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_EMPTY_VALUE = 0x7FF49B1E66D50C3A  # EmptyValue of hash_map.hpp
_LOW = 0xFFFFFFFF


def word_bytes(row_bytes: int) -> int:
    return 8 if row_bytes % 8 == 0 else 4 if row_bytes % 4 == 0 else 1


@dataclass
class Order:
    """The operations of a call by the hash of their keys, each key once: the last of its own."""

    kept: Any  # operations, by hash
    hashes: Any  # of their keys
    superseded: Any  # other operations of the same keys
    by: Any  # and for each the one that is kept
    group_of: Any  # for each operation in the order of hashes: which of the kept has its key
    whole: Any  # all operations, by hash


class HostRows:
    """Rows in the host's memory."""

    streams: Sequence[int] = ()

    @contextmanager
    def scope(self) -> Iterator[None]:
        yield

    @contextmanager
    def beside(self) -> Iterator[None]:
        """As scope(), on another thread while that one is in it, which waits for what is done."""
        yield

    # Arrays of callers.

    def own(self, buffer: Buffer, row_bytes: int) -> Any:
        """Returns a caller's array as rows: its memory where it can be used, else a copy."""
        rows = _seen(buffer, row_bytes)
        return rows.cpu().numpy() if is_torch(rows) else rows

    def give(self, rows: Any, buffer: Buffer, row_bytes: int) -> None:
        """Copies rows to a caller's array, if they are not there already."""
        target = _seen(buffer, row_bytes)
        if is_torch(target):
            target.copy_(sys.modules["torch"].from_numpy(rows))
        elif not np.shares_memory(target, rows):
            target[...] = rows

    def empty(self, count: int, row_bytes: int) -> Any:
        each = word_bytes(row_bytes)
        return np.empty((count, row_bytes // each), f"i{each}" if each > 1 else np.uint8)

    def address(self, rows: Any) -> int:
        return int(rows.ctypes.data)

    def is_empty_key(self, rows: Any) -> bool:
        return bool((rows == -1).any())

    def is_empty_value(self, rows: Any) -> bool:
        return bool(((rows.view(np.uint64) | np.uint64(1)) == (_EMPTY_VALUE | 1)).any())

    # What goes where.

    def hashes(self, keys: Any) -> Any:
        words = keys.view(np.uint32 if keys.itemsize == 4 else np.uint64).astype(np.uint64)
        mixed = np.zeros(len(keys), np.uint64)
        for column in range(words.shape[1]):
            mixed = self._mixed((mixed ^ words[:, column]) + np.uint64(_STEP))
        return mixed

    @staticmethod
    def _mixed(bits: Any) -> Any:
        bits = (bits ^ bits >> np.uint64(30)) * np.uint64(_FIRST)
        bits = (bits ^ bits >> np.uint64(27)) * np.uint64(_SECOND)
        return bits ^ bits >> np.uint64(31)

    def ordered(self, keys: Any) -> Order:
        hashes = self.hashes(keys)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        last = np.ones(len(order), bool)
        last[:-1] = hashes[1:] != hashes[:-1]
        if keys.shape[1] > 1:
            last[:-1] |= (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
        kept, group = order[last], np.cumsum(last) - last
        gone = order[~last]
        return Order(kept, hashes[last], gone, kept[group[~last]], group, order)

    def ends(self, hashes: Any, size: int, bins: int) -> Any:
        """Returns where each owner's bins end among ordered hashes, behind a 0; for the host."""
        place = (hashes >> np.uint64(32)) * np.uint64(size)
        within = (place & np.uint64(_LOW)) * np.uint64(bins) >> np.uint64(32)
        number = ((place >> np.uint64(32)) * np.uint64(bins) + within).astype(np.int64)
        return np.searchsorted(number, np.arange(size * bins + 1))

    def owners(self, keys: Any, size: int) -> Any:
        return (self.hashes(keys) >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)

    def joined(self, parts: list[Any]) -> Any:
        return np.concatenate(parts)

    def take(self, rows: Any, at: Any) -> Any:
        return rows.take(at, axis=0)

    def summed(self, rows: Any, order: Order, dtype: str) -> Any:
        """Returns deltas, with the sum of each key's at the operation that is kept."""
        typed = rows.reshape(-1).view(dtype).reshape(len(rows), -1)
        starts = np.searchsorted(order.group_of, np.arange(len(order.kept)))
        sums = typed.copy()
        sums[order.kept] = np.add.reduceat(typed[order.whole], starts, axis=0)
        return sums.view(rows.dtype)

    # Answers.

    def put(self, rows: Any, at: Any, answers: Any) -> None:
        rows[at] = answers

    def put_found(self, rows: Any, at: Any, answers: Any, found: Any) -> None:
        there = found[:, 0] != 0
        rows[at[there]] = answers[there]

    def fill(self, rows: Any, value: int) -> None:
        rows.fill(value)

    def counts(self, statuses: Any) -> list[int]:
        return np.bincount(statuses[:, 0], minlength=10).tolist()  # type: ignore[no-any-return]


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


class DeviceRows:
    """Rows in the memory of a GPU, on a stream of its own; for tests, in the host's."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.streams: Sequence[int] = (self._stream.cuda_stream,) if self._stream else ()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is done in it is behind what the current stream has queued, and over at its end."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(self._torch.cuda.current_stream(self._device))
        with self._torch.cuda.stream(self._stream):
            yield
        self._stream.synchronize()

    @contextmanager
    def beside(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        with self._torch.cuda.stream(self._stream):
            yield

    def own(self, buffer: Buffer, row_bytes: int) -> Any:
        rows = _seen(buffer, row_bytes)
        if not is_torch(rows):
            rows = self._torch.from_numpy(rows if rows.flags.writeable else rows.copy())
        return rows.to(self._device)

    def give(self, rows: Any, buffer: Buffer, row_bytes: int) -> None:
        target = _seen(buffer, row_bytes)
        if not is_torch(target):
            target[...] = rows.cpu().numpy()
        elif target.data_ptr() != rows.data_ptr():
            target.copy_(rows)

    def empty(self, count: int, row_bytes: int) -> Any:
        each = word_bytes(row_bytes)
        torch = self._torch
        dtype = {8: torch.int64, 4: torch.int32, 1: torch.uint8}[each]
        return torch.empty((count, row_bytes // each), dtype=dtype, device=self._device)

    def address(self, rows: Any) -> int:
        return int(rows.data_ptr())

    def is_empty_key(self, rows: Any) -> bool:
        return bool((rows == -1).any())

    def is_empty_value(self, rows: Any) -> bool:
        return bool(((rows | 1) == (_EMPTY_VALUE | 1)).any())

    def hashes(self, keys: Any) -> Any:
        torch = self._torch
        words = keys.to(torch.int64)
        if keys.dtype == torch.int32:
            words &= _LOW
        mixed = torch.zeros(keys.shape[0], dtype=torch.int64, device=self._device)
        for column in range(words.shape[1]):
            mixed = self._mixed((mixed ^ words[:, column]) + _signed(_STEP))
        return mixed

    @staticmethod
    def _right(bits: Any, by: int) -> Any:
        return (bits >> by) & ((1 << (64 - by)) - 1)

    def _mixed(self, bits: Any) -> Any:
        bits = (bits ^ self._right(bits, 30)) * _signed(_FIRST)
        bits = (bits ^ self._right(bits, 27)) * _signed(_SECOND)
        return bits ^ self._right(bits, 31)

    def ordered(self, keys: Any) -> Order:
        torch = self._torch
        top = _signed(1 << 63)  # so that signed ones are ordered as unsigned ones
        hashes, order = torch.sort(self.hashes(keys) ^ top, stable=True)
        hashes ^= top
        last = torch.ones(order.shape[0], dtype=torch.bool, device=self._device)
        last[:-1] = hashes[1:] != hashes[:-1]
        if keys.shape[1] > 1:
            last[:-1] |= (keys[order[1:]] != keys[order[:-1]]).any(dim=1)
        group = torch.cumsum(last, 0) - last.to(torch.int64)
        kept = order[last]
        if kept.shape[0] == order.shape[0]:
            return Order(kept, hashes, order[:0], order[:0], group, order)
        gone = ~last
        return Order(kept, hashes[last], order[gone], kept[group[gone]], group, order)

    def ends(self, hashes: Any, size: int, bins: int) -> Any:
        place = self._right(hashes, 32) * size
        number = (place >> 32) * bins + ((place & _LOW) * bins >> 32)
        wanted = self._torch.arange(size * bins + 1, device=self._device)
        return self._torch.searchsorted(number, wanted).cpu().numpy()

    def owners(self, keys: Any, size: int) -> Any:
        return self._right(self.hashes(keys), 32) * size >> 32

    def joined(self, parts: list[Any]) -> Any:
        return self._torch.cat(parts)

    def take(self, rows: Any, at: Any) -> Any:
        return rows.index_select(0, at)

    def summed(self, rows: Any, order: Order, dtype: str) -> Any:
        torch, name = self._torch, dtype.removeprefix("u")  # sums wrap around
        typed = rows.reshape(-1).view(getattr(torch, name)).reshape(rows.shape[0], -1)
        shape = (order.kept.shape[0], typed.shape[1])
        totals = torch.zeros(shape, dtype=typed.dtype, device=self._device)
        totals.index_add_(0, order.group_of, typed[order.whole])
        sums = typed.clone()
        sums[order.kept] = totals
        return sums.view(rows.dtype)

    def put(self, rows: Any, at: Any, answers: Any) -> None:
        rows.index_copy_(0, at, answers)

    def put_found(self, rows: Any, at: Any, answers: Any, found: Any) -> None:
        there = found != 0
        if not bool(there.all()):
            answers = self._torch.where(there, answers, rows.index_select(0, at))
        rows.index_copy_(0, at, answers)

    def fill(self, rows: Any, value: int) -> None:
        rows.fill_(value)

    def counts(self, statuses: Any) -> list[int]:
        return self._torch.bincount(statuses[:, 0], minlength=10).tolist()  # type: ignore[no-any-return]


Rows = HostRows | DeviceRows


def _seen(buffer: Buffer, row_bytes: int) -> Any:
    """Returns the memory of a caller's array as rows: of NumPy, or a tensor on a GPU."""
    array = buffer.keep[0] if isinstance(buffer.keep, tuple) else buffer.keep
    count = buffer.nbytes // row_bytes
    each = word_bytes(row_bytes)
    if isinstance(array, np.ndarray):
        dtype = np.dtype(f"i{each}") if each > 1 else np.dtype(np.uint8)
        return array.reshape(-1).view(dtype).reshape(count, row_bytes // each)
    torch = sys.modules.get("torch")
    if torch is None or (not is_torch(array) and not hasattr(array, "__dlpack__")):
        raise Error(
            f"a sharded map takes arrays of NumPy and PyTorch, and not {type(array).__name__}: "
            "give torch.from_dlpack(array)"
        )
    tensor = (array if is_torch(array) else torch.from_dlpack(array)).reshape(-1)
    if tensor.data_ptr() % each:
        raise Error(f"a tensor does not begin at a multiple of {each} bytes: give a copy of it")
    dtype = {8: torch.int64, 4: torch.int32, 1: torch.uint8}[each]
    tensor = tensor.view(torch.uint8).view(dtype).reshape(count, row_bytes // each)
    return tensor if tensor.device.type == "cuda" else tensor.numpy()
