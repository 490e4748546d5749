"""A kernel timer that delivers SIGKILL to the process that sets it.

A step of a batch may last fifty microseconds, less than it takes to wake another process up to
send the signal. The kernel's timer is exact, and the signal is the same.
"""

from __future__ import annotations

import ctypes
import os
import signal

_CLOCK_MONOTONIC = 1


class _SigEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),  # 0: SIGEV_SIGNAL
        ("padding", ctypes.c_char * 48),
    )


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


_libc = ctypes.CDLL(None, use_errno=True)


class KillTimer:
    """Made ahead, so that start() costs one system call."""

    def __init__(self) -> None:
        event = _SigEvent(signo=signal.SIGKILL)
        self._timer = ctypes.c_void_p()
        if _libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)):
            number = ctypes.get_errno()
            raise OSError(number, f"timer_create: {os.strerror(number)}")

    def start(self, seconds: float) -> None:
        """Kills this process `seconds` from now."""
        nanoseconds = max(1, round(seconds * 1e9))
        spec = _TimerSpec(0, 0, *divmod(nanoseconds, 1_000_000_000))
        if _libc.timer_settime(self._timer, 0, ctypes.byref(spec), None):
            number = ctypes.get_errno()
            raise OSError(number, f"timer_settime: {os.strerror(number)}")
