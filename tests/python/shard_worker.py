"""A rank of a sharded map that is killed.

python shard_worker.py FOLDER change SEED NUMBER: call n is a function of the seed, of n and of the
rank; "done N" is printed once it has returned. python shard_worker.py FOLDER load STEP...: loads
the shards of three other ranks; rank n dies at its STEP. python shard_worker.py FOLDER GROUP, which
is local, torch or mpi: some calls by a group of that kind, against a dict; of torch on tensors,
and with "rows" as they are exchanged on GPUs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import holdfast
import holdfast.ranks
import rank_worker
from holdfast import _exchange, _rows

KEYS = 900
CAPACITY = 1500
Call = tuple[str, npt.NDArray[np.int64]]


def call(seed: int, number: int, rank: int) -> Call:
    """Returns the operation, which all ranks have, and this rank's keys."""
    operation = np.random.default_rng([seed, number]).choice(["insert_or_assign", "erase"])
    rng = np.random.default_rng([seed, number, rank])
    return str(operation), rng.choice(KEYS, int(rng.integers(0, 300)), replace=False)


def value_of(number: int, rank: int) -> int:
    return 10 * number + rank


def after(there: dict[int, int], seed: int, number: int, size: int) -> dict[int, int]:
    there = dict(there)
    for rank in range(size):
        operation, keys = call(seed, number, rank)
        for key in keys.tolist():
            if operation == "erase":
                there.pop(key, None)
            else:
                there[key] = value_of(number, rank)
    return there


def change(table: holdfast.ShardedMap, seed: int, number: int) -> None:
    while True:
        operation, keys = call(seed, number, table.rank)
        if operation == "erase":
            table.erase(keys)
        else:
            result = table.insert_or_assign(keys, np.full(len(keys), value_of(number, table.rank)))
            assert result.not_done == 0
        print(f"done {number}", flush=True)
        number += 1


def die_at(table: holdfast.ShardedMap, step: int) -> None:
    """Has the rank kill itself at its so many-th exchange with the others."""
    steps = 0

    def counted(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(*arguments)

        return call

    exchange: Any = table._exchange
    exchange._gather, exchange._start = counted(exchange._gather), counted(exchange._start)


def program(table: holdfast.ShardedMap, given: Callable[[Any], Any], kind: str) -> None:
    """Makes calls with arrays that given() makes of NumPy's."""
    there: dict[int, int] = {}
    for number in range(12):
        operation, keys = call(7, number, table.rank)
        status = given(np.zeros(len(keys), np.uint8))
        if operation == "erase":
            table.erase(given(keys), status=status)
        else:
            values = np.full(len(keys), value_of(number, table.rank))
            table.insert_or_assign(given(keys), given(values), status=status)
        assert bool((status > 0).all())
        there = after(there, 7, number, table.ranks)
        assert table.size() == len(there)
        values, found = table.find(given(np.arange(KEYS)))
        assert type(values).__module__.startswith("torch" if kind == "torch" else "numpy")
        assert found.tolist() == [key in there for key in range(KEYS)]
        assert values.tolist() == [there.get(key, 0) for key in range(KEYS)]
    table.accumulate(given(np.array([1, 1, 2])), given(np.array([10, 20, 30])))
    found = table.find(given(np.array([1, 2])))[0].tolist()
    assert found == [there[key] + 30 * table.ranks if key in there else 0 for key in (1, 2)], found
    with contextlib.suppress(holdfast.Error):
        table.erase(given(np.array([1.5 if table.rank == 0 else 3])))
        raise AssertionError("all had to refuse it")


def main() -> None:
    folder, does = Path(sys.argv[1]), sys.argv[2]
    kind = does if does in ("torch", "mpi") else "local"
    group = rank_worker.make_group(kind, str(folder))
    if sys.argv[3:] == ["rows"]:  # as with NCCL, but for the memory
        torch = sys.modules["torch"]
        _exchange.Exchange.rows = _rows.DeviceRows(torch, torch.device("cpu"))
    rank = holdfast.ranks.of(group).rank
    capacity, batch = (15_000, 1024) if does == "load" else (CAPACITY, 64)
    size = holdfast.ShardedMap.region_bytes(capacity, "int64", "int64", batch)
    region = holdfast.open_or_create(folder / f"shard-{rank}.hf", size)
    table = holdfast.ShardedMap(
        region, "m", group=group, key="int64", value="int64", capacity=capacity, max_batch=batch,
        timeout=20,
    )  # fmt: skip
    print("open", flush=True)
    try:
        if does == "change":
            change(table, int(sys.argv[3]), int(sys.argv[4]))
        if does == kind:
            given: Callable[[Any], Any] = np.asarray
            if kind == "torch":
                given = sys.modules["torch"].from_numpy
            program(table, given, kind)
            print("ok", flush=True)
            sys.exit(0)
        if table.loading:
            print("cut off before", flush=True)
        die_at(table, int(sys.argv[3 + rank]))
        old = [folder / f"old-{number}.hf" for number in range(3)]
        table.load(old[rank :: table.ranks])
        print("loaded", flush=True)
    except holdfast.Error as error:
        try:
            table.size()
        except holdfast.Error as again:
            assert "in an earlier call" in str(again)  # nobody is waited for
        sys.stderr.write(f"{error.code}: {error}\n")
        sys.exit(3)


if __name__ == "__main__":
    main()
