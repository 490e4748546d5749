"""Has a history open until it is killed, or until its standard input ends: FOLDER [fork]."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import holdfast


def main() -> None:
    field = np.zeros(1 << 16, np.uint8)
    with holdfast.History(gpu=1 << 18, host=1 << 19, disk=sys.argv[1]) as history:
        history.protect("field", field)
        for step in range(6):
            history.save(step)
        history.flush()
        history.hint(5, 2)
        if sys.argv[2:] == ["fork"] and os.fork() == 0:
            time.sleep(60)  # its parent's socket stays open in it
            os._exit(0)
        print("open", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
