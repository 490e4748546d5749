"""The key-value store's layouts, as `kvs_bench --layouts=1` measures them in one run."""

from __future__ import annotations

from pathlib import Path

from .gpm.results import Line, Results
from .gpm.tables import table
from .kept import FIGURES, RESULTS
from .plots import pyplot

SHARES = (50, 75)  # of the log that is live, in percent: a results file each
MEASURED = Results(RESULTS, ("cuda",))
_INPUTS = ("device memory", "pinned host memory")


def _of(lines: list[Line], benchmark: str) -> list[Line]:
    return [line for line in lines if line["benchmark"] == benchmark]


def _title(line: Line) -> str:
    if line["layout"] == "in_place":
        return "in place"
    return "log, fingerprints" if line.get("index") == "fingerprints" else "log"


def _us(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.3g} µs"
    return f"{microseconds / 1000:.3g} ms"


def _times(x: Line) -> str:
    return f"{_us(x['p50_us'])} / {_us(x['p99_us'])} / {_us(x['max_us'])}"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _sets(lines: list[Line]) -> list[list[object]]:
    """Returns a row for each kind of batch and layout; ratios are over the layout in place."""
    sets = _of(lines, "kvs_layout_set")
    in_place = {
        (x["batch"], x["input"]): x["million_sets_per_s"] for x in sets if _title(x) == "in place"
    }
    rows: list[list[object]] = []
    for x in sorted(
        sets, key=lambda x: (-x["batch"], _INPUTS.index(x["input"]), x["cleaning"] != "none")
    ):
        rate = x["million_sets_per_s"]
        cleaned = {"none": "" if _title(x) == "in place" else "none yet", "steady": "steady"}
        rows.append(
            [
                f"{x['batch']:,} SETs from {x['input']}",
                _title(x),
                cleaned[x["cleaning"]],
                _count(rate),
                f"{rate / in_place[x['batch'], x['input']]:.1f}",
                _times(x),
                f"{x['write_amplification']:.2f} / {x['space_amplification']:.2f}"
                if "write_amplification" in x
                else "",
            ]
        )
    return rows


def _others(lines: list[Line]) -> list[list[object]]:
    """Returns a row for each layout's mixed batches, lookups and opening."""
    rows: list[list[object]] = []
    for x in _of(lines, "kvs_layout_mixed"):
        what = f"{x['gets']:,} GETs, then {x['sets']:,} SETs"
        rows.append([what, _title(x), f"{_count(x['million_operations_per_s'])} M/s", _times(x)])
    for x in _of(lines, "kvs_layout_apply"):
        what = f"{x['batch']:,} SETs and ERASEs in one batch, half of each"
        rows.append([what, _title(x), f"{_count(x['million_operations_per_s'])} M/s", _times(x)])
    for x in _of(lines, "kvs_layout_get"):
        what = f"{x['batch']:,} GETs"
        rows.append([what, _title(x), f"{_count(x['million_gets_per_s'])} M/s", ""])
    for x in _of(lines, "kvs_layout_open"):
        rows.append(["opening after a crash", _title(x), f"{x['milliseconds']:.0f} ms", ""])
    for x in _of(lines, "kvs_layout_grow"):
        what = f"growing from {x['capacity_before']:,} pairs to twice as many"
        rows.append([what, _title(x), f"{x['milliseconds']:.0f} ms", ""])
    return rows


def part() -> str:
    """Returns what the page of results shows."""
    parts: list[str] = []
    for share in SHARES:
        report = MEASURED.report(f"kvlog_{share}")
        if not report.lines:
            continue
        pairs = report.lines[0]["pairs"]
        parts.append(
            f"{report.where}, {report.head['date'][:10]}, commit `{report.head['commit'][:9]}`: "
            f"{pairs:,} pairs, {share} % of the log:"
        )
        times = "median / 99th percentile / longest"
        sets = ["batch", "layout", "cleaning", "M SETs/s", "over in place", times,
                "amplification: bytes written / room"]  # fmt: skip
        parts.append(table(sets, _sets(report.lines)))
        parts.append(table(["what", "layout", "result", times], _others(report.lines)))
    return "\n\n".join(parts) or "Not measured yet: `scripts/gpu_round build kvlog`."


OPENING = "kvlog_open"
_SNAPSHOTS = {"closed": "closed", "killed": "as a kill leaves it", "none": "without snapshots"}


def opening() -> str:
    """Returns the table of opening a log, by its records, its age and its snapshots."""
    report = MEASURED.report(OPENING)
    lines = _of(report.lines, "kvs_log_open")
    if not lines:
        return "Not measured yet: `scripts/gpu_round build kvlog`."
    sizes = sorted({x["log_records"] for x in lines})
    rows: list[list[object]] = []
    for age in dict.fromkeys(x["age"] for x in lines):
        for state, words in _SNAPSHOTS.items():
            here = {
                x["log_records"]: x for x in lines if (x["age"], x["snapshots"]) == (age, state)
            }
            rows.append([age, words, *(f"{here[size]['milliseconds']:.1f} ms" for size in sizes)])
    head = [f"{size / 1e6:.3g} M records, {size * 16 / 1e9:.2g} GB" for size in sizes]
    where = f"{report.where}, {report.head['date'][:10]}, commit `{report.head['commit'][:9]}`:"
    return f"{where}\n\n" + table(["the log was", "opened", *head], rows)


def draw(path: Path) -> bool:
    """Draws how long a log takes to open over its records; says whether it was measured."""
    lines = _of(MEASURED.report(OPENING).lines, "kvs_log_open")
    if not lines:
        return False
    plt = pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axes, state in zip(panels, ("closed", "none"), strict=True):
        for age in dict.fromkeys(x["age"] for x in lines):
            points = sorted(
                (x["log_records"] / 1e6, x["milliseconds"])
                for x in lines
                if x["age"] == age and x["snapshots"] == state
            )
            axes.plot(*zip(*points, strict=True), marker="o", label=age)
        axes.set(title=_SNAPSHOTS[state], xlabel="records of the log, millions", ylim=(0, None))
    panels[0].set_ylabel("opening, ms")
    panels[0].legend(fontsize="x-small")
    figure.suptitle(f"Opening a log of which half is live ({MEASURED.report(OPENING).where})")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def draw_kept() -> None:
    """Draws the figure of the page, if it was measured."""
    draw(FIGURES / "kvlog-open.svg")


def readme_rows() -> list[list[object]]:
    """Returns the README's row: the largest batch of the log, without cleaning and with it."""
    report = MEASURED.report(f"kvlog_{SHARES[0]}")
    lines = _of(report.lines, "kvs_layout_set")
    most = max((x["batch"] for x in lines), default=0)
    here = {
        (_title(x), x["cleaning"]): x["million_sets_per_s"]
        for x in lines
        if x["batch"] == most and x["input"] == _INPUTS[0]
    }
    if ("log", "steady") not in here:
        return []
    rate, in_place = here["log", "none"], here["in place", "none"]
    what = f"key-value store as a log: random SETs, batches of {most:,} in device memory"
    result = (
        f"{rate:,.0f} M/s, {rate / in_place:.1f} times the store in place; "
        f"{here['log', 'steady']:,.0f} M/s beside cleaning, half of the log being live"
    )
    return [[what, report.where, result]]


TABLES = {"layouts": part, "log-opening": opening}
