"""holdfast history: what a folder or an object store has, what a running one does, and did."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from .._backend import ext
from .._errors import Error, checked_number
from .._objects import is_memory_url, objects_of
from .._region import path_text
from . import common, history_live, history_partner, history_timeline

app = typer.Typer(
    help="The checkpoints of a history: in its folder or store, in a running program, and in time.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Folder = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="The history's folder, memory of a partner (tcp://HOST:PORT/NAME), or the URL of an "
        "object store, such as s3://bucket/prefix, whose settings are those of the environment "
        "(AWS_REGION, AWS_ENDPOINT, ...).",
    ),
]


def _look_at(path: str) -> ext.HistoryFolder:
    store = objects_of(path, None, make=False)
    return ext.history_folder(path_text(path)) if store is None else ext.history_in_store(store)


def _date(unix_ns: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(unix_ns / 1e9, datetime.timezone.utc)
    except (OverflowError, ValueError):  # of a clock that was far off
        return f"{unix_ns} ns"
    return moment.isoformat(timespec="milliseconds")


def _report(folder: ext.HistoryFolder) -> dict[str, Any]:
    return {
        "ok": True,
        "path": folder.path,
        "uuid": folder.uuid,
        "latest": folder.latest,
        "file_bytes": folder.file_bytes,
        "steps": [
            {
                "step": step.step,
                "path": step.path,
                "saved": _date(step.saved_unix_ns),
                "nbytes": step.nbytes,
                "arrays": [{"name": part.name, "nbytes": part.nbytes} for part in step.arrays],
            }
            for step in folder.steps
        ],
        "damaged": [
            {"step": file.step, "path": file.path, "code": file.code, "reason": file.reason}
            for file in folder.damaged
        ],
    }


@app.command("show", epilog="Example: holdfast history show run --json")
@common.command
def show(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="The history's folder, its socket (status=), or the URL of its remote tier.",
        ),
    ],
    as_json: common.Json = False,
) -> None:
    """Lists the checkpoints that can be restored, and files that cannot, with the reason.

    Where a process has the history open, first what is where in it, in which state and how old,
    which transfers and calls are under way, and which hints are ahead. Changes nothing. Reads what
    describes the checkpoints; `holdfast history verify` reads their bytes.
    """
    if is_memory_url(path) or objects_of(path, None, make=False) is not None:
        report = _report(_look_at(path))
        if as_json:
            common.emit(report)
        else:
            _print_folder(path, report)
        return
    place = Path(path)
    running, left = history_live.look(place)
    if place.is_socket():
        if not running:
            raise Error(f"'{path}' is of a process that has ended: nothing runs there", "not_found")
        report = {"ok": True, "path": path}
    else:
        report = _report(ext.history_folder(path_text(path)))
    report["running"] = history_live.report(running)
    if as_json:
        common.emit(report)
        return
    if running:
        history_live.show(running)
    if left:
        common.note(f"{left} is of a process that has ended: it was killed")
    if "steps" in report:
        _print_folder(path, report)


def _print_folder(path: str, report: dict[str, Any]) -> None:
    steps, damaged = report["steps"], report["damaged"]
    common.table(
        str(path),
        {
            "uuid": report["uuid"],
            "checkpoints": len(steps),
            "on disk": common.size_text(report["file_bytes"]),
            "latest": "none" if report["latest"] is None else str(report["latest"]),
        },
    )
    if steps:
        _print_steps(steps, report["latest"])
    for file in damaged:
        common.complain(f"{file['reason']} ({file['code']})")


def _print_steps(steps: list[dict[str, Any]], latest: int | None) -> None:
    grid = Table(title="On disk", title_justify="left")
    for column in ("step", "saved (UTC)", "bytes", "arrays"):
        grid.add_column(column)
    for step in steps:
        arrays = ", ".join(
            f"{part['name']} {common.size_text(part['nbytes'])}" for part in step["arrays"]
        )
        mark = " (latest)" if step["step"] == latest else ""
        grid.add_row(
            f"{step['step']}{mark}",
            step["saved"].removesuffix("+00:00"),
            common.number(step["nbytes"]),
            escape(arrays),
        )
    common.out.print(grid)


app.command(
    "partner", epilog="Example: holdfast history partner --memory 64G --listen 10.0.0.7:7411"
)(history_partner.partner)
app.command("timeline", epilog="Example: holdfast history timeline run.trace --output run.html")(
    history_timeline.draw
)


@app.command("verify", epilog="Example: holdfast history verify run")
@common.command
def verify(path: Folder, as_json: common.Json = False) -> None:
    """Reads every byte of every checkpoint and says what is damaged. Changes nothing.

    Exits with 0 only if every file is whole. Works beside a process that has the history open;
    checkpoints that it removes meanwhile are passed over, and counted.
    """
    folder = _look_at(path)
    damaged: list[dict[str, Any]] = _report(folder)["damaged"]
    whole = removed = read = 0
    steps = folder.steps
    with common.progress(as_json) as bar:
        task = bar.add_task("checkpoints", total=len(steps))
        for step in steps:
            try:
                folder.verify(step.step)
                whole += 1
                read += step.nbytes
            except Error as error:
                if error.code == "not_found":
                    removed += 1
                else:
                    damaged.append(_damage(step, error))
            bar.advance(task)
    damaged.sort(key=lambda file: int(file["step"]))
    result = {
        "ok": not damaged,
        "path": folder.path,
        "whole": whole,
        "bytes_read": read,
        "removed_meanwhile": removed,
        "damaged": damaged,
    }
    if as_json:
        common.emit(result)
    else:
        for file in damaged:
            common.complain(f"{file['reason']} ({file['code']})")
        common.out.print(
            f"{path}: {whole:,} whole ({common.size_text(read)}), {len(damaged):,} damaged"
            + (f", {removed:,} removed meanwhile" if removed else ""),
            soft_wrap=True,
            markup=False,
        )
    if damaged:
        raise typer.Exit(common.EXIT_FAILED)


def _damage(step: ext.HistoryStep, error: Error) -> dict[str, Any]:
    return {"step": step.step, "path": step.path, "code": error.code, "reason": str(error)}


@app.command("discard", epilog="Example: holdfast history discard run 12 13")
@common.command
def discard(
    path: Folder,
    steps: Annotated[list[int], typer.Argument(help="The checkpoints' steps.")],
    as_json: common.Json = False,
) -> None:
    """Removes checkpoints for good, and damaged files of checkpoints.

    All of them, or none where one is not there. Refused while a process has the history open, which
    can discard them itself.
    """
    wanted = sorted({checked_number(step, "the step", most=2**64 - 2) for step in steps})
    store = objects_of(path, None, make=False)
    if store is None:
        ext.discard_from_history(path_text(path), wanted)
    else:
        ext.discard_from_store(store, wanted)
    if as_json:
        common.emit({"ok": True, "path": str(path), "discarded": wanted})
    else:
        listed = ", ".join(map(str, wanted))
        common.out.print(f"{path}: discarded {listed}", soft_wrap=True, markup=False)
