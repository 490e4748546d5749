"""Reads the results files of Score's experiments, of the GPU alone unless asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..gpm.results import Line, Report
from ..gpm.results import Results as Files

TITLES = {
    "history": "Holdfast",
    "pager": "demand paging",
    "buffers": "double buffer",
    "adios": "ADIOS2 BP5",
    "dcp": "PyTorch DCP",
}
HINT_TITLES = {"none": "no hints", "single": "one hint", "all": "all hints"}


def results_name(experiment: str, size: str) -> str:
    """Returns the name of a results file, without the backend's: score_fig5_quarter."""
    return f"{experiment.replace('-', '_')}_{size}"


@dataclass(frozen=True)
class Shot:
    """A cell over all its ranks."""

    lines: tuple[Line, ...]

    @property
    def head(self) -> Line:
        """The first rank's line: what is the same for all, and what one rank shows."""
        return self.lines[0]

    def rate(self, call: str) -> float:
        """Returns a rank's part of total()."""
        return self.total(call) / len(self.lines)

    def total(self, call: str) -> float:
        """Returns GB/s of all ranks over the blocking time of the one that blocked longest.

        At a barrier one rank's blocking hides the other's, so that a mean of rates says nothing.
        """
        longest = max(x[f"{call}_seconds"] for x in self.lines)
        return float(sum(x["bytes"] for x in self.lines) / longest / 1e9)

    def both(self) -> float:
        """Returns GB/s of saves and restores together."""
        rates = (2 * x["bytes"] / (x["save_seconds"] + x["restore_seconds"]) for x in self.lines)
        return float(sum(rates) / len(self.lines) / 1e9)


class Results:
    """The results files of a folder."""

    def __init__(self, folder: Path, backends: tuple[str, ...] = ("cuda",)) -> None:
        self._files = Files(folder, backends)

    def report(self, experiment: str, size: str) -> Report:
        """Returns an experiment's file; an empty report where there is none."""
        return self._files.report(results_name(experiment, size))

    def sizes(self, experiment: str) -> list[str]:
        """Returns the sizes that were measured, the largest first."""
        return [size for size in ("paper", "quarter", "tiny") if self.report(experiment, size)]

    def shots(self, experiment: str, size: str) -> dict[tuple[str, int], Shot]:
        """Returns the shots by cell and number of ranks. One that lacks ranks is left out."""
        lines: dict[tuple[str, int], list[Line]] = {}
        for line in self.report(experiment, size).lines:
            if line["benchmark"] == "score_shot":
                lines.setdefault((line["cell"], line["ranks"]), []).append(line)
        return {
            key: Shot(tuple(sorted(found, key=lambda line: int(line["rank"]))))
            for key, found in lines.items()
            if len(found) == key[1]
        }


def ratios(
    shots: dict[tuple[str, int], Shot], call: str, cells: Iterable[str], over: str = "pager"
) -> list[float]:
    """Returns how many times the rate of `over` a history has, cell by cell, hints alike."""
    found = []
    for cell in cells:
        ours = shots.get((cell, 1))
        theirs = shots.get((cell.replace("history/", f"{over}/", 1), 1))
        if ours and theirs:
            if call == "both":
                found.append(ours.both() / theirs.both())
            else:
                found.append(ours.rate(call) / theirs.rate(call))
    return found
