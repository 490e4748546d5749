"""Output that cannot be written, and input that no one would have expected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Run

NOT_UTF8 = r"$'x\xff.hf'"
READING = ["kv get a.hf 1", "kv stat a.hf", "kv verify a.hf", "inspect a.hf"]


@pytest.fixture
def store(run: Run, tmp_path: Path) -> Path:
    assert run("kv", "create", "a.hf", "--capacity", 8, "--max-batch", 64).status == 0
    assert run("kv", "put", "a.hf", "1=10").status == 0
    return tmp_path


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, timeout=300, check=False
    )


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("as_json", ["", "--json"])
@pytest.mark.parametrize("where", ["> /dev/full", ">&-"])
def test_output_that_cannot_be_written_is_an_error(
    store: Path, command: str, as_json: str, where: str
) -> None:
    done = shell(f"{sys.executable} -m holdfast {command} {as_json} {where}", store)
    assert done.returncode == 1, done.stderr
    assert b"standard output" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"ignored" not in done.stderr  # at the interpreter's end


@pytest.mark.parametrize(
    "command",
    ["kv create {} --capacity 3", "kv get {} 1", "inspect {}", "backup a.hf {}", "backup {} b.hf"],
)
def test_a_path_that_is_not_utf8_is_named(store: Path, command: str) -> None:
    done = shell(f"{sys.executable} -m holdfast {command.format(NOT_UTF8)}", store)
    assert done.returncode == 1
    assert rb"x\xff.hf" in done.stderr
    assert b"not UTF-8" in b"".join(done.stderr.split(b"\n"))
    assert [file.name for file in store.iterdir()] == ["a.hf"]


def test_a_key_that_is_not_utf8_is_named(store: Path) -> None:
    done = shell(f"{sys.executable} -m holdfast kv put a.hf --text $'\\xff=1'", store)
    assert done.returncode == 1
    assert rb"b'\xff' is not UTF-8" in done.stderr


@pytest.mark.parametrize("key", ["1_0", "٣", "0x1_0", "1.0", "", "0x", "1e3"])
def test_numbers_are_read_as_load_reads_them(run: Run, store: Path, key: str) -> None:
    answer = run("kv", "put", "a.hf", f"{key}=3")
    assert answer.status == 1
    assert "is not an integer" in answer.err
    assert run("kv", "stat", "a.hf", "--json").json["records"] == 1


def test_numbers_of_other_bases(run: Run, store: Path) -> None:
    assert run("kv", "put", "a.hf", "0x10=0b11", "0o20=-0X1").status == 0
    answer = run("kv", "get", "a.hf", "16", "--json")
    assert answer.json["values"] == {"16": 2**64 - 1}


def test_put_says_what_was_lost(run: Run, store: Path) -> None:
    pairs = [f"{key}={key}" for key in range(2, 60)]
    answer = run("kv", "put", "a.hf", *pairs, "--json")
    assert answer.status == 1
    assert answer.json["error"]["code"] == "no_space"
    assert answer.json["evicted"] > 0
    assert f"{answer.json['evicted']:,} pairs were evicted" in answer.json["error"]["message"]
    answer = run("kv", "put", "a.hf", *pairs, "--allow-evictions")
    assert answer.status == 0
    assert "were evicted" in answer.err
