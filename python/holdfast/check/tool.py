"""The executable holdfast-check, of the package or of a user's own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import Error

_PACKAGE = Path(__file__).resolve().parent.parent
_MISSING = _PACKAGE / "_check_missing.txt"


@dataclass
class Answer:
    """What the executable said: its exit status and its JSON object."""

    status: int
    result: dict[str, Any]


def executable(given: Path | None = None) -> Path:
    """Returns the executable; `given` is a user's own. Raises Error if there is none."""
    if given is not None:
        if not (given.is_file() and os.access(given, os.X_OK)):
            raise Error(f"{given} is not a program: build it, or leave --program out", "not_found")
        return given.resolve()
    own = _PACKAGE / "bin" / "holdfast-check"
    if own.is_file():
        return own
    why = _MISSING.read_text().strip() if _MISSING.is_file() else "it was built without it"
    raise Error(
        f"this installation has no checker: {why}. Install it again with HOLDFAST_BUILD_CHECK=1 "
        "(`HOLDFAST_BUILD_CHECK=1 pip install -v .` shows what is missing), or name a program of "
        "your own with --program",
        "unsupported",
    )


def litmus_folder() -> Path:
    """Returns the folder of the litmus tests that the package has."""
    folder = _PACKAGE / "litmus"
    if not folder.is_dir():
        executable()  # says why nothing is there
        raise Error("this installation has no litmus tests: name a folder of them", "not_found")
    return folder


def run(arguments: list[str], program: Path | None = None) -> Answer:
    """Runs the executable; its progress line goes to our standard error."""
    command = [str(executable(program)), *arguments, "--json"]
    # Litmus tests show no progress, and say on standard error what is wrong with a file.
    errors = subprocess.PIPE if arguments[:1] == ["litmus"] else None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
    ) as process:
        try:
            out, said = process.communicate()
        except BaseException:
            process.kill()
            raise
    try:
        result = json.loads(out)
    except json.JSONDecodeError:
        result = None
    if result is None and said:
        result = {"ok": False, "error": {"code": "invalid_argument", "message": said.strip()}}
    if not isinstance(result, dict):
        raise Error(
            f"{Path(command[0]).name} ended with status {process.returncode} and no JSON object: "
            f"run it by itself: {shlex.join(command)}",
            "io",
        )
    return Answer(process.returncode, result)


def replay_command(failure: dict[str, Any], program: Path | None = None) -> str:
    """Returns the command that tries a failing state again."""
    words = ["holdfast", "check", *failure["replay"]]
    if program is not None:
        words += ["--program", str(program)]
    return shlex.join(words)
