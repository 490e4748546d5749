"""holdfast backup: a copy of a region, beside whoever uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import _region
from . import common


@common.command
def backup(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="The region's file; or an arena (holdfast-....arena) whose file is lost.",
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The new file.")],
    last_commit: common.ReadLastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Writes a consistent copy of a region to a new file, durably. SRC is not changed.

    The copy is a region of its own, with another uuid: both may be used at once. While a process
    has SRC open, it is a copy of the last commit; after a crash, of all that was persisted. SRC may
    be of an older version of the format, too.
    """
    report = _region.backup(source, target, arena_folder=arena_folder, last_commit=last_commit)
    result = {
        "source": str(source),
        "target": str(target),
        "uuid": report.uuid,
        "arena_found": report.arena_found,
        "generation": report.generation,
        "region_bytes": report.region_bytes,
        "pages_written": report.pages_written,
    }
    if as_json:
        common.emit({"ok": True, **result})
        return
    if report.arena_found:
        what = "what was persisted until a crash"
    else:
        what = f"commit {report.generation}"
    common.out.print(
        f"{target}: {what} of {source}, {common.size_text(report.region_bytes)}, "
        f"uuid {report.uuid}",
        soft_wrap=True,
        markup=False,
    )
