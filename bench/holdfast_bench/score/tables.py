"""Tables of Score's experiments, ours beside the paper's, as Markdown."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ..gpm.results import Line
from ..gpm.tables import Rows, table
from .results import HINT_TITLES, TITLES, Results, Shot, ratios

Shots = dict[tuple[str, int], Shot]

SIZE_WORDS = {
    "paper": "the paper's sizes",
    "quarter": "a quarter of the paper's sizes",
    "tiny": "the size of tests, which says nothing of speed",
}
ORDERS = ("sequential", "reverse", "irregular")
HINTS = ("none", "single", "all")
# What the paper's text says of Score over optimized unified memory, by figure and sizes.
PAPER_BOTH = {
    ("score-fig5", "uniform"): "2 to 74",
    ("score-fig5", "variable"): "1.6 to 52",
    ("score-fig6", "uniform"): "1.8 to 3.6",
    ("score-fig6", "variable"): "2.9 to 22.8",
}
PAPER_HARDEST = {"save": "3.7", "restore": "38"}  # figure 6: variable, irregular, all hints
PAPER_ONE_HINT = "6.3 GB/s"
PAPER_AT_SCALE = {"none": "22.8", "single": "13", "all": "-"}


def unmeasured(name: str) -> str:
    """Says that there is no results file, and what makes one."""
    return f"Not measured yet: `holdfast bench {name} --size quarter`."


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _rates(shot: Shot | None) -> str:
    return f"{_number(shot.rate('save'))} / {_number(shot.rate('restore'))}" if shot else "-"


def _over(ours: Shot | None, theirs: Shot | None, call: str) -> str:
    return _number(ours.rate(call) / theirs.rate(call)) if ours and theirs else "-"


def _percent(shot: Shot | None, key: str) -> str:
    return f"{100 * shot.head[key]:.0f} %" if shot and key in shot.head else "-"


def _span(values: list[float]) -> str:
    if not values:
        return "-"
    least, most = _number(min(values)), _number(max(values))
    return least if least == most else f"{least} to {most}"


def _measured(rows: Rows, labels: int) -> Rows:
    """Leaves out what is nothing but dashes behind its labels."""
    return [row for row in rows if any(value != "-" for value in row[labels:])]


def _where(results: Results, name: str, size: str) -> str:
    report = results.report(name, size)
    return f"On {report.where}, at {SIZE_WORDS[size]}, {report.head['date'][:10]}:"


def throughput(results: Results, name: str) -> str:
    """Figures 5 and 6: saves and restores by order and hints."""
    wait = "wait" if name == "score-fig5" else "nowait"
    parts = []
    for size in results.sizes(name):
        shots = results.shots(name, size)
        rows: Rows = []
        for sizes in ("uniform", "variable"):
            for order in ORDERS:
                for hints in HINTS:
                    rows.append(_throughput_row(shots, sizes, order, hints, wait))
        header = [
            "sizes", "order", "hints", "Holdfast", "demand paging", "saving, ratio",
            "restoring, ratio", "restored from the GPU", "double buffer", "ADIOS2 BP5",
            "PyTorch DCP", "drain, Holdfast",
        ]  # fmt: skip
        parts.append(f"{_where(results, name, size)}\n\n{table(header, _measured(rows, 3))}")
        parts.append(_against_paper(shots, name, wait))
    return "\n\n".join(parts) or unmeasured(name)


def _throughput_row(shots: Shots, sizes: str, order: str, hints: str, wait: str) -> list[object]:
    def of(store: str, given: str) -> Shot | None:
        return shots.get((f"{store}/{sizes}/{order}/{given}/{wait}", 1))

    ours, theirs = of("history", hints), of("pager", hints)
    return [
        sizes, order, HINT_TITLES[hints], _rates(ours), _rates(theirs),
        _over(ours, theirs, "save"), _over(ours, theirs, "restore"), _percent(ours, "gpu_hits"),
        *(_rates(of(store, hints)) for store in ("buffers", "adios", "dcp")),
        f"{ours.head['drain_seconds']:.3g} s" if ours and ours.head["wait"] else "-",
    ]  # fmt: skip


def _against_paper(shots: Shots, name: str, wait: str) -> str:
    rows: Rows = []
    for sizes in ("uniform", "variable"):
        cells = [f"history/{sizes}/{o}/{h}/{wait}" for o in ORDERS for h in HINTS]
        ours = _span(ratios(shots, "both", cells))
        rows.append([f"saving and restoring, {sizes}", ours, PAPER_BOTH[name, sizes]])
    if name == "score-fig6":
        cell = [f"history/variable/irregular/all/{wait}"]
        for call, paper in PAPER_HARDEST.items():
            what = f"{call[:-1]}ing, variable, irregular, all hints"
            rows.append([what, *([_number(x) for x in ratios(shots, call, cell)] or ["-"]), paper])
    rows = [row for row in rows if row[1] != "-"]
    return table(["Holdfast over demand paging", "here", "paper, over unified memory"], rows)


def distances(results: Results) -> str:
    """Figure 7: restore rates and prefetch distances."""
    name = "score-fig7"
    parts = []
    for size in results.sizes(name):
        shots = results.shots(name, size)
        rows: Rows = []
        for store in ("history", "pager"):
            for hints in HINTS:
                shot = shots.get((f"{store}/uniform/sequential/{hints}/nowait", 1))
                if not shot:
                    continue
                ahead = shot.head["prefetch_distance"]
                rows.append([
                    TITLES[store], HINT_TITLES[hints], f"{_number(shot.rate('restore'))} GB/s",
                    _number(sum(ahead) / len(ahead)), f"{max(ahead):g}",
                    *(_percent(shot, f"{tier}_hits") for tier in ("gpu", "host", "disk")),
                    PAPER_ONE_HINT if (store, hints) == ("history", "single") else "-",
                ])  # fmt: skip
        header = ["", "hints", "restoring", "prefetch distance, mean", "most", "from the GPU",
                  "from the host", "from the disk", "paper"]  # fmt: skip
        parts.append(f"{_where(results, name, size)}\n\n{table(header, rows)}")
    return "\n\n".join(parts) or unmeasured(name)


def _beside(shots: Shots, rest: str, hints: str, ranks: int = 1) -> tuple[Shot | None, Shot | None]:
    """A history and the pager in the hardest case: variable sizes, irregular order."""
    ours, theirs = (
        shots.get((f"{store}/variable/irregular/{hints}/nowait/{rest}", ranks))
        for store in ("history", "pager")
    )
    return ours, theirs


def variations(results: Results) -> str:
    """Figure 8: intervals and cache sizes."""
    name = "score-fig8"
    parts = []
    for size in results.sizes(name):
        shots = results.shots(name, size)
        rows: Rows = []
        for setting in dict.fromkeys(cell.split("/")[5] for cell, _ in shots):
            key, value = setting.split("=")
            words = (f"interval {int(value) / 1000:g} ms" if key == "interval_us"
                     else f"GPU cache {int(value) / 2**30:.3g} GiB")  # fmt: skip
            adios = _rates(shots.get((f"adios/variable/irregular/none/nowait/{setting}", 1)))
            for hints in ("none", "all"):
                ours, theirs = _beside(shots, setting, hints)
                rows.append([
                    words, HINT_TITLES[hints], _rates(ours), _rates(theirs),
                    _over(ours, theirs, "save"), _over(ours, theirs, "restore"),
                    _percent(ours, "gpu_hits"), adios if hints == "none" else "-",
                ])  # fmt: skip
        header = ["", "hints", "Holdfast", "demand paging", "saving, ratio", "restoring, ratio",
                  "restored from the GPU", "ADIOS2 BP5"]  # fmt: skip
        parts.append(f"{_where(results, name, size)}\n\n{table(header, rows)}")
    return "\n\n".join(parts) or unmeasured(name)


def scaling(results: Results) -> str:
    """Figure 9: several GPUs."""
    name = "score-fig9"
    parts = []
    for size in results.sizes(name):
        shots = results.shots(name, size)
        rows: Rows = []
        numbers = sorted({ranks for _, ranks in shots})
        for ranks, coupled, hints in itertools.product(numbers, (0, 1), HINTS):
            ours, theirs = _beside(shots, f"coupled={coupled}", hints, ranks)
            totals = (f"{_number(ours.total('save'))} / {_number(ours.total('restore'))}"
                      if ours else "-")  # fmt: skip
            rows.append([
                ranks, "coupled" if coupled else "independent", HINT_TITLES[hints],
                _rates(ours), totals, _rates(theirs), _over(ours, theirs, "save"),
                _over(ours, theirs, "restore"), PAPER_AT_SCALE[hints],
            ])  # fmt: skip
        parts += _together(results, size)
        header = ["GPUs", "ranks", "hints", "Holdfast, a rank", "all ranks",
                  "demand paging, a rank", "saving, ratio", "restoring, ratio",
                  "paper's ratio, 32 GPUs"]  # fmt: skip
        parts.append(f"{_where(results, name, size)}\n\n{table(header, rows)}")
    return "\n\n".join(parts) or unmeasured(name)


def _together(results: Results, size: str) -> list[str]:
    name = "score-fig9"
    # Every rank prints what all reach together, as it saw it: the last of them counts.
    rows: Rows = [
        [line["ranks"], line["path"], f"{line['bytes'] / 2**20:g} MiB",
         f"{_number(line['gb_per_s'])} GB/s", f"{_number(line['plain_gb_per_s'])} GB/s",
         f"{line['speed_ratio']:.2f}"]
        for line in results.report(name, size).lines
        if line["benchmark"] == "score_together" and line["rank"] == line["ranks"] - 1
    ]  # fmt: skip
    if not rows:
        return []
    header = ["GPUs at once", "", "a snapshot", "Holdfast, all", "plain copies, all", "ratio"]
    return [f"{_where(results, name, size)}\n\n{table(header, rows)}"]


def fits(results: Results) -> str:
    """A shot that the pinned cache holds, and one that it does not."""
    name = "score-fits"
    parts = []
    for size in results.sizes(name):
        shots = results.shots(name, size)
        rows: Rows = []
        for setting in dict.fromkeys(cell.split("/")[5] for cell, _ in shots):
            gib = int(setting.split("=")[1]) / 2**30
            for hints in ("none", "all"):
                ours, theirs = (
                    shots.get((f"{store}/variable/irregular/{hints}/wait/{setting}", 1))
                    for store in ("history", "pager")
                )
                bare = shots.get((f"pager/variable/irregular/none/wait/{setting}", 1))
                rows.append([
                    f"{gib:.3g} GiB", HINT_TITLES[hints], _rates(ours), _rates(theirs),
                    _over(ours, theirs, "restore"), _over(ours, bare, "restore"),
                    *(_percent(ours, f"{tier}_hits") for tier in ("gpu", "host", "disk")),
                ])  # fmt: skip
        header = ["pinned cache", "hints", "Holdfast", "demand paging", "restoring, ratio",
                  "over demand paging without hints", "from the GPU", "from the host",
                  "from the disk"]  # fmt: skip
        parts.append(f"{_where(results, name, size)}\n\n{table(header, _measured(rows, 2))}")
    return "\n\n".join(parts) or unmeasured(name)


def _copies(lines: list[Line]) -> str:
    rows: Rows = [
        [line["path"], f"{line['bytes'] / 2**20:g} MiB", f"{_number(line['gb_per_s'])} GB/s",
         f"{_number(line['plain_gb_per_s'])} GB/s", f"{line['speed_ratio']:.2f}",
         f"{line['more_us']:+.0f} µs"]
        for line in lines
    ]  # fmt: skip
    header = ["", "a snapshot", "Holdfast", "plain copies", "ratio", "longer by"]
    return table(header, rows)


def costs(results: Results) -> str:
    """What a history costs beside the blocking time."""
    name = "score-costs"
    parts = []
    for size in results.sizes(name):
        rows: Rows = []
        copies = []
        for line in results.report(name, size).lines:
            kind = line["benchmark"]
            if kind == "score_copy":
                copies.append(line)
                continue
            if kind == "score_host":
                what = f"{line['call']}: the host's time"
                limit = "-" if line["call"].startswith("a copy") else "10 µs"
            elif kind == "score_eviction":
                what = f"an eviction's decision, {line['fragments']:,} fragments"
                limit = {32: "1 µs", 10_000: "50 µs"}.get(line["fragments"], "-")
            else:
                aim = "1 %" if line["kernel"] == "arithmetic" else "5 %"
                rows.append([f"a kernel bound by {line['kernel']}, beside copies of "
                             f"{_number(line['load_gb_per_s'])} GB/s",
                             f"{line['slower_percent']:.2g} % slower", "-", aim])  # fmt: skip
                continue
            rows.append([what, f"{_number(line['median_us'])} µs",
                         f"{_number(line['p99_us'])} µs", limit])  # fmt: skip
        header = ["", "median", "99th percentile", "aim"]
        if copies:
            parts.append(f"{_where(results, name, size)}\n\n{_copies(copies)}")
        parts.append(f"{_where(results, name, size)}\n\n{table(header, rows)}")
    return "\n\n".join(parts) or unmeasured(name)


TABLES: dict[str, Callable[[Results], str]] = {
    "score-fig5": lambda results: throughput(results, "score-fig5"),
    "score-fig6": lambda results: throughput(results, "score-fig6"),
    "score-fig7": distances,
    "score-fig8": variations,
    "score-fig9": scaling,
    "score-fits": fits,
    "score-costs": costs,
}
