"""The code in README.md and docs/ runs.

```python and ```sh blocks are run; ```cpp blocks that include something are compiled for the CPU
backend, and run where they have a main(). Anything else (```text, fragments) is for reading.
scripts/doc_blocks.py checks what ```console blocks show and what is quoted from files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY

BUILD = Path(os.environ.get("HOLDFAST_CPU_BUILD", REPOSITORY / "build" / "cpu"))
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[pytest.param]:  # type: ignore[valid-type]
    found = []
    for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]:
        text = page.read_text()
        for match in _BLOCK.finditer(text):
            language, code = match.groups()
            if language in ("python", "sh") or (language == "cpp" and "#include" in code):
                line = text.count("\n", 0, match.start()) + 1
                found.append(pytest.param(language, code, id=f"{page.name}:{line}:{language}"))
    return found


def compile_command(source: Path, program: Path, run: bool) -> list[str]:
    command = ["g++", "-std=c++20", "-Wall", "-DHOLDFAST_BACKEND_CPU=1"]
    command += [f"-I{REPOSITORY / 'include'}"]
    if not run:
        return [*command, "-fsyntax-only", str(source)]
    library = BUILD / "src" / "libholdfast.a"
    if not library.exists():
        pytest.skip(f"{library} not built: cmake --build --preset cpu")
    command += [str(source), "-o", str(program), str(library)]
    return [*command, "-l:libboost_context.a", "-lpmem2", "-lpthread"]


@pytest.mark.parametrize(("language", "code"), blocks())
def test_block(language: str, code: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if language == "python":
        command = [sys.executable, "-c", code]
    elif language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", code]
    else:
        source, program = tmp_path / "example.cpp", tmp_path / "example"
        source.write_text(code)
        with_main = "int main(" in code
        subprocess.run(compile_command(source, program, with_main), check=True)
        command = [str(program)] if with_main else ["true"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("check_executable")
def test_quotes_and_output_are_fresh() -> None:
    if not (BUILD / "examples" / "adjoint" / "adjoint").exists():
        pytest.skip(f"no examples in {BUILD}: cmake --build --preset cpu")
    done = subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / "doc_blocks.py", "--check"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
