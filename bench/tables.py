"""What the report generators share: where results are, and how a table is written."""

from __future__ import annotations

from pathlib import Path

from holdfast.gpm.results import Line
from holdfast.gpm.tables import table

__all__ = ["FIGURES", "RESULTS", "ROOT", "Line", "table"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
FIGURES = ROOT / "docs" / "figures"
