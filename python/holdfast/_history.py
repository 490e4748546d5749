"""Histories: many checkpoints over several tiers, read back in any order."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from . import ranks as rank_groups
from ._backend import ext
from ._buffers import Buffer, buffer_of
from ._errors import Error, checked_number, checked_text
from ._objects import objects_of
from ._region import path_text
from ._snapshot import HistorySnapshot, parse
from ._streams import stream_number

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_live: weakref.WeakSet[ext.History] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes what is still open when the interpreter ends: what was saved reaches the disk."""
    for handle in list(_live):
        try:
            handle.close_at_exit()  # where it raises, it sees to the exit status
        except Error as error:
            print(f"holdfast: closing a history: {error}", file=sys.stderr)


def _leave_to_parent() -> None:
    """In a forked child: the parent's death or close() is to free its folders."""
    for handle in list(_live):
        handle.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


def _number(step: Any) -> int:
    return checked_number(step, "the step", most=2**64 - 2)


class Ticket:
    """One save on its way. Thread safety: any number of threads."""

    def __init__(self, handle: ext.HistoryTicket) -> None:
        self._handle = handle

    @property
    def step(self) -> int:
        return self._handle.step

    @property
    def staged(self) -> bool:
        """Whether the save has its copy, so that any stream may change the arrays."""
        return self._handle.staged()

    @property
    def durable(self) -> bool:
        """Whether it is whole on disk: it is found after a crash of the machine.

        False once it was discarded, by discard() or by a rule.
        """
        return self.is_in("disk")

    def is_in(self, tier: str) -> bool:
        """Whether it came to be whole in a tier: "gpu", "host", "partner", "disk" or "remote".

        Of "disk" and "remote": whether it is there now. False once it was discarded, by discard()
        or by a rule. Does not wait.
        """
        return self._handle.is_in(tier)

    def wait_staged(self) -> None:
        """Returns once the save has its copy. Raises what the copies met."""
        self._handle.wait_staged()

    def wait(self, tier: str = "disk") -> None:
        """Returns once the checkpoint is whole in a tier.

        Raises Error: what the transfer met; not_found (it was discarded, though it was there
        before, or the history has no such tier); no_space (nothing that goes on will bring it
        there); closed.
        """
        self._handle.wait(tier)

    def __repr__(self) -> str:
        return f"<holdfast.Ticket of step {self.step}>"


def _called(name: str) -> str:
    return f"array '{name}'"


class _Arrays:
    """The arrays of a history, kept alive as long as its calls may use them.

    One that is protected no longer goes once the calls that had begun before have ended.
    """

    def __init__(self) -> None:
        self.order = threading.Lock()  # over what is protected, here and in the library
        self._lock = threading.Lock()
        self._protected: dict[str, Buffer] = {}
        self._replaced: list[tuple[int, Buffer]] = []  # with the number of the last call before
        self._calls: set[int] = set()
        self._number = 0

    def replace(self, name: str, buffer: Buffer | None) -> None:
        """Sets or, with None, removes an array. `order` is held."""
        with self._lock:
            old = self._protected.pop(name, None)
            if buffer is not None:
                self._protected[name] = buffer
            if old is not None:
                self._replaced.append((self._number, old))
            gone = self._take_unused()
        _let_go(gone)

    def check_writable(self) -> None:
        with self._lock:
            protected = list(self._protected.items())
        for name, buffer in protected:
            buffer.check_writable(_called(name))

    def clear(self) -> None:
        """Of a history that is closed: no call uses them."""
        with self._lock:
            self._protected.clear()
            self._replaced.clear()

    def begin(self) -> int:
        with self._lock:
            self._number += 1
            self._calls.add(self._number)
            return self._number

    def end(self, number: int) -> None:
        with self._lock:
            self._calls.discard(number)
            gone = self._take_unused()
        _let_go(gone)

    def _take_unused(self) -> list[Buffer]:
        oldest = min(self._calls, default=self._number + 1)
        gone = [buffer for last, buffer in self._replaced if last < oldest]
        if gone:
            self._replaced = [entry for entry in self._replaced if entry[0] >= oldest]
        return gone


def _let_go(buffers: list[Buffer]) -> None:
    """Waits for copies, queued on streams, of arrays that nobody may keep alive any more."""
    if any(buffer.on_device for buffer in buffers):
        ext.synchronize(0)


class History:
    """Checkpoints in quick succession, kept in GPU memory, pinned memory and a folder on disk.

    >>> with holdfast.History(host=1 << 28, disk="run") as history:
    ...     history.protect("field", field)
    ...     for step in range(100):
    ...         history.save(step)
    ...         advance(field)
    ...     history.hint(reversed(range(100)))
    ...     history.prefetch_start()
    ...     for step in reversed(range(100)):
    ...         history.restore(step)

    gpu, host: bytes of a cache in memory of the device, and of one in pinned memory; 0: none.
    host_region: the path of a region of its own for the host's cache, which then survives a killed
    process; None: plain memory.
    partner, partner_region: the same, of a cache behind the host's, in a folder of a partner's: who
    has lost the process, the host's cache and the disk finds there what was whole. partner_owner:
    whose copies they are, such as "rank 3 of 8"; a region of another's is refused. partner_lender:
    the path of a holdfast.PartnerMemory: the copies are then in the GPU of the process that lends
    it, and partner_region says what is there.
    disk: a folder, which is made if it is not there; None: nothing is durable. disk_bytes: what
    checkpoints may take there; 0: what the file system has. remote, remote_bytes: the same for what
    outlives the machine, to which checkpoints go on from the disk: a folder; memory of another node
    (tcp://host:port/name, of a holdfast.MemoryServer or `holdfast history partner` there); or an
    object store, as a URL (s3://bucket/prefix, file:///folder, memory://, ...; remote_options: what
    its store wants, such as region or endpoint, by the names of obstore.store.from_url) or as one
    of obstore's stores, whose prefix is the history's own. Object stores want `pip install
    holdfast[object]`. At least one tier is needed.
    discard_consumed: a checkpoint that was restored, and not kept, goes.
    keep_last, keep_every: the last `keep_last` by step stay, of those that the slowest tier has
    (disk or remote), and those that `keep_every` divides. None for both: all stay.
    on_error: what a save() does about the failure of an earlier one behind its back: "raise" it
    once, and save nothing; or "warn" on standard error, and go on.
    status: the path of a socket at which `holdfast history show` sees the history; None:
    `history.socket` in the disk's folder.
    trace: a file that close() writes of what happened and when, for `holdfast history timeline` and
    for Perfetto; trace_events: how many events it has at most (the last ones), in 80 bytes of
    memory each. None: nothing is noted. A process that is killed leaves no trace.

    ranks: the other processes that save with this one: a torch.distributed.ProcessGroup, an
    mpi4py.MPI.Comm, a group of holdfast.ranks, or what has its interface. Each rank has a folder of
    its own below `disk` and `remote`. coupling: "tight", parts of one whole: a checkpoint is
    complete when every rank has its part, and what one of them lacks when they open it none is
    offered; or "independent", each has its own. Making a History, agree(), latest_of_all() and
    wait_for_all() are then collective: all ranks call them, in the same order; ranks_timeout: the
    seconds for which they wait for the others. node_host, node_disk_bytes: in place of host and
    disk_bytes what all ranks of a machine have together, of which each gets its part by weight.

    A checkpoint is what all protected arrays held at one save, and never changes. Restoring
    *consumes* it unless `keep` is given at the save or the restore: the caches then evict it first;
    the disk has it until it is discarded. Hints may be wrong, missing, repeated or late: that costs
    time and nothing else.

    Order of work: without a stream save() and restore() wait for all work of the GPU, and are done
    when they return. With one (a cudaStream_t as an int, a torch.cuda.Stream or a cupy.cuda.Stream)
    they take their place in it and do not wait for it: save() returns once copies are queued, and
    work that is queued on that stream later may change the arrays. On the CPU backend, and for
    arrays in memory of the host, both are done when they return.

    close(), the end of a `with` block and the interpreter's end wait until everything saved is on
    disk. One process at a time has a folder open; a child that it forks cannot use the history.
    The GPU: one, the current one when the history was made.

    Raises Error: invalid_argument, no_memory, and for the folder in_use, foreign, damaged,
    newer_version, permission, io; with ranks rank_lost, and what another rank met. Every function
    raises Error (closed) once it is closed.
    Thread safety: any number of threads, but each stream by one at a time.
    Source: Score (HPDC '23).
    """

    def __init__(
        self,
        *,
        gpu: int = 0,
        host: int = 0,
        host_region: str | os.PathLike[str] | None = None,
        partner: int = 0,
        partner_region: str | os.PathLike[str] | None = None,
        partner_owner: str = "",
        partner_lender: str | os.PathLike[str] | None = None,
        disk: str | os.PathLike[str] | None = None,
        disk_bytes: int = 0,
        remote: str | os.PathLike[str] | ObjectStore | None = None,
        remote_options: Mapping[str, Any] | None = None,
        remote_bytes: int = 0,
        discard_consumed: bool = False,
        keep_last: int | None = None,
        keep_every: int | None = None,
        on_error: str = "raise",
        status: str | os.PathLike[str] | None = None,
        trace: str | os.PathLike[str] | None = None,
        trace_events: int = 1 << 18,
        ranks: Any = None,
        coupling: str = "tight",
        ranks_timeout: float = 60.0,
        node_host: int = 0,
        node_disk_bytes: int = 0,
        weight: int = 1,
    ) -> None:
        store = objects_of(remote, remote_options, make=True)
        folder: Any = remote if store is None else None
        for name, path in (
            ("host_region", host_region),
            ("partner_region", partner_region),
            ("partner_lender", partner_lender),
            ("disk", disk),
            ("remote", folder),
            ("status", status),
            ("trace", trace),
        ):
            if path is not None and not os.fspath(path):
                raise Error(f"{name} is an empty path: name one, or leave it out")
        self._handle = ext.open_history(
            checked_number(gpu, "gpu"),
            checked_number(host, "host"),
            path_text(host_region) if host_region is not None else "",
            checked_number(partner, "partner"),
            path_text(partner_region) if partner_region is not None else "",
            partner_owner,
            path_text(partner_lender) if partner_lender is not None else "",
            path_text(disk) if disk is not None else "",
            checked_number(disk_bytes, "disk_bytes"),
            path_text(folder) if folder is not None else "",
            store,
            checked_number(remote_bytes, "remote_bytes"),
            discard_consumed,
            checked_number(keep_last, "keep_last", 1) if keep_last is not None else 0,
            checked_number(keep_every, "keep_every", 1) if keep_every is not None else 0,
            on_error,
            path_text(status) if status is not None else "",
            path_text(trace) if trace is not None else "",
            checked_number(trace_events, "trace_events", 1),
            rank_groups.of(ranks) if ranks is not None else None,
            coupling,
            ranks_timeout,
            checked_number(node_host, "node_host"),
            checked_number(node_disk_bytes, "node_disk_bytes"),
            checked_number(weight, "weight", 1),
        )
        _live.add(self._handle)
        self._drops_by_rule = keep_last is not None or keep_every is not None
        # After the handle, which waits for copies under way when it goes.
        self._arrays = _Arrays()

    def protect(self, name: str, array: Any) -> None:
        """Names an array that every later save holds, in place of one of the same name.

        array: a NumPy array, a PyTorch tensor, or anything with __cuda_array_interface__ or
        __dlpack__, of any shape; contiguous in C's order and writable, of at least one element. The
        history keeps it alive; its memory must stay where it is. A checkpoint knows names and bytes
        of its arrays, not their shapes and types.
        Raises Error: an array that is not so, a name that is empty, longer than 111 bytes or has a
        zero byte.
        """
        buffer = buffer_of(array, _called(checked_text(name, "the name of an array")))
        # Copies of other memory are done when a call returns: no stream orders NumPy's stores.
        on_device = buffer.on_device and ext.backend_name() == "cuda"
        with self._arrays.order:
            self._handle.protect(name, buffer.address, buffer.nbytes, on_device)
            self._arrays.replace(name, buffer)

    def unprotect(self, name: str) -> None:
        """Later saves leave the array out. No such array: nothing happens."""
        checked_text(name, "the name of an array")
        with self._arrays.order:
            self._handle.unprotect(name)
            self._arrays.replace(name, None)

    def save(self, step: SupportsIndex, stream: Any = None, *, keep: bool = False) -> Ticket:
        """Saves the protected arrays under a number (0 to 2**64 - 2) and returns a ticket.

        Waits for room where the first tier has none.
        Raises Error: already_exists (discard() it first); no_space if no tier can take it, whose
        message says why; what an earlier save met on its way to a slower tier (on_error="raise":
        this save was not made, call it again); what the copies met.
        """
        call = self._arrays.begin()
        try:
            return Ticket(self._handle.save(_number(step), self._stream(stream), keep))
        finally:
            self._arrays.end(call)

    def restore(self, step: SupportsIndex, stream: Any = None, *, keep: bool = False) -> None:
        """Puts a checkpoint into the protected arrays.

        Raises Error: not_found; invalid_argument if the checkpoint has other arrays or sizes, or
        NumPy's array was made read-only since protect(), which it names (nothing is changed then);
        damaged if no tier has it whole (the arrays are then undefined).
        """
        call = self._arrays.begin()
        try:
            self._arrays.check_writable()
            self._handle.restore(_number(step), self._stream(stream), keep)
        finally:
            self._arrays.end(call)

    @staticmethod
    def _stream(stream: Any) -> int | None:
        return stream_number(stream) if ext.backend_name() == "cuda" else None

    def hint(self, *steps: SupportsIndex | Iterable[SupportsIndex]) -> None:
        """Says which steps will be restored next, in this order, behind those of earlier calls.

        Numbers, and anything that can be iterated: hint(3, 2), hint(reversed(range(100))). They
        need not be saved yet.
        """
        flat: list[int] = []
        for item in steps:
            # An array of no dimension is a number, though its type can be iterated.
            several = isinstance(item, Iterable) and not isinstance(item, str | bytes)
            several = several and getattr(item, "ndim", 1) != 0
            flat.extend(map(_number, cast(Iterable[Any], item) if several else (item,)))
        self._handle.hint(flat)

    def prefetch_start(self) -> None:
        """From now on hinted checkpoints are fetched ahead.

        Not before, so that prefetches do not stand in the way of what is being saved.
        """
        self._handle.prefetch_start()

    def size(self, step: SupportsIndex, name: str) -> int:
        """Returns the bytes of one array in a checkpoint. Raises Error (not_found)."""
        return self._handle.size(_number(step), name)

    def discard(self, step: SupportsIndex) -> bool:
        """Removes a checkpoint from every tier. Returns False if there is no such one."""
        return self._handle.discard(_number(step))

    def steps(self) -> list[int]:
        """Returns the steps that can be restored, ascending."""
        return self._handle.steps()

    def latest(self, tier: str = "disk") -> int | None:
        """Returns the checkpoint that was saved last, of those that a tier has; None: it has none.

        Of the disk: the one to go on from.
        """
        return self._handle.latest(tier)

    def agree(self, tier: str = "disk") -> list[int]:
        """Returns the steps that every rank has whole in this tier or a slower one, ascending.

        Retention (keep_last, keep_every) goes by that. Collective; without ranks, or with
        independent ones, of this process. Raises Error (rank_lost): save and restore go on then,
        and what is collective does not.
        """
        return self._handle.agree(tier)

    def latest_of_all(self, tier: str = "disk") -> int | None:
        """Returns the one of agree()'s steps that rank 0 saved last: the one to go on from."""
        return self._handle.latest_of_all(tier)

    def wait_for_all(self, ticket: Ticket, tier: str = "disk") -> None:
        """Returns once every rank has its part of a checkpoint whole in a tier. Collective.

        ticket: of this rank's save of it. Raises Error on all ranks if one cannot have it, or not
        within ranks_timeout.
        """
        if not isinstance(ticket, Ticket):
            raise Error(f"the ticket is {ticket!r}: give what save() has returned")
        self._handle.wait_for_all(ticket._handle, tier)

    def flush(self) -> None:
        """Waits until everything saved is on disk, or cannot be. Raises Error: what stopped it."""
        self._handle.flush()

    def verify(self, step: SupportsIndex) -> None:
        """Reads what the disk has of a checkpoint. Raises Error (damaged, not_found)."""
        self._handle.verify(_number(step))

    def stats(self) -> ext.HistoryStats:
        """Returns counts, bytes and seconds since the history was opened."""
        return self._handle.stats()

    def snapshot(self) -> HistorySnapshot:
        """Returns what is in which tier and state now, what is under way, and who waits.

        No file is looked at.
        """
        return parse(self._handle.snapshot())

    def close(self) -> None:
        """Waits as flush() does and gives the caches back. Closed already: nothing happens.

        Raises Error: what stopped a transfer; everything is closed nevertheless.
        """
        self._handle.close()
        self._arrays.clear()

    @property
    def drops_by_rule(self) -> bool:
        """Whether keep_last or keep_every was given."""
        return self._drops_by_rule

    @property
    def closed(self) -> bool:
        return not self._handle.is_open

    def __enter__(self) -> History:
        if self.closed:
            raise Error("this history is closed: open it again", "closed")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = f" in {self._handle.disk}" if self._handle.disk else ""
        return f"<holdfast.History{where}{', closed' if self.closed else ''}>"
