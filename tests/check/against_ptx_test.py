"""What scripts/against_ptx.py says: what g++ instruments of a kernel file is what nvcc makes of it,
and where the flags say otherwise the lines are named. Skipped (77) where there is no nvcc."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent.parent
STORES = ROOT / "tests" / "cpu" / "stores.cu"
APPEND = ROOT / "examples" / "checked_append" / "append.cu"


def differences(build: str, file: Path, flags: str = "") -> dict[tuple[int, str], str]:
    """By line and kind: what the script says of the file."""
    script = str(ROOT / "scripts" / "against_ptx.py")
    done = subprocess.run(
        [sys.executable, script, "--json", "--build", build, f"--flags={flags}", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] == (done.returncode == 0)
    return {
        (one["line"], one["kind"]): one["what"]
        for one in result["differences"]
        if one["file"] == str(file)
    }


def line_of(file: Path, function: str, text: str) -> int:
    """The line of a statement of a kernel."""
    lines = file.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if function in line)
    return next(i for i in range(start, len(lines)) if text in lines[i]) + 1


def load_script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("against_ptx", ROOT / "scripts/against_ptx.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["against_ptx"] = module
    spec.loader.exec_module(module)
    return module


# As `nvdisasm -g` prints it. Line 5 is stored under a predicate or its opposite, never twice.
SASS = """
.text.kernel:
\t//## File "a.cu", line 3
        /*0000*/                   STG.E.64 desc[UR6][R8.64], R4 ;
        /*0010*/              @!P0 BRA `(.L_x_1) ;
.L_x_0:
\t//## File "a.cu", line 4
        /*0020*/                   STG.E.U8.STRONG.SYS desc[UR6][R4.64], R7 ;
        /*0030*/              @P1  BRA `(.L_x_0) ;
.L_x_1:
\t//## File "a.cu", line 5
        /*0040*/               @P2 ST.E desc[UR6][R4.64], R7 ;
        /*0050*/              @!P2 ST.E desc[UR6][R4.64], R8 ;
\t//## File "a.cu", line 6
        /*0060*/                   STS [R4], R7 ;
        /*0070*/                   EXIT ;
"""


def check_sass(script: ModuleType) -> None:
    """What is read of machine code, and when it is named."""
    sass = script.Sass(SASS, Path("/tmp"))
    lines = {line: what for (_, line), what in sass.code.lines().items()}
    assert (lines[3].piece, lines[3].bytes, lines[3].loop) == (8, 8, False), lines
    assert (lines[4].piece, lines[4].bytes, lines[4].loop) == (1, 1, True), lines
    assert (lines[5].piece, lines[5].bytes, lines[5].loop) == (4, 4, False), lines
    assert {line for _, line in sass.elsewhere} == {6}
    words = script.Line(4, 2, 8, False)
    assert script.added_by_ptxas(words, words, script.Line(8, 1, 8, False)) == []
    assert script.added_by_ptxas(words, words, script.Line(2, 4, 8, False)) != []
    assert script.added_by_ptxas(words, words, script.Line(4, 2, 8, True)) != []
    assert script.added_by_ptxas(None, None, words) != []


def check_sass_of(script: ModuleType, build: str, file: Path) -> None:
    """ptxas keeps the stores of PTX, under their lines: or nothing would be compared."""
    nvdisasm = script.disassembler()
    if nvdisasm is None:
        print("there is no nvdisasm: SASS is not compared")
        return
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    made = script.compile_all(file, Path(build), nvcc, nvdisasm, [])
    stores = {
        line for (name, line) in script.Ptx(made.ptx, made.folder).code.lines() if name == str(file)
    }
    kept = {
        line
        for (name, line) in script.Sass(made.sass, made.folder).code.lines()
        if name == str(file)
    }
    assert len(stores) > 10 and len(stores & kept) >= 0.9 * len(stores), (stores, kept)


def main() -> int:
    """Runs the checks; an assertion is a failure."""
    script = load_script()
    check_sass(script)
    if not (shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()):
        print("skipped: there is no nvcc")
        return 77
    build = sys.argv[1]
    check_sass_of(script, build, STORES)
    assert not differences(build, APPEND), "the example is recorded as nvcc compiles it"

    as_built = differences(build, STORES)
    assert not [one for one in as_built if one[1] == "missed"], as_built
    dead = line_of(STORES, "void overwritten(", "*place = 1;")
    assert "nvcc does not" in as_built[dead, "more"], "nvcc deletes a store that is overwritten"

    # As the kernels were compiled before: a count leaves its loop, which nvcc leaves it in.
    moved = differences(build, STORES, "-ftree-loop-im -fstrict-aliasing")
    count = line_of(STORES, "void count_beside_floats(", "*count += 1;")
    assert (count, "missed") in moved, moved
    print(f"stores.cu:{count}: {moved[count, 'missed']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
