"""Checkpoints: groups of arrays, saved whole or not at all."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from . import _types
from ._backend import ext
from ._buffers import Buffer, buffer_of
from ._errors import checked_number, checked_text
from ._region import Region, checked_region
from ._streams import stream_number

# The handle that saves under a name of a region. There is one at a time: it knows which of a
# group's two copies is the older.
_live: weakref.WeakValueDictionary[tuple[ext.Region, str], ext.Checkpoint] = (
    weakref.WeakValueDictionary()
)


@dataclass(frozen=True)
class StoredBuffer:
    """A buffer of a group as the region holds it."""

    name: str
    type: str  # on the medium, such as "f32x4"
    dtype: str  # such as "float32"; the type where that is not Python's
    shape: tuple[int, ...]
    count: int  # elements of `type`
    nbytes: int


class PendingSave:
    """A save on its way. Thread safety: any number of threads."""

    def __init__(self, handle: ext.PendingSave) -> None:
        self._handle = handle

    def done(self) -> bool:
        """Whether the save is durable on the region's rung. Does not wait."""
        return self._handle.done()

    def wait(self) -> None:
        """Returns once the save is durable on the region's rung. Raises what stopped it."""
        self._handle.wait()


class Checkpoint:
    """Named groups of arrays in a region; each group is saved and restored as a whole.

    >>> checkpoint = holdfast.Checkpoint(region, "training")
    >>> checkpoint.add("model", "weights", weights)
    >>> step = checkpoint.restore("model") or 0
    >>> checkpoint.save("model", step + 1)

    After any crash restore() gives the last save that was durable, or the one that was under way,
    whole. What survives which crash is the region's matter: see Region.guarantee(). A save is
    there for the next process; region.commit() behind it takes it to the disk.

    Work that the GPU does for others is ordered before a save or a restore by waiting for it: for
    the whole device, or for the one stream that is given (a cudaStream_t as an int, a
    torch.cuda.Stream or a cupy.cuda.Stream). One GPU: the arrays lie on the one that the region's
    kernels run on.

    The arrays are kept alive by the checkpoint. Of one name there is one Checkpoint at a time: a
    new one closes the one before it.
    Thread safety: any number of threads; a group is used by one at a time.
    Source: GPM (ASPLOS '22), section 5.3.
    """

    def __init__(self, region: Region, name: str) -> None:
        checked_region(region, "a checkpoint")
        checked_text(name, "the name of a checkpoint")
        previous = _live.get((region._handle, name))
        if previous is not None:
            previous.close()
        self._handle = ext.make_checkpoint(region._handle, name)
        _live[region._handle, name] = self._handle
        # After the handle, which waits for saves under way when it goes.
        self._arrays: dict[str, dict[str, Buffer]] = {}
        self.region = region
        self.name = name

    @staticmethod
    def region_bytes(total_bytes: int, buffers: int) -> int:
        """Returns what one group of `buffers` arrays with that many bytes takes in its region.

        The region needs room for its own records, too: 1 MiB is plenty.
        """
        return ext.checkpoint_region_bytes(
            checked_number(total_bytes, "total_bytes"), checked_number(buffers, "buffers")
        )

    def add(self, group: str, name: str, array: Any) -> None:
        """Adds an array to a group that was neither saved nor restored yet.

        array: a NumPy array, a PyTorch tensor, or anything with __cuda_array_interface__ or
        __dlpack__; contiguous in C's order and writable, of at least one element. Its memory must
        stay where it is.
        Raises Error: an array that is not so, a name that is there or is no name (1 to 47 bytes).
        """
        checked_text(name, "the name of an array")
        self._add(checked_group(group), name, buffer_of(array, _called(group, name)))

    def _add(self, group: str, name: str, buffer: Buffer) -> None:
        kind = _types.to_buffer(buffer.dtype, buffer.itemsize, buffer.shape)
        self._add_as(group, name, kind, buffer)

    def _add_stored(self, group: str, stored: StoredBuffer, buffer: Buffer) -> None:
        """Adds memory of the host for a buffer that the region holds."""
        kind = (stored.type, stored.nbytes // stored.count, stored.count)
        self._add_as(group, stored.name, kind, buffer)

    def _add_as(self, group: str, name: str, kind: tuple[str, int, int], buffer: Buffer) -> None:
        type_name, element_bytes, count = kind
        self._handle.add(
            group, name, type_name, count, element_bytes, buffer.address, buffer.on_device
        )
        self._arrays.setdefault(group, {})[name] = buffer

    def save(self, group: str, tag: int = 0, *, stream: Any = None) -> None:
        """Saves all arrays of a group, with a number of the caller's (0 to 2**64 - 1).

        Durable on the region's rung when it returns.
        Raises Error: not_found (no array was added), no_space, and invalid_argument if the region
        holds this group with other arrays; the message names the difference.
        """
        _wait_for(stream)
        self._handle.save(checked_group(group), checked_number(tag, "the tag"))

    def save_async(self, group: str, tag: int = 0, *, stream: Any = None) -> PendingSave:
        """The same, but returns once the arrays are copied aside, in memory of the device.

        They may be changed at once. commit() and close() of the region wait for the save.
        Raises Error as save() does, and no_memory.
        """
        _wait_for(stream)
        return PendingSave(
            self._handle.save_async(checked_group(group), checked_number(tag, "the tag"))
        )

    def restore(self, group: str, *, stream: Any = None) -> int | None:
        """Loads the last save of a group into its arrays and returns its number.

        Nothing was saved: returns None, and the arrays are as they were.
        Raises Error as save() does, damaged if the save's checksum does not hold (the arrays are
        then undefined), and invalid_argument where NumPy's array was made read-only since add().
        """
        for name, buffer in self._arrays.get(checked_group(group), {}).items():
            buffer.check_writable(_called(group, name))
        _wait_for(stream)
        return self._handle.restore(group)

    def forget(self, group: str) -> None:
        """Lets go of a group's arrays; what the region holds of the group stays.

        So that others can be added for it, such as tensors that have moved.
        """
        self._handle.forget(checked_group(group))
        self._arrays.pop(group, None)

    def groups(self) -> list[str]:
        """Returns the groups that the region holds, whoever saved them."""
        return self._handle.stored_groups()

    def stored(self, group: str) -> list[StoredBuffer]:
        """Returns the arrays that the region holds of a group. Raises Error (not_found, damaged).

        A group is there from its first save or restore on.
        """
        found = []
        for buffer in self._handle.stored(checked_group(group)):
            dtype, shape = _types.from_buffer(buffer.type, buffer.count)
            found.append(
                StoredBuffer(buffer.name, buffer.type, dtype, shape, buffer.count, buffer.nbytes)
            )
        return found

    def __repr__(self) -> str:
        return f"<holdfast.Checkpoint '{self.name}' in {self.region.path}>"


def checked_group(name: str) -> str:
    """Returns what may be one's name. Raises Error."""
    return checked_text(name, "the name of a group")


def _called(group: str, name: str) -> str:
    return f"array '{name}' of group '{group}'"


def _wait_for(stream: Any) -> None:
    if ext.backend_name() != "cuda":
        return
    ext.synchronize(stream_number(stream) or 0)
