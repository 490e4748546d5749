"""The commands of holdfast bench: runs the benchmarks and draws their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import holdfast
from holdfast import Error, workloads
from holdfast.cli import common

from . import adjoint_cli, gphash_cli, gpm, plots, power_cli, runner, score_cli
from .kept import RESULTS

app = typer.Typer(
    help="Runs the benchmarks and draws their figures.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)

Results = Annotated[Path, typer.Option(help="Folder of the results.", show_default="bench/results")]


@app.command("run", epilog="Example: holdfast bench run --only log -- --quick")
@common.command
def run(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Handed on to every program, after `--`.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="The program of this name, or those with it in their name.")
    ] = None,
    programs: Annotated[Path | None, typer.Option(help="Folder of the programs.")] = None,
    results: Results = RESULTS,
    name: Annotated[
        str | None, typer.Option(help="Of the results file. Default: the program's.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Runs the benchmark programs and writes a results file for each.

    Those that measure nothing without arguments run where --only names them.
    """
    found = runner.programs(programs, holdfast.backend)
    chosen = [path for path in found if path.name == only] or [
        path
        for path in found
        if (only in path.name if only else path.name not in runner.WANT_ARGUMENTS)
    ]
    if not chosen:
        raise Error(f"no benchmark program has '{only}' in its name", "not_found")
    written = []
    with common.progress(as_json) as bar:
        task = bar.add_task("programs", total=len(chosen))
        for program in chosen:
            bar.update(task, description=program.name)
            written.append(runner.run(program, arguments or [], results, _printer(as_json), name))
            bar.advance(task)
    if as_json:
        common.emit({"ok": True, "files": [str(path) for path in written]})
    else:
        for path in written:
            common.out.print(f"wrote {path}")


def _printer(quiet: bool) -> Any:
    def show(line: dict[str, Any]) -> None:
        if not quiet:
            common.err.print(
                " ".join(f"{name}={common.number(value)}" for name, value in line.items())
            )

    return show


@app.command("plot", epilog="Example: holdfast bench plot --out figures")
@common.command
def plot(
    results: Results = RESULTS,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures. Default: that of the results.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Draws a figure of every results file that has a series."""
    figures = plots.draw_all(results, out or results)
    if as_json:
        common.emit({"ok": True, "figures": [str(path) for path in figures]})
    else:
        for path in figures:
            common.out.print(f"drew {path}")


def _numbers(words: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in words.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise Error(f"--cpu-threads {words}: give numbers from 1, with commas")
    return numbers


def _chosen(option: str, words: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if words is None:
        return known
    chosen = tuple(words.split(","))
    for name in chosen:
        if name not in known:
            raise Error(f"{option} {name}: there is no such name; choose of {', '.join(known)}")
    return chosen


def _draw(names: list[str], results: Path, figures: Path) -> list[Path]:
    """Draws what can be drawn of the results of the backend in use."""
    measured = gpm.Results(results, (holdfast.backend,))
    figures.mkdir(parents=True, exist_ok=True)
    paths = {n: figures / f"{n}-{holdfast.backend}.svg" for n in names if n in gpm.figures.FIGURES}
    return [path for name, path in paths.items() if gpm.figures.draw(name, measured, path)]


def _show(names: list[str], settings: gpm.Settings) -> None:
    """Prints the tables: of a slower medium its own, which all experiments share."""
    measured = gpm.Results(settings.results, (holdfast.backend,))
    if settings.medium != "dram":
        made = {"results under media": gpm.tables.media(measured)}
    else:
        made = {f"{n}: {gpm.EXPERIMENTS[n].what}": gpm.tables.TABLES[n](measured) for n in names}
    for title, text in made.items():
        common.out.print(f"\n{title}\n\n{text}", soft_wrap=True, markup=False, highlight=False)


def _gpm(names: list[str], settings: gpm.Settings, figures: Path | None, as_json: bool) -> None:
    notes: list[str] = []

    def note(words: str) -> None:
        notes.append(words)
        if not as_json:
            common.note(words)

    written = gpm.run([gpm.EXPERIMENTS[n] for n in names], settings, _printer(as_json), note)
    drawn = []
    if settings.medium == "dram":  # the figures and tables are of the medium as it is
        try:
            drawn = _draw(names, settings.results, figures or settings.results)
        except Error as error:  # what was measured is not lost for it
            note(f"no figure was drawn: {error}")
    if as_json:
        common.emit(
            {"ok": True, "files": list(map(str, written)), "figures": list(map(str, drawn)),
             "notes": notes}
        )  # fmt: skip
        return
    _show(names, settings)
    for path in written:
        common.out.print(f"wrote {path}")
    for path in drawn:
        common.out.print(f"drew {path}")


def _add_gpm(name: str, what: str, names: list[str]) -> None:
    @app.command(name, help=f"GPM: {what}.", epilog=f"Example: holdfast bench {name} --size real")
    @common.command
    def experiment(
        size: Annotated[str, typer.Option(help="Of inputs: test, real or paper.")] = "real",
        data: Annotated[
            Path | None, typer.Option(help="Folder of real inputs. Default: $HOLDFAST_DATA.")
        ] = None,
        only: Annotated[str | None, typer.Option(help="Workloads, by name, with commas.")] = None,
        variants: Annotated[
            bool, typer.Option(help="Measure the workloads' variants, too, where there are some.")
        ] = True,
        modes: Annotated[str | None, typer.Option(help="Modes, with commas.")] = None,
        kills: Annotated[int, typer.Option(min=1, help="For restoration latencies.")] = 10,
        verify: Annotated[bool, typer.Option(help="Ask the oracles.")] = True,
        threads: Annotated[
            str, typer.Option("--cpu-threads", help="Numbers of CPU threads that are tried.")
        ] = ",".join(map(str, gpm.TRIED_THREADS)),
        medium: Annotated[
            str,
            typer.Option(
                help="What the region's memory stands for: dram, optane, cxl, limit=1.6GB/s."
            ),
        ] = "dram",
        programs: Annotated[
            Path | None, typer.Option(help="Folder of the benchmark programs.")
        ] = None,
        with_programs: Annotated[
            bool, typer.Option("--with-programs/--no-programs", help="Run those it needs.")
        ] = True,
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
        settings = gpm.Settings(
            results=results,
            size=_chosen("--size", size, workloads.SIZES)[0],
            data=str(data) if data else workloads.default_data(),
            only=_chosen("--only", only, (*gpm.ALL, *gpm.VARIANTS)) if only else gpm.ALL,
            variants=variants,
            modes=_chosen("--modes", modes, workloads.MODES),
            kills=kills,
            verify=verify,
            tried=_numbers(threads),
            medium=medium,
            programs=programs,
            with_programs=with_programs,
        )
        _gpm(names, settings, figures, as_json)


for _name, _experiment in gpm.EXPERIMENTS.items():
    _add_gpm(_name, _experiment.what, [_name])
# Figures 9 and 10 measure what gpm-delta does; gpm-rivals takes as long as all of them.
_APART = ("gpm-delta", "gpm-rivals")
_add_gpm("gpm-all", "all figures and tables", [n for n in gpm.EXPERIMENTS if n not in _APART])

score_cli.add_commands(app)

gphash_cli.add_commands(app)
adjoint_cli.add_command(app)
power_cli.add_command(app)
