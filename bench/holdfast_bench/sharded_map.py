"""Upserts and lookups of a map that is sharded over the ranks of a group, the exchange included.

`python -m holdfast_bench.sharded_map` starts the ranks itself, 1, 2 and 4 of them in turn, each
with a GPU of its own, and writes sharded_map-cuda.json. By PyTorch's NCCL; --group local takes
processes without it, on the CPU backend, to try the program.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
import holdfast.ranks
from holdfast import ShardedMap

from . import runner
from .kept import RESULTS

ROW = ("float32", 32)
LOAD_FACTOR = 0.75
_SPREAD = 0x9E3779B97F4A7C1  # keys are odd multiples of it
_DRAWN = 4  # batches of keys that are made in advance


class Arrays:
    """Keys and rows of this rank, where its group exchanges them."""

    def __init__(self, on_device: bool, seed: int) -> None:
        self._on_device = on_device
        self._rng = np.random.default_rng(seed)

    def _placed(self, array: Any) -> Any:
        if not self._on_device:
            return array
        import torch

        return torch.from_numpy(array).cuda()

    def keys(self, numbers: Any) -> Any:
        return self._placed((2 * numbers.astype(np.int64) + 1) * _SPREAD)

    def drawn(self, pairs: int, count: int) -> Any:
        return self.keys(self._rng.integers(0, pairs, count))

    def rows(self, count: int) -> Any:
        return self._placed(self._rng.random((count, *ROW[1:]), np.float32))

    def like(self, rows: Any) -> Any:
        return rows.copy() if isinstance(rows, np.ndarray) else rows.clone()


def _group(kind: str, folder: Path, rank: int, size: int) -> Any:
    if kind == "local":
        return holdfast.ranks.local(folder / "socket", rank, size)
    import torch
    from torch import distributed

    backend = "nccl" if torch.cuda.is_available() else "gloo"
    store = distributed.FileStore(str(folder / "store"), size)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size)
    return distributed.group.WORLD


def _seconds(table: ShardedMap, calls: list[Callable[[], Any]]) -> list[float]:
    """Returns how long each call took, the slowest rank's."""
    took = []
    for call in calls:
        table.size()  # all begin together
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    micros = table._exchange.gather([int(1e6 * second) for second in took])
    return [float(micro) / 1e6 for micro in micros.max(axis=0)]


def measure(table: ShardedMap, arrays: Arrays, options: argparse.Namespace) -> dict[str, float]:
    """Fills the map, and returns million operations of all ranks in a second."""
    batch, pairs = options.batch, options.pairs
    own = np.arange(table.rank, pairs, table.ranks)
    most = -(-pairs // table.ranks)
    rows = arrays.rows(batch)
    loads: list[Callable[[], Any]] = []
    for first in range(0, most, batch):
        part = own[first : first + batch]

        def load(part: Any = part) -> None:
            result = table.insert_or_assign(arrays.keys(part), rows[: len(part)])
            assert result.not_done == 0, result

        loads.append(load)
    started = time.perf_counter()
    for one in loads:
        one()
    load_seconds = time.perf_counter() - started
    assert table.size() == pairs

    drawn = [arrays.drawn(pairs, batch) for _ in range(_DRAWN)]
    out = arrays.like(rows)
    work: dict[str, Callable[[Any], Any]] = {
        "insert_or_assign": lambda keys: table.insert_or_assign(keys, rows),
        "find": lambda keys: table.find(keys, out=out),
    }
    million = {"load": pairs / load_seconds / 1e6}
    for name, call in work.items():
        repeated = [drawn[i % _DRAWN] for i in range(options.repeat + 2)]
        seconds = _seconds(table, [lambda keys=keys, call=call: call(keys) for keys in repeated])  # type: ignore[misc]
        million[name] = batch * table.ranks / statistics.median(seconds[2:]) / 1e6
    assert bool(table.find(drawn[0])[1].all())
    return million


def run_rank(options: argparse.Namespace) -> None:
    """One rank; rank 0 prints the rates."""
    rank, size, folder = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), options.folder
    group = _group(options.group, folder, rank, size)
    on_device = options.group == "torch" and holdfast.backend == "cuda"
    # A tenth more than its share, for keys that do not go evenly.
    capacity = int(1.1 * options.pairs / size / LOAD_FACTOR) + 1000
    given: dict[str, Any] = {"capacity": capacity, "key": "int64", "value": ROW}
    given["max_batch"] = options.max_batch
    path = folder / f"shard-{rank}.hf"
    with holdfast.create(path, ShardedMap.region_bytes(**given)) as region:
        table = ShardedMap(region, group=group, chunk=options.chunk, timeout=300, **given)
        rates = measure(table, Arrays(on_device, rank), options)
        if rank == 0:
            print(json.dumps(rates), flush=True)
        table.close()
        region.abandon()
    holdfast.destroy(path)


def start_ranks(size: int, options: argparse.Namespace) -> dict[str, float]:
    """Starts the ranks and returns what rank 0 says."""
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-sharded-", dir=options.folder)).resolve()
    command = [sys.executable, "-m", "holdfast_bench.sharded_map", *sys.argv[1:]]
    processes = [
        subprocess.Popen(
            [*command, "--folder", str(folder), "--rank"],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "CUDA_VISIBLE_DEVICES": str(rank),
            },
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=options.limit)[0] for process in processes]
        if any(process.returncode for process in processes):
            raise SystemExit(f"{size} ranks: a rank has failed; what it said is above")
    finally:
        for process in processes:
            process.kill()
        for path in folder.glob("*.hf"):
            holdfast.destroy(path)
        shutil.rmtree(folder, ignore_errors=True)
    rates: dict[str, float] = json.loads(said[0])
    return rates


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks, in turn")
    parser.add_argument("--group", choices=["torch", "local"], default="torch")
    parser.add_argument("--pairs", type=int, default=1 << 26, help="of all ranks")
    parser.add_argument("--batch", type=int, default=1 << 20, help="operations of a rank's call")
    parser.add_argument("--chunk", type=int, default=1 << 20)
    parser.add_argument("--max_batch", type=int, default=1 << 20)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--limit", type=float, default=500, help="seconds for a number of ranks")
    parser.add_argument("--folder", type=Path, default=None, help="for the regions' files")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Prints and writes the lines."""
    options = parsed()
    if options.rank:
        run_rank(options)
        return
    started = datetime.datetime.now(datetime.timezone.utc)
    lines: list[dict[str, Any]] = []
    first: dict[str, float] = {}
    for size in map(int, options.ranks.split(",")):
        rates = start_ranks(size, options)
        first = first or rates
        for operation, rate in rates.items():
            line = {
                "benchmark": "sharded_map", "ranks": size, "group": options.group,
                "operation": operation, "pairs": options.pairs, "batch": options.batch,
                "chunk": options.chunk, "value_bytes": 4 * ROW[1], "million_per_s": rate,
                "times_the_first": rate / first[operation],
            }  # fmt: skip
            print(json.dumps(line), flush=True)
            lines.append(line)
    path = runner.add_results(
        runner.results_path(options.results, "sharded_map"),
        lambda line: tuple(line[name] for name in ("ranks", "operation", "batch", "chunk")),
        program="sharded_map.py",
        command=" ".join(["sharded_map.py", *sys.argv[1:]]),
        medium="dram",
        started=started,
        lines=lines,
    )
    print(path)


if __name__ == "__main__":
    main()
