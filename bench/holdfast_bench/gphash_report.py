"""The persistent map beside its rivals, as `holdfast bench gphash-*` measures them."""

from __future__ import annotations

from collections.abc import Callable

from . import gphash, gphash_alone
from .gpm.results import Line, Report, Results
from .gpm.tables import table
from .kept import RESULTS, ROOT

PAGE = ROOT / "docs" / "results" / "gphash.md"
MEASURED = Results(RESULTS, ("cuda",))

OURS = "Holdfast, ordered where it pays"
# The paper's ratio over the best of its rivals, by our workload (section 4.2).
PAPER = {"insert": 5.79, "update": 9.23, "erase": 10.37, "search-present": 4.28}


def _report(figure: str, size: str = "paper") -> Report:
    return MEASURED.report(f"gphash_fig{figure}_{size}")


def _where(report: Report) -> str:
    head = report.head
    return (
        f"{report.where}, {head['date'][:10]}, commit `{head['commit'][:9]}`, `{head['command']}`:"
    )


def _part(figure: str, size: str, make: Callable[[Report], str]) -> Callable[[], str]:
    def part() -> str:
        report = _report(figure, size)
        if not report.lines:
            return f"Not measured yet: `holdfast bench gphash-fig{figure}`."
        return f"{_where(report)}\n\n{make(report)}"

    return part


def _bests(report: Report) -> dict[str, dict[str, Line]]:
    """Returns the line of the best batch by title and workload, ours first."""
    found: dict[str, dict[str, Line]] = {}
    for line in report.lines:
        if line["workload"] not in gphash.MICRO:
            continue
        of = found.setdefault(gphash.title(line), {})
        before = of.get(line["workload"])
        if before is None or _rate(line) > _rate(before):
            of[line["workload"]] = line
    return dict(sorted(found.items(), key=lambda item: item[0] != OURS))


def _rate(line: Line) -> float:
    rate: float = line["million_operations_per_s"]
    return rate


def best(report: Report) -> str:
    """Each contestant at its best batch, and how many times that ours is."""
    found = _bests(report)
    ours = next(iter(found.values()))

    def cell(of: dict[str, Line], workload: str) -> str:
        if workload not in of:
            return ""
        line = of[workload]
        shown = f"{_rate(line):.3g} at {line['batch']:,}"
        return shown if of is ours else f"{shown}: {_rate(ours[workload]) / _rate(line):.3g}x"

    rows: list[list[object]] = [
        [name, *(cell(of, one) for one in gphash.MICRO)] for name, of in found.items()
    ]
    paper = [f"{PAPER[one]}x" if one in PAPER else "" for one in gphash.MICRO]
    rows.append(["the paper's, over its rivals", *paper])
    return table(["M operations/s", *gphash.MICRO], rows)


def readme_rows() -> list[list[object]]:
    """Returns the README's row: ours over its rivals, best batch of each."""
    found = _bests(_report("5"))
    if not found:
        return []
    ours = next(iter(found.values()))

    def over(title: str) -> str:
        return ", ".join(
            f"{name} {_rate(ours[one]) / _rate(found[title][one]):.2g}"
            for name, one in (("search", "search-present"), ("update", "update"),
                              ("insert", "insert"), ("erase", "erase"))
        )  # fmt: skip

    printed, assisted = "SlabHash-GPM, as printed", "CPU-assisted, gathered by shard on the device"
    what = "hash map of 16 M pairs, best batch of each, times its rivals"
    rivals = f"SlabHash-GPM: {over(printed)}; a map kept by 16 CPU threads: {over(assisted)}"
    return [[what, rivals]]


TABLES: dict[str, Callable[[], str]] = {
    "gphash-best": _part("5", "paper", best),
    "gphash-best-quarter": _part("5", "quarter", best),
    "gphash-fig5": _part("5", "paper", gphash.throughputs),
    "gphash-fig6": _part("6", "paper", gphash.throughputs),
    "gphash-fig7": _part("7", "paper", gphash.load_factors),
    "gphash-fig8": _part("8", "paper", gphash.shares),
    "gphash-fig10": _part("10", "paper", gphash.throughputs),
    "gphash-fig12a": _part("12a", "paper", gphash.key_sizes),
    "gphash-fig12": _part("12", "paper", gphash.skews),
    "gphash-fig11": _part("11", "paper", gphash_alone.policies),
    "gphash-fig13": _part("13", "paper", gphash_alone.shapes),
    "gphash-fig14": _part("14", "paper", gphash_alone.grown),
    "gphash-fig15": _part("15", "paper", gphash_alone.loads),
}
