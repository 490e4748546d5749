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


def draw() -> None:
    """Draws Score's figures."""
    for name in score.figures.FIGURES:
        score.figures.draw(name, MEASURED, FIGURES / f"{name}.svg")
