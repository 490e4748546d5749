"""The shots of score_bench for rivals that are driven from Python: same schedule, same clocks.

The sizes and orders come from `score_bench schedule`. An iteration computes (sleeps) for an
interval and saves, or restores and computes; what is measured of a call is the time until the
device has done what it queued. The snapshot is written and compared within the interval.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from holdfast import Error


class Device(Protocol):
    """Where the snapshot's array is."""

    def fill(self, count: int, key: int) -> None:
        """Writes `count` words of a key."""

    def wrong(self, count: int, key: int) -> int:
        """Returns how many of `count` words are not those of the key."""

    def synchronize(self) -> None:
        """Waits for what was queued."""

    def save_to(self, host: Any, count: int) -> None:
        """Queues a copy of `count` words to the host."""

    def restore_from(self, host: Any, count: int) -> None:
        """Queues a copy of `count` words from the host."""

    def pinned(self, count: int) -> tuple[Any, np.ndarray[Any, Any]]:
        """Returns host memory for copies, as the device's own kind of array and as NumPy's."""


class Cpu:
    """The snapshot in ordinary memory, for machines without a GPU."""

    def __init__(self, count: int) -> None:
        self.words = np.zeros(count, dtype=np.int64)
        self._pattern = np.arange(count, dtype=np.int64) * 0x9E3779B1

    def fill(self, count: int, key: int) -> None:
        """Writes `count` words of a key."""
        np.bitwise_xor(self._pattern[:count], key, out=self.words[:count])

    def wrong(self, count: int, key: int) -> int:
        """Returns how many of `count` words are not those of the key."""
        return int(np.count_nonzero(self.words[:count] != (self._pattern[:count] ^ key)))

    def synchronize(self) -> None:
        """Waits for what was queued."""

    def save_to(self, host: Any, count: int) -> None:
        """Copies to the host."""
        host[:count] = self.words[:count]

    def restore_from(self, host: Any, count: int) -> None:
        """Copies from the host."""
        self.words[:count] = host[:count]

    def pinned(self, count: int) -> tuple[Any, np.ndarray[Any, Any]]:
        """Returns host memory."""
        words = np.zeros(count, dtype=np.int64)
        return words, words


class Gpu:
    """The snapshot as a PyTorch tensor on the GPU."""

    def __init__(self, count: int) -> None:
        import torch

        self._torch = torch
        self.words = torch.zeros(count, dtype=torch.int64, device="cuda")
        self._pattern = torch.arange(count, dtype=torch.int64, device="cuda") * 0x9E3779B1

    def fill(self, count: int, key: int) -> None:
        """Writes `count` words of a key."""
        self._torch.bitwise_xor(self._pattern[:count], key, out=self.words[:count])
        self.synchronize()

    def wrong(self, count: int, key: int) -> int:
        """Returns how many of `count` words are not those of the key."""
        return int((self.words[:count] != (self._pattern[:count] ^ key)).sum().item())

    def synchronize(self) -> None:
        """Waits for what was queued."""
        self._torch.cuda.synchronize()

    def save_to(self, host: Any, count: int) -> None:
        """Queues a copy to pinned memory."""
        host[:count].copy_(self.words[:count], non_blocking=True)

    def restore_from(self, host: Any, count: int) -> None:
        """Queues a copy from pinned memory."""
        self.words[:count].copy_(host[:count], non_blocking=True)

    def pinned(self, count: int) -> tuple[Any, np.ndarray[Any, Any]]:
        """Returns pinned host memory."""
        host = self._torch.empty(count, dtype=self._torch.int64, pin_memory=True)
        host.zero_()
        return host, host.numpy()


def device_of(count: int) -> Device:
    """Returns the GPU where PyTorch finds one, and ordinary memory otherwise."""
    try:
        import torch

        if torch.cuda.is_available():
            return Gpu(count)
    except ImportError:
        pass
    return Cpu(count)


class Rival(Protocol):
    """What keeps the snapshots."""

    pinned_bytes: int

    def save(self, step: int, count: int) -> None:
        """Saves `count` words; returns when the array may be changed."""

    def drain(self) -> None:
        """Returns once everything is on disk, synced, and can be read."""

    def restore(self, step: int, count: int) -> None:
        """Puts a snapshot into the array."""

    def close(self) -> None:
        """Ends it."""


@dataclass(frozen=True)
class Schedule:
    """What score_bench saves and in which order it restores."""

    sizes: dict[str, list[int]]
    orders: dict[str, list[int]]

    @classmethod
    def of(cls, program: Path, arguments: argparse.Namespace) -> Schedule:
        """Asks the program."""
        command = [str(program), f"--snapshots={arguments.snapshots}", f"--bytes={arguments.bytes}",
                   f"--seed={arguments.seed}", "schedule"]  # fmt: skip
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise Error(f"{program.name} has no schedule: {made.stderr}", "io")
        sizes, orders = {}, {}
        for line in map(json.loads, made.stdout.splitlines()):
            if line["benchmark"] == "score_sizes":
                sizes[line["sizes"]] = line["bytes"]
            else:
                orders[line["order"]] = line["steps"]
        return cls(sizes, orders)


class _Clock:
    """Blocking times, and intervals of computing."""

    def __init__(self, device: Device, interval: float) -> None:
        self._device, self._interval = device, interval

    def measure(self, times: list[float], call: Callable[[], None]) -> None:
        start = time.perf_counter()
        call()
        self._device.synchronize()
        times.append(time.perf_counter() - start)

    def compute(self, work: Callable[[], None]) -> None:
        end = time.perf_counter() + self._interval
        work()
        left = end - time.perf_counter()
        if left > 0:
            time.sleep(left)


def run_shot(
    cell: str, schedule: Schedule, arguments: argparse.Namespace, make: Callable[..., Rival]
) -> dict[str, Any]:
    """Runs one cell; returns its line. Raises Error at a wrong byte."""
    store, sizes, order, hints, wait, *more = cell.split("/")
    given = dict(word.split("=", 1) for word in more)
    interval_us = int(given.get("interval_us", arguments.interval_us))
    counts = [size // 8 for size in schedule.sizes[sizes]]
    steps = schedule.orders[order]
    device = device_of(max(counts))
    clock = _Clock(device, interval_us * 1e-6)
    saves: list[float] = []
    restores: list[float] = []
    with tempfile.TemporaryDirectory(dir=arguments.disk) as folder:
        start = time.perf_counter()
        rival = make(Path(folder), device, counts)
        init = time.perf_counter() - start
        forward = time.perf_counter()
        for step, count in enumerate(counts):
            clock.compute(lambda count=count, step=step: device.fill(count, step + 1))  # type: ignore[misc]
            clock.measure(saves, lambda count=count, step=step: rival.save(step, count))  # type: ignore[misc]
        start = time.perf_counter()
        forward = start - forward
        rival.drain()  # before that nothing can be read, so the program waits in any case
        drain = time.perf_counter() - start
        device.fill(max(counts), -1)
        start = time.perf_counter()
        for step in steps:
            count = counts[step]
            clock.measure(restores, lambda count=count, step=step: rival.restore(step, count))  # type: ignore[misc]
            clock.compute(lambda count=count, step=step: compare(device, store, count, step))  # type: ignore[misc]
        backward = time.perf_counter() - start
        rival.close()
    total = sum(schedule.sizes[sizes])
    blocked = sum(restores) + (0 if wait == "wait" else drain)
    return {
        "benchmark": "score_shot", "cell": cell, "store": store, "sizes": sizes, "order": order,
        "hints": hints, "wait": int(wait == "wait"), "coupled": 0, "rank": 0, "ranks": 1,
        "snapshots": len(counts), "bytes": total, "interval_us": interval_us, "compute": "sleep",
        "seed": arguments.seed, "save_seconds": sum(saves), "restore_seconds": blocked,
        "save_gb_per_s": total / sum(saves) / 1e9, "restore_gb_per_s": total / blocked / 1e9,
        "init_seconds": init, "forward_seconds": forward, "drain_seconds": drain,
        "backward_seconds": backward, "gpu_hits": 0, "host_hits": 0, "disk_hits": 1,
        "pinned_bytes": rival.pinned_bytes, "verified": len(restores),
        "save_median_us": 1e6 * statistics.median(saves),
        "restore_median_us": 1e6 * statistics.median(restores),
    }  # fmt: skip


def compare(device: Device, store: str, count: int, step: int) -> None:
    """Raises Error if the array is not what was saved."""
    wrong = device.wrong(count, step + 1)
    if wrong:
        raise Error(f"{store}: step {step} came back with {wrong} wrong words", "damaged")


def main(description: str, make: Callable[..., Rival]) -> None:
    """Runs the cells of the command line and prints their lines."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("cells", nargs="+")
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--disk", type=Path, default=Path())
    names = ("snapshots", "bytes", "page_bytes", "gpu_bytes", "host_bytes", "interval_us", "seed")
    for name in (*names, "seconds"):
        parser.add_argument(f"--{name}", type=int, default=0)
    arguments = parser.parse_args()
    schedule = Schedule.of(arguments.program, arguments)
    start = time.perf_counter()
    for cell in arguments.cells:
        if arguments.seconds and time.perf_counter() - start > arguments.seconds:
            break
        print(json.dumps(run_shot(cell, schedule, arguments, make)), flush=True)
