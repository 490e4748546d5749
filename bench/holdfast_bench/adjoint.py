"""A migration's shot with each way to keep its wavefields: what is run, its table, its figure.

A cell is a word of adjoint_bench: STORE/FORM[/SETTING=VALUE...]. All cells of a size keep as many
steps of as many bytes; those with a larger `every` compute more between two.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast import Error

from . import runner
from .gpm.results import Line, Report
from .gpm.results import Results as Files
from .gpm.tables import table
from .kept import FIGURES, RESULTS, ROOT
from .plots import pyplot

PAGE = ROOT / "docs" / "adjoint.md"
FIGURE = FIGURES / "adjoint-stores.svg"
# Of a GPU alone: what the CPU backend takes is no result.
MEASURED = Files(RESULTS, ("cuda",))


@dataclass(frozen=True)
class Size:
    """A scale: cells of the model, steps that are kept, and what a history and revolve get."""

    nx: int
    nz: int
    kept: int
    gpu_mib: int  # a history's cache; snapshots in as much for revolve
    host_mib: int  # that holds the whole shot with the other
    small_host_mib: int  # that does not, so that the rest is on disk
    every: tuple[int, ...]

    @property
    def snapshots(self) -> int:
        """States of two wavefields that are in the GPU's cache."""
        cells = (self.nx + 56) * (self.nz + 56)  # with the sponge and the frame
        return (self.gpu_mib << 20) // (2 * 4 * cells)

    def words(self) -> list[str]:
        """Returns the cells; what a ratio is made of runs one behind the other."""
        found = []
        for every in self.every:
            tail = f"every={every}"
            caches = f"{tail}/gpu_mib={self.gpu_mib}"
            found += [
                f"none/exact/{tail}",
                f"memory/exact/{tail}",
                f"history/exact/{caches}/host_mib={self.host_mib}",
                f"revolve/exact/{tail}/snapshots={self.snapshots}",
                f"revolve/exact/{tail}/snapshots={max(2, self.snapshots // 8)}",
            ]
        found.append(f"history/exact/{caches}/host_mib={self.small_host_mib}/disk=1")
        for every in self.every:
            tail = f"every={every}"
            caches = f"{tail}/gpu_mib={self.gpu_mib}/host_mib={self.host_mib}"
            found += [f"none/packed/{tail}", f"memory/packed/{tail}", f"history/packed/{caches}"]
        return found


SIZES = {
    # Of tests: it says that everything works, and nothing of speed.
    "tiny": Size(48, 16, 60, 1, 4, 1, (1, 3)),
    # 30 km across and 6 km deep, 2,000 wavefields of 8 MB; a shot is 2.5 and 20 s long.
    "real": Size(3000, 600, 2000, 2048, 16384, 8192, (1, 8)),
}
TITLES = {
    "none": "nothing kept",
    "memory": "all in device memory",
    "revolve": "recomputation (revolve)",
    "history": "history",
}


def results_name(size: str) -> str:
    """Returns the name of a results file, without the backend's."""
    return f"adjoint_{size}"


def run(
    size: str,
    results: Path,
    *,
    program: Path | None = None,
    disk: Path | None = None,
    seconds: int = 70,
    repeat: int = 3,
    on_line: Callable[[Line], None] = lambda line: None,
) -> Path:
    """Runs the cells of a size and writes the results file, which it returns.

    No cell begins after so many seconds. Raises Error where an image differs or a store fails;
    what was measured is kept.
    """
    found = program or runner.tree_program("adjoint_bench")
    chosen = SIZES[size]
    started = datetime.datetime.now(datetime.timezone.utc)
    path = runner.results_path(results, results_name(size))
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=disk, prefix="holdfast-adjoint-") as folder:
        arguments = [
            f"--nx={chosen.nx}",
            f"--nz={chosen.nz}",
            f"--kept={chosen.kept}",
            f"--repeat={repeat}",
            f"--seconds={seconds}",
            f"--disk={folder}",
        ]
        try:
            for line in runner.measured(found, [*arguments, *chosen.words()]):
                on_line(line)
                lines.append(line)
        finally:
            if lines:
                runner.write_results(
                    path,
                    program=found.name,
                    command=f"holdfast bench adjoint --size {size} --repeat {repeat}",
                    medium="dram",
                    started=started,
                    lines=lines,
                    notes={"size": size},
                )
    if not lines:
        raise Error(f"{found.name} measured nothing: give it more --seconds")
    return path


def _computing(lines: list[Line], line: Line) -> float | None:
    """Returns the seconds of the same shot with nothing kept."""
    for other in lines:
        same = (other["form"], other["every"]) == (line["form"], line["every"])
        if other["store"] == "none" and same and "seconds" in other:
            return float(other["seconds"])
    return None


def _name(line: Line) -> str:
    title = TITLES[line["store"]]
    if line["store"] == "revolve":
        title += f", {line['snapshots']} snapshots"
    if line.get("disk_bytes"):
        title += ", with a disk"
    return title + (", compressed" if line["form"] == "packed" else "")


def _gb(bytes_: int) -> str:
    return f"{bytes_ / 1e9:.1f}" if bytes_ else ""


def stores(report: Report) -> str:
    """Returns the table of a results file."""
    rows: list[list[object]] = []
    for line in sorted(report.lines, key=lambda line: int(line["every"])):
        if "error" in line:
            rows.append([line["every"], _name(line), "does not fit", *[""] * 7])
            continue
        computing = _computing(report.lines, line)
        over = "" if computing is None else f"{line['seconds'] - computing:.3f}"
        same = {None: "", 0: "no", 1: "yes"}[line.get("same_image")]
        rows.append(
            [
                line["every"],
                _name(line),
                f"{line['forward_seconds']:.3f} + {line['backward_seconds']:.3f}",
                "" if line["store"] == "none" else over,
                f"{line['recomputed_steps']:,}" if line["recomputed_steps"] else "",
                f"{line['forward_call_seconds'] + line['backward_call_seconds']:.3f}",
                _gb(line["gpu_bytes"]),
                _gb(line["host_bytes"]),
                _gb(line["disk_bytes"]),
                same,
            ]
        )
    header = [
        "steps between",
        "wavefields",
        "forward + backward, s",
        "over computing alone, s",
        "steps computed again",
        "in the store's calls, s",
        "GPU, GB",
        "host, GB",
        "disk, GB",
        "image the same",
    ]
    return table(header, rows)


def draw(report: Report, path: Path) -> bool:
    """Draws the seconds of the stores, by interval; says whether there was anything to draw."""
    lines = [line for line in report.lines if "seconds" in line]
    if not lines:
        return False
    plt = pyplot()
    intervals = sorted({line["every"] for line in lines})
    figure, panels = plt.subplots(1, len(intervals), figsize=(11, 3.6), squeeze=False)
    for axes, every in zip(panels[0], intervals, strict=True):
        here = [line for line in lines if line["every"] == every and line["store"] != "none"]
        places = range(len(here))
        forward = [line["forward_seconds"] for line in here]
        axes.barh(places, forward, color="#7f9fc8", label="forward pass")
        axes.barh(
            places,
            [line["backward_seconds"] for line in here],
            left=forward,
            color="#2f7d4f",
            label="backward pass",
        )
        for line in lines:
            if line["store"] == "none" and line["every"] == every and line["form"] == "exact":
                axes.axvline(line["seconds"], linestyle="--", color="grey", label="computing alone")
        axes.set_yticks(list(places), [_name(line) for line in here], fontsize="x-small")
        axes.invert_yaxis()
        steps = "each step is kept" if every == 1 else f"every {every}th step is kept"
        axes.set(xlabel="seconds", xlim=(0, None))
        axes.set_title(steps, fontsize="medium")
    panels[0][-1].legend(fontsize="x-small")
    most = max(line["kept_steps"] * line["step_bytes"] for line in lines)
    figure.suptitle(f"A shot of {most / 1e9:.0f} GB of wavefields ({report.where})",
                    fontsize="small")  # fmt: skip
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def _part() -> str:
    report = MEASURED.report(results_name("real"))
    if not report:
        return "Not measured yet: `holdfast bench adjoint`."
    head = report.head
    first = next(line for line in report.lines if "kept_steps" in line)
    what = (
        f"{report.where}, {head['date'][:10]}, commit `{head['commit'][:9]}`, `{head['command']}`: "
        f"{first['nx']} x {first['nz']} cells, {first['kept_steps']:,} wavefields of "
        f"{first['step_bytes'] / 1e6:.1f} MB."
    )
    figure = f"![the time of a shot by what keeps its wavefields](figures/{FIGURE.name})"
    return f"{what}\n\n{figure}\n\n{stores(report)}"


TABLES: dict[str, Callable[[], str]] = {"adjoint-stores": _part}


def readme_rows() -> list[list[object]]:
    """Returns the README's rows: a history beside its rivals, by interval."""
    report = MEASURED.report(results_name("real"))
    rows: list[list[object]] = []
    for every in sorted({line["every"] for line in report.lines}):
        best: dict[str, Line] = {}
        for line in report.lines:
            same = line["every"] == every and line["form"] == "exact" and "seconds" in line
            if same and not line.get("disk_bytes"):
                known = best.get(line["store"])
                if known is None or line["seconds"] < known["seconds"]:
                    best[line["store"]] = line
        if not {"history", "revolve", "memory"} <= set(best):
            continue
        history = best["history"]
        gb = history["kept_steps"] * history["step_bytes"] / 1e9
        steps = "each step" if every == 1 else f"every {every}th step"
        what = (
            f"an adjoint's shot, {gb:.0f} GB of wavefields of {steps}, "
            f"{history['gpu_cache_bytes'] / 1e9:.1f} GB of device memory for them"
        )
        rows.append(
            [
                what,
                report.where,
                f"{history['seconds']:.2f} s by a history, {best['revolve']['seconds']:.2f} s "
                f"by recomputation, {best['memory']['seconds']:.2f} s with all in device memory",
            ]
        )
    return rows


def readme() -> str:
    """Returns the README's figure, where it was measured."""
    if not MEASURED.report(results_name("real")):
        return ""
    return f"![an adjoint's shot by what keeps its wavefields](docs/figures/{FIGURE.name})\n"


def draw_kept() -> None:
    """Draws the figure of the page, if it was measured."""
    draw(MEASURED.report(results_name("real")), FIGURE)
