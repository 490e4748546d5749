"""holdfast history partner: memory of this node for the histories of others."""

from __future__ import annotations

import os
import re
import signal
from typing import Annotated

import typer

from .._errors import Error
from .._memory_server import MemoryServer
from . import common

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def _bytes_of(text: str) -> int:
    """Returns what "64G", "512 MiB" or "1000" stand for. Raises Error."""
    found = re.fullmatch(r"([0-9]{1,18})\s*(?:([KMGT])(?:iB|B)?|B)?", text.strip())
    if found is None:
        raise Error(f"memory is '{text}': give bytes, such as 64G, 512M or 1000000")
    return int(found[1]) << _UNITS[found[2] or ""]


@common.command
def partner(
    memory: Annotated[
        str, typer.Option(help="What it may take of memory, such as 64G; taken as it is needed.")
    ],
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="An address of this machine; port 0: a free one."),
    ] = "127.0.0.1:0",
    connections: Annotated[int, typer.Option(help="At a time; a history has up to 8.")] = 256,
    silence: Annotated[
        float, typer.Option(help="Seconds after which a silent connection is closed.")
    ] = 15.0,
    as_json: common.Json = False,
) -> None:
    """Keeps the checkpoints of histories on other nodes in this process's memory.

    They name it as their remote tier: remote="tcp://HOST:PORT/NAME". Runs until it gets SIGTERM or
    SIGINT (Ctrl-C); what it has kept ends with it. None is asked who connects, and nothing is
    encrypted: listen on a network of the job's own. Start one on each node, apart from the job:
    what the job's end takes along is no partner.
    """
    ends = {signal.SIGINT, signal.SIGTERM}
    # Before its threads are made, which then leave the signals to this one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        nbytes = _bytes_of(memory)
        with MemoryServer(nbytes, listen, connections=connections, silence=silence) as server:
            if as_json:
                common.emit({"ok": True, "address": server.address, "pid": os.getpid()})
            else:
                common.out.print(f"{server.address}/NAME", soft_wrap=True, markup=False)
            signal.sigwait(ends)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
