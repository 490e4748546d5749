"""Sees when a transaction is open, to kill in it.

A transaction may be a small part of a batch: a kill at any moment of the batch would seldom meet
it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._region import Region

_STATE = 1  # word of the object; docs/format.md, "A transaction"
_ACTIVE = 1  # bit of the state
# Between looks that only measure: they leave the processor to what they look at.
_PAUSE_SECONDS = 10e-6
_PR_SET_TIMERSLACK = 29  # of the calling thread; the usual 50 us are too long


@dataclass(frozen=True)
class Seen:
    """When a transaction was open: seconds after the watch began, and for how many."""

    after: float = 0.0
    seconds: float = 0.0  # 0: none was seen


class TransactionWatch:
    """Looks at the state that a region keeps of its transaction, from a thread of its own."""

    def __init__(self, region: Region, name: str) -> None:
        self._words = region[name].reshape(-1).view(np.uint64)
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._seen = Seen()

    def start(self, on_open: Callable[[], None] | None = None, lead: float = 0.0) -> None:
        """Begins to look. `on_open` is called once, as soon as a transaction is open.

        lead: seconds in which none will be. After these it looks without a pause, for `on_open`.
        """
        self._stopped = False
        self._seen = Seen()
        self._thread = threading.Thread(target=self._look, args=(on_open, lead), daemon=True)
        self._thread.start()

    def stop(self) -> Seen:
        """Ends looking."""
        assert self._thread is not None
        self._stopped = True
        self._thread.join()
        return self._seen

    def _is_open(self) -> bool:
        return bool(int(self._words[_STATE]) & _ACTIVE)

    def _look(self, on_open: Callable[[], None] | None, lead: float) -> None:
        begun = time.monotonic()
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1))
        time.sleep(lead)
        while not self._is_open():
            if self._stopped:
                return
            if on_open is None:
                time.sleep(_PAUSE_SECONDS)
        if on_open is not None:
            on_open()
        opened = time.monotonic()
        while self._is_open() and not self._stopped:
            time.sleep(_PAUSE_SECONDS)
        self._seen = Seen(opened - begun, time.monotonic() - opened)
