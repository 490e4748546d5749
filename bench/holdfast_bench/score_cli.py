"""holdfast bench score-*: the experiments of Score (HPDC '23)."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import holdfast
from holdfast import Error
from holdfast.cli import common

from . import score
from .gpm.results import Line
from .kept import RESULTS

_SHOWN = ("cell", "rank", "save_gb_per_s", "restore_gb_per_s", "gpu_hits", "path",
          "speed_ratio", "more_us", "call", "fragments", "kernel", "median_us",
          "slower_percent")  # fmt: skip


def _print(line: Line) -> None:
    shown = {name: line[name] for name in _SHOWN if name in line}
    common.err.print(" ".join(f"{name}={common.number(value)}" for name, value in shown.items()))


def _measure(
    names: list[str], settings: score.Settings, on_line: score.OnLine, note: score.OnNote
) -> list[Path]:
    """Runs experiments, one behind the other, within the minutes that there are."""
    start = time.monotonic()
    written = []
    for name in names:
        given = settings
        if settings.minutes is not None:
            left = settings.minutes - (time.monotonic() - start) / 60
            if left <= 0:
                note(f"{name} is left: the same command with --resume runs it")
                continue
            given = replace(settings, minutes=left)
        written.append(score.run(name, given, on_line, note))
    return written


def _draw(
    names: list[str], measured: score.Results, folder: Path, note: score.OnNote
) -> list[Path]:
    drawn = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in (n for n in names if n in score.figures.FIGURES):
        path = folder / f"{name}-{holdfast.backend}.svg"
        try:
            if score.figures.draw(name, measured, path):
                drawn.append(path)
        except Error as error:  # what was measured is not lost for it
            note(f"no figure was drawn: {error}")
    return drawn


def _run(names: list[str], settings: score.Settings, figures: Path | None, as_json: bool) -> None:
    notes: list[str] = []

    def note(words: str) -> None:
        notes.append(words)
        if not as_json:
            common.note(words)

    written = _measure(names, settings, (lambda _: None) if as_json else _print, note)
    measured = score.Results(settings.results, (holdfast.backend,))
    drawn = _draw(names, measured, figures or settings.results, note)
    if as_json:
        common.emit({"ok": True, "files": [str(path) for path in written],
                     "figures": [str(path) for path in drawn], "notes": notes})  # fmt: skip
        return
    for name in (n for n in names if measured.sizes(n)):
        text = f"\n{name}: {score.EXPERIMENTS[name].what}\n\n{score.tables.TABLES[name](measured)}"
        common.out.print(text, soft_wrap=True, markup=False, highlight=False)
    for path in written:
        common.out.print(f"wrote {path}")
    for path in drawn:
        common.out.print(f"drew {path}")


def add_commands(app: typer.Typer) -> None:
    """Adds a command for each experiment, and one for all."""
    for name, experiment in score.EXPERIMENTS.items():
        _add(app, name, experiment.what, [name])
    _add(app, "score-all", "all figures", list(score.EXPERIMENTS))


def _add(app: typer.Typer, name: str, what: str, names: list[str]) -> None:
    example = f"Example: holdfast bench {name} --size quarter --minutes 9"

    @app.command(name, help=f"Score: {what}.", epilog=example)
    @common.command
    def experiment(
        size: Annotated[
            str, typer.Option(help="Of the shots: tiny, quarter or paper.")
        ] = "quarter",
        disk: Annotated[
            Path | None, typer.Option(help="Folder for checkpoints. Default: a temporary one.")
        ] = None,
        only: Annotated[
            str | None,
            typer.Option(help="Stores, with commas: history, pager, buffers, adios, dcp."),
        ] = None,
        cells: Annotated[
            str, typer.Option(help="A text that cells have: variable/irregular/all.")
        ] = "",
        compute: Annotated[
            str, typer.Option(help="What an interval is: sleep, as the paper's, or kernel.")
        ] = "sleep",
        gpus: Annotated[int, typer.Option(min=1, max=8, help="GPUs that figure 9 uses.")] = 1,
        seed: Annotated[int, typer.Option(min=0, help="Of sizes and orders.")] = 1,
        minutes: Annotated[
            float | None, typer.Option(min=0.01, help="No cell begins later.")
        ] = None,
        resume: Annotated[
            bool, typer.Option("--resume", help="Run what the results file lacks.")
        ] = False,
        program: Annotated[
            Path | None, typer.Option(help="score_bench. Default: the tree's.")
        ] = None,
        results: Annotated[
            Path,
            typer.Option(
                "--results",
                "--output",
                help="Folder of the results.",
                show_default="bench/results",
            ),
        ] = RESULTS,
        figures: Annotated[
            Path | None, typer.Option(help="Folder of the figures. Default: that of the results.")
        ] = None,
        as_json: common.Json = False,
    ) -> None:
        if size not in score.SIZES:
            raise Error(f"--size {size}: choose of {', '.join(score.SIZES)}")
        if compute not in ("sleep", "kernel"):
            raise Error(f"--compute {compute}: sleep or kernel")
        stores = tuple(only.split(",")) if only else ()
        for store in stores:
            if store not in score.TITLES:
                raise Error(f"--only {store}: choose of {', '.join(score.TITLES)}")
        settings = score.Settings(
            results=results,
            size=size,
            disk=disk,
            compute=compute,
            seed=seed,
            gpus=gpus,
            only=stores,
            having=cells,
            program=program,
            minutes=minutes,
            resume=resume,
        )
        _run(names, settings, figures, as_json)
