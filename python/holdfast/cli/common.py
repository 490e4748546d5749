"""What every command shares: output for people and for machines, errors, exit status."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from .._errors import Error, code_of
from .._region import Region

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]

ArenaFolder = Annotated[
    Path | None, typer.Option(help="Where its shared memory lies. Default: /dev/shm.")
]
LastCommit = Annotated[
    bool,
    typer.Option(
        "--last-commit",
        help="Begin with the last commit; what a crash left since is set aside (its name is told).",
    ),
]
ReadLastCommit = Annotated[
    bool, typer.Option("--last-commit", help="Read the last commit, not what a crash left since.")
]


class _StandardOutput:
    """sys.stdout as it is at each call; what cannot be written is an error that says so."""

    failed = False

    def write(self, text: str) -> int:
        with self._told():
            return self._stream().write(text)

    def flush(self) -> None:
        with self._told():
            self._stream().flush()

    def _stream(self) -> TextIO:
        if sys.stdout is None:
            self.failed = True
            raise Error("standard output is closed: redirect it to a file, or to /dev/null", "io")
        return sys.stdout

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failed = True
            # What is buffered is not tried again at the interpreter's end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if isinstance(error, BrokenPipeError):  # as of `holdfast ... | head`
                raise typer.Exit(EXIT_FAILED) from None
            raise Error(f"cannot write to standard output: {error.strerror}", "io") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)


_stdout = _StandardOutput()
out = Console(file=cast(TextIO, _stdout), highlight=False, emoji=False)
# Progress and notes go here, so that standard output holds the result alone.
err = Console(stderr=True, highlight=False, emoji=False)

_Result = TypeVar("_Result")

# With these nothing has changed, and what is there is whole.
_REFUSALS = ("invalid_argument", "no_space", "no_shared_memory", "already_exists", "unsupported")


class _Said:
    """What a command that fails later on has done all the same."""

    set_aside = ""


class UsageError(Error):
    """What options cannot be together, where the parser does not know."""


def is_refusal(error: Error) -> bool:
    """Whether a change was refused that has left all as it was."""
    return error.code in _REFUSALS


@contextmanager
def closed_behind(opened: Region, is_answer: Callable[[Error], bool]) -> Iterator[None]:
    """Closes the region behind an exit status, and behind errors that are answers.

    Behind others it is what a crash would leave.
    """
    answer: typer.Exit | Error | None = None
    with opened:
        try:
            yield
        except typer.Exit as status:
            answer = status
        except Error as error:
            if not is_answer(error):
                raise
            answer = error
    if answer is not None:
        raise answer


def emit(result: dict[str, Any]) -> None:
    """Prints a result for machines."""
    _stdout.write(json.dumps(result) + "\n")
    _stdout.flush()


def note(text: str) -> None:
    err.print(f"[yellow]note:[/] {escape(text)}")


def note_set_aside(arena: str) -> None:
    """Says where --last-commit put an arena; nothing if there was none."""
    _Said.set_aside = arena
    if arena:
        note(
            f"what a crash left since the last commit is set aside as {arena}: `holdfast backup` "
            "makes a region of it; remove it when it is not needed"
        )


def complain(text: str) -> None:
    err.print(f"[red]holdfast:[/] {escape(text)}")


def table(title: str, rows: dict[str, Any]) -> None:
    """Prints names and values in two columns."""
    grid = Table(title=title or None, show_header=False, title_justify="left")
    grid.add_column(style="bold")
    grid.add_column()
    for name, value in rows.items():
        grid.add_row(name, escape(number(value)))
    out.print(grid)


def number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)


def size_text(count: int) -> str:
    """Returns bytes in the unit that suits them."""
    if count >= 2**63:
        return "unlimited"
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def progress(quiet: bool = False) -> Progress:
    """Returns a progress bar on standard error."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=quiet or not err.is_terminal,
    )


def command(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Turns what a command raises into a message and an exit status."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> _Result:
        as_json = bool(options.get("as_json"))
        _Said.set_aside = ""
        try:
            return function(*arguments, **options)
        except KeyboardInterrupt:
            fail(as_json, "interrupted", "interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Error as error:
            fail(as_json, error.code, str(error))
            if isinstance(error, UsageError):
                raise typer.Exit(EXIT_USAGE) from None
        except OSError as error:
            fail(as_json, *_of_system(error))
        except (ValueError, TypeError, BufferError, UnicodeDecodeError) as error:
            fail(as_json, "invalid_argument", str(error))
        raise typer.Exit(EXIT_FAILED)

    return run


def _of_system(error: OSError) -> tuple[str, str]:
    """Returns the code, and what failed with which file."""
    if error.errno is None or error.strerror is None:
        return "io", str(error)
    given = (error.filename, error.filename2)
    names = [os.fsdecode(name) for name in given if isinstance(name, str | bytes)]
    message = f"{' and '.join(names)}: {error.strerror}" if names else error.strerror
    return code_of(error), message


def fail(as_json: bool, code: str, message: str) -> None:
    """Prints what failed, for machines or for people."""
    if as_json and not _stdout.failed:
        done = {"arena_set_aside": _Said.set_aside} if _Said.set_aside else {}
        emit({"ok": False, "error": {"code": code, "message": message}, **done})
    else:
        complain(message)
