"""holdfast bench gphash-*: the experiments of GPHash (FAST '25), of the map and its rivals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import holdfast
from holdfast import Error
from holdfast.cli import common

from . import gphash, gphash_alone
from .gpm.results import Line
from .kept import RESULTS

_SHOWN = ("workload", "batch", "million_operations_per_s", "batch_us", "no_room")


def _print(line: Line) -> None:
    words = " ".join(f"{name}={common.number(line[name])}" for name in _SHOWN)
    common.err.print(f"{gphash.title(line)}: {words}")


def _draw(name: str, results: Path, draw: Callable[[Path], bool]) -> list[Path]:
    path = results / f"{name}-{holdfast.backend}.svg"
    try:
        if draw(path):
            return [path]
    except Error as error:  # what was measured is not lost for it
        common.note(f"no figure was drawn: {error}")
    return []


def _tell(path: Path, figures: list[Path], text: str, as_json: bool) -> None:
    """Says what an experiment has made."""
    if as_json:
        common.emit({"ok": True, "files": [str(path)], "figures": [str(f) for f in figures]})
        return
    common.out.print(f"\n{text}\n", soft_wrap=True, markup=False, highlight=False)
    common.out.print(f"wrote {path}")
    for figure in figures:
        common.out.print(f"drew {figure}")


def _batches(given: str) -> tuple[int, ...]:
    words = given.split(",") if given else []
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise Error(f"--batches {given}: give numbers from 1, with commas")
    return tuple(map(int, words))


def _workloads(given: str) -> tuple[str, ...]:
    known = (*gphash.MICRO, *gphash.MACRO, *gphash.FITTED)
    words = tuple(given.split(",")) if given else ()
    for word in words:
        if word not in known:
            raise Error(f"--workloads {word}: choose of {', '.join(known)}")
    return words


def _form(given: str) -> str:
    if given not in ("", *gphash.FORMS):
        raise Error(f"--forms {given}: choose of {', '.join(gphash.FORMS)}")
    return given


def add_commands(app: typer.Typer) -> None:
    """Adds a command for each experiment."""
    for name, experiment in gphash.EXPERIMENTS.items():
        _add(app, name, experiment.what)
    for name, alone in gphash_alone.EXPERIMENTS.items():
        _add_alone(app, name, alone.what)


def _add(app: typer.Typer, name: str, what: str) -> None:
    example = f"Example: holdfast bench {name} --size quarter --minutes 9"

    @app.command(name, help=f"GPHash, the map's rivals: {what}.", epilog=example)
    @common.command
    def experiment(
        size: Annotated[str, typer.Option(help="Keys and operations: tiny, quarter, paper.")] = (
            "paper"
        ),
        contestants: Annotated[
            str, typer.Option(help="With commas.", show_default="all")
        ] = ",".join(gphash.CONTESTANTS),
        distribution: Annotated[
            str, typer.Option(help="Of YCSB's keys: scrambled (its own), zipf, uniform.")
        ] = "scrambled",
        threads: Annotated[int, typer.Option(min=1, help="Of the CPU-assisted map.")] = 16,
        seconds: Annotated[int, typer.Option(min=1, help="No run of a workload is longer.")] = 20,
        batches: Annotated[
            str, typer.Option(help="Operations of a batch; with commas.", show_default="the size's")
        ] = "",
        operations: Annotated[
            int | None, typer.Option(min=1, help="Of each workload.", show_default="the size's")
        ] = None,
        workloads: Annotated[
            str, typer.Option(help="With commas.", show_default="the figure's")
        ] = "",
        forms: Annotated[
            str, typer.Option(help="Batches as given, or ordered.", show_default="the figure's")
        ] = "",
        add: Annotated[
            bool, typer.Option(help="Keep what the results file has of this commit.")
        ] = False,
        minutes: Annotated[
            float | None, typer.Option(min=0.01, help="No contestant begins later.")
        ] = None,
        program: Annotated[
            Path | None, typer.Option(help=f"{gphash.PROGRAM}. Default: the tree's.")
        ] = None,
        results: Annotated[
            Path, typer.Option(help="Folder of the results.", show_default="bench/results")
        ] = RESULTS,
        as_json: common.Json = False,
    ) -> None:
        if size not in gphash.SIZES:
            raise Error(f"--size {size}: choose of {', '.join(gphash.SIZES)}")
        if distribution not in ("scrambled", "zipf", "uniform"):
            raise Error(f"--distribution {distribution}: scrambled, zipf or uniform")
        chosen = tuple(contestants.split(","))
        for contestant in chosen:
            if contestant not in gphash.CONTESTANTS:
                known = ", ".join(gphash.CONTESTANTS)
                raise Error(f"--contestants {contestant}: choose of {known}")
        settings = gphash.Settings(
            results, size, chosen, distribution, threads, seconds, minutes, program,
            _batches(batches), operations, _workloads(workloads), _form(forms), add,
        )  # fmt: skip
        on_line = (lambda _: None) if as_json else _print
        path = gphash.run(name, settings, on_line, common.note)
        report = gphash.measured(name, settings)
        figures = _draw(name, results, lambda to: gphash.draw(name, report, to))
        _tell(path, figures, gphash.TABLES[name](report), as_json)


def _print_alone(line: Line) -> None:
    common.err.print(" ".join(f"{name}={common.number(value)}" for name, value in line.items()))


def _add_alone(app: typer.Typer, name: str, what: str) -> None:
    example = f"Example: holdfast bench {name} --size quarter"

    @app.command(name, help=f"GPHash, the map alone: {what}.", epilog=example)
    @common.command
    def experiment(
        size: Annotated[str, typer.Option(help="Keys: tiny, quarter, paper.")] = "paper",
        programs: Annotated[
            Path | None, typer.Option(help="Folder of the benchmark programs. Default: the tree's.")
        ] = None,
        results: Annotated[
            Path, typer.Option(help="Folder of the results.", show_default="bench/results")
        ] = RESULTS,
        as_json: common.Json = False,
    ) -> None:
        if size not in gphash_alone.SIZES:
            raise Error(f"--size {size}: choose of {', '.join(gphash_alone.SIZES)}")
        on_line = (lambda _: None) if as_json else _print_alone
        path = gphash_alone.run(name, size, results, programs, on_line)
        report = gphash_alone.measured(name, size, results)
        figures = _draw(name, results, lambda to: gphash_alone.draw(name, report, to))
        _tell(path, figures, gphash_alone.EXPERIMENTS[name].table(report), as_json)
