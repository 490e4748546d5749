"""holdfast inspect: what is in a region's file."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from .._backend import ext
from .._region import folder_text, path_text
from . import common


def _date(unix_ns: int) -> str:
    if not unix_ns:
        return "never"
    moment = datetime.datetime.fromtimestamp(unix_ns / 1e9, datetime.timezone.utc)
    return moment.isoformat(timespec="seconds")


def _report(info: ext.ImageInfo) -> dict[str, Any]:
    names = ("name", "type", "offset", "count", "element_bytes", "nbytes", "tracking")
    arena = ("path", "exists", "valid", "this_boot", "bytes", "problem")
    return {
        "ok": True,
        "path": info.path,
        "uuid": info.uuid,
        "version": info.version,
        "in_use": info.in_use,
        "created": _date(info.created_unix_ns),
        "generation": info.generation,
        "committed": _date(info.committed_unix_ns),
        "region_bytes": info.region_bytes,
        "file_bytes": info.file_bytes,
        "allocated_bytes": info.allocated_bytes,
        "pages_stored": info.pages_stored,
        "arena": {name: getattr(info.arena, name) for name in arena},
        "objects": [{name: getattr(item, name) for name in names} for item in info.objects],
    }


@common.command
def inspect(
    region: Annotated[Path, typer.Argument(help="The region's file.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every page too, not the tables alone.")
    ] = False,
    arena_folder: Annotated[
        Path | None, typer.Option(help="Where its shared memory would lie. Default: /dev/shm.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Shows the header and the objects of a region's last commit. Writes nothing.

    Exits with 0 only if all that was checked is whole.
    """
    info = ext.inspect_image(path_text(region), verify, folder_text(arena_folder))
    report = _report(info)
    if as_json:
        common.emit(report)
        return
    rows = {name: value for name, value in report.items() if name not in ("ok", "arena", "objects")}
    rows["arena"] = _arena_text(info)
    rows["checked"] = "every page" if verify else "header, tables and directory"
    common.table(str(region), rows)
    grid = Table(title="Objects", title_justify="left")
    for column in ("name", "type", "count", "bytes", "offset", "tracking"):
        grid.add_column(column)
    for item in info.objects:
        numbers = (common.number(n) for n in (item.count, item.nbytes, item.offset))
        grid.add_row(escape(item.name), escape(item.type), *numbers, item.tracking)
    common.out.print(grid)


def _arena_text(info: ext.ImageInfo) -> str:
    arena = info.arena
    if info.in_use and arena.exists:
        return f"{arena.path}: of the process that has the region open"
    if not arena.exists:
        return arena.problem or "none: the region was closed, or the machine restarted"
    if not arena.valid:
        return f"{arena.path}: {arena.problem}"
    if arena.this_boot:
        return f"{arena.path}: left by a crash; the next open adopts it, with what was persisted"
    return f"{arena.path}: of an earlier boot; the next open passes it over"
