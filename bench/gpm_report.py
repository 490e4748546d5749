"""Makes the tables and figures of docs/results/gpm.md from bench/results: `make results`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import tables
from tables import RESULTS, Line, table

PAGE = tables.ROOT / "docs" / "results" / "gpm.md"
SIZES = ("paper", "real")

TITLES = {
    "gpkvs": "gpKVS",
    "gpkvs_95_5": "gpKVS (95:5)",
    "gpdb_insert": "gpDB (I)",
    "gpdb_update": "gpDB (U)",
    "lenet": "DNN",
    "cfd": "CFD",
    "black_scholes": "BLK",
    "hotspot": "HS",
    "bfs": "BFS",
    "srad": "SRAD",
    "prefix_sum": "PS",
}
CHECKPOINTING = ("lenet", "cfd", "black_scholes", "hotspot")
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
MODES = ("cap-fs", "cap-mm", "gpufs", "ndp", "gpm", "eadr", "cap-eadr", "cpu")


def load(name: str) -> tuple[Line, list[Line]]:
    """Returns a results file's head and its lines; nothing where there is no such file."""
    path = RESULTS / f"{name}-cuda.json"
    if not path.is_file():
        return {}, []
    report = json.loads(path.read_text())
    return report, report.pop("results")


def modes(size: str) -> dict[str, dict[str, Line]]:
    """Returns the lines of a size by workload and mode."""
    lines: dict[str, dict[str, Line]] = {}
    for line in load(f"gpm_modes_{size}")[1]:
        lines.setdefault(line["workload"], {})[line["mode"]] = line
    return {name: lines[name] for name in TITLES if name in lines}


def time(seconds: float) -> str:
    """Formats a duration."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    return ""


def ratio(lines: dict[str, Line], over: str, of: str = "gpm") -> str:
    """Formats how many times faster `of` is than `over`."""
    if over not in lines or of not in lines:
        return "-"
    return f"{lines[over]['cost_seconds'] / lines[of]['cost_seconds']:.3g}"


def fig9(size: str) -> str:
    """Speedups over CAP-fs."""
    rows: list[list[object]] = []
    for name, lines in modes(size).items():
        ours: list[object] = [ratio(lines, "cap-fs", mode) for mode in ("cap-mm", "gpufs", "gpm")]
        over = ratio(lines, "cap-mm")
        cost = time(lines["gpm"]["cost_seconds"])
        rows.append([TITLES[name], *ours, over, cost, PAPER_FIG9.get(name, "-")])
    header = ["workload", "CAP-mm", "GPUfs", "GPM", "GPM over CAP-mm", "GPM takes", "paper's GPM"]
    return table(header, rows)


def fig10(size: str) -> str:
    """What direct persistence is worth, and the projections."""
    rows: list[list[object]] = []
    for name, lines in modes(size).items():
        chosen = ("cap-mm", "ndp", "gpm", "eadr", "cap-eadr")
        rows.append([TITLES[name], *(ratio(lines, "cap-fs", mode) for mode in chosen)])
    return table(
        ["workload", "CAP-mm", "GPM-NDP", "GPM", "GPM-eADR (projection)", "CAP-eADR (projection)"],
        rows,
    )


def fig1() -> str:
    """GPM against the CPU alone."""
    rows: list[list[object]] = []
    for size in SIZES:
        for name, lines in modes(size).items():
            if "cpu" in lines and name not in CHECKPOINTING:
                cpu, gpm = lines["cpu"], lines["gpm"]
                rows.append(
                    [
                        TITLES[name],
                        size,
                        time(cpu["cost_seconds"]),
                        cpu["cpu_threads"],
                        time(gpm["cost_seconds"]),
                        ratio(lines, "cpu"),
                    ]
                )
    return table(["workload", "size", "CPU takes", "CPU threads", "GPM takes", "speedup"], rows)


def table4() -> str:
    """Bytes that CAP writes for each that GPM writes."""
    rows: list[list[object]] = []
    for size in SIZES:
        for name, lines in modes(size).items():
            if "cap-mm" not in lines:
                continue
            cap, gpm = (lines[mode]["bytes_per_step"] for mode in ("cap-mm", "gpm"))
            paper = PAPER_WA.get(name, "1.00" if name != "gpkvs_95_5" else "-")
            rows.append(
                [TITLES[name], size, f"{gpm:,.0f}", f"{cap:,.0f}", f"{cap / gpm:.2f}", paper]
            )
    return table(
        ["workload", "size", "GPM, bytes a step", "CAP, bytes a step", "WA", "paper"], rows
    )


def fig12() -> str:
    """Bytes a second to the medium."""
    rows: list[list[object]] = []
    for size in SIZES:
        for name, lines in modes(size).items():
            gpm = lines["gpm"]
            rate = gpm["bytes_per_step"] / gpm["cost_seconds"] / 1e9
            rows.append([TITLES[name], size, f"{rate:.2f}", f"{100 * rate / COPY_ENGINE:.0f} %"])
    return table(["workload", "size", "GB/s to the medium", "of the copy engine"], rows)


COPY_ENGINE = 55.0  # GB/s; persist_bench-cuda.json


def table5() -> str:
    """The longest recovery after real kills, as a share of the operation."""
    rows: list[list[object]] = []
    for size in SIZES:
        for line in load(f"gpm_restores_{size}")[1]:
            name = line["workload"]
            rows.append(
                [
                    TITLES[name],
                    size,
                    line["kills"],
                    time(line["recovery_seconds"]),
                    time(line["operation_seconds"]),
                    f"{100 * line['share']:.2f} %",
                    PAPER_RESTORE.get(name, "-"),
                ]
            )
    header = ["workload", "size", "kills", "longest recovery", "operation", "share", "paper"]
    return table(header, rows)


# Optane's bandwidth by how stores fall (GB/s; the paper's section 6.1), and how ours do.
OPTANE = {"aligned": 12.5, "unaligned": 3.13, "random": 0.72}
PATTERNS = {
    "gpkvs": "random",
    "gpkvs_95_5": "random",
    "gpdb_update": "random",
    "bfs": "random",
    "srad": "unaligned",
}


def on_optane(line: Line) -> float:
    """Projects a step's time: what was measured, or what the medium would take if that is more."""
    direct = line["mode"] in ("gpm", "ndp", "eadr")
    pattern = PATTERNS.get(line["workload"], "aligned") if direct else "aligned"
    return max(float(line["cost_seconds"]), line["bytes_per_step"] / OPTANE[pattern] / 1e9)


def optane() -> str:
    """A projection: the same runs, no faster than Optane takes their bytes."""
    rows: list[list[object]] = []
    for name, lines in modes("paper").items():
        if not {"cap-fs", "cap-mm", "gpm"} <= set(lines):
            continue
        times = {mode: on_optane(lines[mode]) for mode in ("cap-fs", "cap-mm", "gpm")}
        rows.append(
            [
                TITLES[name],
                PATTERNS.get(name, "aligned"),
                *(time(times[mode]) for mode in times),
                f"{times['cap-fs'] / times['gpm']:.3g}",
                f"{times['cap-mm'] / times['gpm']:.3g}",
            ]
        )
    header = ["workload", "GPM's stores", "CAP-fs", "CAP-mm", "GPM", "over CAP-fs", "over CAP-mm"]
    return table(header, rows)


def inputs() -> str:
    """What the runs took in."""
    rows: list[list[object]] = []
    for size in SIZES:
        for name, lines in modes(size).items():
            gpm = lines["gpm"]
            checked = "yes" if gpm["verified"] else "no (at size real)"
            rows.append([TITLES[name], size, gpm["input"], gpm["steps"], checked])
    return table(["workload", "size", "input", "steps measured", "checked by the oracle"], rows)


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
        for name, lines in modes(size).items():
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
    for path in sorted((RESULTS / "resumes").glob("*.json")):
        r = json.loads(path.read_text())
        rows.append(
            [
                TITLES.get(r["app"], r["app"]),
                r["device"],
                r["seed"],
                f"{r['kills']} ({r['kills_in_setup']})",
                r["finished"],
                len(r["wrong"]),
            ]
        )
    header = ["workload", "device", "seed", "kills (in set-up)", "resumed to the end", "wrong"]
    return table(header, rows)


def readme_rows() -> list[list[object]]:
    """What the README shows of this page."""
    saves = [x for x in load("checkpoint_bench")[1] if x["benchmark"] == "checkpoint_save"]
    asides_ = [x for x in load("checkpoint_bench")[1] if x["benchmark"] == "checkpoint_aside"]
    save = max(saves, key=lambda line: (line["bytes"], line["by"] == "copy engine"))
    aside = max(asides_, key=lambda line: line["bytes"])
    paper = modes("paper")
    rows: list[list[object]] = [
        [
            f"checkpoint of {save['bytes'] / 2**30:g} GiB; by the asynchronous form",
            f"{save['gb_per_s']:.0f} GB/s, {100 * save['ratio_to_copy']:.0f} % of the copy engine; "
            f"the next kernel waits {100 * aside['held_to_direct']:.0f} % as long",
        ]
    ]
    for name in ("gpkvs", "gpdb_update", "gpdb_insert", "black_scholes"):
        if name in paper:
            rows.append(
                [
                    f"GPMbench, {TITLES[name]} at the paper's size",
                    f"{ratio(paper[name], 'cap-fs')} times CAP-fs, "
                    f"{ratio(paper[name], 'cap-mm')} times CAP-mm",
                ]
            )
    return rows


TABLES: dict[str, Callable[[], str]] = {
    "fig1": fig1,
    "fig9-paper": lambda: fig9("paper"),
    "fig9-real": lambda: fig9("real"),
    "fig10-paper": lambda: fig10("paper"),
    "fig10-real": lambda: fig10("real"),
    "fig12": fig12,
    "table4": table4,
    "table5": table5,
    "optane": optane,
    "inputs": inputs,
    "checkpoints": checkpoints,
    "asides": asides,
    "shares": shares,
    "torch": torch,
    "resumes": resumes,
}


def draw(plt: Any) -> None:
    """Draws speedups over CAP-fs, by workload: the paper's figures 9 and 10."""
    chosen = {"cap-mm": "CAP-mm", "gpufs": "GPUfs", "ndp": "GPM-NDP", "gpm": "GPM"}
    sizes = [size for size in SIZES if modes(size)]
    figure, panels = plt.subplots(len(sizes), 1, figsize=(10, 3.4 * len(sizes)), squeeze=False)
    for axes, size in zip(panels[:, 0], sizes, strict=True):
        lines = {name: by for name, by in modes(size).items() if "cap-fs" in by}
        width = 0.8 / len(chosen)
        for number, (mode, label) in enumerate(chosen.items()):
            points = [
                (place + number * width, by["cap-fs"]["cost_seconds"] / by[mode]["cost_seconds"])
                for place, by in enumerate(lines.values())
                if mode in by
            ]
            if points:
                axes.bar(*zip(*points, strict=True), width, label=label, color=f"C{number}")
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_xticks([i + 1.5 * width for i in range(len(lines))], [TITLES[n] for n in lines])
        axes.set(ylabel="speedup over CAP-fs", title=f"size {size}")
        axes.tick_params(axis="x", labelsize=8)
    panels[-1, 0].legend(fontsize="x-small", ncols=4)
    device = load(f"gpm_modes_{sizes[0]}")[0]["machine"]["device"] if sizes else ""
    figure.suptitle(f"GPMbench ({device}; the medium is DRAM in shared memory)", fontsize="medium")
    figure.tight_layout()
    figure.savefig(tables.FIGURES / "gpm.svg", metadata={"Date": None})
    plt.close(figure)
