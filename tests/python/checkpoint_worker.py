"""Saves until it is killed: python checkpoint_worker.py REGION asynchronous|synchronous."""

from __future__ import annotations

import sys

import numpy as np

import holdfast


def main() -> None:
    region = holdfast.open(sys.argv[1])
    checkpoint = holdfast.Checkpoint(region, "c")
    words, fine = np.zeros((300, 40), np.uint32), np.zeros(5, np.float64)
    checkpoint.add("g", "words", words)
    checkpoint.add("g", "fine", fine)
    tag = checkpoint.restore("g") or 0
    print(f"found {tag} {words.min()} {words.max()} {fine.min()} {fine.max()}", flush=True)
    while True:
        tag += 1
        words[:] = tag
        fine[:] = tag
        print(f"start {tag}", flush=True)
        if sys.argv[2] == "asynchronous":
            checkpoint.save_async("g", tag).wait()
        else:
            checkpoint.save("g", tag)
        print(f"done {tag}", flush=True)


if __name__ == "__main__":
    main()
