"""holdfast bench adjoint: a migration's shot with each way to keep its wavefields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import holdfast
from holdfast import Error
from holdfast.cli import common

from . import adjoint
from .gpm.results import Line
from .gpm.results import Results as Files
from .kept import RESULTS

_SHOWN = ("cell", "seconds", "forward_seconds", "backward_seconds", "recomputed_steps", "error")


def _print(line: Line) -> None:
    shown = {name: line[name] for name in _SHOWN if name in line}
    common.err.print(" ".join(f"{name}={common.number(value)}" for name, value in shown.items()))


def add_command(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command("adjoint", epilog="Example: holdfast bench adjoint --disk /scratch")
    @common.command
    def run(
        size: Annotated[str, typer.Option(help="tiny or real.")] = "real",
        disk: Annotated[
            Path | None, typer.Option(help="Folder for checkpoints. Default: a temporary one.")
        ] = None,
        seconds: Annotated[int, typer.Option(min=1, help="No store is begun later.")] = 70,
        repeat: Annotated[int, typer.Option(min=1, help="Shots of which the median counts.")] = 3,
        program: Annotated[
            Path | None, typer.Option(help="adjoint_bench. Default: the tree's.")
        ] = None,
        results: Annotated[
            Path, typer.Option(help="Folder of the results.", show_default="bench/results")
        ] = RESULTS,
        as_json: common.Json = False,
    ) -> None:
        """Compares a history with recomputation and with keeping all in device memory."""
        if size not in adjoint.SIZES:
            raise Error(f"--size {size}: choose of {', '.join(adjoint.SIZES)}")
        path = adjoint.run(
            size,
            results,
            program=program,
            disk=disk,
            seconds=seconds,
            repeat=repeat,
            on_line=(lambda _: None) if as_json else _print,
        )
        if as_json:
            common.emit({"ok": True, "files": [str(path)]})
            return
        report = Files(results, (holdfast.backend,)).report(adjoint.results_name(size))
        text = adjoint.stores(report)
        common.out.print(f"\n{text}\n", soft_wrap=True, markup=False, highlight=False)
        common.out.print(f"wrote {path}")
