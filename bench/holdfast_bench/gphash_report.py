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
LOGGED = "Holdfast's log map, ordered where it pays"
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
    """Returns the line of the best batch by title and workload, our two maps first."""
    found: dict[str, dict[str, Line]] = {}
    for line in report.lines:
        if line["workload"] not in gphash.MICRO:
            continue
        of = found.setdefault(gphash.title(line), {})
        before = of.get(line["workload"])
        if before is None or _rate(line) > _rate(before):
            of[line["workload"]] = line
    return dict(sorted(found.items(), key=lambda item: (item[0] != OURS, item[0] != LOGGED)))


def _rate(line: Line) -> float:
    rate: float = line["million_operations_per_s"]
    return rate


def best(report: Report) -> str:
    """Each contestant at its best batch, and how many times that our maps are."""
    found = _bests(report)
    ours = {short: found[name] for short, name in (("", OURS), ("log ", LOGGED)) if name in found}

    def cell(name: str, workload: str) -> str:
        if workload not in found[name]:
            return ""
        rate = _rate(found[name][workload])
        shown = f"{rate:.3g} at {found[name][workload]['batch']:,}"
        if name in (OURS, LOGGED):
            return shown
        times = (f"{short}{_rate(of[workload]) / rate:.3g}x" for short, of in ours.items())
        return f"{shown}: {', '.join(times)}"

    rows: list[list[object]] = [
        [name, *(cell(name, one) for one in gphash.MICRO)] for name in found
    ]
    paper = [f"{PAPER[one]}x" if one in PAPER else "" for one in gphash.MICRO]
    rows.append(["the paper's, over its rivals", *paper])
    return table(["M operations/s", *gphash.MICRO], rows)


def readme_rows() -> list[list[object]]:
    """Returns the README's rows: our maps over their rivals, best batch of each."""
    found = _bests(_report("5"))

    def over(ours: str, title: str) -> str:
        return ", ".join(
            f"{name} {_rate(found[ours][one]) / _rate(found[title][one]):.2g}"
            for name, one in (("search", "search-present"), ("update", "update"),
                              ("insert", "insert"), ("erase", "erase"))
        )  # fmt: skip

    printed, assisted = "SlabHash-GPM, as printed", "CPU-assisted, gathered by shard on the device"
    return [
        [f"{name} of 16 M pairs, best batch of each, times its rivals", _report("5").where,
         f"SlabHash-GPM: {over(ours, printed)}; a map kept by 16 CPU threads: "
         f"{over(ours, assisted)}"]
        for ours, name in ((OURS, "hash map"), (LOGGED, "log map")) if ours in found
    ]  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {
    "gphash-best": _part("5", "paper", best),
    "gphash-best-quarter": _part("5", "quarter", best),
    "gphash-fig5": _part("5", "paper", gphash.throughputs),
    "gphash-fig6": _part("6", "paper", gphash.throughputs),
    "gphash-fig7": _part("7", "paper", gphash.load_factors),
    "gphash-fig8": _part("8", "paper", gphash.shares),
    "gphash-fig9": _part("9", "paper", gphash.factors),
    "gphash-fig10": _part("10", "paper", gphash.throughputs),
    "gphash-fig12a": _part("12a", "paper", gphash.key_sizes),
    "gphash-fig12": _part("12", "paper", gphash.skews),
    "gphash-fig11": _part("11", "paper", gphash_alone.policies),
    "gphash-fig13": _part("13", "paper", gphash_alone.shapes),
    "gphash-fig14": _part("14", "paper", gphash_alone.grown),
    "gphash-fig15": _part("15", "paper", gphash_alone.loads),
}
