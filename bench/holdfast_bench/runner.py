"""Runs the benchmark programs, and keeps what they print with all that it takes to judge it.

A program prints JSON lines {"benchmark": NAME, ...}. A results file wraps them: machine, date,
command, medium, commit.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Error
from holdfast._backend import ext

from .kept import ROOT

# They measure nothing that they are not asked for by arguments.
WANT_ARGUMENTS = ("adjoint_bench", "history_disk_bench")


def programs(folder: Path | None, backend: str) -> list[Path]:
    """Returns the benchmark programs: of `folder`, or of the tree's build folder."""
    folder = folder or ROOT / "build" / backend / "bench"
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and os.access(path, os.X_OK)
        and "CMakeFiles" not in path.parts
        and not path.suffix
    ]
    if not found:
        raise Error(
            f"no benchmark programs in {folder}: build them (cmake --build --preset {backend}), "
            "or name their folder with --programs",
            "not_found",
        )
    return found


def tree_program(name: str, folder: Path | None = None) -> Path:
    """Returns a benchmark program: of `folder`, or of the tree's build folder."""
    path = (folder or ROOT / "build" / holdfast.backend / "bench") / name
    if path.is_file():
        return path
    raise Error(
        f"{path} is not there: build it (cmake --build --preset {holdfast.backend}), or name "
        f"another with --program{'s' if folder else ''}",
        "not_found",
    )


def _first_line(path: str, start: str) -> str:
    try:
        with Path(path).open() as stream:
            for line in stream:
                if line.startswith(start):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def machine() -> dict[str, Any]:
    """Describes the machine, without its name or addresses."""
    return {
        "device": ext.device_name(),
        "processor": _first_line("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
    }


def commit() -> str:
    """Returns the repository's commit, with "+" where files differ from it.

    $HOLDFAST_COMMIT names it for a copy of the repository without its history.
    """
    given = os.environ.get("HOLDFAST_COMMIT")
    if given:
        return given
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return f"version {holdfast.__version__}"
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def measured(program: Path, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Runs a program and yields what it measured. Raises Error if it fails."""
    command = [str(program), *arguments]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        ExitStack() as stop,
    ):
        assert process.stdout is not None
        stop.callback(process.kill)  # does nothing to a process that has ended
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            try:
                measured = json.loads(line)
            except json.JSONDecodeError as error:
                raise Error(f"{program.name} printed a line that is not JSON: {error}") from None
            if "bench" in measured:
                measured = {"benchmark": measured.pop("bench"), **measured}
            if "benchmark" not in measured:
                raise Error(f"{program.name} printed a line without a benchmark's name: {line}")
            yield measured
        process.wait()
    if process.returncode:
        raise Error(f"{program.name} failed with exit status {process.returncode}", "io")


def run(
    program: Path,
    arguments: list[str],
    results: Path,
    on_line: Callable[[dict[str, Any]], None] = lambda line: None,
    name: str | None = None,
) -> Path:
    """Runs one program and writes its results file; returns the file."""
    started = datetime.datetime.now(datetime.timezone.utc)
    found = []
    for line in measured(program, arguments):
        on_line(line)
        found.append(line)
    if not found:
        raise Error(f"{program.name} measured nothing: it printed no JSON line")
    media = sorted({str(line["medium"]) for line in found if "medium" in line})
    return write_results(
        results_path(results, name or program.name),
        program=program.name,
        command=" ".join([program.name, *arguments]),
        medium=", ".join(media) or "dram",
        started=started,
        lines=found,
    )


def results_path(results: Path, name: str) -> Path:
    """Returns the results file of a name, for the backend in use."""
    return results / f"{name}-{holdfast.backend}.json"


def write_results(
    path: Path,
    *,
    program: str,
    command: str,
    medium: str,
    started: datetime.datetime,
    lines: list[dict[str, Any]],
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a results file: the lines, and all that it takes to judge them.

    `notes` are more of what holds for all lines.
    """
    report = {
        "program": program,
        "command": command,
        "date": started.isoformat(timespec="seconds"),
        "commit": commit(),
        "backend": holdfast.backend,
        "medium": medium,
        "machine": machine(),
        **(notes or {}),
        "results": lines,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def measured_here(path: Path) -> dict[str, Any] | None:
    """Returns a results file of this commit and this machine; None for others, and for none."""
    if not path.is_file():
        return None
    report: dict[str, Any] = json.loads(path.read_text())
    here = report["commit"] == commit() and report["machine"] == machine()
    return report if here else None


def add_results(
    path: Path,
    key: Callable[[dict[str, Any]], object],
    *,
    command: str,
    lines: list[dict[str, Any]],
    **head: Any,
) -> Path:
    """As write_results(), but keeps the file's lines that have other keys.

    Lines of one file come from one commit and one machine: those of others are not kept.
    """
    kept: list[dict[str, Any]] = []
    if before := measured_here(path):
        replaced = {key(line) for line in lines}
        kept = [line for line in before["results"] if key(line) not in replaced]
        if kept:
            command = "; ".join(dict.fromkeys([*before["command"].split("; "), command]))
    return write_results(path, command=command, lines=kept + lines, **head)
