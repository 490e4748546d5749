"""Makes the tables and figures of docs/results/score.md from bench/results: `make results`."""

from __future__ import annotations

from collections.abc import Callable

from . import score
from .kept import FIGURES, RESULTS, ROOT

PAGE = ROOT / "docs" / "results" / "score.md"
# Of a GPU alone: what the CPU backend takes is no result.
MEASURED = score.Results(RESULTS, ("cuda",))


def _part(name: str) -> str:
    """A figure where there is one, and the tables."""
    text = score.tables.TABLES[name](MEASURED)
    if name in score.figures.FIGURES and MEASURED.sizes(name):
        return f"![{score.EXPERIMENTS[name].what}](../figures/{name}.svg)\n\n{text}"
    return text


def _table(name: str) -> Callable[[], str]:
    return lambda: _part(name)


TABLES: dict[str, Callable[[], str]] = {name: _table(name) for name in score.tables.TABLES}


def readme_rows() -> list[list[object]]:
    """Returns the README's rows: one copy, and the paper's hardest shot."""
    rows: list[list[object]] = []
    costs = MEASURED.report("score-costs", "paper")
    for line in costs.lines:
        if line.get("path") in ("save, GPU tier", "restore, GPU tier", "restore, host tier"):
            rows.append([f"history: {line['path']}, {line['bytes'] >> 20} MiB", costs.where,
                         f"{line['gb_per_s']:,.0f} GB/s, {100 * line['speed_ratio']:.0f} % of a "
                         "plain copy"])  # fmt: skip
    for size in MEASURED.sizes("score-fig6"):
        shots = MEASURED.shots("score-fig6", size)
        cell = "variable/irregular/all/nowait"
        ours, theirs = (shots.get((f"{store}/{cell}", 1)) for store in ("history", "pager"))
        if ours and theirs:
            saving, restoring = (
                ours.rate(call) / theirs.rate(call) for call in ("save", "restore")
            )
            rows.append([f"history: Score's hardest shot, at {score.tables.SIZE_WORDS[size]}",
                         MEASURED.report("score-fig6", size).where,
                         f"saving {saving:.1f} times, restoring {restoring:.1f} times as fast as "
                         "demand paging with the same hints"])  # fmt: skip
    return rows


def draw() -> None:
    """Draws Score's figures."""
    for name in score.figures.FIGURES:
        score.figures.draw(name, MEASURED, FIGURES / f"{name}.svg")
