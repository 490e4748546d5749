"""Writes a published velocity model for adjoint --velocity.

velocity_model.py NAME NX NZ METRES FILE: METRES is the side of a cell. NAME is a reference model of
the Earth that ObsPy brings as text, such as ak135 (Kennett, Engdahl and Buland, 1995) or iasp91
(Kennett and Engdahl, 1991): P velocities by depth, the same across. They are read from the package
where it is installed (pip install --no-deps obspy).
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import struct
import sys
from pathlib import Path


def fail(why: str) -> SystemExit:
    """Returns what ends the program with a message."""
    return SystemExit(f"velocity_model: {why}")


def table(name: str) -> list[tuple[float, float]]:
    """Returns depths in km and P velocities in km/s, as the package has them."""
    spec = importlib.util.find_spec("obspy")
    if spec is None or not spec.submodule_search_locations:
        raise fail("ObsPy, which has the models, is not installed: pip install --no-deps obspy")
    folder = Path(spec.submodule_search_locations[0], "taup", "data")
    known = sorted(path.stem for path in folder.glob("*.tvel"))
    if name not in known:
        raise fail(f"ObsPy has no model '{name}' as a table: choose of {', '.join(known)}")
    path = folder / f"{name}.tvel"
    try:
        lines = path.read_text().splitlines()[2:]  # behind two titles
        return [(float(words[0]), float(words[1])) for line in lines if (words := line.split())]
    except (ValueError, IndexError) as error:
        raise fail(f"{path} is no table of depths and velocities: {error}") from None


def velocity_at(rows: list[tuple[float, float]], depth: float) -> float:
    """Returns the velocity at a depth: linear between rows; at a jump, that below it."""
    for (top, above), (bottom, below) in itertools.pairwise(rows):
        if top <= depth < bottom:
            return above + (below - above) * (depth - top) / (bottom - top)
    raise fail(f"the model ends above {depth:g} km: give fewer or smaller cells")


def main() -> None:
    """Writes rows of float32, the top one first."""
    if len(sys.argv) != 6:
        raise SystemExit(__doc__)
    try:
        nx, nz, metres = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    except ValueError as error:
        raise fail(f"{error}: NX and NZ are whole numbers, METRES is a number") from None
    if not (0 < nx <= 1 << 14 and 0 < nz <= 1 << 14 and 0 < metres < math.inf):
        raise fail("give 1 to 16,384 cells a side, of more than 0 metres")
    rows = table(sys.argv[1])
    values = [1000 * velocity_at(rows, (row + 0.5) * metres / 1000) for row in range(nz)]
    try:
        with Path(sys.argv[5]).open("wb") as file:
            for value in values:
                file.write(struct.pack("<f", value) * nx)
    except OSError as error:
        raise fail(f"cannot write {sys.argv[5]}: {error.strerror}") from None


if __name__ == "__main__":
    main()
