"""Images of format version 1: read, copied, and never written."""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import holdfast
from conftest import REPOSITORY, Answer, Run
from holdfast import KeyValueStore
from holdfast._backend import ext

DATA = REPOSITORY / "tests" / "data" / "version1"


@pytest.fixture
def arenas(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir="/dev/shm") as folder:
        monkeypatch.setenv("HOLDFAST_ARENA_DIR", folder)
        yield Path(folder)


def unpack(name: str, target: Path) -> Path:
    target.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    target.chmod(0o600)
    return target


def check_arrays(region: holdfast.Region) -> None:
    assert sorted(region) == ["marked", "numbers"]
    numbers = np.arange(1000, dtype=np.uint32)
    numbers[7] = 7777
    np.testing.assert_array_equal(region["numbers"], numbers)
    assert region["numbers"].dtype == np.uint32
    marked = np.zeros((3, 5000))
    marked[1] = 1.5
    np.testing.assert_array_equal(region["marked"], marked)
    assert {info.name: info.tracking for info in region.objects()}["marked"] == "marked"


def check_store(region: holdfast.Region) -> None:
    """The region is read as any other; its store is older than this build's."""
    assert "kvs.table" in region
    check_store_refused(region)


def check_store_refused(region: holdfast.Region) -> None:
    for capacity in (None, 64):
        with pytest.raises(holdfast.Error, match="earlier version") as raised:
            KeyValueStore(region, capacity)
        assert raised.value.code == "unsupported"
        for words in ("'kvs'", str(region.path), "make it again"):
            assert words in str(raised.value)


@pytest.mark.parametrize(
    ("name", "check"), [("version1.hf", check_arrays), ("store1.hf", check_store)]
)
def test_it_is_read_and_copied_and_not_written(
    run: Run, tmp_path: Path, arenas: Path, name: str, check: object
) -> None:
    assert callable(check)
    path = unpack(name, tmp_path / "old.hf")
    before = path.read_bytes()
    with holdfast.open(path, read_only=True) as region:
        check(region)
        uuid = region.uuid
    answer = run("inspect", path, "--verify", "--json")
    assert (answer.status, answer.json["version"], answer.json["uuid"]) == (0, 1, uuid)
    for last_commit in (False, True):
        with pytest.raises(holdfast.Error, match="holdfast backup") as raised:
            holdfast.open(path, last_commit=last_commit)
        assert raised.value.code == "unsupported"
    assert path.read_bytes() == before
    answer = run("backup", path, "new.hf", "--json")
    assert answer.status == 0, answer.out
    assert path.read_bytes() == before
    assert ext.inspect_image(str(tmp_path / "new.hf"), True, "").version == 2
    with holdfast.open(tmp_path / "new.hf") as region:
        assert region.uuid == answer.json["uuid"] != uuid
        check(region)
    assert not list(arenas.iterdir())


@pytest.mark.parametrize("name", ["version1/store1.hf", "stores/kvs1.hf"])
def test_the_command_line_refuses_its_store(run: Run, tmp_path: Path, name: str) -> None:
    path = unpack(f"../{name}", tmp_path / "old.hf")
    before = path.read_bytes()
    for command in (("get", path, 7), ("verify", path), ("stat", path)):
        answer = run("kv", *command, "--json")
        assert answer.status == 1
        assert answer.json["error"]["code"] == "unsupported"
        assert "make it again" in answer.json["error"]["message"]
    assert path.read_bytes() == before


def test_the_store_of_the_last_version_is_left_alone(tmp_path: Path, arenas: Path) -> None:
    path = unpack("../stores/kvs1.hf", tmp_path / "old.hf")
    with holdfast.open(path) as region:
        before = {info.name: bytes(region[info.name]) for info in region.objects()}
        check_store_refused(region)
        assert before == {info.name: bytes(region[info.name]) for info in region.objects()}


class Machine:
    """Runs the command line as in another boot of the machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boot = folder / "boot_id"

    def run(self, boot: str, *arguments: object) -> Answer:
        self._boot.write_text(f"{boot}\n")
        mount = f"mount --bind {self._boot} /proc/sys/kernel/random/boot_id || exit 77"
        command = [sys.executable, "-m", "holdfast", *map(str, arguments), "--json"]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", f'{mount}; exec "$0" "$@"', *command],
            capture_output=True,
            text=True,
            cwd=self._folder,
            check=False,
        )
        if done.returncode == 77 or "unshare" in done.stderr:
            pytest.skip("only root may mount a file of its own")
        return Answer(done.returncode, done.stdout, done.stderr)


ITS_BOOT = "bf44db44-36e1-4ade-9400-aaa05530505e"  # in which crashed1.arena was left
ANOTHER_BOOT = "11111111-2222-4333-8444-555555555555"


def check_first_commit(path: Path) -> None:
    with holdfast.open(path) as region:
        assert (region["numbers"] == 1).all()
    path.unlink()


def test_what_a_crash_left_counts_within_its_boot(tmp_path: Path, arenas: Path) -> None:
    machine = Machine(tmp_path)
    path = unpack("crashed1.hf", tmp_path / "old.hf")
    uuid = ext.inspect_image(str(path), False, "").uuid
    arena = unpack("crashed1.arena", arenas / f"holdfast-{os.geteuid()}-{uuid}.arena")
    before = path.read_bytes(), arena.read_bytes()
    copy = tmp_path / "new.hf"

    # It was another boot: what was in shared memory then is no more than what was committed.
    answer = machine.run(ANOTHER_BOOT, "inspect", path, "--verify")
    found = answer.json["arena"]
    assert (found["path"], found["exists"]) == (str(arena), True)
    assert (found["valid"], found["this_boot"]) == (True, False)
    answer = machine.run(ANOTHER_BOOT, "backup", path, copy)
    assert (answer.status, answer.json["arena_found"], answer.json["generation"]) == (0, False, 1)
    check_first_commit(copy)

    # It was this boot: only the build that wrote the arena can say what it holds.
    answer = machine.run(ITS_BOOT, "inspect", path)
    found = answer.json["arena"]
    assert (found["valid"], found["this_boot"]) == (False, True)
    assert "version 1" in found["problem"]
    answer = machine.run(ITS_BOOT, "backup", path, copy)
    assert (answer.status, answer.json["error"]["code"]) == (1, "unsupported")
    assert "--last-commit" in answer.json["error"]["message"]
    assert not copy.exists()
    answer = machine.run(ITS_BOOT, "backup", path, copy, "--last-commit")
    assert (answer.status, answer.json["arena_found"]) == (0, False)
    check_first_commit(copy)

    with pytest.raises(holdfast.Error, match="holdfast backup"):
        holdfast.open(path)
    assert (path.read_bytes(), arena.read_bytes()) == before
