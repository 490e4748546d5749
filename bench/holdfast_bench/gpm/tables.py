"""Tables of GPM's experiments, ours beside the paper's, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .bounds import link_bound, pattern
from .results import (
    CHECKPOINTING,
    DELTA,
    GATHERING,
    LOGGING,
    MODE_TITLES,
    PAPER_VARIANTS,
    RIVAL_VARIANTS,
    SIZES,
    TITLES,
    VARIANTS,
    Line,
    Report,
    Results,
    base,
    best_rival,
    by_mode,
    copied_by_engine,
    fact,
    of_another_run,
    title_of,
)

Rows = list[list[object]]

# What the paper states in words or in a table (its figures have no numbers beside their bars).
PAPER_WA = {"gpkvs": "39.38", "gpdb_insert": "1.27", "gpdb_update": "19.88"}
PAPER_RESTORE = {
    "gpkvs": "18.96 %",
    "gpdb_insert": "0.01 %",
    "gpdb_update": "10.43 %",
    "lenet": "0.12 %",
    "cfd": "0.30 %",
    "black_scholes": "0.80 %",
    "hotspot": "1.65 %",
}
PAPER_FIG9 = {
    "gpkvs": "7 to 8; 4 over CAP-mm",
    "gpdb_insert": "3.6 over CAP-mm",
    "gpdb_update": "2.6 over CAP-mm",
    "lenet": "11 to 18",
    "cfd": "11 to 18",
    "black_scholes": "11 to 18",
    "hotspot": "11 to 18",
    "bfs": "85",
    "srad": "5 to 85",
    "prefix_sum": "5 to 85",
}
PAPER_LOGS = {"gpkvs": "3.3", "gpdb_update": "6.1"}


def table(header: list[str], rows: Rows) -> str:
    """Formats a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def time(seconds: float) -> str:
    """Formats a duration."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    return ""


def full_title(name: str, lines: dict[str, Line]) -> str:
    """Returns a workload's title, which says so where a graph stands for a real road network."""
    generated = any("road grid" in line["input"] for line in lines.values())
    return title_of(name) + (" (a generated road grid)" if generated and name in TITLES else "")


def checkpoint_title(name: str, lines: dict[str, Line]) -> str:
    """Returns the title, which also says where GPM's checkpoint was the copy engine's."""
    by_engine = "gpm" in lines and copied_by_engine(lines["gpm"])
    return full_title(name, lines) + (
        " (by the copy engine)" if by_engine and name in TITLES else ""
    )


MARKS = {
    "†": "Of fewer steps than the size says, so that a run ends within two minutes.",
    "‡": "Of another run, on another machine of the kind, over the CAP-fs of this one.",
}


def mark(text: str, line: Line, beside: Line) -> str:
    """Marks what was measured with fewer steps than its size says, or in another run."""
    if text == "-":
        return text
    fewer = " †" if line.get("fewer_steps") else ""
    return f"{text}{fewer}{' ‡' if of_another_run(line, beside) else ''}"


def explained(made: str) -> str:
    """Adds what the marks mean, where a table has any."""
    notes = [f"({sign} {meaning})" for sign, meaning in MARKS.items() if sign in made]
    return "\n\n".join([made, *notes])


def ratio(lines: dict[str, Line], over: str, of: str = "gpm") -> str:
    """Formats how many times faster `of` is than `over`."""
    if over not in lines or of not in lines:
        return "-"
    return f"{lines[over]['cost_seconds'] / lines[of]['cost_seconds']:.3g}"


def over_best(lines: dict[str, Line]) -> str:
    """Formats how many times faster GPM is than the best of its rivals of one run, and which."""
    best = best_rival(lines)
    return f"{ratio(lines, best)} ({MODE_TITLES[best]})" if best and "gpm" in lines else "-"


def lacks_delta(lines: dict[str, Line], name: str) -> bool:
    """Says whether GPM has been measured without the CAP that gathers what the workload changes."""
    return name in GATHERING and "gpm" in lines and not set(DELTA) & set(lines)


def _speedup(results: Results, size: str, name: str, mode: str) -> str:
    both = results.pair(size, name, mode, "cap-fs")
    if both is None:
        return "-"
    return mark(ratio({mode: both[0], "cap-fs": both[1]}, "cap-fs", mode), *both)


def _cost(lines: dict[str, Line], mode: str = "gpm") -> str:
    if mode not in lines:
        return "-"
    line = lines[mode]
    return mark(time(line["cost_seconds"]), line, lines.get("cap-fs", line))


STORES = (
    ("gpkvs", "cpu", "gpKVS on the CPU"),
    ("gpkvs", "gpm", "gpKVS, GPM"),
    ("gpkvs_log", "gpm", "gpKVS, GPM, as a log"),
)


def stores(results: Results, size: str) -> Iterator[tuple[str, str, Line, float]]:
    """Yields title, mode, line and million SETs a second of gpKVS in its forms."""
    found = results.beside(size)
    for name, mode, title in STORES:
        line = found.get(name, {}).get(mode)
        if line:
            yield title, mode, line, sets_of(line) / line["cost_seconds"] / 1e6


def fig1a(results: Results) -> str:
    """SETs a second: RocksDB, the OpenMP program, gpKVS."""
    rows: Rows = []
    for size in results.sizes():
        for line in results.report(f"rocksdb_kvs_{size}").lines:
            rows.append(
                [
                    f"RocksDB, {line['settings']}",
                    size,
                    f"{line['sets_per_batch']:,}",
                    f"{line['million_sets_per_s']:.3g}",
                    line["cpu_threads"],
                ]
            )
        for title, mode, line, rate in stores(results, size):
            threads = line["cpu_threads"] if mode == "cpu" else "-"
            shown = f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
            rows.append([title, size, f"{sets_of(line):,}", shown, threads])
    made = table(["store", "size", "SETs a batch", "million SETs a second", "CPU threads"], rows)
    if any(str(row[0]).startswith("RocksDB") for row in rows):
        return made
    return f"{made}\n\n(RocksDB has not been measured on this machine.)"


def sets_of(line: Line) -> int:
    """Returns the SETs of a batch; in older results gpKVS's input tells of them."""
    told = fact(line, "sets")
    if told is not None:
        return int(told)
    words = str(line["input"]).split()
    return int(words[words.index("SETs") - 1])


def fig1(results: Results) -> str:
    """GPM against the CPU alone."""
    rows: Rows = []
    for size in results.sizes():
        for name, lines in results.beside(size).items():
            if {"cpu", "gpm"} <= set(lines) and name in TITLES and name not in CHECKPOINTING:
                cpu, threads = _cost(lines, "cpu"), lines["cpu"]["cpu_threads"]
                rows.append([TITLES[name], size, cpu, threads, _cost(lines), ratio(lines, "cpu")])
    header = ["workload", "size", "CPU takes", "CPU threads", "GPM takes", "speedup"]
    return explained(table(header, rows))


def fig3(results: Results) -> str:
    """The best of each way to persist, and with one thread."""
    rows: Rows = []
    cap = results.report("cap_bench")
    for how in dict.fromkeys(line["how"] for line in cap.lines):
        lines = [line for line in cap.lines if line["how"] == how]
        one, best = lines[0], max(lines, key=lambda line: float(line["gb_per_s"]))
        rows.append(_fig3_row(f"CPU: {how}", cap.where, one, best, best["cpu_threads"]))
    gpm = results.report("persist_bench")
    if gpm:
        best = max(gpm.lines, key=lambda line: float(line["gb_per_s"]))
        one = gpm.lines[0]
        rows.append(
            _fig3_row("GPM: 8-byte stores, each persisted", gpm.where, one, best, best["threads"])
        )
    return table(
        ["who persists", "on", "fewest threads, GB/s", "best, GB/s", "with threads", "of the link"],
        rows,
    )


def _fig3_row(who: str, where: str, one: Line, best: Line, threads: int) -> list[object]:
    fewest = one.get("cpu_threads", one.get("threads"))
    return [
        who,
        where,
        f"{one['gb_per_s']:.2f} ({fewest})",
        f"{best['gb_per_s']:.2f}",
        f"{threads:,}",
        f"{100 * best['ratio_to_copy_engine']:.0f} %",
    ]


def fig9(results: Results, size: str) -> str:
    """Speedups over CAP-fs."""
    rows: Rows = []
    chosen = ("cap-mm", *DELTA, "gpufs", "gpm")
    beside = results.beside(size)
    for name, lines in beside.items():
        if name in RIVAL_VARIANTS:
            continue
        ours = [_speedup(results, size, name, mode) for mode in chosen]
        # Of a variant of CAP the rivals are in the workload's own row.
        over = ["-" if name in VARIANTS else over_best(lines), ratio(lines, "cap-mm")]
        paper = PAPER_FIG9.get(base(name), "-")
        rows.append([checkpoint_title(name, lines), *ours, *over, _cost(lines), paper])
    header = [
        "workload",
        *(MODE_TITLES[mode] for mode in chosen),
        "GPM over the best rival of the run",
        "GPM over CAP-mm, the paper's CAP",
        "GPM takes",
        "paper's GPM",
    ]
    absent = [title_of(n) for n in PAPER_VARIANTS if base(n) in beside and n not in beside]
    without = [TITLES[name] for name, lines in beside.items() if lacks_delta(lines, name)]
    absent += [f"CAP-delta for {', '.join(without)}"] if without else []
    note = f"\n\n(Not measured: {'; '.join(absent)}.)" if absent else ""
    return explained(table(header, rows)) + note


def measured_on(lines: dict[str, Line], report: Report) -> str:
    """Says what a workload's lines were measured on: they do, where not on the report's machine."""
    return str(next(iter(lines.values())).get("device", report.where))


def delta(results: Results) -> str:
    """What a step takes in GPM and its rivals, a CAP that knows what changed among them."""
    modes = ("cap-fs", "cap-mm", "ndp", "cpu", "cap-delta-raw", "cap-delta", "gpm")
    rows: Rows = []
    for size in SIZES:
        for name, lines in results.beside(size).items():
            if name not in GATHERING or lacks_delta(lines, name) or not set(DELTA) & set(lines):
                continue
            times = [_cost(lines, mode) for mode in modes]
            threads = "; ".join(str(lines[m]["cpu_threads"]) for m in DELTA[::-1] if m in lines)
            over = [ratio(lines, "cap-delta"), over_best(lines), ratio(lines, "cap-mm")]
            report = results.report(f"gpm_delta_{size}") or results.report(f"gpm_modes_{size}")
            rows.append([TITLES[name], size, measured_on(lines, report), *times, threads, *over])
    if any(row[1] != "test" for row in rows):
        rows = [row for row in rows if row[1] != "test"]
    if not rows:
        return "(CAP-delta has not been measured: `holdfast bench gpm-delta --size paper`.)"
    header = ["workload", "size", "on", *(MODE_TITLES[mode] for mode in modes)]
    header += ["threads of the deltas", "GPM over CAP-delta", "GPM over the best rival"]
    return table([*header, "GPM over CAP-mm, the paper's CAP"], rows)


def rivals(results: Results) -> str:
    """What a step takes in GPM and in every rival at its best, variants in rows of their own."""
    modes = ("cap-fs", "cap-mm", "ndp", "cpu", "cap-delta-raw", "cap-delta", "cap-log", "gpm")
    rows: Rows = []
    for size in results.sizes("gpm_rivals"):
        report = results.report(f"gpm_rivals_{size}")
        by = by_mode(report.lines)
        for name in (n for n in (*TITLES, *VARIANTS) if n in by):
            lines = by[name]
            times = [_cost(lines, mode) for mode in modes]
            best = best_rival(lines)
            won = "-" if best is None else won_with(lines[best])
            where = [checkpoint_title(name, lines), size, measured_on(lines, report)]
            rows.append([*where, *times, over_best(lines), won])
    if not rows:
        return "(The rivals have not been measured: `holdfast bench gpm-rivals --size paper`.)"
    header = ["workload", "size", "on", *(MODE_TITLES[mode] for mode in modes)]
    return explained(table([*header, "GPM over the best rival", "which had"], rows))


def won_with(line: Line) -> str:
    """Says with what of that which was tried a mode was best."""
    words = [f"{line['cpu_threads']} CPU threads"]
    if "changes" in line:
        words.append(f"changes {line['changes']}")
    if line.get("file_io"):
        words.append(f"files {line['file_io']}")
    return ", ".join(words)


def fig10(results: Results, size: str) -> str:
    """What direct persistence is worth, and the projections."""
    chosen = ("cap-mm", *DELTA, "ndp", "gpm", "eadr", "cap-eadr")
    rows: Rows = []
    starred = False
    for name, lines in results.modes(size).items():
        cells = [_speedup(results, size, name, mode) for mode in chosen]
        if "ndp" in lines and copied_by_engine(lines["ndp"]):
            cells[chosen.index("ndp")] += " *"
            starred = True
        rows.append([checkpoint_title(name, lines), *cells])
    note = "\n\n(* By the copy engine: that is CAP-mm.)" if starred else ""
    return explained(table(["workload", *(MODE_TITLES[mode] for mode in chosen)], rows)) + note


def fig11(results: Results) -> str:
    """Workloads with each log."""
    rows: Rows = []
    for size in results.sizes("gpm_logs"):
        report = results.report(f"gpm_logs_{size}")
        for name, (ours, other) in results.log_speedups(size).items():
            speedup = other["cost_seconds"] / ours["cost_seconds"]
            rows.append(
                [
                    TITLES[name],
                    size,
                    report.where,
                    time(other["cost_seconds"]),
                    time(ours["cost_seconds"]),
                    f"{speedup:.3g}",
                    PAPER_LOGS[name],
                ]
            )
    if not rows:
        names = " and ".join(TITLES[name] for name in LOGGING)
        return f"({names} with the conventional log have not been measured.)"
    header = ["workload", "size", "on", "conventional log", "coalesced log", "speedup", "paper"]
    return table(header, rows)


def fig12(results: Results) -> str:
    """Bytes a second to the medium."""
    rows: Rows = []
    for size in results.sizes():
        link = results.copy_engine(size)
        for name, lines in results.modes(size).items():
            if "gpm" not in lines:
                continue
            rate = lines["gpm"]["bytes_per_step"] / lines["gpm"]["cost_seconds"] / 1e9
            share = f"{100 * rate / link:.0f} %" if link else "-"
            rows.append([TITLES[name], size, f"{rate:.2f}", share])
    return table(["workload", "size", "GB/s to the medium", "of the copy engine"], rows)


def table4(results: Results) -> str:
    """Bytes that CAP writes for each that GPM writes."""
    rows: Rows = []
    for size in results.sizes():
        for name, lines in results.modes(size).items():
            if not {"cap-mm", "gpm"} <= set(lines):
                continue
            cap, gpm = (lines[mode]["bytes_per_step"] for mode in ("cap-mm", "gpm"))
            paper = PAPER_WA.get(name, "1.00" if name != "gpkvs_95_5" else "-")
            rows.append(
                [TITLES[name], size, f"{gpm:,.0f}", f"{cap:,.0f}", f"{cap / gpm:.2f}", paper]
            )
    return table(
        ["workload", "size", "GPM, bytes a step", "CAP, bytes a step", "WA", "paper"], rows
    )


def table5(results: Results) -> str:
    """The longest recovery after a crash, as a share of the operation.

    A star is on results of before CUDA loaded its kernels when these processes start.
    """
    rows: Rows = []
    for size in results.sizes("gpm_restores"):
        for line in results.report(f"gpm_restores_{size}").lines:
            rows.append(
                [
                    TITLES[line["workload"]]
                    + ("" if {"killed_steps", "crashed"} & set(line) else " *"),
                    size,
                    line["kills"],
                    line.get("crashed", "at random"),
                    time(line["recovery_seconds"]),
                    time(line["operation_seconds"]),
                    f"{100 * line['share']:.2f} %",
                    PAPER_RESTORE.get(line["workload"], "-"),
                ]
            )
    header = ["workload", "size", "crashes", "when", "longest recovery", "operation", "share"]
    return table([*header, "paper"], rows)


def roofline(results: Results, size: str = "paper") -> str:
    """What the link alone would take on each side, and the largest ratio that leaves."""
    link = results.copy_engine(size)
    if not link:
        return "(The copy engine was not measured on this machine.)"
    rows: Rows = []
    for name, lines in results.modes(size).items():
        if not {"cap-mm", "gpm"} <= set(lines):
            continue
        gpm, cap = link_bound(lines["gpm"], link), link_bound(lines["cap-mm"], link)
        about = "about " if gpm.at_most else ""
        rows.append(
            [
                TITLES[name],
                megabytes(gpm.written),
                ("≤ " if gpm.at_most else "") + megabytes(gpm.read) if gpm.read else "-",
                megabytes(cap.written),
                time(gpm.seconds),
                time(cap.seconds),
                f"{100 * gpm.seconds / lines['gpm']['cost_seconds']:.0f} %",
                f"{100 * cap.seconds / lines['cap-mm']['cost_seconds']:.0f} %",
                ratio(lines, "cap-mm"),
                about + f"{lines['cap-mm']['cost_seconds'] / gpm.seconds:.3g}",
                about + f"{cap.seconds / gpm.seconds:.3g}",
            ]
        )
    header = [
        "workload",
        "GPM writes, MB",
        "GPM reads, MB",
        "CAP copies, MB",
        "link, GPM",
        "link, CAP",
        "GPM reaches",
        "CAP-mm reaches",
        "GPM over CAP-mm",
        "GPM at its bound",
        "both at theirs",
    ]
    return table(header, rows)


def medium(results: Results, name: str, size: str) -> str:
    """What was measured under a model of a medium."""
    modes = ("cap-fs", "cap-mm", "cap-delta", "gpm")
    rows: Rows = []
    for workload, lines in results.modes(size, name).items():
        over = [over_best(lines), *(ratio(lines, mode) for mode in ("cap-fs", "cap-mm"))]
        falls = pattern(lines["gpm"]) if "gpm" in lines else "-"
        costs = [_cost(lines, mode) for mode in modes]
        rows.append([TITLES[workload], falls, *costs, *over, PAPER_FIG9.get(workload, "-")])
    header = ["workload", "GPM's stores", *(MODE_TITLES[mode] for mode in modes)]
    header += ["over the best rival", "over CAP-fs", "over CAP-mm"]
    return table([*header, "paper's GPM"], rows)


def media(results: Results) -> str:
    """A table for each medium and size, each headed by what it is."""
    return "\n\n".join(
        f"Under the model `{name}`, size {size}:\n\n{medium(results, name, size)}"
        for name, size in results.media()
    )


def megabytes(count: float) -> str:
    """Formats bytes as millions, with a digit more where they are few."""
    return f"{count / 1e6:,.0f}" if count >= 1e7 else f"{count / 1e6:.2f}"


TABLES: dict[str, Callable[[Results], str]] = {
    "gpm-fig1a": fig1a,
    "gpm-fig1b": fig1,
    "gpm-fig3": fig3,
    "gpm-fig9": lambda results: _by_size(results, fig9),
    "gpm-fig10": lambda results: _by_size(results, fig10),
    "gpm-delta": delta,
    "gpm-rivals": rivals,
    "gpm-fig11": fig11,
    "gpm-fig12": fig12,
    "gpm-table4": table4,
    "gpm-table5": table5,
}


def _by_size(results: Results, make: Callable[[Results, str], str]) -> str:
    return "\n\n".join(f"size {size}:\n\n{make(results, size)}" for size in results.sizes())
