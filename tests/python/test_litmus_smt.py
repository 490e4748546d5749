"""The litmus tests by an SMT solver: scripts/litmus_smt, which shares nothing with the checker."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("z3") is None, reason="needs z3-solver (requirements-dev.txt)"
)


def solve(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts" / "litmus_smt"), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_sample_agrees() -> None:
    """All of them are for the script; the seed is printed and may be given again."""
    answer = solve("--sample", 60)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert re.search(r"^60 runs, 0 wrong", answer.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("file", "name", "models"),
    [
        ("fences.litmus", "fence.ofence", ("sbrp", "epoch")),
        ("streams.litmus", "stream.wait.other", ("sbrp", "epoch")),
        ("streams.litmus", "event.synchronize.chain", ("sbrp", "epoch")),
        ("mixed_sizes.litmus", "mixed.plain_half", ("sbrp", "epoch")),
        ("host.litmus", "poll.fence", ("sbrp", "epoch")),
        ("memory.litmus", "memory.iriw.fence", ("sc", "ptx")),
        ("memory.litmus", "memory.lb", ("sc", "ptx")),
    ],
)
def test_a_wrong_verdict_is_found(
    tmp_path: Path, file: str, name: str, models: tuple[str, str]
) -> None:
    text = (REPOSITORY / "litmus" / file).read_text()
    start = text.index(f"test {name} ")
    end = text.find("\ntest ", start)
    body = text[start : end if end != -1 else len(text)]
    turned = {"allowed": "forbidden", "forbidden": "allowed"}
    for model in models:
        wrong = re.sub(
            rf"(\n  {model}: )(\w+)", lambda match: match[1] + turned[match[2]], body, count=1
        )
        assert wrong != body
        path = tmp_path / f"{model}.litmus"
        path.write_text(wrong)
        answer = solve(path)
        assert answer.returncode == 1, answer.stdout + answer.stderr
        assert f"{name} ({model}): expected" in answer.stdout
