"""Messages between a campaign and its worker: a length, then a pickle, over a pipe."""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
from typing import Any

_LENGTH = struct.Struct("<Q")


def send(descriptor: int, message: Any) -> None:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    data = memoryview(_LENGTH.pack(len(body)) + body)
    while data:
        data = data[os.write(descriptor, data) :]


class Receiver:
    """Reads messages from a pipe. A message that a kill cut off is never delivered."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self.ended = False

    def receive(self, deadline: float | None = None) -> Any | None:
        """Returns the next message, or None at the end of the pipe or past `deadline`.

        deadline: of time.monotonic(); None: waits for ever.
        """
        while True:
            if len(self._buffer) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer)
                end = _LENGTH.size + length
                if len(self._buffer) >= end:
                    body = bytes(self._buffer[_LENGTH.size : end])
                    del self._buffer[:end]
                    return pickle.loads(body)
            if self.ended:
                return None
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], timeout)[0]:
                return None
            data = os.read(self._descriptor, 1 << 20)
            self.ended = not data
            self._buffer += data
