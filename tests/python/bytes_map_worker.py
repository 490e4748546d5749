"""Changes a bytes map until it is killed: python bytes_map_worker.py REGION SEED NUMBER.

Batch n is a function of the seed and of n. "done N" is printed once batch N has returned.
"""

from __future__ import annotations

import random
import sys

import holdfast

KEYS = 60


def key_of(number: int) -> bytes:
    return f"key {number} ".encode() * (1 + number % 7)


def batch(seed: int, number: int) -> dict[bytes, bytes | None]:
    """Returns what it leaves of the keys that it changes. None: erased. All of them, or none."""
    dice = random.Random(f"{seed} {number}")
    keys = [key_of(each) for each in dice.sample(range(KEYS), 20)]
    if number % 4 == 3:
        return dict.fromkeys(keys)
    return {key: f"{number} ".encode() * dice.randrange(400) for key in keys}


def main() -> None:
    path, seed, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    table = holdfast.BytesMap(holdfast.open(path), "strings")
    print("open", flush=True)
    while True:
        changes = batch(seed, number)
        values = [value for value in changes.values() if value is not None]
        if values:
            assert table.insert_or_assign(list(changes), values).not_done == 0
        else:
            table.erase(list(changes))
        print(f"done {number}", flush=True)
        number += 1


if __name__ == "__main__":
    main()
