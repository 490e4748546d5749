"""holdfast check: every state that a crash may leave, and recovery in each of them."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import check as checker
from .._errors import Error
from ..check.diagram import check_name
from . import check_view, common


class Model(str, Enum):
    """The persistency models."""

    sbrp = "sbrp"
    epoch = "epoch"
    both = "both"


_Number = int | None


@common.command
def check(
    program: Annotated[
        str,
        typer.Argument(
            metavar="APP|litmus|list",
            help="A program by its name; `litmus`: the model's litmus tests; `list`: the programs.",
        ),
    ],
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Folders or files of litmus tests.")
    ] = None,
    threads: Annotated[_Number, typer.Option(min=1, help="Threads of a block.")] = None,
    blocks: Annotated[_Number, typer.Option(min=1, help="Blocks of a kernel.")] = None,
    persists: Annotated[_Number, typer.Option(min=1, help="Stores of a thread.")] = None,
    model: Annotated[Model | None, typer.Option(help="Persistency model. Default: both.")] = None,
    max_states: Annotated[_Number, typer.Option(min=1, help="Crash states at most.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0, help="Time at most; 0: no limit.")
    ] = None,
    seed: Annotated[_Number, typer.Option(min=0, help="Of random states.")] = None,
    schedule: Annotated[
        _Number, typer.Option(min=0, help="Seed of the kernels' schedule; 0: in index order.")
    ] = None,
    schedules: Annotated[_Number, typer.Option(min=0, help="Schedules to explore at most.")] = None,
    recovery_schedules: Annotated[
        _Number, typer.Option(min=0, help="Schedules of recovery from each crash state at most.")
    ] = None,
    recovery_seconds: Annotated[
        float | None,
        typer.Option(min=0.01, help="One recovery (30, or --max-seconds) or run() (300) may take."),
    ] = None,
    jobs: Annotated[_Number, typer.Option("--jobs", "-j", min=1, help="Processes.")] = None,
    no_nested: Annotated[
        bool, typer.Option("--no-nested", help="Do not crash once more, inside recovery.")
    ] = False,
    no_races: Annotated[
        bool, typer.Option("--no-races", help="Do not look for scoped races.")
    ] = False,
    barrier_orders: Annotated[
        bool, typer.Option("--barrier-orders", help="For study: a barrier alone orders persists.")
    ] = False,
    robust: Annotated[
        bool,
        typer.Option("--robust", help="Judge by what recovery reads, without a verification."),
    ] = False,
    mutants: Annotated[
        bool,
        typer.Option("--mutants", help="Is every fence needed and tested? Drop each, and so on."),
    ] = False,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Of mutants: threads x blocks x persists, such as 2,3x2,4x1x2; 0: by default."
        ),
    ] = None,
    mutation: Annotated[
        str | None, typer.Option(help="Check with one change, such as drop@kernel.cu:12.")
    ] = None,
    replay: Annotated[
        str | None, typer.Option(metavar="STATE", help="Try one state of a report again.")
    ] = None,
    brute: Annotated[
        bool, typer.Option("--brute", help="litmus: try every state, and compare.")
    ] = False,
    diagram: Annotated[
        Path | None, typer.Option(help="Draw the failing state: FILE.svg or FILE.html.")
    ] = None,
    executable: Annotated[
        Path | None,
        typer.Option("--program", help="A program of your own that calls check's command_line()."),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Runs APP, works out every state that a crash may leave, and recovers from each.

    Names the two stores whose order was missing, where they stand, and what would order them.
    Exits with 0 only where it passed: nothing fails, and all was explored under both models; with
    1 where it failed, 3 where no failure was found but not all was explored, 4 where it is racy, 5
    where the verdict is void.
    """
    values = {
        "--threads": threads,
        "--blocks": blocks,
        "--persists": persists,
        "--model": model.value if model else None,
        "--max-states": max_states,
        "--max-seconds": max_seconds,
        "--seed": seed,
        "--schedule": schedule,
        "--schedules": schedules,
        "--recovery-schedules": recovery_schedules,
        "--recovery-seconds": recovery_seconds,
        "--jobs": jobs,
        "--sizes": sizes,
        "--mutation": mutation,
        "--replay": replay,
    }
    flags = {
        "--no-nested": no_nested,
        "--no-races": no_races,
        "--barrier-orders": barrier_orders,
        "--robust": robust,
        "--mutants": mutants,
        "--brute": brute,
    }
    options = [
        word for name, value in values.items() if value is not None for word in (name, str(value))
    ]
    options += [name for name, on in flags.items() if on]
    if diagram is not None:
        _check_diagram(diagram, drawn=not mutants and program not in ("litmus", "list"))
    if brute and program != "litmus":
        raise common.UsageError("--brute is of `litmus`, whose tests it tries in every state")
    if program == "litmus":
        _litmus(paths or [], options, executable, as_json)
    elif paths:
        raise common.UsageError(
            f"'{paths[0]}' comes after the program: folders go with `litmus` alone"
        )
    else:
        _check([program, *options], executable, diagram, as_json)


def _check_diagram(path: Path, *, drawn: bool) -> None:
    try:
        check_name(path)
    except Error as error:
        raise common.UsageError(str(error)) from None
    if not drawn:
        raise common.UsageError(
            "--diagram draws a failing state: leave it out here, or check one program"
        )


def _check(
    arguments: list[str], executable: Path | None, diagram: Path | None, as_json: bool
) -> None:
    answer = checker.run(arguments, executable)
    result = answer.result
    if "error" in result:
        _stop(answer, as_json)
    _add_commands(result, executable)
    if diagram is not None:
        result["diagram"] = _draw(result, diagram)
    if as_json:
        common.emit(result)
    elif "programs" in result:
        check_view.show_list(result)
    elif "score" in result:
        check_view.show_mutants(result)
    else:
        check_view.show(result)
    if answer.status:
        raise typer.Exit(answer.status)


def _add_commands(result: dict[str, Any], executable: Path | None) -> None:
    """Adds to every failure the command that tries it again."""
    reports = [result, result.get("unchanged", {})]
    reports += [mutant["report"] for mutant in result.get("mutants", [])]
    for report in reports:
        for failure in report.get("failures", []):
            failure["command"] = checker.replay_command(failure, executable)


def _draw(result: dict[str, Any], path: Path) -> str | None:
    command = result["failures"][0]["command"] if result["failures"] else ""
    if checker.draw(result, path, command):
        return str(path)
    common.note(f"no state fails, so there is nothing to draw: {path} was not written")
    return None


def _litmus(paths: list[Path], options: list[str], executable: Path | None, as_json: bool) -> None:
    folders = [str(path) for path in paths] or [str(checker.litmus_folder())]
    answer = checker.run(["litmus", *options, *folders], executable)
    result = answer.result
    if "error" in result:
        _stop(answer, as_json)
    result = {"ok": answer.status == 0, **result}
    if as_json:
        common.emit(result)
    else:
        check_view.show_litmus(result)
    if answer.status:
        raise typer.Exit(answer.status)


def _stop(answer: checker.Answer, as_json: bool) -> None:
    """Passes on an error of the executable."""
    if as_json:
        common.emit(answer.result)
    else:
        sys.stderr.write(f"holdfast: {answer.result['error']['message']}\n")
    raise typer.Exit(answer.status)
