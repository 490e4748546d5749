"""Reads two columns of a CSV file into 64-bit keys and values."""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import lzma
import struct
import zipfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ._errors import Error
from ._store import RESERVED_KEY

KINDS = ("auto", "int", "float", "text")
MISSING = frozenset(("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"))
_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
_SAMPLE_ROWS = 1000  # that decide on a column's kind


@dataclass
class Columns:
    """What was read."""

    keys: npt.NDArray[np.uint64]
    values: npt.NDArray[np.uint64]
    starts: list[int]  # first row of each group; empty without a group column
    key_kind: str
    value_kind: str
    bad_rows: list[str] = field(default_factory=list)


def hash_text(text: str) -> int:
    """Returns the 64-bit hash that stands for a text: BLAKE2b, little endian."""
    digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return digest if digest != RESERVED_KEY else RESERVED_KEY - 1


def _from_int(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**64:
        raise ValueError("it does not fit into 64 bits")
    return value % 2**64


def _from_float(text: str) -> int:
    (bits,) = struct.unpack("<Q", struct.pack("<d", float(text)))
    return int(bits)


class _Hasher:
    """Hashes texts, and notices two texts with one hash."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def __call__(self, text: str) -> int:
        known = self._hashes.get(text)
        if known is not None:
            return known
        value = hash_text(text)
        other = self._texts.setdefault(value, text)
        if other != text:
            raise Error(f"'{text}' and '{other}' have the same 64-bit hash: the keys collide")
        self._hashes[text] = value
        return value


def _converter(kind: str) -> Callable[[str], int]:
    return {"int": _from_int, "float": _from_float}.get(kind) or _Hasher()


def _parses(texts: list[str], convert: Callable[[str], int]) -> bool:
    try:
        for text in texts:
            convert(text)
    except ValueError:
        return False
    return True


def _kind_of(texts: list[str]) -> str:
    present = [text for text in texts if text not in MISSING]
    if not present:
        return "text"
    if _parses(present, _from_int):
        return "int"
    return "float" if _parses(present, _from_float) else "text"


@contextmanager
def _open_text(path: Path) -> Iterator[IO[str]]:
    """Opens a file that may be packed, as its ending says."""
    with ExitStack() as stack:
        packed: Any
        if path.suffix in _OPENERS:
            packed = stack.enter_context(_OPENERS[path.suffix](path))
        elif path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            names = [name for name in archive.namelist() if not name.endswith("/")]
            if len(names) != 1:
                raise Error(f"{path} holds {len(names)} files: pack one CSV file alone")
            packed = stack.enter_context(archive.open(names[0]))
        else:
            packed = stack.enter_context(path.open("rb"))
        yield stack.enter_context(io.TextIOWrapper(packed, "utf-8-sig", newline=""))


def _column(header: list[str], name: str, path: Path) -> int:
    if name not in header:
        raise Error(f"{path} has no column '{name}': it has {', '.join(header)}", "not_found")
    return header.index(name)


def read(
    path: Path,
    key: str,
    value: str,
    group: str | None = None,
    key_kind: str = "auto",
    value_kind: str = "auto",
    delimiter: str = ",",
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Columns:
    """Reads columns `key` and `value`; a new group starts where column `group` changes.

    Rows that cannot be read are left out and named in `bad_rows`.
    """
    for kind in (key_kind, value_kind):
        if kind not in KINDS:
            raise Error(f"there is no kind of column '{kind}': use one of {', '.join(KINDS)}")
    try:
        with _open_text(path) as text:
            reader = csv.reader(text, delimiter=delimiter)
            header = next(reader, None)
            if not header:
                raise Error(f"{path} is empty: it has no header line")
            names = [key, value] + ([group] if group else [])
            places = [_column(header, name, path) for name in names]
            return _Reader(names, places, [key_kind, value_kind], on_rows).read(reader)
    except (csv.Error, UnicodeDecodeError, zipfile.BadZipFile, EOFError, lzma.LZMAError) as error:
        raise Error(f"{path} is not a readable CSV file: {error}", "damaged") from None


class _Reader:
    def __init__(
        self,
        names: list[str],
        places: list[int],
        kinds: list[str],
        on_rows: Callable[[int], None],
    ) -> None:
        self._names = names
        self._places = places
        self._kinds = kinds
        self._on_rows = on_rows
        self._keys = array("Q")
        self._values = array("Q")
        self._starts: list[int] = []
        self._group: str | None = None
        self._bad: list[str] = []

    def read(self, reader: Iterator[list[str]]) -> Columns:
        sample: list[tuple[int, list[str]]] = []
        for row in reader:
            sample.append((self._line(reader), row))
            if len(sample) == _SAMPLE_ROWS:
                break
        self._decide(sample)
        converters = [_converter(kind) for kind in self._kinds]
        for line, row in sample:
            self._add(line, row, *converters)
        self._on_rows(len(sample))
        for count, row in enumerate(reader, len(sample) + 1):
            self._add(self._line(reader), row, *converters)
            if count % 20000 == 0:
                self._on_rows(count)
        return Columns(
            np.array(self._keys, np.uint64),
            np.array(self._values, np.uint64),
            self._starts,
            self._kinds[0],
            self._kinds[1],
            self._bad,
        )

    @staticmethod
    def _line(reader: Iterator[list[str]]) -> int:
        return int(reader.line_num)  # type: ignore[attr-defined]

    def _decide(self, sample: list[tuple[int, list[str]]]) -> None:
        for index, kind in enumerate(self._kinds):
            if kind == "auto":
                place = self._places[index]
                self._kinds[index] = _kind_of([row[place] for _, row in sample if place < len(row)])

    def _add(
        self,
        line: int,
        row: list[str],
        convert_key: Callable[[str], int],
        convert_value: Callable[[str], int],
    ) -> None:
        if not row:
            return
        name = self._names[0]
        try:
            key_text = row[self._places[0]]
            if key_text in MISSING:
                raise ValueError("it is missing")
            key = convert_key(key_text)
            if key == RESERVED_KEY:
                raise ValueError("the key 2**64 - 1 is reserved")
            name = self._names[1]
            value_text = row[self._places[1]]
            if value_text in MISSING:
                raise ValueError("it is missing")
            value = convert_value(value_text)
            group = row[self._places[2]] if len(self._places) > 2 else None
        except IndexError:
            self._bad.append(f"line {line}: it has {len(row)} columns only")
            return
        except ValueError as error:
            self._bad.append(f"line {line}, column {name}: {error}")
            return
        if group is not None and (group != self._group or not self._starts):
            self._starts.append(len(self._keys))
            self._group = group
        self._keys.append(key)
        self._values.append(value)
