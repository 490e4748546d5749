"""holdfast bench: hands on to the package holdfast_bench, which the source tree has and no wheel.

It is found as any package is: scripts/install.sh puts the tree's folder bench/ on the path of the
environment that it installs into.
"""

from __future__ import annotations

import typer

import holdfast

from .._errors import Error
from . import common


def bench(context: typer.Context) -> None:
    """Runs the benchmarks and draws their figures. They are part of Holdfast's source tree."""
    as_json = "--json" in context.args
    try:
        from holdfast_bench.cli import app
    except ModuleNotFoundError as error:
        if error.name != "holdfast_bench":
            raise
        _absent(context, as_json=as_json)
        return
    raise typer.Exit(app(context.args, prog_name=context.command_path, standalone_mode=not as_json))


@common.command
def _absent(context: typer.Context, as_json: bool) -> None:
    if "--help" in context.args:
        typer.echo(context.get_help())
        return
    raise Error(
        "this installation has no benchmarks: they are part of Holdfast's source tree. `make all` "
        "in a clone makes a .venv that has them; elsewhere name the folder bench of the source of "
        f"version {holdfast.__version__} in $PYTHONPATH",
        "unsupported",
    )
