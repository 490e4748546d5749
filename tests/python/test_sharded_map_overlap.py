"""What goes on side by side in a sharded map: a shard's work, exchanges, calls of other maps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import _sharded_calls
from holdfast._errors import Error
from holdfast._rows import HostRows
from rank_groups import ThreadGroup, run_threads
from shards import done, shard_of

_INTERRUPTED = """
import signal, threading, time
from holdfast import _sharded_calls
from holdfast._rows import HostRows

done = []

def work():
    for _ in range(20):
        time.sleep(0.05)
    done.append(1)

beside = _sharded_calls._Beside(HostRows(), work, True)
beside.start()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background has none
main = threading.main_thread().ident
threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
try:
    beside.end()
except KeyboardInterrupt:
    print("interrupted behind it" if done else "interrupted while it worked")

# One that comes before anybody waits: whoever calls next does.
done.clear()
beside = _sharded_calls._Beside(HostRows(), work, True)
beside.start()
beside.settle()
print(done)
"""


def test_an_interrupt_waits_for_the_work() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout == "interrupted behind it\n[1]\n", ran.stderr


def test_what_the_thread_meets_is_returned() -> None:
    class NoDevice(HostRows):
        def beside(self) -> Any:
            raise Error("no device")

    ran: list[int] = []
    for rows, expected in ((NoDevice(), "no device"), (HostRows(), "the work's own")):

        def work() -> Exception:
            ran.append(1)
            return Error("the work's own")

        beside = _sharded_calls._Beside(rows, work, True)
        beside.start()
        assert str(beside.end()) == expected
    assert ran == [1]  # not where its device could not be had
    alone = _sharded_calls._Beside(HostRows(), lambda: None, False)
    alone.start()
    assert alone.end() is None


def test_what_is_given_may_be_where_answers_go(folder: Path) -> None:
    def body(group: ThreadGroup) -> None:
        table = shard_of(folder, group)
        keys = 1000 * group.rank + np.arange(300)
        room = np.arange(301) + 7
        values = room[:300].copy()
        out, result = table.find_or_insert(keys, room[:300], out=room[1:])
        assert table._calls._chunk < 100 and result.inserted == 300
        assert (out == values).all() and (table.find(keys)[0] == values).all()
        rows = keys.copy()
        assert (table.find(rows, out=rows)[0] == values).all()
        done(table)

    run_threads(2, body)


def test_calls_of_different_maps_are_told_apart(folder: Path) -> None:
    def body(group: ThreadGroup) -> None:
        tables = [shard_of(folder, group, name=name) for name in ("a", "b")]
        with pytest.raises(holdfast.Error, match="different maps") as met:
            tables[group.rank].insert([group.rank], [1])
        assert met.value.code == "conflict"
        assert [table.size() for table in tables] == [0, 0]
        for table in tables:
            table.insert([5], [6])
            done(table)

    run_threads(2, body)
