"""What the source tree keeps: results, campaigns and figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
FIGURES = ROOT / "docs" / "figures"


def kept_campaigns(folder: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields the results of campaigns of a folder. Ends the program at one that came to no end."""
    for path in sorted((RESULTS / folder).glob("*.json")):
        result: dict[str, Any] = json.loads(path.read_text())
        if "error" in result:
            raise SystemExit(f"{path}: this campaign failed ({result['error']}): run it again")
        yield path, result
