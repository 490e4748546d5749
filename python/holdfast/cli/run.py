"""holdfast run: a workload of GPMbench, in Holdfast's way or in one that it is measured against."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from .. import workloads
from .._errors import Error
from . import common


def options_of(pairs: list[str] | None) -> dict[str, str]:
    """Reads NAME=VALUE words. Raises Error for others."""
    result = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise Error(f"--set {pair}: give NAME=VALUE")
        result[name] = value
    return result


def _show_list(as_json: bool) -> None:
    known = workloads.available()
    if as_json:
        common.emit({"ok": True, "workloads": known})
        return
    table = Table("workload", "class", "what it does", "options (--set)", box=None)
    for entry in known:
        options = "\n".join(f"{name}: {what}" for name, what in entry["options"].items())
        table.add_row(entry["name"], entry["class"], entry["summary"], options)
    common.out.print(table)


def _show(result: dict[str, Any], mode: str) -> None:
    seconds = result["step_seconds"]
    medium = result["medium"]
    common.out.print(f"input: {result['input']}")
    if mode in workloads.PROJECTIONS:
        common.out.print(f"{mode} is a projection: no such platform was seen")
    if result["first_step"]:
        common.out.print(f"resumed at step {result['first_step']} of {result['steps']}")
    if seconds:
        common.out.print(
            f"{len(seconds)} steps in {sum(seconds):.3f} s, median {statistics.median(seconds):.6f}"
            f" s; {result['bytes_written']:,} bytes to the medium"
        )
        if medium != "dram":
            common.out.print(
                f"medium {medium}, a model: {sum(result['medium_seconds']):.3f} s of these were"
                " waited for it"
            )
    verdict = {"oracle": "as the oracle says", "digest": "as a verified run ended"}.get(
        result["verified_by"], "not verified"
    )
    common.out.print(f"result {result['digest']}: {result['wrong'] or verdict}")


@common.command
def run(
    workload: Annotated[
        str | None, typer.Argument(metavar="[WORKLOAD]", help="What to run: see --list.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Lists the workloads.")] = False,
    mode: Annotated[
        str, typer.Option(help=f"How results become durable: {', '.join(workloads.MODES)}.")
    ] = "gpm",
    size: Annotated[str, typer.Option(help="Of the input: test, real or paper.")] = "real",
    data: Annotated[
        Path | None, typer.Option(help="Folder of real inputs. Default: $HOLDFAST_DATA.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is generated.")] = 1,
    steps: Annotated[int, typer.Option(min=0, help="0: what the size says.")] = 0,
    cpu_threads: Annotated[int, typer.Option(min=0, help="0: one a core.")] = 0,
    medium: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Takes as long as on it: dram, optane, cxl, limit=1.6GB/s."
        ),
    ] = "dram",
    region: Annotated[
        Path | None, typer.Option(help="Keeps the region there; goes on from a killed run of it.")
    ] = None,
    last_commit: common.LastCommit = False,
    options: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE.")] = None,
    as_json: common.Json = False,
) -> None:
    """Runs a workload and compares its result with an oracle.

    Exits with 0 only if the two agree. A run that was killed goes on where it stopped if --region
    names the same file.
    """
    if list_all or workload is None:
        _show_list(as_json)
        return
    folder = str(data) if data else workloads.default_data()
    if data and not data.is_dir():
        raise Error(f"{data} is not a folder", "not_found")
    what = workloads.Run(
        workload,
        mode=mode,
        size=size,
        data=folder,
        seed=seed,
        steps=steps,
        cpu_threads=cpu_threads,
        medium=medium,
        options=options_of(options),
    )
    with common.progress(as_json) as bar:
        bar.add_task(f"{workload}, {mode}", total=None)
        result = workloads.run(
            what,
            region,
            lambda ready: common.note_set_aside(ready["arena_set_aside"]),
            last_commit,
        )
    if as_json:
        common.emit(result)
    else:
        _show(result, mode)
    if not result["ok"]:
        raise typer.Exit(common.EXIT_FAILED)
