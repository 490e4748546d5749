"""A standby takes a region over while work of its killed owner is still running on the GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import holdfast

pytestmark = pytest.mark.skipif(holdfast.backend != "cuda", reason="needs the CUDA backend")

# Counts in a kernel that does not end. Its context is there before the region's files are open, or
# only afterwards.
OWNER = """
import sys
import cupy, holdfast
path, order = sys.argv[1:]
count = cupy.RawKernel('''extern "C" __global__ void count(volatile unsigned long long* words,
                                                            unsigned long long rounds) {
  volatile unsigned long long* mine = &words[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned long long i = 0; i < rounds; ++i) { *mine = *mine + 1; __threadfence_system(); }
}''', "count")
def start(words, rounds):
    count((4,), (256,), (words, cupy.uint64(rounds)))
if order == "kernel first":
    start(cupy.zeros(1024, cupy.uint64), 10)
    cupy.cuda.Device().synchronize()
region = holdfast.open(path)
words = cupy.from_dlpack(region.on_device("words"))
start(words, 10)
cupy.cuda.Device().synchronize()
print("ready", flush=True)
start(words, 1 << 40)
cupy.cuda.Device().synchronize()
"""


@pytest.mark.parametrize("order", ["kernel first", "region first"])
def test_a_standby_sees_no_store_of_the_dead(path: Path, order: str) -> None:
    pytest.importorskip("cupy")
    with holdfast.create(path, size=1 << 20) as region:
        region.allocate("words", 1024, "uint64")
    # This process's context is there: opening takes no longer for it.
    warm = holdfast.create(path.with_name("warm.hf"), size=1 << 20)
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", OWNER, str(path), order], stdout=subprocess.PIPE, text=True
        ) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "ready\n"
            time.sleep(0.03)
            killed = time.monotonic()
            os.kill(owner.pid, signal.SIGKILL)
            while True:
                try:
                    region = holdfast.open(path)
                    break
                except holdfast.Error as error:
                    assert error.code == "in_use", error
                    assert time.monotonic() - killed < 20, error
                    time.sleep(0.0002)
            print(f"opened {1e3 * (time.monotonic() - killed):.1f} ms after the kill")
            assert region.open_report.arena_found
            words = region["words"]
            seen = np.array(words)
            assert seen[0] > 10, "the kernel was running"
            time.sleep(0.1)
            assert (words == seen).all(), "stores of a dead process's kernel"
            del words
            region.close()
    warm.close()
    holdfast.destroy(path.with_name("warm.hf"))
