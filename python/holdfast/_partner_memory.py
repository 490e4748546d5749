"""Memory of this process's GPU for the checkpoints of another process."""

from __future__ import annotations

import atexit
import os
import weakref

from ._backend import ext
from ._closing import Closing
from ._errors import checked_number
from ._region import path_text

_live: weakref.WeakSet[ext.PartnerMemory] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes what is still open when the interpreter ends."""
    for handle in list(_live):
        handle.close()


def _leave_to_parent() -> None:
    """In a forked child: the parent's death or close() is to free its path."""
    for handle in list(_live):
        handle.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


class PartnerMemory(Closing):
    """Lends memory of the GPU that is current to a history of another process, until it is closed.

    >>> with holdfast.PartnerMemory("partner/rank3.gpu", 4 << 30):
    ...     wait_for_the_end_of_the_job()

    path: a file that says so, made here and gone with it; the other process gives its path as
    `partner_lender` of a holdfast.History, with as many bytes as `partner`. nbytes: of memory,
    taken now.

    No more than one history at a time uses it, of a process on the same host whose GPU reaches this
    one. What is kept ends with close(), or with the process. While a history has the memory open,
    close() takes back the path, and the memory is free when the process ends.

    Raises Error: invalid_argument, no_memory, unsupported (this GPU's memory cannot be shared),
    in_use (another lends at this path), foreign (something else stands there), not_found,
    permission, io.
    """

    def __init__(self, path: str | os.PathLike[str], nbytes: int) -> None:
        self._path = path_text(path)
        self._nbytes = checked_number(nbytes, "nbytes", 1)
        self._handle = ext.lend_memory(self._path, self._nbytes)
        _live.add(self._handle)

    @property
    def path(self) -> str:
        return self._path

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def close(self) -> None:
        """Ends it, and all that was kept. Closed already: nothing happens."""
        self._handle.close()

    def __repr__(self) -> str:
        return f"<holdfast.PartnerMemory of {self.nbytes} bytes at {self.path}>"
