"""One rank of several: python rank_worker.py GROUP FOLDER, where GROUP is local, mpi or torch.

Prints `ok` once all of it holds. Raises AssertionError otherwise.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
import holdfast.ranks


def make_group(kind: str, folder: str) -> Any:
    if kind == "local":
        return holdfast.ranks.from_environment(timeout=30)
    if kind == "mpi":
        from mpi4py import MPI

        return MPI.COMM_WORLD
    from torch import distributed

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = distributed.FileStore(f"{folder}/store", size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    return distributed.group.WORLD


def main() -> None:
    kind, folder = sys.argv[1:]
    given = make_group(kind, folder)
    group = holdfast.ranks.of(given)
    rank, size = group.rank, group.size
    for length in (0, 1, 100_000):
        mine = bytes([rank]) * (length * (rank + 1))
        wanted = [bytes([other]) * (length * (other + 1)) for other in range(size)]
        assert group.all_gather(mine, timeout=30) == wanted

    field = np.zeros(1000)
    for life in range(2):
        with holdfast.History(
            disk=f"{folder}/run", node_host=1 << 20, weight=rank + 1, ranks=given, ranks_timeout=30
        ) as history:
            history.protect("field", field)
            assert history.steps() == list(range(life)), history.steps()
            if life:
                history.restore(0, keep=True)
                assert (field == rank).all()
            field[:] = 100 * life + rank
            history.wait_for_all(history.save(life))
            assert history.latest_of_all() == life
            assert history.agree() == list(range(life + 1))
            if rank == 0:
                history.save(77)  # that the others lack
        assert Path(folder, "run", f"rank-{rank:05}-of-{size:05}").is_dir()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
