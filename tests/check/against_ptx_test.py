"""What scripts/against_ptx.py says: what g++ instruments of a kernel file is what nvcc makes of it,
and where the flags say otherwise the lines are named. Skipped (77) where there is no nvcc."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

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


def main() -> int:
    """Runs the checks; an assertion is a failure."""
    if not (shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()):
        print("skipped: there is no nvcc")
        return 77
    build = sys.argv[1]
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
