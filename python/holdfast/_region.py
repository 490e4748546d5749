"""Regions: named arrays that survive a crash."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _types
from ._backend import ext
from ._errors import Error, checked_number, extents_of

Path = str | os.PathLike[str]
Array = npt.NDArray[Any]
Shape = SupportsIndex | tuple[SupportsIndex, ...]

_live: weakref.WeakSet[ext.Region] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes what is still open when the interpreter ends; after an error, as a crash would."""
    failed = getattr(sys, "last_value", None) is not None
    for handle in list(_live):
        try:
            handle.close_at_exit(failed)  # where it raises, it sees to the exit status
        except Error as error:
            print(f"holdfast: closing {handle.path}: {error}", file=sys.stderr)


def _leave_to_parent() -> None:
    """In a forked child: the parent's death or close() is to free its regions' files."""
    for handle in list(_live):
        handle.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


class DeviceArray:
    """An object of a region as memory of the GPU, with no copy.

    CuPy, PyTorch, Numba and others take it through DLPack or __cuda_array_interface__:
    `torch.from_dlpack(region.on_device("weights"))`. Each may take it any number of times; close()
    of the region refuses while one of them still has it. Commits wait for all work of the GPU
    once an object was handed out.
    """

    def __init__(self, handle: ext.Region, name: str) -> None:
        info = handle.info(name)
        self.name = name
        self._handle = handle
        self.shape, self.dtype = _types.from_medium(info.type, info.element_bytes, info.count)
        self._host = _as_array(handle, name)
        self._view = handle.on_device(
            name, list(self.shape), self.dtype.kind, 8 * self.dtype.itemsize
        )

    def numpy(self) -> Array:
        """Returns the same memory as a NumPy array. Raises Error where the host cannot read it."""
        _check_host_can_read(self._handle, self.name)
        return self._host

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._view.address, self._handle.read_only),
            "version": 3,
            "strides": None,
            "stream": None,
        }

    def __dlpack__(
        self,
        stream: int | None = None,
        *,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns a new capsule, by the array API's standard.

        stream: the consumer's, as CUDA's protocol numbers them. What calls on the region queued is
        waited for on the host, and so is ordered before any stream; -1 leaves that out.
        Raises BufferError: another device, a copy, the stream 0, which the standard rules out, or a
        region that is open for reading where the consumer knows no read-only arrays (versions of
        DLPack before 1.0).
        """
        if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int)):
            raise TypeError(f"stream is a {type(stream).__name__}: give a number or None")
        if stream == 0 or (stream is not None and stream < -1):
            raise BufferError(
                f"stream {stream} is none of DLPack's: use 1 (legacy default), 2 (per-thread "
                "default), the number of a stream, None, or -1 to wait for nothing"
            )
        if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
            raise BufferError(
                f"'{self.name}' is on DLPack's device {self.__dlpack_device__()}, not "
                f"{tuple(dl_device)}: numpy() gives it to the host"
            )
        if copy:
            raise BufferError(f"'{self.name}' is handed out with no copy: copy what you get")
        versioned = max_version is not None and max_version[0] >= 1
        if self._handle.read_only and not versioned:
            raise BufferError(
                f"region {self._handle.path} is open for reading, and the consumer asks for memory "
                f"that it may write (DLPack before 1.0): give it a copy of numpy() of '{self.name}'"
            )
        if stream != -1 and self._handle.is_open:
            self._handle.settle()
        return self._view.capsule(versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._view.device


def _check_host_can_read(handle: ext.Region, name: str) -> None:
    if handle.domain == "device" and ext.backend_name() == "cuda":
        raise Error(
            f"'{name}' is in the memory of the GPU, which the host cannot read: use "
            "on_device(name) or allocate_on_device(...)",
            "unsupported",
        )


def _as_array(handle: ext.Region, name: str) -> Array:
    info = handle.info(name)
    shape, dtype = _types.from_medium(info.type, info.element_bytes, info.count)
    return handle.bytes(name).view(dtype).reshape(shape)


class Region:
    """A file-backed range of memory with named arrays inside it.

    Made by create() and open(). As a context manager it closes at the block's end: what changed
    is committed to the file. If the block raises, nothing is committed and the region is left as
    a crash would leave it; the next open() finds everything that was written.

    Arrays are NumPy arrays on the region's own memory. They stay readable after a `with` block;
    the file's lock goes when the last one is gone. close() refuses while there are any.

    One that was opened with read_only=True is a copy in private memory: its arrays are read-only,
    it commits nothing at its end, and allocate(), remove(), grow() and commit() raise Error
    (unsupported).
    """

    def __init__(self, handle: ext.Region) -> None:
        self._handle = handle
        _live.add(handle)

    # Objects.

    def allocate(
        self,
        name: str,
        shape: Shape,
        dtype: npt.DTypeLike = np.float32,
        tracking: str = "hashed",
    ) -> Array:
        """Makes an array of zeros and returns it.

        tracking="hashed": commit() finds changed pages by itself. "marked": call mark() for what
        you write, and commit() looks there alone. "none": commits, close() and backups leave the
        array out; it survives a kill, and is zeros once the region was closed or power was lost.
        """
        _check_host_can_read(self._handle, name)
        self._allocate(name, shape, dtype, tracking)
        return self.find(name)

    def allocate_on_device(
        self,
        name: str,
        shape: Shape,
        dtype: npt.DTypeLike = np.float32,
        tracking: str = "hashed",
    ) -> DeviceArray:
        """Makes an array of zeros for frameworks on the GPU (CUDA backend only)."""
        if ext.backend_name() != "cuda":
            raise Error("the CPU backend has no GPU: use allocate()", "unsupported")
        self._allocate(name, shape, dtype, tracking)
        return self.on_device(name)

    def _allocate(self, name: str, shape: Shape, dtype: npt.DTypeLike, tracking: str) -> None:
        extents = extents_of(shape, "the shape")
        type_name, element_bytes, count = _types.to_medium(extents, dtype)
        self._handle.allocate(name, type_name, element_bytes, count, tracking)

    def find(self, name: str) -> Array:
        """Returns the array called `name`, with no copy. Raises Error (not_found)."""
        _check_host_can_read(self._handle, name)
        return _as_array(self._handle, name)

    def on_device(self, name: str) -> DeviceArray:
        """Returns the array called `name` for frameworks on the GPU (CUDA backend only)."""
        if ext.backend_name() != "cuda":
            raise Error(
                "device views need the CUDA backend; NumPy arrays work on the CPU backend",
                "unsupported",
            )
        return DeviceArray(self._handle, name)

    def remove(self, name: str) -> None:
        """Removes an object. Raises BufferError while an array of it is in use."""
        self._handle.remove(name)

    def objects(self) -> list[ext.ObjectInfo]:
        """Returns the objects by offset."""
        return self._handle.objects()

    def mark(self, array: Array) -> None:
        """Says that `array`, or a slice of one of this region's arrays, was written."""
        if not isinstance(array, np.ndarray):
            raise Error(f"mark() was given {array!r}: give an array of this region")
        if array.size == 0:
            return
        reach = [
            stride * (extent - 1) for stride, extent in zip(array.strides, array.shape, strict=True)
        ]
        lowest = array.ctypes.data + sum(step for step in reach if step < 0)
        past = array.ctypes.data + sum(step for step in reach if step > 0) + array.itemsize
        self._handle.mark(lowest, past - lowest)

    def __getitem__(self, name: str) -> Array:
        return self.find(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._handle.contains(name)

    def __iter__(self) -> Iterator[str]:
        return iter([info.name for info in self.objects()])

    def __len__(self) -> int:
        return len(self.objects())

    # Durability.

    def commit(self) -> ext.CommitStats:
        """Makes everything durable on disk, atomically, and waits.

        Raises Error: what stopped it; or what stopped an earlier commit_async() that no one waited
        for, in which case this commit was not made.
        """
        return self._handle.commit()

    def commit_async(self) -> ext.Commit:
        """Starts a commit of all stores so far, and returns once they are copied aside.

        What is stored behind the call belongs to a later commit. wait() of the result returns once
        the commit is durable, or raises what stopped it. Where no one waits, that is raised by the
        next commit(), commit_async(), close() or end of a `with` block; if none follows, it is
        printed when the interpreter ends, and the exit status is then 1.
        Raises Error: as commit() does.
        """
        return self._handle.commit_async()

    def guarantee(self) -> ext.Guarantee:
        """Returns what a crash may take away, after a persist and after a commit, and why."""
        return self._handle.guarantee()

    # Life.

    def grow(self, new_size: int) -> None:
        """Enlarges the region; arrays stay valid. Raises Error past `max_size`."""
        self._handle.grow(checked_number(new_size, "new_size"))

    def close(self) -> None:
        """Commits what changed and closes. Raises BufferError while arrays are in use.

        Raises Error: what stopped the commit (the region is then still open); or, once it is
        closed, what stopped an earlier commit_async() that no one waited for.
        """
        self._handle.close()

    def abandon(self) -> None:
        """Lets go as a crash would: nothing is committed."""
        self._handle.detach(True)

    def __enter__(self) -> Region:
        if self.closed:
            raise Error(f"region {self.path} is closed: open it again", "closed")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.detach(kind is not None)

    @property
    def closed(self) -> bool:
        return not self._handle.is_open

    @property
    def path(self) -> str:
        return self._handle.path

    @property
    def uuid(self) -> str:
        return self._handle.uuid

    @property
    def domain(self) -> str:
        return self._handle.domain

    @property
    def read_only(self) -> bool:
        """Opened for reading."""
        return self._handle.read_only

    @property
    def size(self) -> int:
        """Bytes."""
        return self._handle.size

    @property
    def max_size(self) -> int:
        """Bytes that grow() can reach."""
        return self._handle.max_size

    @property
    def used(self) -> int:
        """Bytes taken by objects and by the region's own records."""
        return self._handle.used

    @property
    def generation(self) -> int:
        """Commits so far."""
        return self._handle.generation

    @property
    def open_report(self) -> ext.OpenReport:
        """What opening cost, part by part."""
        return self._handle.open_report

    def __repr__(self) -> str:
        if self.closed:
            return f"<holdfast.Region {self.path}, closed>"
        reading = ", read-only" if self.read_only else ""
        return f"<holdfast.Region {self.path}: {self.domain}, {self.size} bytes{reading}>"


def checked_region(region: Any, of: str) -> Region:
    """Returns `region`, that of `of`, if it is one."""
    if not isinstance(region, Region):
        raise Error(f"the region of {of} is {region!r}: give one of create() or open()")
    return region


def folder_text(folder: Path | None) -> str:
    """Returns the folder of an arena as the library takes it; None: the usual one. Raises Error."""
    return "" if folder is None else path_text(folder)


def path_text(path: str | os.PathLike[str]) -> str:
    """Returns a path as the library takes it. Raises Error invalid_argument: not UTF-8."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise Error(f"the path is {path!r}: give a string, or a pathlib.Path") from None
    if not isinstance(text, str):
        raise Error(f"the path {text!r} is bytes: give a string (os.fsdecode())")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Error(f"the path {os.fsencode(text)!r} is not UTF-8: rename it") from None
    if "\0" in text:
        raise Error(f"the path {text!r} has a zero byte, which no file's name has")
    return text


def create(
    path: Path,
    size: int,
    *,
    domain: str = "file",
    max_size: int = 0,
    arena_folder: Path | None = None,
) -> Region:
    """Makes a new region of `size` bytes.

    domain: "file" (the default: shared memory, committed to the file `path`), "dax" (`path` is
    the device), "device" (memory of the GPU; nothing survives) or "emulated" (for tests:
    nothing survives).
    arena_folder: where the shared memory of the file domain lies; by default
    $HOLDFAST_ARENA_DIR, or /dev/shm.
    """
    return create_on("dram", path, size, domain, max_size, arena_folder)


def create_on(
    medium: str, path: Path, size: int, domain: str, max_size: int, arena_folder: Path | None
) -> Region:
    """As create(), of memory that stands for a medium."""
    handle = ext.create(
        path_text(path),
        checked_number(size, "size"),
        domain,
        checked_number(max_size, "max_size"),
        folder_text(arena_folder),
        medium,
    )
    return Region(handle)


def open(
    path: Path,
    *,
    arena_folder: Path | None = None,
    max_size: int = 0,
    read_only: bool = False,
    last_commit: bool = False,
) -> Region:
    """Opens an existing region for reading and writing.

    read_only: changes nothing of the region and shuts no one out. Beside a process that has it open
    this is the last commit; after a crash it is everything that was written, and a writer has to
    wait until this region is closed. `path` may also be of an older version of the format, or an
    arena whose file is lost.
    last_commit: gives up what a crash has left in shared memory, or should have, and begins with
    the last commit. For writing, an arena that is there is renamed (open_report.arena_set_aside).
    Raises Error: not_found, in_use (another process has it), conflict (what a crash left in shared
    memory is gone, elsewhere, or not of this file; the message says what to do), damaged, foreign,
    newer_version, unsupported (an older version, of which holdfast.backup() makes a new one; or
    locks that do nothing), permission, no_shared_memory, io.
    """
    with _naming_arrays(path):
        handle = ext.open(
            path_text(path),
            folder_text(arena_folder),
            checked_number(max_size, "max_size"),
            read_only,
            last_commit,
        )
    return Region(handle)


def open_or_create(
    path: Path,
    size: int,
    *,
    domain: str = "file",
    max_size: int = 0,
    arena_folder: Path | None = None,
) -> Region:
    """Opens the region at `path`, whatever its size, or makes it where nothing is.

    Of processes that do so at once one makes it; the others open it when that has closed it, and
    get in_use until then. The parameters are those of create(); max_size is for making it. What is
    there and is no whole region is refused as open() does, and a region of another domain, too.
    """
    with _naming_arrays(path):
        handle = ext.open_or_create(
            path_text(path),
            checked_number(size, "size"),
            domain,
            checked_number(max_size, "max_size"),
            folder_text(arena_folder),
        )
    return Region(handle)


@contextmanager
def _naming_arrays(path: Path) -> Iterator[None]:
    """Has an Error in_use name the arrays by which this process still has the region."""
    try:
        yield
    except Error as error:
        left = _arrays_left(path) if error.code == "in_use" else ""
        if not left:
            raise
        message = f"{error}: arrays of it are still in use: {left}. Delete them (del array)"
        raise Error(message, error.code) from None


def _arrays_left(path: Path) -> str:
    """Names the arrays by which this process still has a region that it closed."""
    names: set[str] = set()
    for handle in list(_live):
        if not handle.is_open and os.path.realpath(handle.path) == os.path.realpath(path):
            names.update(handle.exported())
    return ", ".join(f"'{name}'" for name in sorted(names))


def backup(
    source: Path, target: Path, *, arena_folder: Path | None = None, last_commit: bool = False
) -> ext.BackupReport:
    """Writes a consistent copy of a region to the new file `target`, durably.

    The copy has a uuid of its own: both may be open at once. Beside a process that has `source`
    open it is a copy of the last commit; after a crash, of everything that was written, unless
    last_commit is given. `source` may be of an older version of the format, or an arena whose file
    is lost; it is not changed. Takes as much memory as the region has bytes.
    Raises Error as open() for `source` and as create() for `target`, which then does not exist.
    """
    return ext.backup(path_text(source), path_text(target), folder_text(arena_folder), last_commit)


def destroy(path: Path, *, arena_folder: Path | None = None) -> None:
    """Removes a region's files."""
    ext.destroy(path_text(path), folder_text(arena_folder))
