"""Draws figures of results files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast import Error

from .kept import ROOT

# What a result's line may say about how it is drawn: "x" and "y" name the fields of the axes,
# "series" the curve it belongs to, "plot" which of the benchmark's figures. Without the first two
# the first pair of known fields is used.
_X = ("threads", "batch", "entry_bytes", "blocks", "bytes", "changed_pages", "size")
_Y = ("gb_per_s", "m_per_s", "operations_per_second", "bytes_per_second", "ms", "seconds")


def pyplot() -> Any:
    """Returns matplotlib's pyplot, set up as all figures are drawn: to files, reproducibly.

    Raises Error (unsupported) where matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise Error(
            "matplotlib, which draws figures, is not installed: "
            f"pip install -r {ROOT / 'bench' / 'requirements.txt'}",
            "unsupported",
        ) from None

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "holdfast"  # the same file from the same results
    # Text stays text, which takes a fraction of its outlines' lines. matplotlib places it by the
    # first of these; the second, for readers who lack that, is as wide.
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["font.family"] = "sans-serif"
    mpl.rcParams["font.sans-serif"] = ["DejaVu Sans", "Verdana", "sans-serif"]
    import matplotlib.pyplot as plt

    return plt


def _axis(lines: list[dict[str, Any]], key: str, known: tuple[str, ...]) -> str | None:
    named = {str(line[key]) for line in lines if key in line}
    if len(named) == 1:
        return named.pop()
    return next((name for name in known if all(name in line for line in lines)), None)


def _series(lines: list[dict[str, Any]], x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        name = line.get("series")
        if name is None:
            texts = [
                str(v)
                for k, v in line.items()
                if isinstance(v, str) and k not in ("benchmark", "x", "y", "medium")
            ]
            name = ", ".join(texts) or str(line["benchmark"])
        curves.setdefault(str(name), []).append((float(line[x]), float(line[y])))
    return {name: sorted(points) for name, points in curves.items()}


def _draw(report: dict[str, Any], title: str, lines: list[dict[str, Any]], path: Path) -> bool:
    """Draws one figure's lines; returns whether there was a series to draw."""
    x, y = _axis(lines, "x", _X), _axis(lines, "y", _Y)
    if x is None or y is None or len({line[x] for line in lines}) < 2:
        return False
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name, points in _series(lines, x, y).items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    rooflines = {float(line["roofline"]) for line in lines if "roofline" in line}
    for roofline in rooflines:
        axes.axhline(roofline, linestyle="--", color="grey", label="roofline")
    if min(float(line[x]) for line in lines) > 0:
        axes.set_xscale("log", base=2)
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    machine = report["machine"]["device"]
    figure.text(0.01, 0.01, f"{machine}; {report['medium']}; {report['date'][:10]}", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True


def _title(line: dict[str, Any]) -> str:
    names = (str(line[key]) for key in ("benchmark", "plot") if key in line)
    return " ".join(names)


def draw_all(results: Path, out: Path) -> list[Path]:
    """Draws every benchmark of every results file in a folder; returns the figures."""
    files = sorted(results.glob("*.json"))
    if not files:
        raise Error(f"{results} has no results files: run `holdfast bench run`", "not_found")
    out.mkdir(parents=True, exist_ok=True)
    figures = []
    for file in files:
        try:
            report = json.loads(file.read_text())
            lines = report["results"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise Error(f"{file} is not a results file: {error}", "damaged") from None
        for title in dict.fromkeys(map(_title, lines)):
            path = out / f"{file.stem}-{title.replace('/', '_').replace(' ', '_')}.png"
            mine = [line for line in lines if _title(line) == title]
            if _draw(report, title, mine, path):
                figures.append(path)
    return figures
