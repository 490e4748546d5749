"""A shard's work beside the exchange of other chunks: it ends before anything else is done."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from holdfast import _sharded_calls
from holdfast._errors import Error
from holdfast._rows import HostRows

_INTERRUPTED = """
import _thread, threading, time
from holdfast import _sharded_calls
from holdfast._rows import HostRows

done = []

def work():
    for _ in range(20):
        time.sleep(0.05)
    done.append(1)

beside = _sharded_calls._Beside(HostRows(), work, True)
threading.Timer(0.2, _thread.interrupt_main).start()
try:
    beside.end()
except KeyboardInterrupt:
    print("interrupted behind it" if done else "interrupted while it worked")
"""


def test_an_interrupt_waits_for_the_work() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout == "interrupted behind it\n", ran.stderr


def test_what_the_thread_meets_is_returned() -> None:
    class NoDevice(HostRows):
        def beside(self) -> Any:
            raise Error("no device")

    ran: list[int] = []
    for rows, expected in ((NoDevice(), "no device"), (HostRows(), "the work's own")):

        def work() -> Exception:
            ran.append(1)
            return Error("the work's own")

        error = _sharded_calls._Beside(rows, work, True).end()
        assert str(error) == expected
    assert ran == [1]  # not where its device could not be had
    assert _sharded_calls._Beside(HostRows(), lambda: None, False).end() is None
