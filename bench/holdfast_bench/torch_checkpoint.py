"""Saves a large PyTorch tensor by Holdfast and by torch's distributed checkpoints, in one run.

Needs a GPU and PyTorch; `python -m holdfast_bench.torch_checkpoint` writes
torch_checkpoint-cuda.json.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import holdfast

from . import runner
from .kept import RESULTS

_ON_DISK = 3  # repetitions of what goes to the disk: seconds each


def timed(body: Callable[[], object]) -> float:
    """Returns the seconds that `body` takes."""
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def pinned_copy(tensor: torch.Tensor, repeat: int) -> float:
    """Returns the seconds of a copy to pinned memory: what nothing can beat."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.zero_()

    def copy() -> None:
        host.copy_(tensor, non_blocking=True)
        torch.cuda.synchronize()

    copy()
    return statistics.median(timed(copy) for _ in range(repeat))


def disk_seconds(folder: Path, size: int, repeat: int) -> float:
    """Returns the seconds that the disk takes for a file of `size` bytes, written in order.

    Of a new file and of one that is written over, the quicker: medians.
    """
    block = os.urandom(64 << 20)

    def write(mode: str) -> float:
        with (folder / "plain").open(mode, buffering=0) as file:

            def body() -> None:
                for _ in range(size // len(block)):
                    file.write(block)
                os.fsync(file.fileno())

            return timed(body)

    new, again = [], []
    for _ in range(repeat):
        new.append(write("wb"))
        again.append(write("r+b"))
    (folder / "plain").unlink()
    return min(statistics.median(new), statistics.median(again))


def by_holdfast(tensor: torch.Tensor, folder: Path, repeat: int) -> dict[str, Any]:
    """Saves by Holdfast: blocking, until it is in shared memory, until it is on disk."""
    size = tensor.numel() * tensor.element_size()
    path = folder / "region.hf"
    need = holdfast.Checkpoint.region_bytes(size, 1) + (16 << 20)
    with holdfast.create(path, need) as region:
        checkpoint = holdfast.Checkpoint(region, "bench")
        checkpoint.add("model", "tensor", tensor)
        for _ in range(2):
            checkpoint.save_async("model").wait()  # both copies are made
        blocking, durable, direct = [], [], []
        for number in range(repeat):
            start = time.perf_counter()
            pending = checkpoint.save_async("model", number)
            tensor.add_(1)  # the next step of a training
            torch.cuda.current_stream().synchronize()
            blocking.append(time.perf_counter() - start)
            pending.wait()
            durable.append(time.perf_counter() - start)
            direct.append(timed(lambda: checkpoint.save("model")))
        step = statistics.median(timed(lambda: (tensor.add_(1), torch.cuda.synchronize()))
                                 for _ in range(repeat))  # fmt: skip
        commits = []
        for number in range(2 + _ON_DISK):
            tensor.add_(1)  # what did not change is not written again
            checkpoint.save("model", number)
            commits.append(timed(region.commit))
        commit = statistics.median(commits[2:])  # the file has its size by then
    return {
        "blocking_seconds": statistics.median(blocking) - step,
        "shared_memory_seconds": statistics.median(durable),
        "direct_seconds": statistics.median(direct),
        "disk_seconds": statistics.median(direct) + commit,
    }


def by_torch(tensor: torch.Tensor, folder: Path, repeat: int) -> dict[str, Any]:
    """Saves by torch.distributed.checkpoint.async_save, to shared memory, and to disk."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    store = folder / "store"
    dist.init_process_group(
        "cpu:gloo,cuda:gloo", init_method=f"file://{store}", rank=0, world_size=1
    )
    # Sixteen shards for eight threads, staged in pinned memory that is kept.
    state = {f"shard{i}": part for i, part in enumerate(tensor.view(16, -1))}

    def save(place: Path, times: int) -> tuple[list[float], list[float]]:
        writer = dcp.FileSystemWriter(place, thread_count=8, cache_staged_state_dict=True)
        blocking, durable = [], []
        for _ in range(times):
            tensor.add_(1)
            torch.cuda.synchronize()
            start = time.perf_counter()
            future = dcp.async_save(state, storage_writer=writer)
            blocking.append(time.perf_counter() - start)
            future.result()
            durable.append(time.perf_counter() - start)
        return blocking[1:], durable[1:]

    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        blocking, durable = save(Path(shared), repeat + 1)
    _, on_disk = save(folder / "dcp", 1 + _ON_DISK)  # the writer syncs its files
    dist.destroy_process_group()
    return {
        "blocking_seconds": statistics.median(blocking),
        "shared_memory_seconds": statistics.median(durable),
        "disk_seconds": statistics.median(on_disk),
    }


def main() -> None:
    """Prints and writes the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    started = datetime.datetime.now(datetime.timezone.utc)
    tensor = torch.randn(arguments.mib << 18, device="cuda")
    size = tensor.numel() * tensor.element_size()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-torch-"))
    lines: list[dict[str, Any]] = []
    try:
        copy = pinned_copy(tensor, arguments.repeat)
        disk = disk_seconds(folder, size, _ON_DISK)
        roof = {"pinned_copy_seconds": copy, "plain_disk_seconds": disk, "bytes": size}
        for name, measure in (("holdfast", by_holdfast), ("torch dcp async_save", by_torch)):
            line = {"benchmark": "torch_checkpoint", "by": name, **roof}
            try:
                line |= measure(tensor, folder, arguments.repeat)
            except (ImportError, RuntimeError, TypeError) as error:
                line["error"] = str(error)
            print(line, flush=True)
            lines.append(line)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    path = runner.write_results(
        runner.results_path(arguments.results, "torch_checkpoint"),
        program="torch_checkpoint.py",
        command=f"torch_checkpoint.py --mib={arguments.mib}",
        medium="dram",
        started=started,
        lines=lines,
    )
    print(path)


if __name__ == "__main__":
    main()
