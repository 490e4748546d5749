"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import holdfast

from . import backup, bench, check, crash, demo, doctor, history, inspect, kv, run

app = typer.Typer(
    help="Holdfast: persistent memory for GPU programs.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(holdfast.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("doctor", epilog="Example: holdfast doctor --json")(doctor.doctor)
app.command("demo", epilog="Example: holdfast demo --kills 50 --seed 7")(demo.demo)
app.command("inspect", epilog="Example: holdfast inspect flights.hf")(inspect.inspect)
app.command("backup", epilog="Example: holdfast backup flights.hf flights-monday.hf")(backup.backup)
app.command("run", epilog="Example: holdfast run bfs --mode cap-mm")(run.run)
app.command("crash", epilog="Example: holdfast crash gpkvs --kills 200 --seed 7")(crash.crash)
app.command("check", epilog="Example: holdfast check append_naive --diagram state.svg")(check.check)
app.add_typer(kv.app, name="kv")
app.add_typer(history.app, name="history")
app.command(
    "bench",
    epilog="Example: holdfast bench run --json",
    add_help_option=False,  # each of its commands has its own
    # Every word is handed on as it is, `--` too.
    context_settings={
        "allow_extra_args": True,
        "allow_interspersed_args": False,
        "ignore_unknown_options": True,
    },
)(bench.bench)
