"""Draws the figures of GPM's experiments from their results files, as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..plots import pyplot
from .bounds import link_bound
from .results import (
    DELTA,
    MODE_TITLES,
    NATIVE,
    PAPER_VARIANTS,
    TITLES,
    Line,
    Report,
    Results,
    title_of,
)
from .tables import stores

# A colour for each mode, the same in all figures.
_COLOURS = {
    "cap-mm": "#7f9fc8",
    "cap-delta": "#3f6ea8",
    "cap-delta-raw": "#244a7a",
    "cap-log": "#16304f",
    "gpufs": "#c9b26b",
    "ndp": "#9a86b8",
    "gpm": "#2f7d4f",
    "eadr": "#8fc3a3",
    "cap-eadr": "#bccde3",
    "cpu": "#a9a9a9",
    "rocksdb": "#c77f6a",
}
_BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}  # labels, where lines cross them
_PROJECTED = ("eadr", "cap-eadr")
_SIZE_WORDS = {"paper": "the paper's sizes", "real": "real inputs", "test": "tests' sizes"}

# Name of a series -> a value for each place, None where there is none.
Series = Mapping[str, Sequence[float | None]]


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.3g}"


def _bars(
    axes: Any,
    places: Sequence[str],
    series: Series,
    colours: Mapping[str, str],
    labels: Mapping[str, str],
    hatched: Sequence[str] = (),
) -> None:
    """Draws grouped bars, each with its value; projections are hatched."""
    shown = [name for name, values in series.items() if any(v is not None for v in values)]
    width = 0.82 / max(1, len(shown))
    for number, name in enumerate(shown):
        points = [
            (place + number * width, value)
            for place, value in enumerate(series[name])
            if value is not None
        ]
        bars = axes.bar(
            *zip(*points, strict=True),
            width,
            label=labels.get(name, name),
            color=colours.get(name, f"C{number}"),
            hatch="////" if name in hatched else None,
            edgecolor="white" if name in hatched else "none",
            linewidth=0,
        )
        turned = len(shown) * len(places) > 14
        axes.bar_label(
            bars,
            [_short(value) for _, value in points],
            fontsize=6.5,
            rotation=90 if turned else 0,
            padding=2,
            bbox=_BEHIND,
        )
    middle = (len(shown) - 1) * width / 2
    axes.set_xticks([i + middle for i in range(len(places))], places, fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _log_scale(axes: Any, series: Series) -> None:
    """Sets a logarithmic axis with room for the labels, where values span more than a decade."""
    values = [v for many in series.values() for v in many if v]
    if not values:
        return
    if max(values) / min(values) > 10:
        axes.set_yscale("log")
        low, high = min(0.5, 0.6 * min(values)), 4 * max(values)
        axes.set_ylim(low, high)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(0, 1.25 * max(values))


def _panels(plt: Any, rows: int, columns: int = 1, height: float = 3.0) -> tuple[Any, list[Any]]:
    figure, panels = plt.subplots(rows, columns, figsize=(10, height * rows), squeeze=False)
    return figure, list(panels.flat)


def _speedups(
    plt: Any, results: Results, modes: Sequence[str], names: Sequence[str], over: str
) -> Any:
    """Draws how many times faster modes are than `over`, a panel for each size."""
    sizes = [s for s in results.sizes() if any(over in by for by in results.modes(s).values())]
    if not sizes:
        return None
    few = len(names) * len(modes) < 6
    figure, panels = _panels(plt, 1 if few else len(sizes), len(sizes) if few else 1, 3.3)
    for axes, size in zip(panels, sizes, strict=True):
        measured = results.modes(size, variants=True)
        lines = {n: by for n, by in measured.items() if n in names and over in by}
        series = {
            mode: [results.speedup(size, name, mode, over) for name in lines] for mode in modes
        }
        places = [textwrap.fill(title_of(name), 12) for name in lines]
        _bars(axes, places, series, _COLOURS, MODE_TITLES, _PROJECTED)
        axes.axhline(1, color="black", linewidth=0.7, zorder=1.5)
        _log_scale(axes, series)
        axes.set_ylabel(f"times as fast as {MODE_TITLES[over]}", fontsize=8)
        title = f"{_SIZE_WORDS[size]}; {results.where(size)}"
        axes.set_title(_wrapped(title) if few else title, fontsize=9, loc="left")
        if len(modes) > 1:
            # Beside the title, where no bar comes.
            where = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98)}
            axes.legend(fontsize=7, ncols=5, frameon=False, **where)
    return figure


def fig1a(plt: Any, results: Results) -> Any:
    """SETs a second of key-value stores."""
    panels_of = []
    for size in results.sizes():
        bars: dict[str, tuple[float, str]] = {}
        for line in results.report(f"rocksdb_kvs_{size}").lines:
            rate = float(line["million_sets_per_s"])
            if rate > bars.get("RocksDB", (0.0, ""))[0]:
                bars["RocksDB"] = rate, _COLOURS["rocksdb"]
        for title, mode, _, rate in stores(results, size):
            bars[textwrap.fill(title, 14)] = rate, _COLOURS[mode]
        if bars:
            panels_of.append((size, bars))
    if not panels_of:
        return None
    figure, panels = _panels(plt, 1, len(panels_of), 3.4)
    for axes, (size, bars) in zip(panels, panels_of, strict=True):
        values = [rate for rate, _ in bars.values()]
        drawn = axes.bar(list(bars), values, 0.6, color=[colour for _, colour in bars.values()])
        _label(axes, drawn, values)
        _log_scale(axes, {"": values})
        axes.set_ylabel("million SETs a second", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        title = _wrapped(f"{_SIZE_WORDS[size]}; {results.where(size)}")
        kinds = {results.report(f"rocksdb_kvs_{size}").head.get("machine", {}).get("processor")}
        own = results.report(f"gpm_modes_{size}").head["machine"]["processor"]
        if "RocksDB" in bars and kinds != {own}:
            title += "\nRocksDB was run on another machine"
        axes.set_title(title, fontsize=9, loc="left")
    return figure


def fig1b(plt: Any, results: Results) -> Any:
    """Native workloads against the CPU alone."""
    return _speedups(plt, results, ("gpm",), NATIVE, "cpu")


def _wrapped(text: str) -> str:
    return text.replace("; ", "\n", 1)


def _curve(axes: Any, lines: list[Line], x: str, label: str, colour: str | None = None) -> None:
    """Draws a curve; its legend says where it begins and how far up it comes."""
    points = sorted((float(line[x]), float(line["gb_per_s"])) for line in lines)
    label += f": {points[0][1]:.3g} to {max(rate for _, rate in points):.3g}"
    axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label, color=colour)


def _label(axes: Any, bars: Any, values: Sequence[float]) -> None:
    axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize=8, padding=2, bbox=_BEHIND)


def _thread_axis(axes: Any, report: Report, words: str, title: str) -> None:
    link = max(line["copy_engine_gb_per_s"] for line in report.lines)
    axes.axhline(link, linestyle="--", color="grey", linewidth=1)
    axes.annotate(
        f"copy engine: {link:.1f}",
        (0.02, link),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=7,
        color="dimgrey",
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    tops = [float(line["gb_per_s"]) for line in report.lines]
    axes.set_ylim(0, 1.2 * max(link, *tops))
    axes.set_xlabel(words, fontsize=8)
    axes.set_ylabel("GB/s made durable", fontsize=8)
    axes.set_title(_wrapped(f"{title}; {report.where}"), fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, loc="lower right")


def fig3(plt: Any, results: Results) -> Any:
    """What threads persist: the CPU's and the GPU's."""
    cap, gpm = results.report("cap_bench"), results.report("persist_bench")
    reports = [report for report in (cap, gpm) if report]
    if not reports:
        return None
    figure, panels = _panels(plt, 1, len(reports), 3.8)
    for axes, report in zip(panels, reports, strict=True):
        if report is cap:
            for number, how in enumerate(dict.fromkeys(line["how"] for line in cap.lines)):
                lines = [line for line in cap.lines if line["how"] == how]
                _curve(axes, lines, "cpu_threads", str(how), f"C{number}")
            _thread_axis(axes, cap, "CPU threads", "(a) CAP: threads of the CPU persist")
            continue
        label = "8-byte stores, each persisted"
        _curve(axes, gpm.lines, "threads", label, _COLOURS["gpm"])
        _thread_axis(axes, gpm, "GPU threads", "(b) GPM: threads of the GPU persist")
    return figure


def fig9(plt: Any, results: Results) -> Any:
    """Speedups over CAP-fs."""
    names = (*TITLES, *PAPER_VARIANTS)
    return _speedups(plt, results, ("cap-mm", *DELTA, "gpufs", "gpm"), names, "cap-fs")


def fig10(plt: Any, results: Results) -> Any:
    """Without direct persistence, and projections to eADR."""
    modes = ("cap-mm", *DELTA, "ndp", "gpm", "eadr", "cap-eadr")
    return _speedups(plt, results, modes, tuple(TITLES), "cap-fs")


def fig11(plt: Any, results: Results) -> Any:
    """The coalesced log against the conventional one: in workloads, and alone."""
    sizes, report = results.sizes("gpm_logs"), results.report("log_bench")
    if not sizes and not report:
        return None
    figure, panels = _panels(plt, 1, len(sizes) + bool(report), 3.8)
    for axes, size in zip(panels, sizes, strict=False):
        pairs = results.log_speedups(size)
        values = [other["cost_seconds"] / ours["cost_seconds"] for ours, other in pairs.values()]
        drawn = axes.bar([TITLES[name] for name in pairs], values, 0.5, color=_COLOURS["gpm"])
        _label(axes, drawn, values)
        axes.axhline(1, color="black", linewidth=0.7, zorder=1.5)
        axes.tick_params(labelsize=8)
        axes.set_ylim(0, 1.2 * max(*values, 1.0))
        axes.set_ylabel("times as fast as with the conventional log", fontsize=8)
        where = results.report(f"gpm_logs_{size}").where
        axes.set_title(_wrapped(f"(a) {_SIZE_WORDS[size]}; {where}"), fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    if report:
        _log_curves(panels[-1], report)
    return figure


def _log_curves(axes: Any, report: Report) -> None:
    """Draws the latency of an insert by threads, of 24-byte entries."""
    names = {
        "conventional_1024": ("conventional, 1,024 locked partitions", "#c77f6a"),
        "conventional_private": ("conventional, a partition a thread", "#c9b26b"),
        "coalesced": ("coalesced", _COLOURS["gpm"]),
    }
    for layout, (label, colour) in names.items():
        points = sorted(
            (line["threads"], line["threads"] / float(line["million_inserts_per_s"]))
            for line in report.lines
            if line.get("layout") == layout and line["entry_bytes"] == 24
        )
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label, c=colour)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("threads that log", fontsize=8)
    axes.set_ylabel("µs in which every thread inserts once", fontsize=8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(labelsize=7)
    axes.set_title(_wrapped(f"(b) inserts of 24 bytes; {report.where}"), fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, loc="upper left")


def fig12(plt: Any, results: Results) -> Any:
    """Bytes a second to the medium, and with the reads over the link."""
    sizes = [size for size in results.sizes() if results.modes(size)]
    if not sizes:
        return None
    figure, panels = _panels(plt, len(sizes), height=3.0)
    for axes, size in zip(panels, sizes, strict=True):
        lines = {name: by["gpm"] for name, by in results.modes(size).items() if "gpm" in by}
        rates = [x["bytes_per_step"] / x["cost_seconds"] / 1e9 for x in lines.values()]
        series = {"writes to the medium": rates}
        read = [link_bound(x, 1).read / x["cost_seconds"] / 1e9 for x in lines.values()]
        series_with_reads: dict[str, list[float | None]] = {
            **{name: [*values] for name, values in series.items()},
            "reads of the medium, at most": [value or None for value in read],
        }
        colours = {
            "writes to the medium": _COLOURS["gpm"],
            "reads of the medium, at most": "#b9d9c5",
        }
        _bars(axes, [TITLES[name] for name in lines], series_with_reads, colours, {})
        link = results.copy_engine(size)
        if link:
            axes.axhline(link, linestyle="--", color="grey", linewidth=1, zorder=0.5)
            axes.text(len(lines) - 0.2, link, f"copy engine\n{link:.1f}", fontsize=7, va="center")
        axes.set_ylim(0, 1.2 * max([link or 0, *rates]))
        axes.set_ylabel("GB/s", fontsize=8)
        axes.set_title(f"{_SIZE_WORDS[size]}; {results.where(size)}", fontsize=9, loc="left")
        axes.legend(fontsize=7, ncols=2, frameon=False, loc="upper left")
    return figure


FIGURES: dict[str, tuple[str, Callable[[Any, Results], Any]]] = {
    "gpm-fig1a": ("Figure 1a: key-value stores", fig1a),
    "gpm-fig1b": ("Figure 1b: native workloads against the CPU alone", fig1b),
    "gpm-fig3": ("Figure 3: persisting by more and more threads", fig3),
    "gpm-fig9": ("Figure 9: speedup over CAP-fs", fig9),
    "gpm-fig10": ("Figure 10: without direct persistence, and with eADR", fig10),
    "gpm-fig11": ("Figure 11: the coalesced log against conventional logging", fig11),
    "gpm-fig12": ("Figure 12: bandwidth over the link with GPM", fig12),
}


def draw(name: str, results: Results, path: Path) -> bool:
    """Draws one figure; returns False, with no file, where nothing was measured for it."""
    plt = pyplot()
    words, make = FIGURES[name]
    figure = make(plt, results)
    if figure is None:
        return False
    figure.suptitle(f"{words} (the medium is DRAM in shared memory)", fontsize=10)
    figure.tight_layout()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=metadata, dpi=110)
    plt.close(figure)
    return True
