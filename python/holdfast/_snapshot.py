"""What a history holds and does at one moment, of this process or of another one."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from ._errors import Error

SOCKET_NAME = "history.socket"
_FORMAT = "holdfast_history_status"
_PATIENCE = 10.0  # seconds, with a process that does not answer


@dataclass(frozen=True)
class SnapshotTier:
    """A tier of a history: bytes, those of checkpoints on their way included."""

    name: str
    capacity: int  # 0: no limit
    used: int
    checkpoints: int
    path: str  # of a folder or a region; empty: none


@dataclass(frozen=True)
class SnapshotCheckpoint:
    """A checkpoint, and its state in each tier that has it or is to have it."""

    step: int
    nbytes: int
    saved_unix_ns: int
    discarded: bool  # it goes once the transfers that use it have ended
    states: dict[str, str]  # by tier, from the fastest; the states of docs/history.md


@dataclass(frozen=True)
class SnapshotTransfer:
    """A transfer under way. source, target: "program" or a tier."""

    kind: str  # save, flush, fetch or restore
    step: int
    source: str
    target: str
    nbytes: int
    moved: int  # bytes that storage has written or read so far
    seconds: float


@dataclass(frozen=True)
class SnapshotCaller:
    """A call under way."""

    call: str  # save, restore, flush or wait
    step: int  # 0 of flush
    waits_for: str  # in words; empty: it copies
    seconds: float


@dataclass(frozen=True)
class HistorySnapshot:
    """What is where, and what goes on."""

    pid: int
    unix_ns: int  # when this was
    phase: str  # "open", "closing", "closed", or what broke the history
    tiers: list[SnapshotTier]
    checkpoints: list[SnapshotCheckpoint]  # ascending
    hints: list[int]  # what is still ahead, in order
    prefetching: bool
    transfers: list[SnapshotTransfer]
    callers: list[SnapshotCaller]
    traced: int  # events of its trace
    trace_dropped: int


def parse(text: str) -> HistorySnapshot:
    """Raises Error (damaged): the text is no snapshot."""
    try:
        found = json.loads(text)
        if found[_FORMAT] != 1:
            raise Error(f"a snapshot of format {found[_FORMAT]}: this is 1", "newer_version")
        return HistorySnapshot(
            pid=int(found["pid"]),
            unix_ns=int(found["unix_ns"]),
            phase=str(found["phase"]),
            tiers=[SnapshotTier(name=one.pop("tier"), **one) for one in found["tiers"]],
            checkpoints=[SnapshotCheckpoint(**one) for one in found["checkpoints"]],
            hints=[int(step) for step in found["hints"]],
            prefetching=bool(found["prefetching"]),
            transfers=[
                SnapshotTransfer(seconds=one.pop("us") / 1e6, **one) for one in found["transfers"]
            ],
            callers=[
                SnapshotCaller(seconds=one.pop("us") / 1e6, **one) for one in found["callers"]
            ],
            traced=int(found["traced"]),
            trace_dropped=int(found["trace_dropped"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Error(f"what answered is no snapshot of a history: {error!r}", "damaged") from None


def socket_of(path: Path) -> Path | None:
    """Returns the socket that a path means: itself, or that in the folder; None: there is none."""
    for candidate in (path, path / SOCKET_NAME):
        try:
            if stat.S_ISSOCK(candidate.stat().st_mode):
                return candidate
        except OSError:
            continue
    return None


def _connected(path: Path) -> socket.socket | None:
    """Returns None if nobody listens any more."""
    # An address has room for 107 bytes: the folder goes in by its descriptor.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_PATIENCE)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        except (ConnectionRefusedError, FileNotFoundError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        return connection
    finally:
        os.close(folder)


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or is a zombie."""
    if pid == 0:  # of another namespace of process numbers
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    return bool(fields) and fields[0] in "ZX"


class _EndedError(Exception):
    """A child that a process has forked keeps its socket, and does not answer."""


def _text_from(connection: socket.socket, pid: int) -> str:
    parts: list[bytes] = []
    deadline = time.monotonic() + _PATIENCE
    connection.settimeout(0.2)
    while True:
        try:
            part = connection.recv(1 << 20)
        except TimeoutError:
            if _has_ended(pid):
                raise _EndedError from None
            if time.monotonic() > deadline:
                raise
            continue
        if not part:
            return b"".join(parts).decode("utf-8", "replace")
        parts.append(part)


def ask(path: Path) -> HistorySnapshot | None:
    """Returns what the process says that has a socket; None: it has ended, however that was.

    Raises Error: permission (it is another user's), io (it does not answer), damaged.
    """
    pid = 0
    try:
        connection = _connected(path)
        if connection is None:
            return None
        with connection:
            pid, *_ = struct.unpack(
                "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
            text = _text_from(connection, pid)
    except _EndedError:
        return None
    except PermissionError:
        raise Error(
            f"the process behind {path} is another user's: ask as it", "permission"
        ) from None
    except ConnectionResetError:
        text = ""
    except TimeoutError:
        who = f"process {pid}" if pid else "a process"
        raise Error(
            f"{who} has the history behind {path}, and has not answered in {_PATIENCE:.0f} "
            "seconds: it is stopped, or too busy",
            "io",
        ) from None
    if not text:
        raise Error(
            f"process {pid} has the history behind {path}, and gave no answer: it has just ended, "
            "belongs to another user, or has no memory left",
            "io",
        )
    return parse(text)
