"""`kv load`: no row is lost and no two keys become one, whatever the file holds."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import random
import struct
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import holdfast
from conftest import Answer, Run
from holdfast.cli.app import app
from holdfast.csvfile import hash_text

Load = Callable[..., Answer]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}


def zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.csv", data)
    return packed.getvalue()


@pytest.fixture
def invoke() -> Load:
    """Runs a command in this process; what it does not handle itself fails the test."""

    def call(*arguments: object) -> Answer:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        return Answer(done.exit_code, done.stdout, done.stderr)

    return call


@pytest.fixture
def store(invoke: Load, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "a.hf"
    assert invoke("kv", "create", place, "--capacity", 1 << 16, "--max-batch", 4096).status == 0
    yield place
    holdfast.destroy(place)


def content(store: Path) -> dict[int, int]:
    with holdfast.open(store) as region:
        keys, values = holdfast.KeyValueStore.open(region).scan()
        return dict(zip(keys.tolist(), values.tolist(), strict=True))


@pytest.fixture
def load(invoke: Load, store: Path, tmp_path: Path) -> Load:
    """Loads columns k and v of a file with these bytes."""

    def call(data: str | bytes, *options: object, ending: str = "csv") -> Answer:
        file = tmp_path / f"rows.{ending}"
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return invoke("kv", "load", store, file, "--key", "k", "--value", "v", *options, "--json")

    return call


def message(answer: Answer) -> str:
    assert answer.status == 1, answer
    error = answer.json["error"]
    assert isinstance(error["message"], str)
    return error["message"]


def bits(value: float) -> int:
    (number,) = struct.unpack("<Q", struct.pack("<d", value))
    assert isinstance(number, int)
    return number


def test_a_late_value_decides_with_the_others(load: Load, store: Path) -> None:
    rows = "".join(f"{key},{key}\n" for key in range(1, 3000))
    answer = load(f"k,v\n{rows}AB12,1.5\n")
    assert (answer.status, answer.json["key_type"], answer.json["value_type"]) == (
        0,
        "text",
        "float",
    )
    assert content(store) == {hash_text(str(key)): bits(float(key)) for key in range(1, 3000)} | {
        hash_text("AB12"): bits(1.5)
    }


@pytest.mark.parametrize("place", [0, 500, 1500])
@pytest.mark.parametrize(
    "huge", [str(2**64), str(-(2**63) - 1), "1" + "0" * 5000], ids=["above", "below", "long"]
)
def test_integers_beyond_64_bits_are_named(load: Load, store: Path, place: int, huge: str) -> None:
    keys = [2**53, 2**53 + 1, *range(2000)]
    texts = [str(key) for key in keys]
    texts.insert(place, huge)
    text = "k,v\n" + "".join(f"{key},1\n" for key in texts)
    said = message(load(text))
    assert f"line {place + 2}, column k" in said
    assert huge[:20] in said
    assert len(said) < 1000
    assert "--key-type text" in said
    assert content(store) == {}
    answer = load(text, "--skip-bad")
    assert answer.status == 0
    assert (answer.json["bad_row_count"], answer.json["records"]) == (1, 2002)
    assert content(store) == dict.fromkeys(keys, 1)


@pytest.mark.parametrize(
    ("first", "second", "options", "right"),
    [
        ("7", "007", [], False),
        ("7", "+7", [], False),
        ("7", "007", ["--key-type", "int"], True),
        ("0", "-0", ["--key-type", "int"], True),
        ("-5", str(2**64 - 5), [], False),
        ("-5", str(2**64 - 5), ["--key-type", "int"], False),
        ("1.5", "1.50", [], False),
        ("1.5", "15e-1", ["--key-type", "float"], True),
        ("1", "1.0", ["--key-type", "float"], True),
        (str(2**53), str(2**53 + 1), ["--key-type", "float"], False),
        ("0.1", "0.1000000000000000055511151231257827", ["--key-type", "float"], False),
        ("1e-400", "1e-99999999999999999999999", ["--key-type", "float"], False),
        ("7", "007", ["--key-type", "text"], True),
        ("7", " 7", [], True),
    ],
)
def test_keys_are_never_merged_silently(
    load: Load, store: Path, first: str, second: str, options: list[str], right: bool
) -> None:
    fill = "".join(f"{key}{'.25' * ('.' in first)},0\n" for key in range(100, 1200))
    answer = load(f"k,v\n{first},1\n{fill}{second},2\n", *options)
    if right:
        assert answer.status == 0, answer
        return
    said = message(answer)
    assert "lines 2 and 1103" in said
    assert f"'{first}' and '{second}'" in said
    assert "same key" in said
    assert content(store) == {}


def test_one_key_twice_is_an_update(load: Load, store: Path) -> None:
    assert load("k,v\n7,1\n8,1\n7,2\n").status == 0
    assert content(store) == {7: 2, 8: 1}


def test_keys_of_integers_and_fractions_are_for_the_user_to_decide(load: Load, store: Path) -> None:
    said = message(load("k,v\n1,1\n2,1\n2.5,1\n"))
    assert all(word in said for word in ("'k'", "line 2", "line 4", "--key-type"))
    assert load("k,v\n1,1\n2.5,1\n", "--key-type", "float").status == 0
    assert content(store) == {bits(1): 1, bits(2.5): 1}


def test_values_are_not_rounded(load: Load) -> None:
    text = f"k,v\n1,1.5\n2,{2**53 + 1}\n3,7\n"
    said = message(load(text))
    assert f"line 3, column v: {2**53 + 1}" in said
    assert "--value-type float rounds" in said
    assert load(text, "--value-type", "float").status == 0
    assert "1e400" in message(load("k,v\n1,1e400\n2,1.5\n"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('k,v\n1,2\n"3,4\n5,6\n', 3),
        ('k,v\n1,2\n3,"4\n5,6\n', 3),
        ('k,v\n1,"a\nb"\n"2","c\nd","e\nf\n', 5),
        ('k,v\n1,"a""b\n' + "2,3\n" * 50_000, 2),
        ('k,v\r\n1,"\r\n', 2),
        ('"k,v\n1,2\n', 1),
    ],
)
def test_a_quote_that_is_not_closed(load: Load, store: Path, text: str, line: int) -> None:
    for options in ([], ["--skip-bad"]):
        said = message(load(text, *options))
        assert f"line {line}: " in said
        assert "quote" in said
    assert content(store) == {}


def test_quotes_that_are_closed(load: Load, store: Path) -> None:
    assert load('x,k,v\n"a\nb, ""c""",1,"2"\n"3 "" 4","5",6\n').status == 0
    assert content(store) == {1: 2, 5: 6}


@pytest.mark.parametrize("ending", ["gz", "xz", "bz2", "zip"])
def test_damaged_packed_files(load: Load, store: Path, ending: str) -> None:
    rng = random.Random(4)
    rows = "k,v\n" + "".join(f"{key},{rng.getrandbits(60)}\n" for key in range(5_000))
    whole = PACKERS.get(ending, zipped)(rows.encode())
    wrong = [whole[: len(whole) // 2], whole[:-1], whole[:10], b"not packed"]
    for _ in range(20):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole) // 10, len(whole) * 9 // 10)] ^= 1 << rng.randrange(8)
        wrong.append(bytes(damaged))
    for data in wrong:
        answer = load(data, "--skip-bad", ending=ending)
        assert answer.json["error"]["code"] == "damaged"
        assert f"rows.{ending}" in message(answer)
    assert content(store) == {}
    assert load(whole, ending=ending).json["records"] == 5_000


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"\n1,2\n", "empty"),
        (b"k,w\n1,2\n", "no column 'v'"),
        (b"k,v,k\n1,2,3\n", "2 columns 'k'"),
        (b"k,v\n1,2\n\xff,3\n", "line 3: the byte 0xff is not UTF-8"),
        ("k,v\n1,2\n".encode("utf-16"), "line 1: it has a zero byte"),
        ("k,v\n1,2\n".encode("utf-16-le"), "zero byte"),
        (b"k,v\n1,2\n\0\0\0\0", "line 3: it has a zero byte"),
        (b"k,v\n" + b"x" * 200_000 + b",1\n", "line 2: a field has over"),
        (b"x" * (1 << 25), "line 1: it has over"),
        (b'k,v\n"1"2,3\n', "line 2: "),
        (b"k,v\n-1,2\n", "reserved"),
        (b"k,v\n1,2\n3\n", "line 3: it has 1 columns only"),
        (b"k,v\n,2\n", "line 2, column k: it is missing"),
    ],
)
def test_files_that_are_refused(load: Load, store: Path, data: bytes, word: str) -> None:
    assert word in message(load(data))
    assert content(store) == {}


@pytest.mark.parametrize(
    ("data", "records"),
    [
        (b"k,v\n", {}),
        (b"k,v", {}),
        (b"\xef\xbb\xbfk,v\n1,2\n", {1: 2}),
        (b"k,v\r\n1,2\r\n3,4\r\n", {1: 2, 3: 4}),
        (b"k,v\r1,2\r3,4", {1: 2, 3: 4}),
        (b"k,v\n\n1,2\n\n", {1: 2}),
        (b"a,a,k,v\n0,0,1,2,extra\n", {1: 2}),
        ("k,v,\u00e4\n1,2,\u6f22\n".encode(), {1: 2}),
        (b"k,v\n-5,-6\n", {2**64 - 5: 2**64 - 6}),
    ],
)
def test_files_that_are_taken(
    load: Load, store: Path, data: bytes, records: dict[int, int]
) -> None:
    assert load(data).status == 0
    assert content(store) == records


def test_a_pipe_is_read_as_a_file(invoke: Load, store: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"k,v\n1,2\n3,4\n",))
    writer.start()
    answer = invoke("kv", "load", store, pipe, "--key", "k", "--value", "v", "--json")
    writer.join()
    assert answer.status == 0
    assert content(store) == {1: 2, 3: 4}


def test_huge_options(invoke: Load, store: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.hf"
    for options in (
        ["--capacity", 10**30],
        ["--capacity", 2**44],
        ["--capacity", 0],
        ["--capacity", 100, "--max-batch", -1],
        ["--capacity", 100, "--max-batch", 2**40],
    ):
        answer = invoke("kv", "create", new, *options)
        assert answer.status == 2
        assert "Invalid value for" in answer.err
    assert invoke("kv", "create", new, "--capacity", 2**35).status == 1
    assert not new.exists()
    for number in (2**80, -(2**63) - 1, 2**64, "0x1" + "0" * 20, 10**4299):
        for arguments in (
            ["get", store, "--", number],
            ["del", store, "--", number],
            ["put", store, "--", f"{number}=1"],
            ["put", store, "--", f"1={number}"],
        ):
            answer = invoke("kv", *arguments)
            assert answer.status == 1
            assert "does not fit into 64 bits" in answer.err.replace("\n", " ")
            assert len(answer.err) < 300
    for number in (-1, 2**64 - 1):
        assert "reserved" in invoke("kv", "get", store, "--", number).err.replace("\n", " ")
    assert "8.0" in invoke("kv", "put", store, "1=8.0").err
    for delimiter in ("", "ab", '"', "\n"):
        answer = invoke(
            "kv", "load", store, "x", "--key", "k", "--value", "v", "--delimiter", delimiter
        )
        assert answer.status == 1
    assert content(store) == {}


def test_numbers_of_python_are_checked(tmp_path: Path) -> None:
    place = tmp_path / "region.hf"
    for call in (
        lambda: holdfast.create(place, 10**30),
        lambda: holdfast.create(place, -1),
        lambda: holdfast.create(place, 1 << 20, max_size=2**64),
        lambda: holdfast.KeyValueStore.region_bytes(10**30),
        lambda: holdfast.KeyValueStore.region_bytes(1000, -1),
        lambda: holdfast.Checkpoint.region_bytes(-1, 1),
    ):
        with pytest.raises(holdfast.Error, match="give a number from"):
            call()
    assert not place.exists()


def test_negative_keys_can_be_looked_up(run: Run, load: Load, store: Path) -> None:
    assert load("k,v\n-5,-7\n6,1\n").status == 0
    answer = run("kv", "get", store, "--json", "--", "-5", "6", str(2**64 - 5))
    assert answer.status == 0
    assert answer.json["values"] == {"-5": 2**64 - 7, "6": 1, str(2**64 - 5): 2**64 - 7}
    assert run("kv", "put", store, "--", "-8=-9").status == 0
    assert run("kv", "del", store, "--json", "--", "-5").json["removed"] == 1
    assert content(store) == {6: 1, 2**64 - 8: 2**64 - 9}
    assert run("kv", "get", store, "0006").status == 0


# ---- Random files ------------------------------------------------------------------------------

PIECES = [
    *(b"1", b"-5", b"007", b"1.5", b"1e308", b"99999999999999999999", b"text", b"NA", b""),
    *(b",", b",", b",", b"\n", b"\n", b"\r\n", b"\r", b'"', b'""', b'"a,b"', b"\0", b"\xff"),
    *(b"\xef\xbb\xbf", b" ", b"\t", b";", b"k", b"v", b"inf", b"nan", "\u00df\u6f22".encode()),
]


def seed_of(what: str) -> int:
    """A seed that a failing test names, and that $HOLDFAST_TEST_SEED brings back."""
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", random.randrange(2**32)))
    print(f"{what}: HOLDFAST_TEST_SEED={seed}")
    return seed


def rows_of(rng: random.Random) -> bytes:
    """Rows that are mostly in order."""
    rows = []
    pool = rng.choice([[b"1", b"2", b"-5", b"77"], [b"1.5", b"1.50", b"2"], [b"a", b"b", b'"c,"']])
    for _ in range(rng.randrange(20)):
        row = [rng.choice(pool) for _ in range(2)]
        if rng.random() < 0.04:
            row[rng.randrange(2)] = rng.choice(PIECES)
        rows.append(b",".join(row) + rng.choice([b"\n", b"\r\n"]))
    return b"".join(rows)


def test_no_bytes_break_it(invoke: Load, store: Path) -> None:
    rng = random.Random(seed_of("bytes"))
    stored = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(400):
            data = b"".join(rng.choices(PIECES, k=rng.randrange(60)))
            if rng.random() < 0.5:
                data = rows_of(rng)
            if rng.random() < 0.9:
                data = b"k,v\n" + data
            ending = rng.choice(["csv", "csv", "csv", "gz", "xz", "bz2", "zip"])
            if ending != "csv" and rng.random() < 0.9:
                data = PACKERS.get(ending, zipped)(data)
            if data and rng.random() < 0.3:
                damaged = bytearray(data)
                damaged[rng.randrange(len(data))] = rng.randrange(256)
                data = bytes(damaged[: rng.randrange(len(data) + 1)])
            file = Path(folder) / f"rows.{ending}"
            file.write_bytes(data)
            options = rng.sample(["--skip-bad", "--key-type=int", "--value-type=text"], 1)
            if rng.random() < 0.5:
                options = []
            columns = ["--key", "k", "--value", rng.choice("vvvk")]
            answer = invoke("kv", "load", store, file, *columns, *options)
            assert answer.status in (0, 1), (data, answer)
            if answer.status == 1:
                assert answer.err.startswith("holdfast: "), (data, answer)
                assert str(file) in answer.err.replace("\n", ""), (data, answer)
            stored += answer.status == 0
    assert 40 < stored < 360, "both kinds of files are tried"


def oracle(data: str) -> dict[int, int]:
    """What a sane file says, by Python's own reader."""
    rows = list(csv.DictReader(io.StringIO(data)))

    def column(name: str) -> list[int]:
        texts = [row[name] for row in rows]
        try:
            return [int(text) % 2**64 for text in texts]
        except ValueError:
            pass
        try:
            return [bits(float(text)) for text in texts]
        except ValueError:
            return [hash_text(text) for text in texts]

    return dict(zip(column("k"), column("v"), strict=True))


def cells(rng: random.Random, count: int) -> list[str]:
    kind = rng.choice(["int", "fraction", "text"])
    if kind == "int":
        return [str(rng.randrange(-(2**62), 2**62) >> rng.randrange(60)) for _ in range(count)]
    if kind == "fraction":
        return [repr(rng.uniform(-1e6, 1e6)) for _ in range(count)]
    letters = "abc,\"\n \u00e4'"
    return ["t" + "".join(rng.choices(letters, k=rng.randrange(8))) for _ in range(count)]


def test_sane_files_are_what_python_reads(invoke: Load, tmp_path: Path) -> None:
    rng = random.Random(seed_of("files"))
    for number in range(60):
        count = rng.choice([1, 10, 500, 2500])
        names = rng.sample(["k", "v", "other", "more"], 4)
        table = {name: cells(rng, count) for name in names}
        table["k"] = [cell if cell != "-1" else "-2" for cell in table["k"]]
        text = io.StringIO()
        writer = csv.writer(
            text,
            quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
            lineterminator=rng.choice(["\n", "\r\n"]),
        )
        writer.writerow(names)
        writer.writerows(zip(*table.values(), strict=True))
        file = tmp_path / f"rows{number}.csv"
        file.write_bytes(text.getvalue().encode())
        store = tmp_path / f"{number}.hf"
        assert invoke("kv", "create", store, "--capacity", 1 << 16, "--max-batch", 512).status == 0
        columns = ["--key", "k", "--value", "v"]
        answer = invoke("kv", "load", store, file, *columns, "--json")
        assert answer.status == 0, (answer, text.getvalue()[:500])
        assert answer.json["rows"] == count
        assert json.loads(answer.out)["bad_row_count"] == 0
        assert content(store) == oracle(text.getvalue())
        holdfast.destroy(store)


def test_a_store_that_is_too_small_is_an_error(invoke: Load, tmp_path: Path) -> None:
    place, file = tmp_path / "small.hf", tmp_path / "rows.csv"
    file.write_text("k,v\n" + "".join(f"{key},{key}\n" for key in range(1, 501)))
    load = ["kv", "load", place, file, "--key", "k", "--value", "v"]
    invoke("kv", "create", place, "--capacity", 64, "--max-batch", 256)
    answer = invoke(*load, "--json")
    assert answer.status == 1
    report = answer.json
    assert report["ok"] is False
    assert report["evicted"] == 500 - report["records"] > 0
    assert report["error"]["code"] == "no_space"
    said = report["error"]["message"]
    assert said.startswith(f"{report['evicted']} pairs were evicted")
    assert all(word in said for word in ("--capacity", "--allow-evictions", str(place)))
    assert len(content(place)) == report["records"]
    answer = invoke(*load)
    assert answer.status == 1
    assert "pairs were evicted" in answer.err
    assert "--capacity" in answer.err
    answer = invoke(*load, "--allow-evictions", "--json")
    assert answer.status == 0
    assert (answer.json["ok"], answer.json["evicted"] > 0) == (True, True)
    assert "note: " in answer.err
    assert "evicted" in answer.err
    holdfast.destroy(place)
