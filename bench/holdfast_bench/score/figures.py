"""Draws the figures of Score's experiments from their results files, as SVG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..plots import pyplot
from .results import HINT_TITLES, TITLES, Results, Shot
from .tables import HINTS, ORDERS, SIZE_WORDS, Shots

_COLOURS = {
    ("history", "none"): "#8fc3a3", ("history", "single"): "#58a274", ("history", "all"): "#2f7d4f",
    ("pager", "none"): "#bccde3", ("pager", "single"): "#7f9fc8", ("pager", "all"): "#3f6ea8",
    ("buffers", "all"): "#a9a9a9", ("adios", "none"): "#c77f6a", ("dcp", "none"): "#c9b26b",
}  # fmt: skip
_SAVING = {"save": "saving", "restore": "restoring"}


def _label(store: str, hints: str) -> str:
    return f"{TITLES[store]}, {HINT_TITLES[hints]}"


def _finish(figure: Any, results: Results, name: str, size: str, path: Path) -> None:
    where = f"{results.report(name, size).where}; {SIZE_WORDS[size]}"
    figure.suptitle(where, fontsize="small")
    labels: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labels.setdefault(label, handle)
    figure.legend(list(labels.values()), list(labels), fontsize="x-small", ncols=5,
                  loc="lower center")  # fmt: skip
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot().close(figure)


def _throughput(results: Results, name: str, size: str, path: Path) -> bool:
    shots = results.shots(name, size)
    wait = "wait" if name == "score-fig5" else "nowait"
    figure, panels = pyplot().subplots(2, 2, figsize=(11, 6.4), sharey="row")
    width = 0.9 / len(_COLOURS)
    for row, call in zip(panels, _SAVING, strict=True):
        for axes, sizes in zip(row, ("uniform", "variable"), strict=True):
            for number, ((store, hints), colour) in enumerate(_COLOURS.items()):
                points = [
                    (place + number * width, shot.rate(call))
                    for place, order in enumerate(ORDERS)
                    if (shot := shots.get((f"{store}/{sizes}/{order}/{hints}/{wait}", 1)))
                ]
                if points:
                    axes.bar(*zip(*points, strict=True), width, color=colour,
                             label=_label(store, hints))  # fmt: skip
            axes.set_yscale("log")
            axes.set_xticks([place + 0.4 for place in range(len(ORDERS))], ORDERS)
            axes.set_title(f"{_SAVING[call]}, {sizes}", fontsize="medium")
        row[0].set_ylabel("GB/s over blocking time")
    _finish(figure, results, name, size, path)
    return True


def _distances(results: Results, name: str, size: str, path: Path) -> bool:
    shots = results.shots(name, size)
    figure, (rates, ahead) = pyplot().subplots(2, 1, figsize=(9, 6), sharex=True)
    for hints in HINTS:
        shot = shots.get((f"history/uniform/sequential/{hints}/nowait", 1))
        if not shot:
            continue
        colour = _COLOURS["history", hints]
        steps = range(len(shot.head["prefetch_distance"]))
        rates.plot(steps, shot.head["restore_rates_gb_per_s"], color=colour, linewidth=0.9,
                   label=HINT_TITLES[hints])  # fmt: skip
        ahead.plot(steps, shot.head["prefetch_distance"], color=colour, linewidth=0.9)
    rates.set_yscale("log")
    rates.set_ylabel("restoring, GB/s")
    ahead.set(ylabel="prefetch distance", xlabel="iteration of the backward pass")
    _finish(figure, results, name, size, path)
    return True


def _lines(axes: Any, shots: Shots, key: str, scale: float, value: Callable[[Shot], float]) -> None:
    """A line for each store and hints over what a setting of the cell is."""
    for (store, hints), colour in _COLOURS.items():
        points = []
        for (cell, _), shot in shots.items():
            words = cell.split("/")
            if (words[0], words[3]) == (store, hints) and words[5].startswith(key + "="):
                points.append((int(words[5].split("=")[1]) / scale, value(shot)))
        if points:
            axes.plot(*zip(*sorted(points), strict=True), marker="o", color=colour,
                      label=_label(store, hints))  # fmt: skip
    axes.set_yscale("log")


def _variations(results: Results, name: str, size: str, path: Path) -> bool:
    shots = results.shots(name, size)
    figure, panels = pyplot().subplots(2, 2, figsize=(10, 6), sharey="row")
    settings = (("interval_us", 1000, "interval, ms"), ("gpu_bytes", 2**30, "GPU cache, GiB"))
    for row, call in zip(panels, _SAVING, strict=True):
        for axes, (key, scale, label) in zip(row, settings, strict=True):
            chosen = dict(shots)
            if key == "gpu_bytes":  # the first interval is of the first size, too
                first = min((int(c.split("=")[1]), c) for c, _ in shots if "/interval_us=" in c)[0]
                for (cell, ranks), shot in shots.items():
                    if cell.endswith(f"/interval_us={first}") and "gpu_bytes" in shot.head:
                        own = f"gpu_bytes={shot.head['gpu_bytes']}"
                        chosen[cell.replace(f"interval_us={first}", own), ranks] = shot
            _lines(axes, chosen, key, scale, lambda shot, c=call: shot.rate(c))  # type: ignore[misc]
            axes.set(xlabel=label)
        row[0].set_ylabel(f"{_SAVING[call]}, GB/s")
    _finish(figure, results, name, size, path)
    return True


def _scaling(results: Results, name: str, size: str, path: Path) -> bool:
    shots = results.shots(name, size)
    figure, panels = pyplot().subplots(2, 2, figsize=(10, 6), sharey="row")
    for row, call in zip(panels, _SAVING, strict=True):
        for axes, coupled in zip(row, (1, 0), strict=True):
            for (store, hints), colour in _COLOURS.items():
                cell = f"{store}/variable/irregular/{hints}/nowait/coupled={coupled}"
                points = [(n, shot.total(call)) for (c, n), shot in shots.items() if c == cell]
                if points:
                    axes.plot(*zip(*sorted(points), strict=True), marker="o", color=colour,
                              label=_label(store, hints))  # fmt: skip
            axes.set_yscale("log")
            axes.set_title("coupled" if coupled else "independent", fontsize="medium")
            axes.set(xlabel="GPUs")
        row[0].set_ylabel(f"{_SAVING[call]}, GB/s of all ranks")
    _finish(figure, results, name, size, path)
    return True


FIGURES: dict[str, Callable[[Results, str, str, Path], bool]] = {
    "score-fig5": _throughput,
    "score-fig6": _throughput,
    "score-fig7": _distances,
    "score-fig8": _variations,
    "score-fig9": _scaling,
}


def draw(name: str, results: Results, path: Path) -> bool:
    """Draws a figure of the largest size that was measured; says whether there was any."""
    sizes = results.sizes(name)
    return bool(sizes) and FIGURES[name](results, name, sizes[0], path)
