"""The clock by which campaigns time their kills."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import workloads
from holdfast.crash import ResumeCampaign, resume
from holdfast.crash.clock import ChildClock


def test_waits_until_the_child_has_computed() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        clock = ChildClock(child.pid)
        started = time.perf_counter()
        clock.wait(0.05)
        assert time.perf_counter() - started >= 0.04
        child.kill()
        child.wait()
    assert 0 < clock.share() < 1.5


def test_does_not_wait_for_a_child_that_ended_or_sleeps() -> None:
    with subprocess.Popen(["true"]) as child:
        time.sleep(0.2)
        started = time.perf_counter()
        ChildClock(child.pid).wait(30)
        assert time.perf_counter() - started < 5
    with subprocess.Popen(["sleep", "60"]) as child:
        ChildClock(child.pid).wait(0.01)  # ends by wall time
        child.kill()


def test_a_slow_oracle_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = workloads.Run("prefix_sum", size="test")
    monkeypatch.setattr(resume, "_CHEAP_ORACLE", 1e9)
    quick = ResumeCampaign(what, 3, 7, str(tmp_path)).run()
    assert quick.ok and quick.oracles_asked > 1
    monkeypatch.setattr(resume, "_CHEAP_ORACLE", -1e9)  # what is left of two clocks may be < 0
    slow = ResumeCampaign(what, 3, 7, str(tmp_path)).run()
    assert slow.ok and slow.oracles_asked == 1
    assert slow.kills == 3 and slow.midway <= slow.finished
