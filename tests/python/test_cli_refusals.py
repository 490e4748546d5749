"""What commands that fail leave, and say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdfast
from conftest import Full, Run
from holdfast import KeyValueStore, LogMap, workloads


@pytest.fixture
def own_arenas(arenas: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_ARENA_DIR", str(arenas))
    return arenas


def region_without_a_store(path: Path) -> None:
    with holdfast.create(path, 1 << 20) as region:
        region.allocate("mine", (10,), "int64")[:] = 5


def test_a_refused_command_leaves_the_region_closed(
    run: Run, tmp_path: Path, own_arenas: Path
) -> None:
    region_without_a_store(tmp_path / "a.hf")
    assert run("kv", "put", "a.hf", "1=1").status == 1
    assert not list(own_arenas.iterdir())
    assert run("kv", "create", "m.hf", "--layout", "map", "--capacity", 100).status == 0
    assert run("kv", "get", "m.hf", *range(70_000)).status == 1  # more than a batch
    assert not list(own_arenas.iterdir())


def test_a_workload_takes_no_region_of_something_else(
    run: Run, tmp_path: Path, own_arenas: Path
) -> None:
    run("kv", "create", "a.hf", "--capacity", 4096)
    run("kv", "put", "a.hf", "1=100", "2=200")
    region_without_a_store(tmp_path / "b.hf")
    for file in ("a.hf", "b.hf"):
        before = (tmp_path / file).read_bytes()
        for workload in ("gpkvs", "srad"):
            answer = run("run", workload, "--size", "test", "--region", file, "--json")
            assert answer.status == 1
            assert answer.json["error"]["code"] == "invalid_argument"
            assert file in answer.json["error"]["message"]
        with holdfast.open(tmp_path / file, read_only=True) as region:
            assert not [name for name in region if name.startswith(("mode", "run", "progress"))]
        assert len((tmp_path / file).read_bytes()) == len(before)
    assert run("kv", "get", "a.hf", 1, 2, "--json").json["values"] == {"1": 100, "2": 200}
    assert not list(own_arenas.iterdir())


def test_a_run_goes_on_from_itself_alone(run: Run, tmp_path: Path, own_arenas: Path) -> None:
    kept = ["--size", "test", "--region", "r", "--json"]
    assert run("run", "srad", *kept).status == 0
    others = (["srad", "--seed", 5], ["hotspot"], ["srad", "--steps", 2], ["srad", "--mode", "ndp"])
    for other in others:
        answer = run("run", *other, *kept)
        assert answer.status == 1, other
        assert answer.json["error"]["code"] == "invalid_argument", answer
    assert run("run", "srad", *kept).json["step_seconds"] == []
    workloads.remove(tmp_path / "r")


def test_inspect_tells_of_an_arena_that_is_gone(run: Run, tmp_path: Path, own_arenas: Path) -> None:
    region_without_a_store(tmp_path / "a.hf")
    assert run("inspect", "a.hf", "--json").json["arena"]["problem"] == ""
    region = holdfast.open(tmp_path / "a.hf")
    region["mine"][0] = 6
    region.abandon()
    (arena,) = own_arenas.iterdir()
    arena.unlink()
    assert "is gone" in run("inspect", "a.hf", "--json").json["arena"]["problem"]
    assert "is gone" in run("inspect", "a.hf", COLUMNS="2000").out


def test_convert_to_a_full_disk_says_so_and_leaves_nothing(
    run: Run, tmp_path: Path, own_arenas: Path, full: Full
) -> None:
    run("kv", "create", "a.hf", "--capacity", 400_000, "--layout", "log")
    keys = np.random.default_rng(1).integers(0, 2**63, 300_000, np.uint64)
    with holdfast.open(tmp_path / "a.hf") as region:
        store = KeyValueStore(region)
        for first in range(0, len(keys), 10_000):
            store.set(keys[first : first + 10_000], keys[first : first + 10_000])
    full.fill(leaving=2 << 20)
    new = full.folder / "b.hf"
    answer = run("kv", "convert", "a.hf", new, "--layout", "in_place", "--json")
    assert answer.json["error"]["code"] == "no_space", answer
    assert not list(full.folder.glob("b.hf*"))
    assert not list(own_arenas.iterdir())


def test_doctor_tries_the_folder_that_it_is_asked_about(run: Run, full: Full) -> None:
    assert run("doctor", "--folder", full.folder, "--json").status == 0
    full.fill(leaving=0)
    answer = run("doctor", "--folder", full.folder, "--json")
    assert answer.status == 1
    assert not answer.json["domains"]["file"]["ok"]


def test_a_file_that_is_not_there_is_named(run: Run) -> None:
    run("kv", "create", "a.hf", "--capacity", 100)
    answer = run("kv", "load", "a.hf", "none.csv", "--key", "k", "--value", "v", "--json")
    assert answer.json["error"] == {
        "code": "not_found",
        "message": "none.csv: No such file or directory",
    }


def test_extents_may_be_of_numpy(path: Path) -> None:
    with holdfast.create(path, 1 << 20) as region:
        assert region.allocate("a", np.int64(5)).shape == (5,)
        assert region.allocate("b", (np.int32(2), 3)).shape == (2, 3)
        for shape in ("5", 2.5, None, (1, "x"), 2**64, (2, 2**62)):
            with pytest.raises(holdfast.Error, match="shape"):
                region.allocate("c", shape)  # type: ignore[arg-type]
        assert "c" not in region
    assert LogMap.region_bytes(10, ("float32", np.int64(4))) == LogMap.region_bytes(
        10, ("float32", 4)
    )


def test_objects_that_go_end_who_has_them_open(path: Path) -> None:
    with holdfast.create(path, 1 << 22) as region:
        store = KeyValueStore(region, 100, 16)
        store.set([1], [2])
        for name in [name for name in region if name.startswith("kvs")]:
            region.remove(name)
        other = region.allocate("other", 300_000, "uint64")
        other[:] = 7
        with pytest.raises(holdfast.Error) as raised:
            store.set([5, 6, 7], [50, 60, 70])
        assert raised.value.code == "closed"
        assert (other == 7).all()
        del other


def test_destroying_a_copy_costs_the_original_nothing(tmp_path: Path, own_arenas: Path) -> None:
    original, copy = tmp_path / "a.hf", tmp_path / "copy.hf"
    region_without_a_store(original)
    copy.write_bytes(original.read_bytes())
    copy.chmod(0o600)
    region = holdfast.open(original)
    region["mine"][0] = 6
    region.abandon()
    holdfast.destroy(copy)
    with holdfast.open(original) as region:
        assert region["mine"][0] == 6
    assert not copy.exists()
