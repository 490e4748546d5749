"""Makes the tables and figures of docs/results/gpm.md from bench/results: `make results`.

Those of GPM's own figures and tables are in gpm/; here are the others.
"""

from __future__ import annotations

from collections.abc import Callable

from . import gpm
from .gpm.bounds import on_optane, pattern
from .gpm.results import CHECKPOINTING, MODE_TITLES, TITLES, Line, best_rival, title_of
from .gpm.tables import explained, lacks_delta, mark, ratio, table, time
from .kept import FIGURES, RESULTS, ROOT, kept_campaigns

PAGE = ROOT / "docs" / "results" / "gpm.md"
SIZES = ("paper", "real")
# Of the GPU where there are results of one; what only the CPU backend has is labelled so.
MEASURED = gpm.Results(RESULTS)


def load(name: str) -> tuple[Line, list[Line]]:
    """Returns the head and the lines of a results file of the GPU; nothing where there is none."""
    report = gpm.Results(RESULTS, ("cuda",)).report(name)
    return report.head, report.lines


PROJECTION = """\
A projection, which nobody measured: each time above (paper sizes), or what Optane would take for
the same bytes if that is more. 12.5 GB/s for aligned streams, 3.13 for unaligned ones, 0.72 for
random stores: the paper's section 6.1. CAP's copies are aligned streams, and so are our INSERTs,
where a warp stores 512 bytes in a row, and the entries of coalesced logs where the run counted them
apart (results from before count all stores of a workload alike)."""


def optane() -> str:
    """Results under a model of a medium, and a projection of those above that there are none of."""
    measured = gpm.Results(RESULTS, ("cuda",))
    done = {name for medium, size in measured.media() for name in measured.modes(size, medium)}
    rows: list[list[object]] = []
    for name, lines in MEASURED.modes("paper").items():
        if name in done or not {"cap-fs", "cap-mm", "gpm"} <= set(lines):
            continue
        times = {mode: on_optane(lines[mode]) for mode in ("cap-fs", "cap-mm", "gpm")}
        rows.append(
            [
                TITLES[name],
                pattern(lines["gpm"]),
                *(time(times[mode]) for mode in times),
                f"{times['cap-fs'] / times['gpm']:.3g}",
                f"{times['cap-mm'] / times['gpm']:.3g}",
            ]
        )
    header = ["workload", "GPM's stores", "CAP-fs", "CAP-mm", "GPM", "over CAP-fs", "over CAP-mm"]
    projected = f"{PROJECTION}\n\n{table(header, rows)}" if rows else ""
    return "\n\n".join(part for part in (gpm.tables.media(measured), projected) if part)


def inputs() -> str:
    """What the runs took in."""
    rows: list[list[object]] = []
    for size in SIZES:
        for name, lines in MEASURED.modes(size).items():
            gpm = lines["gpm"]
            steps = mark(str(gpm["steps"]), gpm, gpm)
            row = [TITLES[name], size, gpm["input"], steps, verified(lines), same_end(lines)]
            rows.append(row)
    header = ["workload", "size", "input", "steps measured", "verified", "same end"]
    return explained(table(header, rows))


def verified(lines: dict[str, Line]) -> str:
    """Says how many modes were verified, and by what: the oracle, or a verified run's digest."""
    by = [
        str(line.get("verified_by") or ("oracle" if line["verified"] else ""))
        for line in lines.values()
    ]
    if not any(by):
        return "no (at size real)"
    words = f"{len(by) - by.count('')} of {len(by)} modes"
    digests = by.count("digest")
    return f"{words}, {digests} of them by the oracle's digest" if digests else words


def same_end(lines: dict[str, Line]) -> str:
    """Says how many modes end with the very bits that GPM ends with."""
    digests = {mode: line["digest"] for mode, line in lines.items() if "digest" in line}
    if "gpm" not in digests:
        return "-"
    same = [mode for mode, digest in digests.items() if digest == digests["gpm"]]
    return f"{len(same)} of {len(digests)} modes" + (", the CPU's too" if "cpu" in same else "")


def checkpoints() -> str:
    """Saves against the copy engine."""
    _, lines = load("checkpoint_bench")
    rows: list[list[object]] = []
    for line in lines:
        if line["benchmark"] == "checkpoint_save":
            rows.append(
                [
                    f"{line['bytes'] / 1024:,.0f} KiB",
                    line["by"],
                    f"{line['save_us']:.1f}",
                    f"{line['copy_us']:.1f}",
                    f"{line['gb_per_s']:.1f}",
                    f"{100 * line['ratio_to_copy']:.0f} %",
                    f"{line['restore_us']:.1f}",
                ]
            )
    header = [
        "bytes",
        "copied by",
        "save, µs",
        "copy alone, µs",
        "GB/s",
        "of the copy",
        "restore, µs",
    ]
    return table(header, rows)


def apart() -> str:
    """What a launch, a copy and a save cost by what came between two of them."""
    _, lines = load("checkpoint_bench")
    rows: dict[str, list[object]] = {}
    calls: dict[str, None] = {}
    for line in lines:
        if line["benchmark"] != "checkpoint_apart":
            continue
        row = rows.setdefault(line["between"], [line["between"]])
        row.append(f"{line['us']:.1f} ({line['p10_us']:.1f} to {line['p90_us']:.1f})")
        calls[line["call"]] = None
    return table(["between two calls", *(f"{call}, µs" for call in calls)], list(rows.values()))


def asides() -> str:
    """How long an asynchronous save holds the stream."""
    _, lines = load("checkpoint_bench")
    rows: list[list[object]] = [
        [
            f"{line['bytes'] / 1024:,.0f} KiB",
            f"{line['held_us']:.0f}",
            f"{line['direct_us']:.0f}",
            f"{100 * line['held_to_direct']:.1f} %",
            f"{line['durable_us']:.0f}",
        ]
        for line in lines
        if line["benchmark"] == "checkpoint_aside"
    ]
    header = [
        "bytes",
        "next kernel is later by, µs",
        "with save(), µs",
        "ratio",
        "durable after, µs",
    ]
    return table(header, rows)


def shares() -> str:
    """What a checkpoint adds to the interval between two of them."""
    rows: list[list[object]] = []
    for size in SIZES:
        for name, lines in MEASURED.modes(size).items():
            if name in CHECKPOINTING:
                gpm = lines["gpm"]
                rest = gpm["step_seconds"] - gpm["persist_seconds"]
                share = f"{100 * gpm['persist_seconds'] / rest:.1f} %"
                rows.append([TITLES[name], size, time(rest), time(gpm["persist_seconds"]), share])
    return table(["workload", "size", "computing", "checkpoint", "adds"], rows)


def torch() -> str:
    """A PyTorch tensor saved by Holdfast and by torch."""
    rows: list[list[object]] = []
    for line in load("torch_checkpoint")[1]:
        disk = time(line["disk_seconds"]) if "disk_seconds" in line else "-"
        rows.append(
            [
                line["by"],
                time(line["blocking_seconds"]),
                time(line["shared_memory_seconds"]),
                f"{line['shared_memory_seconds'] / line['pinned_copy_seconds']:.2f}",
                disk,
                f"{line['disk_seconds'] / line['plain_disk_seconds']:.2f}" if disk != "-" else "-",
            ]
        )
    header = [
        "by",
        "blocks for",
        "in shared memory",
        "over a pinned copy",
        "on disk",
        "over plain writes",
    ]
    return table(header, rows)


def resumes() -> str:
    """Kills of workloads that resume."""
    rows: list[list[object]] = []
    for _, r in kept_campaigns("resumes"):
        rows.append(
            [
                TITLES.get(r["app"], r["app"]),
                r["device"],
                r["seed"],
                f"{r['kills']} ({r['kills_in_setup']})",
                r["finished"],
                r.get("midway", "-"),
                len(r["wrong"]),
            ]
        )
    header = [
        "workload",
        "device",
        "seed",
        "kills (in set-up)",
        "resumed to the end",
        "of these midway",
        "wrong",
    ]
    return table(header, rows)


def over_rivals(lines: dict[str, Line], name: str) -> str:
    """Says how many times faster GPM is than its best rival, and than the paper's CAP."""
    best = best_rival(lines)
    if best is None:
        return "-"
    words = f"{ratio(lines, best)} times {MODE_TITLES[best]}, the best rival of the run"
    if best != "cap-mm" and "cap-mm" in lines:
        words += f"; {ratio(lines, 'cap-mm')} times CAP-mm, the paper's CAP"
    return words + ("; CAP-delta not measured" if lacks_delta(lines, name) else "")


def readme_rows() -> list[list[object]]:
    """What the README shows of this page."""
    checkpoints = MEASURED.report("checkpoint_bench")
    saves = [x for x in checkpoints.lines if x["benchmark"] == "checkpoint_save"]
    asides_ = [x for x in checkpoints.lines if x["benchmark"] == "checkpoint_aside"]
    save = max(saves, key=lambda line: (line["bytes"], line["by"] == "copy engine"))
    aside = max(asides_, key=lambda line: line["bytes"])
    paper = MEASURED.beside("paper")
    rows: list[list[object]] = [
        [
            f"checkpoint of {save['bytes'] / 2**30:g} GiB; by the asynchronous form",
            checkpoints.where,
            f"{save['gb_per_s']:.0f} GB/s, {100 * save['ratio_to_copy']:.0f} % of the copy engine; "
            f"the next kernel waits {100 * aside['held_to_direct']:.0f} % as long",
        ]
    ]
    for name in ("gpkvs_log", "gpkvs", "gpdb_update", "gpdb_insert", "black_scholes"):
        if name in paper:
            rows.append(
                [
                    f"GPMbench, {title_of(name)} at the paper's size",
                    gpm.tables.measured_on(paper[name], MEASURED.report("gpm_rivals_paper")),
                    over_rivals(paper[name], name),
                ]
            )
    return rows


TABLES: dict[str, Callable[[], str]] = {
    "fig1a": lambda: gpm.tables.fig1a(MEASURED),
    "fig1": lambda: gpm.tables.fig1(MEASURED),
    "fig3": lambda: gpm.tables.fig3(MEASURED),
    "fig9-paper": lambda: gpm.tables.fig9(MEASURED, "paper"),
    "fig9-real": lambda: gpm.tables.fig9(MEASURED, "real"),
    "fig10-paper": lambda: gpm.tables.fig10(MEASURED, "paper"),
    "fig10-real": lambda: gpm.tables.fig10(MEASURED, "real"),
    "delta": lambda: gpm.tables.delta(MEASURED),
    "rivals": lambda: gpm.tables.rivals(MEASURED),
    "fig11": lambda: gpm.tables.fig11(MEASURED),
    "fig12": lambda: gpm.tables.fig12(MEASURED),
    "table4": lambda: gpm.tables.table4(MEASURED),
    "table5": lambda: gpm.tables.table5(MEASURED),
    "roofline": lambda: gpm.tables.roofline(MEASURED),
    "optane": optane,
    "inputs": inputs,
    "checkpoints": checkpoints,
    "asides": asides,
    "apart": apart,
    "shares": shares,
    "torch": torch,
    "resumes": resumes,
}


def draw() -> None:
    """Draws GPM's figures."""
    for name in gpm.figures.FIGURES:
        gpm.figures.draw(name, MEASURED, FIGURES / f"{name}.svg")
