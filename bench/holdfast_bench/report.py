"""Makes the tables and figures of docs/results.md from bench/results: `make results`.

A table stands in the page between `<!-- NAME -->` and `<!-- end -->`; the prose around them is
written by hand. With --check nothing is written: exit status 1 if the page is not up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import adjoint, gphash_report, gpm_report, layouts, map_report, power, score_report
from .gpm.results import Line
from .gpm.tables import table
from .kept import FIGURES, RESULTS, ROOT, kept_campaigns
from .plots import pyplot

PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"


def load(name: str) -> tuple[Line, list[Line]]:
    """Returns a results file's head and its lines."""
    report = json.loads((RESULTS / f"{name}.json").read_text())
    return report, report.pop("results")


def size(count: float) -> str:
    """Formats a power of two of bytes."""
    for unit, step in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= step:
            return f"{count / step:g} {unit}"
    return f"{count:g} B"


def sources() -> str:
    """One row for every results file."""
    rows: list[list[object]] = []
    for path in sorted(RESULTS.glob("*.json")):
        report = json.loads(path.read_text())
        rows.append(
            [
                f"`{path.name}`",
                report["machine"]["device"],
                report["date"][:10],
                report["medium"],
                f"`{report['command']}`",
                f"`{report['commit'][:9]}`",
            ]
        )
    return table(["file", "device", "date", "medium", "command", "commit"], rows)


def persists() -> str:
    """The persisted stream against the copy engine."""
    _, lines = load("persist_bench-cuda")
    return table(
        ["blocks of 256", "GB/s", "copy engine GB/s", "ratio"],
        [
            [
                line["blocks"],
                f"{line['gb_per_s']:.1f}",
                f"{line['copy_engine_gb_per_s']:.1f}",
                f"{line['ratio_to_copy_engine']:.2f}",
            ]
            for line in lines
            if line["threads"] >= 256  # fewer are one block that is smaller
        ],
    )


def log_rows(threads: int) -> list[list[object]]:
    """One row for each entry size."""
    _, lines = load("log_bench-cuda")
    rows: list[list[object]] = []
    for bytes_ in sorted({line["entry_bytes"] for line in lines}):
        here = [x for x in lines if x["entry_bytes"] == bytes_ and x["threads"] == threads]
        rate = {x["layout"]: x for x in here if x["benchmark"] == "log_insert"}
        speedup = next(x for x in here if x["benchmark"] == "log_speedup")
        rows.append(
            [
                bytes_,
                *(
                    f"{rate[name]['million_inserts_per_s']:,.0f}"
                    for name in ("coalesced", "conventional_private", "conventional_1024")
                ),
                f"{rate['coalesced']['payload_gb_per_s']:.1f}",
                f"{100 * rate['coalesced']['payload_ratio_to_copy_engine']:.0f} %",
                f"{speedup['over_private_partitions']:.1f}",
                f"{speedup['over_1024_locked_partitions']:.1f}",
            ]
        )
    return rows


LOG_HEADER = [
    "entry bytes",
    "coalesced M/s",
    "private M/s",
    "1,024 locked M/s",
    "payload GB/s",
    "of the copy engine",
    "over private",
    "over 1,024 locked",
]


def log_speedups() -> str:
    """How the speedups grow with threads."""
    _, lines = load("log_bench-cuda")
    speedups = [line for line in lines if line["benchmark"] == "log_speedup"]
    threads = sorted({line["threads"] for line in speedups})
    rows: list[list[object]] = []
    for bytes_ in sorted({line["entry_bytes"] for line in speedups}):
        cells = {x["threads"]: x for x in speedups if x["entry_bytes"] == bytes_}
        rows.append(
            [
                bytes_,
                *(
                    f"{cells[n]['over_private_partitions']:.1f} / "
                    f"{cells[n]['over_1024_locked_partitions']:.1f}"
                    for n in threads
                ),
            ]
        )
    return table(["entry bytes", *(f"{n:,}" for n in threads)], rows)


def cached(line: Line) -> bool:
    """Whether a line of kvs_bench is of a store that reads a copy of its table in device memory."""
    return line.get("cache") == "on"


def store() -> str:
    """gpKVS at the paper's size."""
    _, lines = load("kvs_bench-cuda")
    batch = max(line.get("batch", 0) for line in lines)
    rows: list[list[object]] = []
    for line in lines:
        if line.get("batch") != batch:
            continue
        if line["benchmark"] == "kvs_set":
            what = f"SET, {line['order']}, from {line['input']}"
            rate = f"{line['million_sets_per_s']:.0f} M/s"
            note = (
                f"{line['batch_ms']:.1f} ms: copy {line['copy_ms']:.2f}, order "
                f"{line['order_ms']:.2f}, update {line['update_ms']:.2f}, commit "
                f"{line['commit_ms']:.2f}; link read {100 * line['link_read_share']:.0f} %, "
                f"written {100 * line['link_write_share']:.0f} %"
            )
        elif line["benchmark"] == "kvs_get":
            what, rate = f"GET, {line['order']}", f"{line['million_gets_per_s']:.0f} M/s"
            note = f"link read {100 * line['link_read_share']:.0f} %"
        elif line["benchmark"] == "kvs_undo":
            what, rate = f"undo of a batch, {line['order']}", f"{line['milliseconds']:.1f} ms"
            note = f"{line['entries_undone']:,} entries"
        else:
            continue
        rows.append([what + (", cached table" if cached(line) else ""), rate, note])
    return table(["operation", "result", "of which"], rows)


def ordering() -> str:
    """Unordered over ordered time, by table and batch, where kernels read over the link."""
    _, lines = load("kvs_sweep-cuda")
    ratios = {
        (line["table_bytes"], line["batch"]): line
        for line in lines
        if line["benchmark"] == "kvs_ordering" and not cached(line)
    }
    batches = sorted({batch for _, batch in ratios})
    rows: list[list[object]] = []
    for bytes_ in sorted({key for key, _ in ratios}):
        cells = [ratios.get((bytes_, batch)) for batch in batches]
        rows.append(
            [
                size(bytes_),
                *(f"{c['set_ratio']:.2f} / {c['get_ratio']:.2f}" if c else "" for c in cells),
            ]
        )
    return table(["table", *(f"{batch:,}" for batch in batches)], rows)


def scatter_wide() -> str:
    """Stores at random places of a table in the order of their addresses, by their width."""
    _, lines = load("scatter_wide-cuda")
    rows: list[list[object]] = [
        [line["store_bytes"], f"{line['million_stores_per_s']:,.0f}",
         f"{line['million_stores_per_s'] * line['store_bytes'] / 1e3:.3g}",
         f"{line['milliseconds']:.2f} ms"]
        for line in lines if line["order"] == "by address"
    ]  # fmt: skip
    stores = f"{lines[0]['stores']:,} take" if lines else "take"
    return table(["bytes of a store", "M stores/s", "GB/s", stores], rows)


def opening() -> str:
    """What opening a region costs."""
    _, lines = load("region_open-cuda")
    rows: list[list[object]] = []
    for line in lines:
        if line["benchmark"] in ("open_clean", "open_scattered"):
            reading = min(line["read_buffered_ms"], line["read_direct_ms"])
            rows.append(
                [
                    ("clean" if line["benchmark"] == "open_clean" else "scattered commits before")
                    + f", page cache {line['cache']}",
                    f"{line['open_ms']:.0f}",
                    f"{line['check_ms']:.0f} / {line['load_ms']:.0f} / {line['pin_ms']:.0f}",
                    f"{reading:.0f} + {line['pin_alone_ms']:.0f}",
                    f"{line['ratio_to_read_and_pin']:.2f} times",
                ]
            )
        else:
            rows.append(
                [
                    "after a crash",
                    f"{line['open_ms']:.0f}",
                    f"{line['check_ms']:.0f} / {line['load_ms']:.0f} / {line['pin_ms']:.0f}",
                    "",
                    f"{line['more_than_pinning_ms']:.0f} ms more than pinning",
                ]
            )
    header = ["open", "ms", "check / load / pin ms", "reading + pinning alone ms", "comparison"]
    return table(header, rows)


def commits() -> str:
    """What a commit costs."""
    _, lines = load("region_commit-cuda")
    return table(
        ["commit", "tracking", "ms", "stream held ms", "pages written", "of a full commit"],
        [
            [
                line["benchmark"].removeprefix("commit_").replace("_", " "),
                line["tracking"],
                f"{line['commit_ms']:.0f}",
                f"{line['snapshot_ms']:.0f}",
                f"{line['pages_written']:,}",
                f"{line['percent_of_full']:.1f} %",
            ]
            for line in lines
        ],
    )


def cpu_backend() -> str:
    """What the CPU backend does on one core, in both flavours."""
    names = {"fast": "cpu_backend-cpu", "intercepted": "cpu_backend_intercepted-cpu"}
    lines = {flavour: load(name)[1] for flavour, name in names.items()}
    rows: list[list[object]] = []
    whats = {line["what"]: line["unit"] for flavour in lines.values() for line in flavour}
    for what, unit in whats.items():
        cells = []
        for flavour in names:
            found = [line["median"] for line in lines[flavour] if line["what"] == what]
            per_million = unit.endswith("/s") and found and found[0] >= 1e6
            cells.append(
                "" if not found else f"{found[0] / 1e6:.1f} M" if per_million else f"{found[0]:.4g}"
            )
        rows.append([what, unit, *cells])
    return table(["what", "unit", *names], rows)


def checker_cost() -> str:
    """The checker: what it records, its litmus tests, and states per minute."""
    _, lines = load("check_bench-cpu")
    rows: list[list[object]] = []
    for line in lines:
        if line["benchmark"] == "check_recorder":
            rows.append([f"{line['what']}, recorded", f"{line['ns']:.0f} ns"])
        elif line["benchmark"] == "check_litmus":
            rows.append(
                [
                    f"all {line['tests']} litmus tests, {line['runs']} runs",
                    f"{line['seconds']:.2f} s",
                ]
            )
        elif line["benchmark"] == "check_states":
            jobs = "one process" if line["jobs"] == 1 else f"{line['jobs']} processes"
            ran = line["recoveries"] / line["seconds"] * 60
            rows.append(
                [
                    f"`{line['program']}`, {line['threads']} threads, `{line['model']}`, {jobs}",
                    f"{line['states_per_minute']:,.0f} states a minute, "
                    f"{ran:,.0f} of them recovered (the others read what one of those read)",
                ]
            )
        elif line["benchmark"] == "check_schedules":
            part = "all" if line["complete"] else f"{line['share']:.2g} of all"
            rows.append(
                [
                    f"{line['threads']} threads with {line['each']} atomics each, both models",
                    f"{line['schedules']:,} schedules, which is {part}, "
                    f"and {line['states']:,} states in {line['seconds']:.1f} s",
                ]
            )
    return table(["what", "result"], rows)


def explored(line: Line) -> str:
    """How thoroughly, and in how long."""
    whole = "" if line["complete"] else ", cut off"
    return f"{line['states']:,} {line['rung']}{whole}; {line['seconds']:.1f} s"


def checker_threads() -> str:
    """States, rung and time, by program and threads."""
    _, lines = load("check_bench-cpu")
    here = [line for line in lines if line["benchmark"] == "check_threads"]
    programs = list(dict.fromkeys(line["program"] for line in here))
    rows: list[list[object]] = []
    for threads in sorted({line["threads"] for line in here}):
        cells = {x["program"]: explored(x) for x in here if x["threads"] == threads}
        rows.append([f"{threads:,}", *(cells.get(program, "") for program in programs)])
    return table(["threads", *(f"`{program}`" for program in programs)], rows)


def checker_persists() -> str:
    """The same, by the words that a thread of the undo log updates."""
    _, lines = load("check_bench-cpu")
    rows: list[list[object]] = [
        [
            line["persists_per_thread"],
            f"{line['persists']:,}",
            explored(line),
            f"{line['mib']:.0f} MiB",
        ]
        for line in lines
        if line["benchmark"] == "check_persists"
    ]
    return table(["words a thread", "persists", "states", "memory"], rows)


def draw_checker(plt: Any) -> None:
    """Draws states, time and memory over threads."""
    head, lines = load("check_bench-cpu")
    here = [line for line in lines if line["benchmark"] == "check_threads"]
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4))
    units = {"states": "crash states", "seconds": "seconds", "mib": "MiB"}
    for axes, (key, label) in zip(panels, units.items(), strict=True):
        for program in dict.fromkeys(line["program"] for line in here):
            points = sorted((x["threads"], x[key]) for x in here if x["program"] == program)
            axes.plot(*zip(*points, strict=True), marker="o", label=program)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set(xlabel="threads", ylabel=label)
    limit = here[0]["limit_seconds"]
    panels[1].axhline(limit, linestyle="--", color="grey", label="limit")
    panels[1].legend(fontsize="x-small")
    figure.suptitle(f"Checking a program, one process ({head['machine']['device']})")
    figure.tight_layout()
    figure.savefig(FIGURES / "checker.svg", metadata={"Date": None})
    plt.close(figure)


def campaigns() -> str:
    """The kills, by campaign."""
    rows: list[list[object]] = []
    for path, r in kept_campaigns("campaigns"):
        where = (
            f"{r['kills_in_batch']} / {r['kills_in_recovery']} / {r['kills_in_commit']} / "
            f"{r['kills_between']}"
        )
        found = f"{r['found_absent']} / {r['found_whole']}"
        done = [f"{r['acknowledged']} of {r['sent']}", found, r["recoveries"], r["lost"], r["torn"]]
        rows.append([f"`{path.name}`", r["device"], r["seed"], r["kills"], where, *done])
    header = [
        "campaign",
        "device",
        "seed",
        "kills",
        "in a batch / recovery / commit / between",
        "acknowledged",
        "cut off: absent / whole",
        "had something to undo",
        "lost",
        "torn",
    ]
    return table(header, rows)


def readme() -> str:
    """The few figures that the README shows."""
    of_persists, persisted = load("persist_bench-cuda")
    best = max(persisted, key=lambda line: line["gb_per_s"])
    log = {row[0]: row for row in log_rows(2**20)}
    of_log, _ = load("log_bench-cuda")
    of_store, lines = load("kvs_bench-cuda")
    batch = max(line.get("batch", 0) for line in lines)
    here = [line for line in lines if line.get("batch") == batch]
    sets = [x for x in here if x["benchmark"] == "kvs_set" and x["input"] == "device memory"]
    with_copy = any(cached(x) for x in sets)
    rate = {x["order"]: x["million_sets_per_s"] for x in sets if cached(x) == with_copy}
    undo = next(x for x in here if x["benchmark"] == "kvs_undo" and x["order"] == "ordered")
    rows: list[list[object]] = [
        [
            "8-byte stores, each persisted in the kernel",
            of_persists["machine"]["device"],
            f"{best['gb_per_s']:.0f} GB/s, {100 * best['ratio_to_copy_engine']:.0f} % of the "
            "copy engine",
        ],
        [
            "undo log inserts, 64 bytes, each durable on return, 2^20 threads",
            of_log["machine"]["device"],
            f"{log[64][1]} M/s, {log[64][5]} of the copy engine; {log[64][7]} times 1,024 locked "
            f"partitions, {log[64][6]} times private ones",
        ],
        [
            "key-value store: random SETs to a 4 GiB table, batches of 2 M, transactions",
            of_store["machine"]["device"],
            f"{rate['ordered']:.0f} M/s, {rate['ordered'] / rate['unordered']:.1f} times as many "
            "as without ordering",
        ],
        [
            "undoing such a batch after a crash",
            of_store["machine"]["device"],
            f"{undo['milliseconds']:.1f} ms",
        ],
        *layouts.readme_rows(),
        *map_report.readme_rows(),
        *gphash_report.readme_rows(),
        *power.readme_rows(),
        *gpm_report.readme_rows(),
        *score_report.readme_rows(),
        *adjoint.readme_rows(),
    ]
    # "NVIDIA H100 80GB HBM3" by its model.
    short = [[what, str(device).split()[1], result] for what, device, result in rows]
    return table(["what", "GPU", "result"], short)


TABLES = {
    "sources": sources,
    "persists": persists,
    "log": lambda: table(LOG_HEADER, log_rows(2**20)),
    "log-speedups": log_speedups,
    "store": store,
    "ordering": ordering,
    "scatter-wide": scatter_wide,
    "opening": opening,
    "commits": commits,
    **layouts.TABLES,
    **power.TABLES,
    "cpu-backend": cpu_backend,
    "checker-cost": checker_cost,
    "checker-threads": checker_threads,
    "checker-persists": checker_persists,
    "campaigns": campaigns,
}


def page(path: Path, tables: dict[str, Callable[[], str]]) -> str:
    """Returns the page with its tables made anew."""
    text = path.read_text()
    for name, make in tables.items():
        place = re.search(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", text, re.DOTALL)
        if place is None:
            raise SystemExit(f"{path} has no place for the table '{name}'")
        text = f"{text[: place.start()]}{make()}\n{text[place.end() :]}"
    return text


def draw() -> None:
    """Draws the figures."""
    plt = pyplot()
    FIGURES.mkdir(exist_ok=True)
    head, lines = load("log_bench-cuda")
    chosen = (8, 24, 64)
    figure, panels = plt.subplots(1, len(chosen), figsize=(11, 3.6), sharey=True)
    names = {
        "coalesced": "coalesced",
        "conventional_private": "conventional, a partition a thread",
        "conventional_1024": "conventional, 1,024 locked partitions",
    }
    for axes, bytes_ in zip(panels, chosen, strict=True):
        for layout, label in names.items():
            points = [
                (x["threads"], x["payload_gb_per_s"])
                for x in lines
                if x.get("layout") == layout and x["entry_bytes"] == bytes_
            ]
            axes.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
        roof = max(x.get("copy_engine_gb_per_s", 0) for x in lines)
        axes.axhline(roof, linestyle="--", color="grey", label="copy engine")
        axes.set_xscale("log", base=2)
        axes.set(title=f"{bytes_}-byte entries", xlabel="threads", ylim=(0, 1.1 * roof))
    panels[0].set_ylabel("log payload, GB/s")
    panels[0].legend(fontsize="x-small", loc="upper left")
    figure.suptitle(f"Undo log inserts, each durable on return ({head['machine']['device']})")
    figure.tight_layout()
    figure.savefig(FIGURES / "log.svg", metadata={"Date": None})
    plt.close(figure)

    head, lines = load("kvs_sweep-cuda")
    ratios = [x for x in lines if x["benchmark"] == "kvs_ordering" and not cached(x)]
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for bytes_ in sorted({line["table_bytes"] for line in ratios}):
        points = sorted((x["batch"], x["set_ratio"]) for x in ratios if x["table_bytes"] == bytes_)
        axes.plot(*zip(*points, strict=True), marker="o", label=f"{size(bytes_)} table")
    axes.axhline(1, linestyle="--", color="grey")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="SETs in a batch", ylabel="unordered time / ordered time", ylim=(0, None))
    axes.set_title(f"Ordering a batch by bucket ({head['machine']['device']})", fontsize="medium")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(FIGURES / "ordering.svg", metadata={"Date": None})
    plt.close(figure)
    draw_checker(plt)
    gpm_report.draw()
    score_report.draw()
    adjoint.draw_kept()
    power.draw_kept()
    layouts.draw_kept()


def main() -> int:
    """Writes the pages and the figures, or checks the pages."""
    pages = {
        PAGE: page(PAGE, TABLES),
        gpm_report.PAGE: page(gpm_report.PAGE, gpm_report.TABLES),
        score_report.PAGE: page(score_report.PAGE, score_report.TABLES),
        adjoint.PAGE: page(adjoint.PAGE, adjoint.TABLES),
        gphash_report.PAGE: page(gphash_report.PAGE, gphash_report.TABLES),
        map_report.PAGE: page(map_report.PAGE, map_report.TABLES),
        README: page(README, {"readme": readme, "readme-adjoint": adjoint.readme}),
    }
    if "--check" in sys.argv[1:]:
        stale = [str(path) for path, text in pages.items() if text != path.read_text()]
        if stale:
            print(f"not up to date: {', '.join(stale)}: make results", file=sys.stderr)
        return 1 if stale else 0
    for path, text in pages.items():
        path.write_text(text)
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
