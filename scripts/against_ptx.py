#!/usr/bin/env python3
"""Compares what the checker records of a kernel file with what nvcc makes of the same file.

    scripts/against_ptx.py FILE.cu...            all files that stand in build/cpu-check
    scripts/against_ptx.py --all                 every kernel file of FOLDERS
    scripts/against_ptx.py --flags "..." FILE.cu with further flags for g++

The checker sees the stores that g++ instruments (preset cpu-check); a GPU makes those that nvcc
leaves in PTX and, of these, ptxas in machine code (SASS). All are read as control flow graphs, and
their stores to global memory are compared by source line: whether there are any, how wide their
pieces are, how many bytes one pass of the line stores, and whether they stand in a loop. SASS is
read where nvdisasm is there (of CUDA, or of requirements-dev.txt), and tells less: it stores
several words at once where PTX's memory model has single ones, so only what it adds is named.

A line is named *missed* where a GPU may stop in a state that the checker does not look at: nvcc
stores and g++ does not, in narrower pieces, more often in a row, or in a loop that g++ has moved
the store out of. It is named *more* where the checker looks at more states than a GPU can leave,
which costs time and may give a false alarm. The exit status is 1 if any line is missed, 2 for
wrong use.

Not compared: atomics, releases and what is stored in Holdfast's own headers (the checker hears of
these from functions, not from instrumented stores), shared and local memory, and host code.
Needs build/cpu-check/compile_commands.json (cmake --preset cpu-check) and nvcc. --no-sass leaves
SASS out.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("examples", "src", "tools", "workloads")


@dataclass
class Store:
    """One store of the code: `bytes` in pieces of `piece` bytes; 0: not known."""

    file: str
    line: int
    bytes: int
    piece: int


@dataclass
class Block:
    """A stretch of code without jumps, and where it may go on."""

    stores: list[Store] = field(default_factory=list)
    to: set[str] = field(default_factory=set)
    falls: bool = True


@dataclass
class Line:
    """What one reading says of a source line."""

    piece: int = 0  # the narrowest
    pieces: int = 0  # that one pass stores at least
    bytes: int = 0  # likewise
    loop: bool = False


class Code:
    """Blocks as they are met, by label."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.order: list[str] = []
        self._anonymous = 0
        self.label("entry")

    def label(self, name: str) -> None:
        self.blocks[name] = Block()
        self.order.append(name)

    def store(self, store: Store) -> None:
        self.blocks[self.order[-1]].stores.append(store)

    def jump(self, targets: set[str], conditional: bool) -> None:
        block = self.blocks[self.order[-1]]
        block.to |= targets
        block.falls = conditional
        self._anonymous += 1
        self.label(f"#{self._anonymous}")

    def in_loops(self) -> set[str]:
        """The labels of blocks with stores that can be met again."""
        edges: dict[str, list[str]] = {}
        for name, after in zip(self.order, [*self.order[1:], ""], strict=True):
            block = self.blocks[name]
            edges[name] = [one for one in block.to if one in self.blocks]
            if block.falls and after:
                edges[name].append(after)

        def comes_back(name: str) -> bool:
            seen: set[str] = set()
            work = list(edges[name])
            while work and name not in seen:
                one = work.pop()
                if one not in seen:
                    seen.add(one)
                    work += edges[one]
            return name in seen

        return {name for name in self.order if self.blocks[name].stores and comes_back(name)}

    def lines(self) -> dict[tuple[str, int], Line]:
        """The stores by source line."""
        result: dict[tuple[str, int], Line] = {}
        loops = self.in_loops()
        for name in self.order:
            here: dict[tuple[str, int], list[Store]] = defaultdict(list)
            for store in self.blocks[name].stores:
                here[store.file, store.line].append(store)
            for place, stores in here.items():
                known = [one for one in stores if one.piece]
                piece = min((one.piece for one in known), default=0)
                total = sum(one.bytes for one in known)
                count = sum(one.bytes // one.piece for one in known)
                line = result.setdefault(place, Line(piece, count, total))
                line.loop |= name in loops
                line.piece = min(filter(None, (line.piece, piece)), default=0)
                # An unrolled loop has a block of one turn as well: the least counts.
                line.pieces = min(filter(None, (line.pieces, count)), default=0)
                line.bytes = min(filter(None, (line.bytes, total)), default=0)
        return result


def real(name: str, folder: Path) -> str:
    """A file's one name."""
    return str((folder / name).resolve())


Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], None]]


def apply(rules: list[Rule], text: str) -> None:
    """Gives each line of a text to the first rule that it matches."""
    for line in text.splitlines():
        for pattern, action in rules:
            if match := pattern.match(line):
                action(match)
                break


class Assembly:
    """The instrumented stores in g++'s assembly for x86-64."""

    def __init__(self, text: str, folder: Path) -> None:
        self.code = Code()
        self._folder = folder
        self._files: dict[str, str] = {}
        self._place = ("", 0)
        self._size = 0
        self._on_stack = False
        self._tables = set(re.findall(r"^\t\.(?:long|quad)\t(\.L\d+)", text, re.M))
        rules: list[Rule] = [
            (re.compile(r'\t\.file (\d+) "([^"]*)"(?: "([^"]*)")?'), self._file),
            (re.compile(r"\t\.loc (\d+) (\d+)"), self._loc),
            (re.compile(r"(\.L\d+|[A-Za-z_][\w.$]*):"), lambda m: self.code.label(m[1])),
            (re.compile(r"\tmovl\t\$(\d+), %esi"), self._second),
            (re.compile(r"\t(lea|mov)q\t(\S+), %rdi"), self._first),
            (re.compile(r"\tcall\t__tsan_(?:unaligned_)?(?:volatile_)?write(\w+)"), self._store),
            (re.compile(r"\tcall\tholdfast_intercept_mem(?:cpy|move|set)"), self._copy),
            (re.compile(r"\t(?:notrack )?jmp\t\*"), lambda _: self.code.jump(self._tables, False)),
            (re.compile(r"\tj(\w+)\t(\.L\w+)"), lambda m: self.code.jump({m[2]}, m[1] != "mp")),
            (re.compile(r"\t(?:ret|ud2)"), lambda _: self.code.jump(set(), False)),
        ]
        apply(rules, text)

    def _file(self, match: re.Match[str]) -> None:
        folder = self._folder / match[2] if match[3] else self._folder
        self._files[match[1]] = real(match[3] or match[2], folder)

    def _loc(self, match: re.Match[str]) -> None:
        self._place = (self._files.get(match[1], ""), int(match[2]))

    def _first(self, match: re.Match[str]) -> None:
        self._on_stack = match[1] == "lea" and match[2].endswith("(%rsp)")

    def _second(self, match: re.Match[str]) -> None:
        self._size = int(match[1])

    def _store(self, match: re.Match[str]) -> None:
        ranged = match[1] == "_range"
        width = self._size if ranged else int(match[1])
        if not self._on_stack:
            # A range is a struct: its members' width is not said.
            self.code.store(Store(*self._place, width, 0 if ranged else min(width, 8)))
        self._on_stack = False

    def _copy(self, _: re.Match[str]) -> None:
        self.code.store(Store(*self._place, 0, 0))


class Ptx:
    """The stores to global memory in PTX, the lines that store elsewhere, the device code."""

    def __init__(self, text: str, folder: Path) -> None:
        self.code = Code()
        self.elsewhere: set[tuple[str, int]] = set()  # to shared or local memory
        self._extents: dict[tuple[str, str], tuple[int, int]] = {}  # of functions, in lines
        self._place = ("", 0)
        self._function = ""
        files = re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M)
        self._files = {number: real(name, folder) for number, name in files}
        self._labels = set(re.findall(r"\$\w+", text))
        guard = r"\s*(@!?%\w+\s+)?"
        function = r"(?:\.visible |\.weak |\.extern )*\.(?:entry|func)\b.*?(\w+)\(?$"
        loc = r"\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:,\s*function_name\s+(\S+?),)?"
        rules: list[Rule] = [
            (re.compile(loc), self._loc),
            (re.compile(function), self._entry),
            (re.compile(r"(\$\w+):"), lambda m: self.code.label(m[1])),
            (
                re.compile(guard + r"bra(?:\.uni)?\s+(\$\w+)"),
                lambda m: self.code.jump({m[2]}, m[1] is not None),
            ),
            (re.compile(guard + r"brx\.idx"), lambda _: self.code.jump(self._labels, False)),
            (re.compile(r"\s*(?:ret|exit|trap)\b"), lambda _: self.code.jump(set(), False)),
            (re.compile(guard + r"st\.([\w.:]+)\s"), self._store),
        ]
        apply(rules, text)

    def _entry(self, match: re.Match[str]) -> None:
        self._function = match[1]
        self.code.jump(set(), False)

    def _loc(self, match: re.Match[str]) -> None:
        if int(match[2]) == 0:
            self._place = ("", 0)  # of no one line: stores of several that were made one
            return
        self._place = (self._files.get(match[1], ""), int(match[2]))
        key = (self._place[0], match[3] or self._function)
        low, high = self._extents.get(key, (self._place[1], self._place[1]))
        self._extents[key] = (min(low, self._place[1]), max(high, self._place[1]))

    def _store(self, match: re.Match[str]) -> None:
        words = match[2].split(".")
        if any(word.startswith(("shared", "local", "param")) for word in words):
            self.elsewhere.add(self._place)
            return
        width = next(int(word[1:]) // 8 for word in words if re.fullmatch(r"[usbf]\d+", word))
        vector = next((int(word[1]) for word in words if re.fullmatch(r"v[248]", word)), 1)
        self.code.store(Store(*self._place, width * vector, width))

    def is_device_code(self, place: tuple[str, int]) -> bool:
        """Whether a line lies between the first and the last line of a function of it."""
        return any(
            file == place[0] and low <= place[1] <= high
            for (file, _), (low, high) in self._extents.items()
        )


class Sass:
    """The stores to global memory in `nvdisasm -g`'s text, and the lines that store elsewhere."""

    WIDTHS: ClassVar[dict[str, int]] = {
        "U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16
    }  # fmt: skip

    def __init__(self, text: str, folder: Path) -> None:
        self.code = Code()
        self.elsewhere: set[tuple[str, int]] = set()
        self._folder = folder
        self._place = ("", 0)
        self._labels = set(re.findall(r"^(\.L_x_\d+):", text, re.M))
        at = r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?"
        rules: list[Rule] = [
            (re.compile(r'\s*//## File "([^"]*)", line (\d+)'), self._loc),
            (re.compile(r"(\.L_x_\d+):"), lambda m: self.code.label(m[1])),
            (re.compile(r"\.text\.\S+:"), lambda _: self.code.jump(set(), False)),
            (re.compile(at + r"BRA\S*\s+(.*)`\((\.L_x_\d+)\)"), self._branch),
            (
                re.compile(at + r"(?:BRX|JMX)"),
                lambda m: self.code.jump(self._labels, m[1] is not None),
            ),
            (
                re.compile(at + r"(?:EXIT|RET|BPT)"),
                lambda m: self.code.jump(set(), m[1] is not None),
            ),
            (re.compile(at + r"STG?((?:\.\S+)?)\s"), self._store),
            (re.compile(at + r"ST[SL]\b"), lambda _: self.elsewhere.add(self._place)),
        ]
        apply(rules, text)

    def _loc(self, match: re.Match[str]) -> None:
        self._place = (real(match[1], self._folder), int(match[2]))

    def _branch(self, match: re.Match[str]) -> None:
        self.code.jump({match[3]}, match[1] is not None or bool(match[2].strip()))

    def _store(self, match: re.Match[str]) -> None:
        sizes = [self.WIDTHS[word] for word in match[2].split(".") if word in self.WIDTHS]
        width = sizes[0] if sizes else 4
        # A predicate stands for a branch: what two of them guard may never be stored in a row.
        if match[1]:
            self.code.jump(set(), True)
        self.code.store(Store(*self._place, width, min(width, 8)))
        if match[1]:
            self.code.jump(set(), True)


def command_of(file: Path, build: Path) -> tuple[list[str], Path]:
    """How the intercepted flavour compiles the file, and where."""
    database = build / "compile_commands.json"
    if not database.is_file():
        raise SystemExit(f"against_ptx: there is no {database}: cmake --preset cpu-check makes it")
    for entry in json.loads(database.read_text()):
        folder = Path(entry["directory"])
        if (folder / entry["file"]).resolve() == file:
            return shlex.split(entry["command"]), folder
    raise SystemExit(f"against_ptx: {file} is no file of {build}: name it in holdfast_kernels()")


class CompileError(Exception):
    """A compiler does not take the file."""


def run(command: list[str], folder: Path) -> str:
    """What a compiler prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"{shlex.join(command)}\n{done.stderr}")
    return done.stdout


def disassembler() -> str | None:
    """CUDA's, or that of requirements-dev.txt."""
    packaged = ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cu*/bin/nvdisasm")
    found = shutil.which("nvdisasm") or shutil.which("/usr/local/cuda/bin/nvdisasm")
    return found or next((str(one) for one in packaged), None)


@dataclass
class Made:
    """What the compilers make of a file."""

    assembly: str  # of g++
    ptx: str
    sass: str | None  # as text, if it was asked for
    folder: Path  # that names in them are relative to


def compile_all(file: Path, build: Path, nvcc: str, nvdisasm: str | None, flags: list[str]) -> Made:
    """Compiles the file by g++ and nvcc."""
    command, folder = command_of(file, build)
    if Path(command[0]).name == "ccache":
        command = command[1:]
    kept = []
    skip = False
    for word in command:
        if skip:
            skip = False
        elif word in ("-o", "-c"):
            skip = word == "-o"
        else:
            kept.append(word)
    assembly = run([*kept[:-1], *flags, "-S", "-o", "-", kept[-1]], folder)
    shared = [
        word
        for word in kept[1:-1]
        if word.startswith(("-I", "-D"))
        and not word.startswith(("-DHOLDFAST_BACKEND", "-DHOLDFAST_INTERCEPT", "-D__GXX"))
    ]
    for i, word in enumerate(kept):
        if word == "-isystem":
            shared += ["-I", kept[i + 1]]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "kernels.ptx"
        common = ["-std=c++20", "-O3", "-arch=sm_90", "-lineinfo", "-w"]
        common.append("--expt-relaxed-constexpr")
        run(
            [
                nvcc,
                *common,
                "-ptx",
                "-DHOLDFAST_BACKEND_CUDA=1",
                *shared,
                "-o",
                str(out),
                str(file),
            ],
            folder,
        )
        sass = None
        if nvdisasm is not None:
            binary = str(Path(scratch) / "kernels.cubin")
            run([nvcc, "-arch=sm_90", "-lineinfo", "-cubin", "-o", binary, str(out)], folder)
            sass = run([nvdisasm, "-g", "-c", binary], folder)
        return Made(assembly, out.read_text(), sass, folder)


def differences(ours: Line | None, theirs: Line | None) -> tuple[list[str], list[str]]:
    """What of a line is missed, and of what there is more."""
    if ours is None:
        return ["nvcc stores here and g++ does not"], []
    if theirs is None:
        return [], ["g++ stores here and nvcc does not"]
    missed: list[str] = []
    more: list[str] = []
    if ours.loop and ours.bytes and theirs.bytes % ours.bytes == 0:  # nvcc may have unrolled it
        theirs = Line(theirs.piece, ours.pieces, ours.bytes, True)
    if theirs.loop != ours.loop:
        (missed if theirs.loop else more).append(
            f"in a loop {'of nvcc' if theirs.loop else 'of g++'} alone"
        )
    if ours.piece and theirs.piece and ours.piece != theirs.piece:
        (missed if theirs.piece < ours.piece else more).append(
            f"pieces of {theirs.piece} bytes, and of {ours.piece} in g++"
        )
    if not ours.piece and theirs.piece < 8:
        missed.append(f"pieces of {theirs.piece} bytes, and a struct as a whole in g++")
    if ours.bytes and theirs.bytes and ours.bytes != theirs.bytes:
        (missed if theirs.bytes > ours.bytes else more).append(
            f"{theirs.bytes} bytes in a row, and {ours.bytes} in g++"
        )
    return missed, more


def added_by_ptxas(ours: Line | None, ptx: Line | None, sass: Line) -> list[str]:
    """What of a line is missed by what ptxas made of it."""
    if ours is None:
        return [] if ptx is not None else ["the GPU stores here (SASS) and g++ does not"]
    missed: list[str] = []
    if ptx is not None and sass.loop and not ours.loop and not ptx.loop:
        missed.append("in a loop of SASS alone")
    if ours.piece and sass.piece < min(ours.piece, ptx.piece if ptx else 8):
        missed.append(f"pieces of {sass.piece} bytes in SASS, and of {ours.piece} in g++")
    return missed


Difference = tuple[str, int, str, str]  # file, line, kind, what


def compare(file: Path, made: Made) -> list[Difference]:
    """The differences in the project's own code."""
    nvcc = Ptx(made.ptx, made.folder)
    ours = Assembly(made.assembly, made.folder).code.lines()
    theirs = nvcc.code.lines()
    sass = Sass(made.sass or "", made.folder)

    def matters(place: tuple[str, int]) -> bool:
        inside = place[0].startswith(f"{ROOT}/") or place[0] == str(file)
        library = place[0].startswith(str(ROOT / "include" / "holdfast"))
        return inside and not library and place not in nvcc.elsewhere and nvcc.is_device_code(place)

    found: list[Difference] = []
    for place in sorted(one for one in {*ours, *theirs} if matters(one)):
        missed, more = differences(ours.get(place), theirs.get(place))
        found += [(*place, "missed", words) for words in missed]
        found += [(*place, "more", words) for words in more]
    for place, line in sorted(sass.code.lines().items()):
        if not matters(place) or place in sass.elsewhere:
            continue
        added = added_by_ptxas(ours.get(place), theirs.get(place), line)
        found += [(*place, "missed", words) for words in added]
    return found


def kernel_files(build: Path) -> list[Path]:
    """Every kernel file of the project's folders that the build has."""
    found = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = (Path(entry["directory"]) / entry["file"]).resolve()
        inside = file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in FOLDERS
        if file.suffix == ".cu" and inside and file not in found:
            found.append(file)
    return found


def print_text(one: Difference) -> None:
    """A difference as a line."""
    file = Path(one[0])
    name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    print(f"{name}:{one[1]}: {one[2]}: {one[3]}", flush=True)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "cpu-check")
    parser.add_argument("--flags", default="")
    parser.add_argument("--no-sass", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not arguments.files and not arguments.all:
        parser.error("name a kernel file, or give --all")
    return arguments


def main() -> int:
    """Compares the files."""
    arguments = parse_arguments()
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        print("against_ptx: there is no nvcc on PATH or in /usr/local/cuda/bin", file=sys.stderr)
        return 2
    nvdisasm = None if arguments.no_sass else disassembler()
    if nvdisasm is None:
        print("against_ptx: SASS is left out", file=sys.stderr)
    files = [file.resolve() for file in arguments.files]
    files += kernel_files(arguments.build) if arguments.all else []
    seen: set[Difference] = set()
    for file in files:
        try:
            made = compile_all(file, arguments.build, nvcc, nvdisasm, shlex.split(arguments.flags))
        except CompileError as error:
            if not arguments.all:
                print(f"against_ptx: {error}", file=sys.stderr)
                return 2
            # Such as host code that the checker alone runs as a kernel.
            print(f"{file.relative_to(ROOT)}: not compared: nvcc refuses it", file=sys.stderr)
            continue
        fresh = [one for one in compare(file, made) if one not in seen]
        seen.update(fresh)
        for one in [] if arguments.json else fresh:
            print_text(one)
    missed = sum(one[2] == "missed" for one in seen)
    if arguments.json:
        keys = ("file", "line", "kind", "what")
        found = [dict(zip(keys, one, strict=True)) for one in sorted(seen)]
        print(json.dumps({"ok": missed == 0, "files": len(files), "differences": found}, indent=2))
    else:
        print(f"{len(files)} files: {missed} missed, {len(seen) - missed} more")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
