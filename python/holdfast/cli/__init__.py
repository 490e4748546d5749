"""The command `holdfast`."""

from __future__ import annotations

import sys
from typing import Any

from .._errors import Error


def main() -> None:
    """Runs the command line. An unusable backend is an error like any other."""
    try:
        raise SystemExit(_run("--json" in sys.argv[1:]))
    except Error as error:
        sys.stderr.write(f"holdfast: {error}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _run(as_json: bool) -> int:
    """Returns the exit status. What the parser refuses is for machines as other errors are."""
    import typer

    from . import common
    from .app import app

    # UsageError: click's, which newer typers bring themselves.
    usage_error: Any = typer.BadParameter.__bases__[0]
    try:
        status = app(prog_name="holdfast", standalone_mode=not as_json)
    except usage_error as error:
        common.fail(True, "invalid_argument", error.format_message())
        return common.EXIT_USAGE
    return status if isinstance(status, int) else 0
