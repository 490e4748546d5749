"""What the report generators share: where results are, and how a table is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from holdfast.gpm.results import Line
from holdfast.gpm.tables import table

__all__ = ["FIGURES", "RESULTS", "ROOT", "Line", "kept_campaigns", "table"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
FIGURES = ROOT / "docs" / "figures"


def kept_campaigns(folder: str) -> Iterator[tuple[Path, Line]]:
    """Yields the results of campaigns of a folder. Ends the program at one that came to no end."""
    for path in sorted((RESULTS / folder).glob("*.json")):
        result: Line = json.loads(path.read_text())
        if "error" in result:
            raise SystemExit(f"{path}: this campaign failed ({result['error']}): run it again")
        yield path, result
