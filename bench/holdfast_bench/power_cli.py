"""holdfast bench power: batches made durable on a disk, ours beside its rivals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import holdfast
from holdfast import Error
from holdfast.cli import common

from . import power
from .gpm.results import Line
from .gpm.results import Results as Files
from .kept import RESULTS

_SHOWN = ("batch", "batch_ms", "commit_ms", "ms_per_batch", "ratio_to_plain", "recovery_ms")


def _print(line: Line) -> None:
    if line["benchmark"] != "power_set":
        common.err.print(f"rocksdb: {line.get('version', line.get('not_there'))}")
        return
    shown = {name: line[name] for name in _SHOWN if name in line}
    words = " ".join(f"{name}={common.number(value)}" for name, value in shown.items())
    common.err.print(f"{power.title(line)}: {words}")


def _batches(words: str) -> tuple[int, ...]:
    try:
        batches = tuple(int(word) for word in words.split(","))
    except ValueError:
        batches = ()
    if not batches or min(batches) < 1 or max(batches) > 1 << 26:
        raise Error(f"--batches {words}: give numbers from 1 to 2^26, with commas")
    return batches


def add_command(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command("power", epilog="Example: holdfast bench power --disk /scratch")
    @common.command
    def run(
        disk: Annotated[Path, typer.Option(help="A folder on the disk that is measured.")],
        batches: Annotated[str, typer.Option(help="SETs a batch, with commas.")] = ",".join(
            map(str, power.BATCHES)
        ),
        table_mib: Annotated[int, typer.Option(min=1, help="Of the table; a power of two.")] = 1024,
        warm: Annotated[int, typer.Option(min=0, help="Turns that are not measured.")] = 3,
        repeat: Annotated[
            int, typer.Option(min=1, help="Turns that are; ten times as many of small batches.")
        ] = 5,
        seconds: Annotated[
            int, typer.Option(min=1, help="Of a size of batches: no turn is begun later.")
        ] = 60,
        rocksdb: Annotated[
            Path | None, typer.Option(help="librocksdb.so. Default: the system's, if there is one.")
        ] = None,
        program: Annotated[
            Path | None, typer.Option(help="power_bench. Default: the tree's.")
        ] = None,
        results: Annotated[
            Path, typer.Option(help="Folder of the results.", show_default="bench/results")
        ] = RESULTS,
        as_json: common.Json = False,
    ) -> None:
        """Compares batches and their commit to a disk with CAP with fsync and RocksDB."""
        settings = power.Settings(
            disk=disk,
            batches=_batches(batches),
            table_mib=table_mib,
            warm=warm,
            repeat=repeat,
            seconds=seconds,
            rocksdb=rocksdb,
        )
        on_line = (lambda _: None) if as_json else _print
        path = power.run(settings, results, program=program, on_line=on_line)
        if as_json:
            common.emit({"ok": True, "files": [str(path)]})
            return
        report = Files(results, (holdfast.backend,)).report(power.NAME)
        for text in (power.times(report), power.promises(report)):
            common.out.print(f"\n{text}\n", soft_wrap=True, markup=False, highlight=False)
        common.out.print(f"wrote {path}")
