"""Commands that read beside a writer and after a crash, `holdfast backup`, --last-commit, locks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import REPOSITORY, Run
from holdfast import workloads

WRITER = """
import holdfast, sys
region = holdfast.open("a.hf")
store = holdfast.KeyValueStore(region)
store.set([1, 2], [10, 20])
region.commit()
store.set([3], [30])  # persisted, and not committed
print("ready", flush=True)
sys.stdin.read(1)
"""


class Place:
    """A store a.hf with shared memory of its own, and a process that has it open."""

    def __init__(self, folder: Path, arenas: Path) -> None:
        self.folder, self.arenas, self.file = folder, arenas, folder / "a.hf"
        self._writer: subprocess.Popen[str] | None = None

    def start_writer(self) -> None:
        self._writer = subprocess.Popen(
            [sys.executable, "-c", WRITER],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._writer.stdout is not None
        assert self._writer.stdout.readline() == "ready\n"

    def kill_writer(self) -> None:
        if self._writer is not None:
            self._writer.kill()
            self._writer.communicate()
            self._writer = None

    def bytes(self) -> dict[str, bytes]:
        return {str(file): file.read_bytes() for file in [self.file, *self.arenas.iterdir()]}


@pytest.fixture
def place(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir="/dev/shm") as folder:
        monkeypatch.setenv("HOLDFAST_ARENA_DIR", folder)
        made = Place(tmp_path, Path(folder))
        assert run("kv", "create", "a.hf", "--capacity", 1000, "--max-batch", 64).status == 0
        yield made
        made.kill_writer()


def read_all(run: Run, *options: str) -> dict[str, int | None]:
    """What every reading command says of a.hf, which must agree."""
    answer = run("kv", "get", "a.hf", 1, 2, 3, "--json", *options)
    values = answer.json["values"]
    assert answer.status == (None in values.values())
    records = sum(value is not None for value in values.values())
    answer = run("kv", "verify", "a.hf", "--json", *options)
    assert (answer.status, answer.json["records"]) == (0, records)
    answer = run("kv", "stat", "a.hf", "--json", *options)
    assert (answer.status, answer.json["records"]) == (0, records)
    assert isinstance(values, dict)
    return values


COMMITTED = {"1": 10, "2": 20, "3": None}
PERSISTED = {"1": 10, "2": 20, "3": 30}


def test_reading_changes_nothing(run: Run, place: Place) -> None:
    assert run("kv", "put", "a.hf", "1=10", "2=20").status == 0
    before = place.bytes()
    assert read_all(run) == COMMITTED
    assert run("inspect", "a.hf", "--verify", "--json").json["in_use"] is False
    assert place.bytes() == before


def test_reading_beside_a_writer(run: Run, place: Place) -> None:
    place.start_writer()
    before = place.bytes()
    assert len(before) == 2
    assert read_all(run) == COMMITTED
    assert run("kv", "stat", "a.hf", "--json").json["content"] == "the last commit"
    answer = run("inspect", "a.hf", "--verify", "--json")
    assert (answer.status, answer.json["in_use"]) == (0, True)
    assert "has the region open" in run("inspect", "a.hf").out
    answer = run("kv", "put", "a.hf", "4=40", "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "in_use")
    assert place.bytes() == before


def test_reading_after_a_kill(run: Run, place: Place) -> None:
    place.start_writer()
    place.kill_writer()
    before = place.bytes()
    assert len(before) == 2
    assert read_all(run) == PERSISTED
    assert run("kv", "stat", "a.hf", "--json").json["content"] == "what a crash left"
    assert read_all(run, "--last-commit") == COMMITTED
    assert run("inspect", "a.hf", "--json").json["arena"]["valid"] is True
    assert place.bytes() == before
    answer = run("kv", "put", "a.hf", "4=40", "--json")
    assert answer.json == {
        "ok": True,
        "inserted": 1,
        "updated": 0,
        "evicted": 0,
        "arena_set_aside": "",
    }
    assert answer.err == ""
    assert not list(place.arenas.iterdir())
    assert read_all_but_the_new_one(run) == PERSISTED


def read_all_but_the_new_one(run: Run) -> dict[str, int | None]:
    assert run("kv", "del", "a.hf", 4, "--json").json["removed"] == 1
    return read_all(run)


@pytest.mark.parametrize("command", ["put", "del", "load"])
def test_last_commit_names_what_it_sets_aside(run: Run, place: Place, command: str) -> None:
    place.start_writer()
    place.kill_writer()
    (arena,) = place.arenas.iterdir()
    content = arena.read_bytes()
    (place.folder / "rows.csv").write_text("k,v\n1,10\n")
    arguments = {
        "put": ["a.hf", "1=10"],
        "del": ["a.hf", "99"],
        "load": ["a.hf", "rows.csv", "--key", "k", "--value", "v"],
    }[command]
    answer = run("kv", command, *arguments, "--last-commit", "--json")
    assert answer.status == 0, answer
    aside = Path(answer.json["arena_set_aside"])
    assert aside.name in "".join(answer.err.split())
    assert aside.read_bytes() == content
    assert list(place.arenas.iterdir()) == [aside]
    assert read_all(run) == COMMITTED
    answer = run("backup", aside, "rescued.hf", "--json")
    assert (answer.status, answer.json["arena_found"]) == (0, True)
    assert run("kv", "get", "rescued.hf", 3, "--json").json["values"] == {"3": 30}


def test_what_is_mistyped_sets_nothing_aside(run: Run, place: Place) -> None:
    place.start_writer()
    place.kill_writer()
    before = place.bytes()
    for arguments in (
        ["put", "a.hf", "1=10", "foo"],
        ["put", "a.hf", "x=1"],
        ["put", "a.hf", "1=x"],
        ["put", "a.hf", f"{2**64 - 1}=1"],
        ["del", "a.hf", 1, "x"],
    ):
        answer = run("kv", *arguments, "--last-commit", "--json")
        assert (answer.status, answer.json["error"]["code"]) == (1, "invalid_argument"), answer
        assert "arena_set_aside" not in answer.json
        assert place.bytes() == before
    # What only the store knows to be wrong does, and says so.
    answer = run("kv", "del", "a.hf", *range(65), "--last-commit", "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "invalid_argument")
    assert Path(answer.json["arena_set_aside"]).read_bytes() in before.values()


def test_what_is_mistyped_does_not_open_a_map(run: Run, tmp_path: Path) -> None:
    assert run("kv", "create", "m.hf", "--layout", "map", "--capacity", 100).status == 0
    file = tmp_path / "m.hf"
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    for arguments in (["put", "m.hf", "a"], ["put", "m.hf", "1=2", "--text"]):
        answer = run("kv", *arguments, "--json")
        assert (answer.status, answer.json["error"]["code"]) == (1, "invalid_argument"), answer
        assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert run("kv", "put", "m.hf", "a=b=c", "1=2").status == 0
    values = run("kv", "get", "m.hf", "a", 1, "--json").json["values"]
    assert values == {"a": "b=c", "1": "2"}
    assert run("kv", "del", "m.hf", "a", 1, "--json").json["removed"] == 2


def test_a_workload_begins_with_the_last_commit(run: Run, place: Place) -> None:
    region = place.folder / "r"
    with workloads.Process(workloads.Run("hotspot", steps=1_000_000), region) as process:
        assert process.wait_ready() is not None
    (arena,) = place.arenas.iterdir()
    content = arena.read_bytes()
    arguments = ["run", "hotspot", "--size", "test", "--region", region, "--steps", 3, "--json"]
    answer = run(*arguments, "--last-commit")
    assert answer.status == 0, answer
    assert (answer.json["first_step"], len(answer.json["step_seconds"])) == (0, 3)
    aside = Path(answer.json["arena_set_aside"])
    assert aside.name in "".join(answer.err.split())
    assert aside.read_bytes() == content
    workloads.remove(region)


def test_an_arena_that_is_gone(run: Run, place: Place) -> None:
    place.start_writer()
    place.kill_writer()
    (arena,) = place.arenas.iterdir()
    arena.unlink()
    before = place.bytes()
    for arguments in (
        ["kv", "get", "a.hf", 1],
        ["kv", "put", "a.hf", "4=4"],
        ["backup", "a.hf", "b"],
    ):
        answer = run(*arguments, "--json")
        assert (answer.status, answer.json["error"]["code"]) == (1, "conflict")
        assert "--last-commit" in answer.json["error"]["message"]
    assert place.bytes() == before
    assert not (place.folder / "b").exists()
    assert read_all(run, "--last-commit") == COMMITTED
    assert run("backup", "a.hf", "b", "--last-commit").status == 0
    answer = run("kv", "put", "a.hf", "1=10", "--last-commit", "--json")
    assert (answer.status, answer.json["arena_set_aside"], answer.err) == (0, "", "")
    assert read_all(run) == COMMITTED


def test_backup(run: Run, place: Place) -> None:
    place.start_writer()
    before = place.bytes()
    answer = run("backup", "a.hf", "b.hf", "--json")
    assert answer.status == 0
    report = answer.json
    assert (report["ok"], report["arena_found"], report["generation"]) == (True, False, 2)
    assert report["uuid"] != run("inspect", "a.hf", "--json").json["uuid"]
    assert report["uuid"] == run("inspect", "b.hf", "--json").json["uuid"]
    assert place.bytes() == before
    assert run("kv", "get", "b.hf", 1, 2, 3, "--json").json["values"] == COMMITTED
    assert run("kv", "put", "b.hf", "4=40").status == 0  # while the writer has the other
    place.kill_writer()
    before = place.bytes()
    assert "until a crash" in run("backup", "a.hf", "c.hf").out
    assert run("kv", "get", "c.hf", 3, "--json").json["values"] == {"3": 30}
    assert "commit 2" in run("backup", "a.hf", "d.hf", "--last-commit").out
    assert run("kv", "get", "d.hf", 3, "--json").json["values"] == {"3": None}
    answer = run("backup", "a.hf", "b.hf", "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "already_exists")
    answer = run("backup", "none.hf", "e.hf")
    assert answer.status == 1
    assert "none.hf" in answer.err
    assert not (place.folder / "e.hf").exists()
    assert run("backup", "a.hf").status == 2
    assert place.bytes() == before


def test_a_backup_of_an_arena_whose_file_is_lost(run: Run, place: Place) -> None:
    place.start_writer()
    place.kill_writer()
    (arena,) = place.arenas.iterdir()
    place.file.unlink()
    content = arena.read_bytes()
    answer = run("backup", arena, "b.hf", "--json")
    assert (answer.status, answer.json["arena_found"]) == (0, True)
    assert arena.read_bytes() == content
    assert run("kv", "get", "b.hf", 1, 2, 3, "--json").json["values"] == PERSISTED


def test_doctor_tries_locks(run: Run, tmp_path: Path) -> None:
    locks = run("doctor", "--json").json["locks"]
    assert (locks["folder"], locks["hold"]) == (str(tmp_path), True)
    answer = run("doctor", "--folder", "/dev/shm", "--json")
    assert (answer.status, answer.json["locks"]["folder"]) == (0, "/dev/shm")
    answer = run("doctor", "--folder", tmp_path / "none", "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "not_found")
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_where_locks_do_nothing(run: Run, tmp_path: Path) -> None:
    library = tmp_path / "no_locks.so"
    source = REPOSITORY / "tests" / "core" / "no_locks.cpp"
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    answer = run("doctor", "--json", LD_PRELOAD=str(library))
    assert answer.status == 1
    assert (answer.json["ok"], answer.json["locks"]["hold"]) == (False, False)
    assert "regions cannot live there" in answer.json["locks"]["reason"]
    text = " ".join(run("doctor", LD_PRELOAD=str(library)).out.split())
    assert "regions cannot live" in text
