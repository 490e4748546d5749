"""Memory of a process that it lends to another's history."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import History

MIB = 1 << 20


def refused(code: str, call: Callable[[], object], *words: str) -> None:
    """Expects an Error of this code whose message has these words."""
    with pytest.raises(holdfast.Error) as raised:
        call()
    assert raised.value.code == code, raised.value
    for word in words:
        assert word in str(raised.value)


LENDER = """
import sys, time
import holdfast
with holdfast.PartnerMemory(sys.argv[1], 4 << 20) as memory:
    print(memory.nbytes, flush=True)
    sys.stdin.read()
"""

LOST = """
import os, signal, sys
import numpy as np
import holdfast
node, partner = sys.argv[1:]
array = np.zeros(50_000)
history = holdfast.History(
    gpu=1 << 20,
    partner=4 << 20,
    partner_region=partner,
    partner_owner="rank 1",
    partner_lender=partner + ".gpu",
    disk=node + "/disk",
)
history.protect("a", array)
for step in range(25):
    array[:] = step
    history.save(step).wait("partner")
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def lender(path: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", LENDER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{4 * MIB}\n"
        yield


def test_a_lost_process_is_restored_from_its_partners_gpu(tmp_path: Path) -> None:
    node, partner, lent = tmp_path / "node", tmp_path / "partner", tmp_path / "partner.gpu"
    settings: dict[str, Any] = {
        "partner": 4 * MIB,
        "partner_region": partner,
        "partner_owner": "rank 1",
        "partner_lender": lent,
        "disk": tmp_path / "new",
    }
    node.mkdir()
    array = np.zeros(50_000)
    refused("not_found", lambda: History(**settings), str(lent), "PartnerMemory")
    refused("invalid_argument", lambda: History(disk=node, partner_lender=""), "partner_lender")
    refused("invalid_argument", lambda: holdfast.PartnerMemory(lent, 0), "nbytes")
    with lender(lent):
        refused("in_use", lambda: holdfast.PartnerMemory(lent, MIB), str(lent))
        lost = subprocess.run([sys.executable, "-c", LOST, node, partner], timeout=120, check=False)
        assert lost.returncode == -signal.SIGKILL
        shutil.rmtree(node)
        with History(**settings) as history:
            history.protect("a", array)
            steps = history.steps()
            assert steps[-3:] == [22, 23, 24]  # of ten that fit
            for step in steps:
                history.restore(step, keep=True)
                assert (array == step).all()
            assert history.stats().restored_from["partner"].checkpoints == len(steps)
    assert not lent.exists()
    with holdfast.PartnerMemory(lent, 4 * MIB) as own:
        assert (own.path, own.nbytes) == (str(lent), 4 * MIB)
        refused("invalid_argument", lambda: History(**settings), "itself")


@pytest.mark.skipif(holdfast.backend == "cuda", reason="a forked child cannot use CUDA")
def test_a_forked_child_lends_nothing(tmp_path: Path) -> None:
    lent = tmp_path / "lent"
    memory = holdfast.PartnerMemory(lent, MIB)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        memory.close()
        signal.pause()
    try:
        assert lent.exists()
        memory.close()
        assert not lent.exists()
        holdfast.PartnerMemory(lent, MIB).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.skipif(holdfast.backend == "cuda", reason="a forked child cannot use CUDA")
def test_a_child_of_a_killed_lender_does_not_keep_its_path(tmp_path: Path) -> None:
    program = """
import holdfast, os, signal, sys
memory = holdfast.PartnerMemory(sys.argv[1], 1 << 20)
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, b"x")
    signal.pause()
os.read(reader, 1)
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    lent = tmp_path / "lent"
    started = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, lent],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    try:
        group = int(started.stdout.readline())
        started.wait(60)
        assert lent.exists()
        holdfast.PartnerMemory(lent, MIB).close()
    finally:
        os.killpg(group, signal.SIGKILL)
        started.stdout.close()
