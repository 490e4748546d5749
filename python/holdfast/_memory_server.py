"""Memory of this process for the histories of other nodes."""

from __future__ import annotations

from ._backend import ext
from ._closing import Closing
from ._errors import checked_number


class MemoryServer(Closing):
    """Keeps the checkpoints of other processes in this one's memory, until it is closed.

    >>> with holdfast.MemoryServer(1 << 30) as partner:
    ...     history = holdfast.History(disk="run", remote=f"{partner.address}/rank3")

    nbytes: of memory for all that is kept, taken as it is needed. listen: HOST:PORT, an address of
    this machine; port 0: one that is free. connections: at a time; a history has up to 8. silence:
    seconds; a connection that says nothing for so long is closed, and what it had claimed is free.

    None is asked who connects, and nothing is encrypted: listen on a network of the job's own. What
    is kept ends with the process, so a partner is best one that the job does not end with:
    `holdfast history partner`.

    Raises Error: invalid_argument, in_use (of the port), permission, io.
    Thread safety: any number of threads. It serves on threads of its own.
    """

    def __init__(
        self,
        nbytes: int,
        listen: str = "127.0.0.1:0",
        *,
        connections: int = 256,
        silence: float = 15.0,
    ) -> None:
        self._handle = ext.serve_memory(
            checked_number(nbytes, "nbytes", 1),
            listen,
            checked_number(connections, "connections", 1, 65_536),
            silence,
        )

    @property
    def address(self) -> str:
        """Such as "tcp://127.0.0.1:41234". A history puts "/NAME" behind it."""
        return self._handle.address

    @property
    def used_bytes(self) -> int:
        """By what is kept, and by what is on its way. Raises Error (closed)."""
        return self._handle.used_bytes

    @property
    def names(self) -> int:
        """Names under which something is kept. Raises Error (closed)."""
        return self._handle.names

    def close(self) -> None:
        """Ends it, and all that it has kept. Closed already: nothing happens."""
        self._handle.close()

    def __repr__(self) -> str:
        return f"<holdfast.MemoryServer at {self.address}>"
