"""Saves, restores and discards until it is killed: python history_worker.py FOLDER SEED.

Says what it knows: `durable STEP` once a ticket was waited for, `discarding STEP` before one goes.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import numpy.typing as npt

import holdfast

CELLS = 20_000


def content(step: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(step).integers(0, 2**63, CELLS)


def main() -> None:
    folder, seed = sys.argv[1], int(sys.argv[2])
    dice = random.Random(seed)
    field, number = np.zeros(CELLS, np.int64), np.zeros(1, np.int64)
    with holdfast.History(gpu=1 << 19, host=1 << 20, disk=folder) as history:
        history.protect("field", field)
        history.protect("number", number)
        print("open", flush=True)
        step = max(history.steps(), default=-1)
        waiting: list[holdfast.Ticket] = []
        while True:
            step += 1
            field[:], number[:] = content(step), step
            waiting.append(history.save(step))
            if dice.random() < 0.5:
                ticket = waiting.pop(dice.randrange(len(waiting)))
                ticket.wait()
                print(f"durable {ticket.step}", flush=True)
            if dice.random() < (0.2 if len(history.steps()) < 20 else 0.9):
                old = dice.choice(history.steps())
                waiting = [ticket for ticket in waiting if ticket.step != old]
                print(f"discarding {old}", flush=True)
                history.discard(old)
            if dice.random() < 0.2:
                history.hint(dice.sample(history.steps(), min(3, len(history.steps()))))
                history.prefetch_start()
                history.restore(dice.choice(history.steps()), keep=dice.random() < 0.5)
                if not np.array_equal(field, content(int(number[0]))):
                    print("wrong", flush=True)


if __name__ == "__main__":
    main()
