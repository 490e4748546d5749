"""Draws a migrated image: draw.py IMAGE.pgm FIGURE.png [METRES_A_CELL]."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt


def read_greymap(path: Path) -> np.ndarray:
    """Returns the rows of a binary greymap as the program writes it."""
    magic, extent, most, values = path.read_bytes().split(b"\n", 3)
    if (magic, most) != (b"P5", b"255"):
        raise SystemExit(f"{path} is no greymap of adjoint --image")
    columns, rows = map(int, extent.split())
    return np.frombuffer(values, np.uint8).reshape(rows, columns)


def main() -> None:
    """Draws it with axes in kilometres."""
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    image = read_greymap(Path(sys.argv[1]))
    cell = float(sys.argv[3] if len(sys.argv) == 4 else 10.0) / 1000
    rows, columns = image.shape
    figure, axes = plt.subplots(figsize=(7.2, 7.2 * rows / columns + 0.6), layout="constrained")
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=(0, columns * cell, rows * cell, 0))
    axes.set(xlabel="across (km)", ylabel="depth (km)")
    figure.savefig(sys.argv[2], dpi=110, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
