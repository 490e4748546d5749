"""Draws docs/figures/history-timeline.svg: a small shot on this machine.

    python scripts/history_figure.py [PICTURE]

Three caches' worth of checkpoints are saved, with a pause for computing between two, and restored
in reverse, with all hints. The caches are too small and the disk is the machine's own, so that some
calls wait, and the picture says for what.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import holdfast
from holdfast import timeline

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "history-timeline.svg"
MIB = 1 << 20
STEPS = 48


def shot(trace: str) -> None:
    field = np.zeros(2 * MIB, np.uint8)
    with holdfast.History(gpu=8 * MIB, host=32 * MIB, disk="shot", trace=trace) as history:
        history.protect("field", field)
        for step in range(STEPS):
            field[:] = step
            time.sleep(0.003)  # the program computes
            history.save(step)
        history.hint(reversed(range(STEPS)))
        history.prefetch_start()
        for step in reversed(range(STEPS)):
            history.restore(step)
            assert field[0] == step
            time.sleep(0.003)


def main() -> None:
    picture = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        shot("shot.trace")
        trace = timeline.load(Path("shot.trace"))
        picture.write_text(timeline.svg(trace, timeline.longest_stalls(trace, 6)))
        os.chdir("/")


if __name__ == "__main__":
    main()
