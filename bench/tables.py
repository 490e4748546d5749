"""What the report generators share: where results are, and how a table is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Line = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
FIGURES = ROOT / "docs" / "figures"


def table(header: list[str], rows: list[list[object]]) -> str:
    """Formats a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
