"""The command `holdfast`."""

from __future__ import annotations

import sys

from .._errors import Error


def main() -> None:
    """Runs the command line. An unusable backend is an error like any other."""
    try:
        from .app import app

        app(prog_name="holdfast")
    except Error as error:
        sys.stderr.write(f"holdfast: {error}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
