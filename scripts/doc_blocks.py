"""Keeps what the docs quote true: `make docs`. With --check nothing is written.

- A ```console block shows a command after `$` and what it prints. A line `...` stands for lines
  that are left out. Times, memory and addresses may differ. Commands are those of the environment,
  and the examples of the build tree of the CPU backend (make cpu).
- `<!-- quote FILE [NAME] -->` stands before a block of code: what FILE has between `// [NAME]` and
  `// [end]` (`#` for `//` in CMake's files).
- A figure of FIGURES is what its command draws.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("HOLDFAST_CPU_BUILD", ROOT / "build" / "cpu")).resolve()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIGURES = {"append_naive.svg": "holdfast check append_naive --diagram append_naive.svg"}

_CONSOLE = re.compile(r"^```console\n\$ (?P<command>[^\n]*)\n(?P<shown>.*?)^```$", re.M | re.S)
_QUOTE = re.compile(
    r"(?P<head><!-- quote (?P<file>\S+) \[(?P<name>[^\]]*)\] -->\n```\w+\n)(?P<shown>.*?)^```$",
    re.M | re.S,
)


def run(command: str, folder: Path) -> str:
    """Returns what a command prints. Its exit status may say a check's verdict: some show one."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{BUILD / 'examples/adjoint'}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode not in (0, 1, 3, 4, 5):
        raise SystemExit(f"`{command}` ended with status {done.returncode}: {done.stderr}")
    return "".join(line.rstrip() + "\n" for line in (done.stdout + done.stderr).splitlines())


def same(shown: str, printed: str) -> bool:
    """Whether the lines are those that are printed, apart from what differs from run to run."""

    def lines(text: str) -> list[str]:
        varying = re.compile(r"(?<=^  cost      ).*|\b0x[0-9a-f]{8,}\b", re.M)
        return varying.sub("?", text).splitlines()

    pattern = "\n".join(
        r"(?:.*\n)*?.*" if line == "..." else re.escape(line) for line in lines(shown)
    )
    return re.fullmatch(pattern, "\n".join(lines(printed))) is not None


def shortened(shown: str, printed: str) -> str:
    """Returns what is printed without what the block leaves out: the lines most like its own."""
    if "..." not in shown.splitlines():
        return printed
    lines = printed.splitlines()
    result, at = [], 0
    for part in re.split(r"^(\.\.\.)$\n?", shown, flags=re.M):
        if part == "...":
            result.append(part)
            continue
        count = len(part.splitlines())
        if count == 0:
            continue
        starts = range(at, max(at, len(lines) - count) + 1)
        matcher = difflib.SequenceMatcher(autojunk=False, b=part)

        def likeness(start: int, count: int = count, matcher: Any = matcher) -> float:
            matcher.set_seq1("\n".join(lines[start : start + count]) + "\n")
            return float(matcher.ratio())

        best = max(starts, key=likeness)
        result += lines[best : best + count]
        at = best + count
    return "".join(line + "\n" for line in result)


def quoted(file: str, name: str) -> str:
    """Returns the marked part of a file."""
    text = (ROOT / file).read_text()
    found = re.search(
        rf"^ *(?://|#) \[{re.escape(name)}\]\n(.*?)^ *(?://|#) \[end\]\n", text, re.M | re.S
    )
    if found is None:
        raise SystemExit(f"{file} has no part marked [{name}]")
    return textwrap.dedent(found[1])


def fresh(page: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yields each block of a page that is out of date, and what it should be."""
    for match in _QUOTE.finditer(page):
        code = quoted(match["file"], match["name"])
        if code != match["shown"]:
            yield match[0], f"{match['head']}{code}```"
    for match in _CONSOLE.finditer(page):
        printed = run(match["command"], folder)
        if same(match["shown"], printed):
            continue
        shown = shortened(match["shown"], printed)
        yield match[0], f"```console\n$ {match['command']}\n{shown}```"


def main() -> int:
    """Mends the pages and the figures, or says which are out of date."""
    check = "--check" in sys.argv[1:]
    stale = []
    with tempfile.TemporaryDirectory(prefix="holdfast-docs-") as name:
        folder = Path(name)
        for path in PAGES:
            text = path.read_text()
            for old, new in fresh(text, folder):
                stale.append(path.name)
                text = text.replace(old, new)
                changed = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="")
                print("\n".join(changed))
            if not check:
                path.write_text(text)
        for figure, command in FIGURES.items():
            run(command, folder)
            drawn, kept = folder / figure, ROOT / "docs" / "figures" / figure
            if not kept.exists() or kept.read_bytes() != drawn.read_bytes():
                stale.append(figure)
                if not check:
                    kept.write_bytes(drawn.read_bytes())
    for item in dict.fromkeys(stale):
        print(f"{item} {'is out of date: make docs' if check else 'was brought up to date'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
