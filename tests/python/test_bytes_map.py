"""The map of byte strings, from Python and from the command line."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bytes_map_worker
import holdfast
from conftest import Run
from holdfast import BytesMap, ByteStrings
from maps import lines_until_killed, seed_of

ROOM = 1 << 20
WRONG: Any = np.zeros(1)  # no bytes


def made(path: Path, name: str = "strings", record_bytes: int = ROOM) -> holdfast.Region:
    """Returns a region with an empty map."""
    region = holdfast.create(path, BytesMap.region_bytes(600, record_bytes, 512))
    BytesMap(region, name, capacity=600, record_bytes=record_bytes, max_batch=512)
    return region


@pytest.fixture
def table(path: Path) -> Iterator[BytesMap]:
    with made(path) as region:
        yield BytesMap(region, "strings")


def test_random_programs_leave_what_a_dict_has(path: Path) -> None:
    dice = random.Random(seed_of())
    oracle: dict[bytes, bytes] = {}
    region = made(path)
    table = BytesMap(region, "strings")
    for step in range(20):
        keys = [dice.randbytes(dice.choice([0, 1, 1, 2, 300])) for _ in range(dice.randrange(40))]
        values = [dice.randbytes(dice.randrange(200)) for _ in keys]
        status = np.zeros(len(keys), np.uint8)
        operation = dice.choice(["insert", "insert_or_assign", "erase"])
        if operation == "erase":
            table.erase(keys, status=status)
        else:
            getattr(table, operation)(keys, values, status=status)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            if key in keys[i + 1 :]:
                expected = "superseded"
            elif operation == "erase":
                expected = "erased" if key in oracle else "absent"
                oracle.pop(key, None)
            else:
                there = key in oracle
                kept = there and operation == "insert"
                expected = "kept" if kept else "assigned" if there else "inserted"
                oracle[key] = oracle[key] if kept else value
            assert holdfast._backend.ext.MapStatus(int(status[i])).name == expected
        asked = [*keys, *oracle, b"none of them"]
        got, found = table.find(asked)
        assert found.tolist() == [key in oracle for key in asked]
        assert got.to_list() == [oracle.get(key, b"") for key in asked]
        assert table.contains(asked).tolist() == found.tolist()
        if step % 7 == 3:
            assert dict(table.items()) == oracle
            assert len(table) == len(oracle)
            assert table.verify() == ""
            region.close()
            region = holdfast.open(path)
            table = BytesMap(region, "strings")
    region.close()


def test_text_and_arrays(table: BytesMap) -> None:
    result = table.insert_or_assign(["größe", b"b"], ["value", memoryview(b"x")])
    assert (result.inserted, result.not_done) == (2, 0)
    assert table.get("größe") == b"value"
    assert table.get("größe".encode()) == b"value"
    assert table.get("absent") is None
    rows = ByteStrings(np.frombuffer(b"xbby", np.uint8), np.array([1, 2, 3], np.uint64))
    assert table.contains(rows).tolist() == [True, True]
    values, _ = table.find(["größe", "b"])
    assert values.data.tobytes() == b"valuex"
    assert values.offsets.tolist() == [0, 5, 6]
    assert [values[-1], values[0], len(values)] == [b"x", b"value", 2]
    with pytest.raises(IndexError):
        values[2]


READ_ONLY = np.zeros(1, np.uint8)
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.insert("abc", ["x"]), "keys are one string"),
        (lambda t: t.insert(["a", 7], ["x", "y"]), "7 is neither bytes nor text"),
        (lambda t: t.insert([np.arange(2)], ["x"]), "has elements of 8 bytes: give its bytes"),
        (lambda t: t.get(np.zeros(2, "M8[s]")), "is neither bytes nor text"),
        (lambda t: t.insert(["a"], []), "1 keys and 0 values"),
        (lambda t: t.insert(["\ud800"], ["x"]), "no UTF-8"),
        (lambda t: t.insert([b"k" * 65537], ["x"]), "65537 bytes"),
        (lambda t: t.insert(["k"] * 513, ["x"] * 513), "max_batch is 512"),
        (lambda t: t.insert(["k"], ["x"], status=np.zeros(2, np.uint8)), "status"),
        (lambda t: t.insert(["k"], ["x"], status=READ_ONLY), "that can be written"),
        (lambda t: t.insert(["k"], ["x"], status=[0]), "no NumPy array"),
        (lambda t: ByteStrings(WRONG, np.zeros(1, np.uint64)), "data of byte strings"),
        (
            lambda t: t.contains(ByteStrings(np.zeros(1, np.uint8), np.array([0, 2], np.uint64))),
            "last offset is 2",
        ),
        (
            lambda t: t.contains(
                ByteStrings(np.zeros(9, np.uint8), np.array([0, 2**63, 1], np.uint64))
            ),
            "65536 are the most",
        ),
        (
            lambda t: t.contains(ByteStrings(np.zeros(1, np.uint8), np.zeros(0, np.uint64))),
            "no off",
        ),
    ],
)
def test_bad_input_is_named_and_changes_nothing(
    table: BytesMap, call: Callable[[BytesMap], object], words: str
) -> None:
    table.insert(["a"], ["b"])
    with pytest.raises(holdfast.Error, match=words) as caught:
        call(table)
    assert caught.value.code == "invalid_argument"
    assert dict(table.items()) == {b"a": b"b"}


def test_it_has_to_be_made_first(path: Path) -> None:
    with holdfast.create(path, 1 << 20) as region:
        with pytest.raises(holdfast.Error, match="no bytes map 'x'") as caught:
            BytesMap(region, "x")
        assert caught.value.code == "not_found"
        with pytest.raises(holdfast.Error, match="record_bytes"):
            BytesMap(region, "x", capacity=10)
        with pytest.raises(holdfast.Error) as caught:
            BytesMap(region, "x", capacity=10, record_bytes=1 << 30)
        assert caught.value.code == "no_space"


@pytest.mark.parametrize("header", ["m.header", "m.index.header"])
def test_a_creation_that_was_cut_off_is_made_anew_and_a_lost_header_is_damage(
    arenas: Path, path: Path, header: str
) -> None:
    how: dict[str, int] = {"capacity": 100, "record_bytes": 4000, "max_batch": 64}
    with holdfast.create(path, 1 << 20, arena_folder=arenas) as region:
        BytesMap(region, "m", **how).insert(["a"], ["b"])
        info = next(info for info in region.objects() if info.name == header)
        with next(arenas.glob("*.arena")).open("r+b") as arena:
            arena.seek(4096 + info.offset)
            arena.write(bytes(info.nbytes))
        objects = list(region)
        for options in ({}, how):
            with pytest.raises(holdfast.Error, match=f"'{header}'.*last commit") as caught:
                BytesMap(region, "m", **options)
            assert caught.value.code == "damaged"
        assert list(region) == objects
        # Of a creation that was cut off as early nothing that comes later is there.
        for name in objects[objects.index(header) + 1 :]:
            region.remove(name)
        if header == "m.header":
            assert list(region) == [header]
        with pytest.raises(
            holdfast.Error, match="no bytes map 'm', whose creation was cut"
        ) as caught:
            BytesMap(region, "m")
        assert caught.value.code == "not_found"
        with BytesMap(region, "m", **how) as table:
            assert table.insert(["a"], ["c"]).inserted == 1


def test_opened_again_the_earlier_one_is_closed(table: BytesMap) -> None:
    table.insert(["a"], ["b"])
    again = BytesMap(table.region, "strings")
    with pytest.raises(holdfast.Error) as caught:
        table.get("a")
    assert caught.value.code == "closed"
    assert again.get("a") == b"b"


def test_no_room_is_counted_and_loses_nothing(path: Path) -> None:
    with made(path, record_bytes=320) as region:
        table = BytesMap(region, "strings")
        pairs = {f"key{i}".encode(): bytes(30) for i in range(10)}
        result = table.insert(list(pairs), list(pairs.values()))
        assert (result.inserted, result.no_value) == (5, 5)
        assert set(dict(table.items())) < set(pairs)
        assert table.stats().free_bytes == 0
        assert table.record_bytes_of(4, 30) == 64
        assert table.verify() == ""


def test_a_map_grows_where_it_is(path: Path) -> None:
    dice = random.Random(seed_of())
    oracle: dict[bytes, bytes] = {}
    region = holdfast.create(path, BytesMap.region_bytes(1, 1, 64), max_size=64 << 20)
    table = BytesMap(region, "strings", capacity=1, record_bytes=1, max_batch=64)
    grown = 0
    for _ in range(60):
        keys = [b"key %d" % dice.randrange(2000) for _ in range(40)]
        values = [dice.randbytes(dice.randrange(400)) for _ in keys]
        status = np.zeros(len(keys), np.uint8)
        result = table.insert_or_assign(keys, values, status=status)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            name = holdfast._backend.ext.MapStatus(int(status[i])).name
            if name in ("inserted", "assigned"):
                assert (name == "assigned") == (key in oracle)
                oracle[key] = value
            else:
                assert name in ("superseded", "full", "no_value")
        before = table.stats()
        if result.full:
            table.reserve(capacity=before.capacity + 1)
            assert table.stats().capacity == 2 * before.capacity
            assert table.stats().record_bytes == before.record_bytes
        if result.no_value:
            table.reserve(record_bytes=before.record_bytes + dice.randrange(1, 9000))
            assert table.stats().record_bytes > before.record_bytes
        grown += bool(result.full) + bool(result.no_value)
        assert dict(table.items()) == oracle
        if dice.random() < 0.2:
            region.close()
            region = holdfast.open(path, max_size=64 << 20)
            table = BytesMap(region, "strings")
    assert grown > 5
    assert table.verify() == ""
    used = sum(table.record_bytes_of(len(k), len(v)) for k, v in oracle.items())
    assert table.stats().free_bytes == table.stats().record_bytes - used
    table.reserve()
    table.reserve(1, 1)
    region.close()


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        ({"record_bytes": 1 << 50}, "invalid_argument", "fewer"),
        ({"record_bytes": 1 << 31}, "no_space", "max_size"),
        ({"capacity": 1 << 60}, "invalid_argument", "fewer"),
        ({"capacity": 1 << 26}, "no_space", "max_size"),
        ({"capacity": 0}, "invalid_argument", "capacity"),
        ({"record_bytes": -1}, "invalid_argument", "record_bytes"),
        ({"record_bytes": "7"}, "invalid_argument", "record_bytes"),
        ({"capacity": 1000, "record_bytes": 1 << 31}, "no_space", "max_size"),
        ({"capacity": 1 << 26, "record_bytes": ROOM + 1}, "no_space", "max_size"),
        ({"capacity": 1000, "record_bytes": ROOM + 1}, "already_exists", "strings.records1"),
    ],
)
def test_growth_that_cannot_be_is_refused_and_changes_nothing(
    table: BytesMap, wanted: dict[str, Any], code: str, words: str
) -> None:
    table.insert(["a"], ["b"])
    if code == "already_exists":
        table.region.grow(table.region.size + 4096)
        table.region.allocate("strings.records1", 5, np.float64)[:] = 7
    before = table.stats()
    names = set(table.region)
    with pytest.raises(holdfast.Error, match=words) as caught:
        table.reserve(**wanted)
    assert caught.value.code == code
    after = table.stats()
    assert (after.capacity, after.record_bytes) == (before.capacity, before.record_bytes)
    assert set(table.region) == names
    assert dict(table.items()) == {b"a": b"b"}
    assert table.verify() == ""
    if code == "already_exists":
        assert table.region["strings.records1"].tolist() == [7.0] * 5


def test_damage_names_the_key(table: BytesMap) -> None:
    table.insert(["good", "wrecked"], ["fine", "value of the wrecked one"])
    records = table.region["strings.records"]
    at = records.tobytes().index(b"value of")
    records[at] ^= 4
    del records  # the region cannot be destroyed while an array looks into it
    for call in (table.get, lambda key: table.find(["good", key])):
        with pytest.raises(holdfast.Error, match="wrecked") as caught:
            call("wrecked")
        assert caught.value.code == "damaged"
    pairs = table.items()
    assert next(pairs) == (b"good", b"fine")
    with pytest.raises(holdfast.Error, match="1 records are damaged"):
        next(pairs)
    assert table.verify() != ""
    assert table.erase(["wrecked"]).erased == 1
    assert table.verify() == ""


def test_a_killed_process_loses_nothing_that_was_acknowledged(path: Path) -> None:
    seed = seed_of()
    dice = random.Random(seed)
    made(path).close()
    there: dict[bytes, bytes] = {}
    number = 0
    for life in range(6):
        for line in lines_until_killed(
            bytes_map_worker, path, seed, number, dice=dice, longest=0.2, at_least=life % 2
        ):
            assert line == f"done {number}\n"
            changed = {**there, **bytes_map_worker.batch(seed, number)}
            there = {key: value for key, value in changed.items() if value is not None}
            number += 1
        with holdfast.open(path) as region:
            table = BytesMap(region, "strings")
            assert table.verify() == ""
            found = dict(table.items())
            used = sum(table.record_bytes_of(len(k), len(v)) for k, v in found.items())
            assert table.stats().free_bytes == ROOM - used
        cut = bytes_map_worker.batch(seed, number)
        for key in map(bytes_map_worker.key_of, range(bytes_map_worker.KEYS)):
            before = there.get(key)
            assert found.get(key) in (before, cut.get(key, before)), f"{key!r} behind {number}"
        there = found
        number += 1


# The command line.


def test_kv_of_strings(run: Run) -> None:
    answer = run("kv", "create", "a.hf", "--capacity", 100, "--max-batch", 8, "--layout", "map")
    assert answer.status == 0, answer.err
    answer = run("kv", "put", "a.hf", "name=Ada", "url=a.example/?x=1", "empty=", "--json")
    assert (answer.status, answer.json["inserted"]) == (0, 3)
    assert run("kv", "put", "a.hf", "name=Grace", "--json").json["updated"] == 1
    answer = run("kv", "get", "a.hf", "name", "url", "empty", "--json")
    assert answer.json["values"] == {"name": "Grace", "url": "a.example/?x=1", "empty": ""}
    answer = run("kv", "get", "a.hf", "name", "other")
    assert answer.status == 1
    assert answer.out.splitlines() == ["name Grace", "other absent"]
    # The argument's byte ff, and four characters.
    assert run("kv", "put", "a.hf", "byte=\udcff", "word=\\xff").status == 0
    both = run("kv", "get", "a.hf", "byte", "word", "--json").json["values"]
    assert both == {"byte": {"base64": "/w=="}, "word": "\\xff"}
    assert run("kv", "del", "a.hf", "byte", "word", "--json").json["removed"] == 2
    arena = run("inspect", "a.hf", "--json").json["arena"]
    assert not arena["exists"]  # what was not there is no crash
    assert run("kv", "del", "a.hf", "empty", "other", "--json").json["removed"] == 1
    stat = run("kv", "stat", "a.hf", "--json").json
    assert (stat["records"], stat["layout"], stat["max_batch"]) == (2, "map", 8)
    assert stat["record_bytes"] == 100 * 128
    assert stat["free_bytes"] == stat["record_bytes"] - 48 - 48
    answer = run("kv", "verify", "a.hf", "--json")
    assert (answer.status, answer.json["records"]) == (0, 2)
    for words, status in (
        (["put", "a.hf", "no pair"], 1),
        (["get", "a.hf", "--text", "name"], 1),
        (["convert", "a.hf", "b.hf", "--layout", "log"], 1),
        (["create", "c.hf", "--capacity", 10, "--record-bytes", 100], 2),
    ):
        assert run("kv", *words).status == status


def test_kv_of_strings_loads_columns(run: Run, tmp_path: Path) -> None:
    rows = "tail,day,note\n" + "".join(f"N{i},{i // 4},note of {i}\n" for i in range(20))
    file = tmp_path / "rows.csv"
    file.write_text(rows + 'N3,9,"the last, ""one"""\nshort\n')
    create = ["--capacity", 100, "--max-batch", 8, "--layout", "map"]
    run("kv", "create", "a.hf", *create)
    load = ["kv", "load", "a.hf", file, "--key", "tail", "--value", "note"]
    answer = run(*load)
    assert answer.status == 1
    assert "line 23" in " ".join(answer.err.split())
    assert run("kv", "stat", "a.hf", "--json").json["records"] == 0
    assert run(*load, "--skip-bad", "--key-type", "int").status == 1
    answer = run(*load, "--skip-bad", "--batch-by", "day", "--json")
    assert answer.status == 0, answer.out
    assert (answer.json["rows"], answer.json["records"], answer.json["batches"]) == (21, 20, 6)
    values = run("kv", "get", "a.hf", "N3", "N19", "--json").json["values"]
    assert values == {"N3": 'the last, "one"', "N19": "note of 19"}
    run("kv", "create", "b.hf", *create, "--record-bytes", 320)
    load[2] = "b.hf"
    answer = run(*load, "--skip-bad", "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "no_space")
    assert answer.json["records"] == 6  # of 48 bytes


def test_kv_of_strings_grows_where_it_is(run: Run) -> None:
    create = ["--capacity", 100, "--max-batch", 16, "--layout", "map", "--record-bytes", 480]
    assert run("kv", "create", "a.hf", *create).status == 0
    pairs = {f"key{i}": f"value of {i}" for i in range(15)}
    words = [f"{key}={value}" for key, value in pairs.items()]
    answer = run("kv", "put", "a.hf", *words, "--json")
    assert (answer.status, answer.json["inserted"], answer.json["not_done"]) == (1, 10, 5)
    assert "kv grow" in answer.json["error"]["message"]
    # Far more than four times the file, which is what a region that is opened can grow to.
    answer = run("kv", "grow", "a.hf", "--record-bytes", 4 << 20, "--capacity", 5000, "--json")
    assert answer.status == 0, answer.err
    assert answer.json["record_bytes"] >= 4 << 20
    assert answer.json["capacity"] >= 5000
    assert run("kv", "put", "a.hf", *words, "--json").json["inserted"] == 5
    assert run("kv", "get", "a.hf", *pairs, "--json").json["values"] == pairs
    stat = run("kv", "stat", "a.hf", "--json").json
    assert stat["record_bytes"] == answer.json["record_bytes"]
    assert stat["free_bytes"] == stat["record_bytes"] - 15 * 48
    assert run("kv", "verify", "a.hf", "--json").json == {"ok": True, "records": 15, "problem": ""}
    # What it has is not made again.
    again = run("kv", "grow", "a.hf", "--record-bytes", 4 << 20, "--json")
    assert again.json == answer.json
    assert f"{stat['capacity']:,} pairs" in run("kv", "grow", "a.hf", "--capacity", 5000).out


def test_kv_grow_refuses_what_cannot_be(run: Run) -> None:
    run("kv", "create", "a.hf", "--capacity", 100, "--layout", "map")
    run("kv", "put", "a.hf", "a=b")
    run("kv", "create", "numbers.hf", "--capacity", 100)
    before = run("kv", "stat", "a.hf", "--json").json
    for words, says, status in (
        (["a.hf"], "--record-bytes", 2),  # wrong usage
        (["a.hf", "--record-bytes", 1 << 41], "record_bytes", 1),
        (["numbers.hf", "--record-bytes", 1 << 20], "no map", 1),
        (["none.hf", "--capacity", 1000], "none.hf", 1),
        (["a.hf", "--capacity", 1 << 35], f"capacity {1 << 35}", 1),
    ):
        answer = run("kv", "grow", *words, "--json")
        assert answer.status == status, words
        assert says in answer.json["error"]["message"]
    for capacity in (0, (1 << 35) + 1):
        assert run("kv", "grow", "a.hf", "--capacity", capacity).status == 2
    assert run("kv", "stat", "a.hf", "--json").json == before
    assert run("kv", "get", "a.hf", "a", "--json").json["values"] == {"a": "b"}
    arena = run("inspect", "a.hf", "--json").json["arena"]
    assert not arena["exists"]  # a refusal is no crash
