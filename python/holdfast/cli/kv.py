"""holdfast kv: a key-value store in a file, from the command line."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer

from .. import _region, csvfile
from .._bytes_map import BytesMap
from .._csvlines import shortened
from .._errors import Error
from .._region import Region
from .._store import MOST_OPERATIONS, RESERVED_KEY, KeyValueStore
from . import common, kv_convert, kv_grow, kv_rows, kv_strings

app = typer.Typer(
    help="A key-value store in a file.", no_args_is_help=True, rich_markup_mode="markdown"
)

StoreFile = Annotated[Path, typer.Argument(metavar="STORE", help="The store's file.")]
TextKeys = Annotated[
    bool, typer.Option("--text", help="Keys are text, hashed to 64 bits as `kv load` does.")
]

LayoutName = Annotated[
    str,
    typer.Option(
        "--layout",
        help="in_place (a table; full buckets evict), log (batches are appended; a full store "
        "refuses them), or map (keys and values are strings of any length; of kv create alone).",
    ),
]
LogRecords = Annotated[
    int,
    typer.Option(
        "--log-records",
        min=0,
        help="Records of 16 bytes that a log takes. 0: twice the capacity, and two batches.",
    ),
]
RecordBytes = Annotated[
    int | None,
    typer.Option(
        "--record-bytes",
        min=1,
        help="Bytes for the records of a map. Default: 128 for each pair of the capacity.",
    ),
]
AllowEvictions = Annotated[
    bool, typer.Option("--allow-evictions", help="Full buckets may drop pairs that were stored.")
]

# What csvfile does not read as an integer, and the command line does.
_PREFIXED = re.compile(r"[+-]?0(x[0-9a-f]+|o[0-7]+|b[01]+)", re.ASCII | re.IGNORECASE)
_MOST_PAIRS = 2**35
_Parsed = TypeVar("_Parsed")


def _close_as_it_was(opened: Region) -> None:
    """Of a region that nothing was stored to: what a crash has left stays."""
    if opened.open_report.arena_found:
        opened.abandon()
    else:
        opened.close()


@contextmanager
def _open(
    path: Path, arena_folder: Path | None, last_commit: bool, read_only: bool = False
) -> Iterator[KeyValueStore | BytesMap]:
    opened = _region.open(
        path, arena_folder=arena_folder, last_commit=last_commit, read_only=read_only
    )
    if read_only and kv_strings.is_in(opened):  # a map is put in order where it is, or not at all
        opened.close()
        opened = _region.open(path, arena_folder=arena_folder, last_commit=last_commit)
    common.note_set_aside(opened.open_report.arena_set_aside)
    crashed = opened.open_report.arena_found  # which nothing that is refused commits

    def is_answer(error: Error) -> bool:
        return read_only or (common.is_refusal(error) and not crashed)

    if kv_strings.is_in(opened):
        with common.closed_behind(opened, is_answer):
            yield BytesMap(opened, kv_strings.NAME)
        return
    if "kvs.header" not in opened:
        _close_as_it_was(opened)
        raise Error(f"{path} is a region without a store", "not_found")
    with common.closed_behind(opened, is_answer):
        store = KeyValueStore.open(opened)
        if store.recovery().needed:
            where = ", in a copy in memory" if read_only else ""
            common.note(
                f"a batch had been cut off: {store.recovery().undone} entries were undone{where}"
            )
        yield store


def _read(
    path: Path, arena_folder: Path | None, last_commit: bool
) -> AbstractContextManager[KeyValueStore | BytesMap]:
    """Opens the store beside a process that has it (a map: not so), and changes nothing of it."""
    return _open(path, arena_folder, last_commit, read_only=True)


def _is_map(path: Path, arena_folder: Path | None, last_commit: bool) -> bool:
    with _region.open(
        path, arena_folder=arena_folder, last_commit=last_commit, read_only=True
    ) as region:
        return kv_strings.is_in(region)


def _refuse_text(text: bool) -> None:
    if text:
        raise Error("--text is of stores of numbers: in a map all keys are text")


def _of_numbers(kv: KeyValueStore | BytesMap, what: str) -> KeyValueStore:
    if isinstance(kv, BytesMap):
        raise Error(f"{what} is of stores of numbers, and this one is a map of strings")
    return kv


def _parse(text: str, what: str, is_text: bool = False) -> int:
    """Returns the 64 bits of a key or a value; negative numbers in two's complement, as in load."""
    if is_text:
        try:
            return csvfile.hash_text(text)
        except UnicodeEncodeError:
            raise Error(f"{what}: {os.fsencode(text)!r} is not UTF-8") from None
    try:
        return csvfile.parse_int(text)
    except ValueError as error:
        if not _PREFIXED.fullmatch(text) or len(text) > 100:
            hint = " (--text hashes keys)" if what == "key" else ""
            raise Error(f"{what}: {error}{hint}") from None
        value = int(text, 0)
    if not -(2**63) <= value < 2**64:
        raise Error(f"{what}: {shortened(text)} does not fit into 64 bits")
    return value % 2**64


def _parse_key(text: str, is_text: bool) -> int:
    key = _parse(text, "key", is_text)
    if key == RESERVED_KEY:
        raise Error(f"key {text}: 2**64 - 1, which is -1 in two's complement, is reserved")
    return key


def _parse_pair(pair: str, is_text: bool) -> tuple[int, int]:
    key, _, value = pair.rpartition("=")
    return _parse_key(key, is_text), _parse(value, "value")


def _parsed_first(
    parse: Callable[[], list[_Parsed]],
    is_text: bool,
    path: Path,
    arena_folder: Path | None,
    last_commit: bool,
) -> list[_Parsed]:
    """Returns the numbers of the arguments, before anything is opened for writing.

    Of a map of strings, which has none: nothing, or what happens to be numbers there.
    """
    try:
        numbers = parse()
    except Error:
        if not _is_map(path, arena_folder, last_commit):
            raise
        numbers = []
    if is_text and _is_map(path, arena_folder, last_commit):
        _refuse_text(True)
    return numbers


@app.command("create", epilog="Example: holdfast kv create flights.hf --capacity 4000000")
@common.command
def create(
    store: StoreFile,
    capacity: Annotated[
        int,
        typer.Option(
            min=1,
            max=_MOST_PAIRS,
            help="Pairs. Buckets of eight fill up unevenly: leave room (four times the pairs, or "
            "more) where none may be evicted.",
        ),
    ],
    max_batch: Annotated[
        int, typer.Option(min=1, max=MOST_OPERATIONS, help="Operations per batch at most.")
    ] = 65536,
    layout: LayoutName = "in_place",
    log_records: LogRecords = 0,
    record_bytes: RecordBytes = None,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Makes a new, empty store."""
    if log_records and layout != "log":
        raise common.UsageError(f"--log-records is of the layout log, and this is {layout}")
    if layout == "map":
        result = kv_strings.create(store, capacity, max_batch, record_bytes, arena_folder)
        if as_json:
            common.emit(result)
        else:
            common.out.print(
                f"{store}: room for {result['capacity']:,} pairs of "
                f"{common.size_text(result['record_bytes'])} in all"
            )
        return
    if layout not in ("in_place", "log"):
        raise common.UsageError(f"--layout is '{layout}': use in_place, log or map")
    if record_bytes is not None:
        raise common.UsageError("--record-bytes is of the layout map")
    size = KeyValueStore.region_bytes(capacity, max_batch, layout, log_records)
    with _region.create(store, size, arena_folder=arena_folder) as region:
        made = KeyValueStore.create(
            region, capacity, max_batch, layout=layout, log_records=log_records
        )
        stats = made.stats()
        result = {
            "ok": True,
            "store": str(store),
            "capacity": stats.capacity,
            "max_batch": stats.max_batch,
            "layout": stats.layout,
            "bytes": region.size,
        }
    if as_json:
        common.emit(result)
    else:
        common.out.print(
            f"{store}: room for {result['capacity']:,} pairs, {common.size_text(size)}"
        )


@app.command(
    "load",
    epilog="Example: holdfast kv load flights.hf flights.csv.gz --key id --value delay "
    "--batch-by day",
)
@common.command
def load(
    store: StoreFile,
    file: Annotated[
        Path, typer.Argument(help="CSV with a header line; .gz, .xz, .bz2 and .zip are unpacked.")
    ],
    key: Annotated[str, typer.Option(help="Column of the keys.")],
    value: Annotated[str, typer.Option(help="Column of the values.")],
    batch_by: Annotated[
        str | None, typer.Option(help="A new batch starts where this column changes.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Rows per batch. Default: as many as fit.")
    ] = None,
    key_type: Annotated[
        str,
        typer.Option(
            help="auto (what the whole column is), int, float (its bits) or text (hashed to 64 "
            "bits)."
        ),
    ] = "auto",
    value_type: Annotated[str, typer.Option(help="As --key-type.")] = "auto",
    delimiter: Annotated[str, typer.Option(help="Between columns.")] = ",",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows that cannot be read.")
    ] = False,
    allow_evictions: AllowEvictions = False,
    last_commit: common.LastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Stores the rows of a CSV file, each batch as one transaction.

    Integers are stored as they are (negative ones in two's complement), other text as a 64-bit
    hash. The file is read before anything is stored: with a row that cannot be read, nothing is,
    unless --skip-bad is given. Rows with one key are updates, in the file's order; two keys that
    are spelled differently and would be one are an error. Exits with 1 if the store was too small
    to keep every pair.
    """
    if batch_by and batch:
        raise common.UsageError("--batch-by and --batch exclude each other: give one")
    of_strings = _is_map(store, arena_folder, last_commit)
    if of_strings and (key_type, value_type) != ("auto", "auto"):
        raise Error("--key-type and --value-type are of stores of numbers")
    if of_strings:
        texts = kv_rows.read(
            as_json, lambda told: csvfile.read_text(file, key, value, batch_by, delimiter, told)
        )
        kv_rows.check(texts, file, skip_bad)
        with _open(store, arena_folder, last_commit) as opened:
            kv_strings.load(opened, texts, batch, file, as_json)
        return
    columns = kv_rows.read(
        as_json,
        lambda told: csvfile.read(
            file, key, value, batch_by, key_type, value_type, delimiter, told
        ),
    )
    kv_rows.check(columns, file, skip_bad)
    for what, kind in ((f"key {key}", columns.key_kind), (f"value {value}", columns.value_kind)):
        if kind == "text":
            common.note(f"column of the {what} is text: its 64-bit hashes are stored")
        elif kind == "float":
            common.note(f"column of the {what} has fractions: its bits (float64) are stored")
    with _open(store, arena_folder, last_commit) as opened:
        result = _store_batches(_of_numbers(opened, "this load"), columns, batch, as_json)
    result |= {"ok": True, "key_type": columns.key_kind, "value_type": columns.value_kind}
    result |= {"bad_row_count": columns.bad_count, "bad_rows": columns.bad_rows}
    lost = _lost(result["evicted"], store, result["capacity"], allow_evictions)
    _report_load(f"{file} into {store}", result, lost, as_json)


def _report_load(title: str, result: dict[str, Any], lost: str, as_json: bool) -> None:
    """Prints what was done; exits with 1 where pairs were lost."""
    if lost:
        result |= {"ok": False, "error": {"code": "no_space", "message": lost}}
    if as_json:
        common.emit(result)
    else:
        hidden = ("bad_rows", "error", "arena_set_aside")
        common.table(title, {k: v for k, v in result.items() if k not in hidden})
    if lost:
        if not as_json:
            common.complain(lost)
        raise typer.Exit(common.EXIT_FAILED)


def _lost(evicted: int, store: Path, capacity: int, allowed: bool) -> str:
    """Returns what to say of pairs that were lost; nothing if there are none, or a note will do."""
    if not evicted:
        return ""
    lost = f"{evicted:,} pairs were evicted from full buckets: the store is too small"
    if allowed:
        common.note(lost)
        return ""
    return (
        f"{lost}, and they are gone. Load into a new one with a larger --capacity (four times the "
        f"pairs, or more; {store} has {capacity:,}), or give --allow-evictions"
    )


def _store_batches(
    kv: KeyValueStore, columns: csvfile.Columns, batch: int | None, quiet: bool
) -> dict[str, Any]:
    ranges = kv_rows.ranges(columns, batch, kv.stats().max_batch)
    totals = {"inserted": 0, "updated": 0, "evicted": 0}
    start = time.monotonic()
    with common.progress(quiet) as bar:
        task = bar.add_task("rows stored", total=len(columns.keys))
        for first, end in ranges:
            result = kv.set(columns.keys[first:end], columns.values[first:end])
            for name in totals:
                totals[name] += getattr(result, name)
            bar.update(task, completed=end)
    return {
        "rows": len(columns.keys),
        "batches": len(ranges),
        **totals,
        "records": kv.stats().records,
        "capacity": kv.stats().capacity,
        "arena_set_aside": kv.region.open_report.arena_set_aside,
        "seconds": round(time.monotonic() - start, 3),
    }


@app.command(
    "put", epilog="Example: holdfast kv put flights.hf 17=42 18=43; negative keys: -- -5=7"
)
@common.command
def put(
    store: StoreFile,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Pairs to store.")],
    text: TextKeys = False,
    allow_evictions: AllowEvictions = False,
    last_commit: common.LastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Stores pairs as one transaction.

    Exits with 1 if the store was too small to keep every pair.
    """
    for pair in pairs:
        if "=" not in pair:
            raise Error(f"'{pair}' is not of the form KEY=VALUE")
    numbers = _parsed_first(
        lambda: [_parse_pair(pair, text) for pair in pairs], text, store, arena_folder, last_commit
    )
    with _open(store, arena_folder, last_commit) as kv:
        if isinstance(kv, BytesMap):
            kv_strings.put(kv, pairs, as_json)
            return
        keys, values = zip(*numbers, strict=True)
        result = kv.set(keys, values)
        capacity = kv.stats().capacity
        aside = kv.region.open_report.arena_set_aside
    counts = {name: getattr(result, name) for name in ("inserted", "updated", "evicted")}
    lost = _lost(result.evicted, store, capacity, allow_evictions)
    if as_json:
        failure = {"error": {"code": "no_space", "message": lost}} if lost else {}
        common.emit({"ok": not lost, **counts, "arena_set_aside": aside} | failure)
    else:
        common.out.print(", ".join(f"{name} {count}" for name, count in counts.items()))
    if lost:
        if not as_json:
            common.complain(lost)
        raise typer.Exit(common.EXIT_FAILED)


@app.command("get", epilog="Example: holdfast kv get flights.hf 17 18; negative keys: -- -5")
@common.command
def get(
    store: StoreFile,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys to look up.")],
    text: TextKeys = False,
    last_commit: common.ReadLastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Looks keys up. Exits with 1 if one of them is absent.

    Changes nothing; a map of strings is opened for writing all the same.
    """
    with _read(store, arena_folder, last_commit) as kv:
        if isinstance(kv, BytesMap):
            _refuse_text(text)
            kv_strings.get(kv, keys, as_json)
            return
        numbers = [_parse_key(key, text) for key in keys]
        values, found = kv.get(numbers)
    answers = [int(value) if ok else None for value, ok in zip(values, found, strict=True)]
    if as_json:
        common.emit({"ok": bool(np.all(found)), "values": dict(zip(keys, answers, strict=True))})
    else:
        for key, answer in zip(keys, answers, strict=True):
            common.out.print(f"{key} {'absent' if answer is None else answer}")
    if not np.all(found):
        raise typer.Exit(common.EXIT_FAILED)


@app.command("del", epilog="Example: holdfast kv del flights.hf 17 18; negative keys: -- -5")
@common.command
def delete(
    store: StoreFile,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys to remove.")],
    text: TextKeys = False,
    last_commit: common.LastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Removes keys as one transaction; absent ones are passed over."""
    numbers = _parsed_first(
        lambda: [_parse_key(key, text) for key in keys], text, store, arena_folder, last_commit
    )
    with _open(store, arena_folder, last_commit) as kv:
        if isinstance(kv, BytesMap):
            removed = kv_strings.delete(kv, keys)
        else:
            removed = kv.erase(numbers).removed
        aside = kv.region.open_report.arena_set_aside
    if as_json:
        common.emit({"ok": True, "removed": removed, "arena_set_aside": aside})
    else:
        common.out.print(f"removed {removed}")


@app.command("stat", epilog="Example: holdfast kv stat flights.hf --json")
@common.command
def stat(
    store: StoreFile,
    last_commit: common.ReadLastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Shows what a store holds and has done. Changes nothing.

    While a process has the store open, that is its last commit; after a crash, what was persisted.
    """
    with _read(store, arena_folder, last_commit) as kv:
        result = kv_strings.stat(kv) if isinstance(kv, BytesMap) else _stat(kv)
    if as_json:
        common.emit({"ok": True, "store": str(store), **result})
    else:
        common.table(str(store), result)


def _stat(kv: KeyValueStore) -> dict[str, Any]:
    stats = kv.stats()
    crashed = kv.region.open_report.arena_found
    result: dict[str, Any] = {
        "records": stats.records,
        "capacity": stats.capacity,
        "max_batch": stats.max_batch,
        "batches": stats.batches,
        "inserted": stats.total.inserted,
        "updated": stats.total.updated,
        "evicted": stats.total.evicted,
        "removed": stats.total.removed,
        "bytes": kv.region.size,
        "commits": kv.region.generation,
        "content": "what a crash left" if crashed else "the last commit",
        "layout": stats.layout,
    }
    if stats.layout == "log":
        result |= {
            "index": stats.index,
            "log_records": stats.log_records,
            "live_records": stats.live_records,
            "tombstones": stats.tombstones,
            "segment_records": stats.segment_records,
            "segments": stats.segments,
            "free_segments": stats.free_segments,
            "snapshots": stats.snapshots,
            "snapshot_age": stats.snapshot_age,
            "snapshots_refused": stats.snapshots_refused,
            "space_amplification": round(stats.space_amplification, 3),
        }
    return result


@app.command("verify", epilog="Example: holdfast kv verify flights.hf")
@common.command
def verify(
    store: StoreFile,
    last_commit: common.ReadLastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Checks the whole store: every key in its bucket and there once, counters right.

    Of a log: every run as its checksum says, and every pair where the index has it.

    Changes nothing.
    """
    with _read(store, arena_folder, last_commit) as kv:
        complaint = kv.verify()
        records = kv.size if isinstance(kv, BytesMap) else kv.stats().records
    if as_json:
        common.emit({"ok": not complaint, "records": records, "problem": complaint})
    else:
        common.out.print(complaint or f"{store}: {records:,} records, all in order")
    if complaint:
        raise typer.Exit(common.EXIT_FAILED)


app.command("grow", epilog="Example: holdfast kv grow names.hf --record-bytes 1000000000")(
    kv_grow.grow
)


@app.command(
    "convert", epilog="Example: holdfast kv convert flights.hf flights-log.hf --layout log"
)
@common.command
def convert(
    store: StoreFile,
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The file of the new store.")],
    layout: LayoutName,
    capacity: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MOST_PAIRS,
            help="Pairs of the new one. Default: those of the old one, and for --layout in_place "
            "four times the pairs that it holds, at least, and as many as it takes.",
        ),
    ] = None,
    log_records: LogRecords = 0,
    last_commit: common.ReadLastCommit = False,
    arena_folder: common.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Copies the pairs of a store into a new one of another layout, or of another size.

    Changes nothing of the old one. The new one has its name once it is whole: until then it is
    NEW.part, which is left where this is killed, and goes with the next attempt. Where not every
    pair finds room there is no new one.
    """
    with _read(store, arena_folder, last_commit) as opened:
        kv = _of_numbers(opened, "kv convert")
        keys, values = kv.scan()
        stats = kv.stats()
    grows = capacity is None and layout == "in_place"
    first = max(stats.capacity, 4 * len(keys)) if grows else capacity or stats.capacity
    shape = kv_convert.Shape(layout, first, stats.max_batch, log_records)
    kv_convert.make(new, keys, values, shape, _MOST_PAIRS if grows else first, arena_folder)
    if as_json:
        common.emit({"ok": True, "store": str(new), "records": len(keys), "layout": layout})
    else:
        common.out.print(f"{new}: {len(keys):,} records, layout {layout}")
