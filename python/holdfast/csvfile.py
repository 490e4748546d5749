"""Reads two columns of a CSV file into 64-bit keys and values.

A file is read once to decide what its columns hold, unless the caller says, and once to convert
them. Of a row four numbers are kept (32 bytes); its text is not.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import math
import re
import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ._csvlines import Lines, open_bytes, open_quote, shortened
from ._errors import Error
from ._store import RESERVED_KEY

KINDS = ("auto", "int", "float", "text")
MISSING = frozenset(("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"))
# Messages about rows that are kept; the rest is counted.
MOST_MESSAGES = 1000

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
_BLANKS = " \t"  # around a number


@dataclass
class Columns:
    """What was read."""

    keys: npt.NDArray[np.uint64]
    values: npt.NDArray[np.uint64]
    starts: list[int]  # first row of each group; empty without a group column
    key_kind: str
    value_kind: str
    bad_rows: list[str] = field(default_factory=list)  # the first of them
    bad_count: int = 0


@functools.lru_cache(1 << 16)
def hash_text(text: str) -> int:
    """Returns the 64-bit hash that stands for a text: BLAKE2b, little endian."""
    digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return digest if digest != RESERVED_KEY else RESERVED_KEY - 1


def parse_int(text: str) -> int:
    """Returns the number that stands for a decimal integer: negative ones in two's complement.

    Raises ValueError: no integer, or not from -2**63 to 2**64 - 1.
    """
    text = text.strip(_BLANKS)
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"'{shortened(text)}' is not an integer")
    # Python refuses to convert very long texts.
    value = int(text) if len(text.lstrip("+-").lstrip("0")) <= 20 else 2**64
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"{shortened(text)} does not fit into 64 bits")
    return value % 2**64


def _parse_float(text: str) -> int:
    text = text.strip(_BLANKS)
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"'{shortened(text)}' is not a number")
    value = float(text)
    if math.isinf(value) and "n" not in text.lower():
        raise ValueError(f"{shortened(text)} does not fit into a float64")
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(bits)


class _Column:
    """How a column's cells become numbers."""

    def __init__(self, option: str, kind: str, decided: bool, is_key: bool) -> None:
        self.kind = kind
        self._option = option
        self._decided = decided  # by the caller
        self._is_key = is_key
        self._number = {"int": parse_int, "float": _parse_float}.get(kind, hash_text)

    def convert(self, text: str) -> int:
        """Raises ValueError: it is missing, or not of the column's kind."""
        if text in MISSING:
            raise ValueError("it is missing")
        try:
            number = self._number(text)
        except ValueError as error:
            if self._decided:
                raise
            raise ValueError(
                f"{error}; {self._option}-type text takes the column as text"
            ) from None
        if self.kind == "float":
            self._check_float(text, number)
        if self._is_key and number == RESERVED_KEY:
            raise ValueError("the key 2**64 - 1 (or -1) is reserved")
        return number

    def _check_float(self, text: str, number: int) -> None:
        (value,) = struct.unpack("<d", struct.pack("<Q", number))
        if self._is_key and not math.isfinite(value):
            raise ValueError(f"{text} cannot be a key")
        integer = not self._decided and _INTEGER.fullmatch(text.strip(_BLANKS))
        if integer and int(value) != int(text):
            raise ValueError(
                f"{shortened(text)} is in a column of fractions and no float64 is equal to it; "
                f"{self._option}-type float rounds it"
            )

    def identity(self, text: str) -> str:
        """What two cells with one number must share, so that they are the same key."""
        if self.kind == "text":
            return text
        text = text.strip(_BLANKS)
        if not self._decided:
            return text
        if self.kind == "int":
            return str(int(text))
        try:
            sign, digits, exponent = Decimal(text).as_tuple()
        except ArithmeticError:  # an exponent beyond all bounds
            return text
        significant = "".join(map(str, digits)).lstrip("0")
        shorter = significant.rstrip("0")
        assert isinstance(exponent, int)
        return f"{sign} {shorter} {exponent + len(significant) - len(shorter)}" if shorter else "0"


class _Survey:
    """What a column's cells have in common."""

    def __init__(self) -> None:
        self.integer: tuple[int, str] | None = None  # line and text of the first
        self.fraction: tuple[int, str] | None = None
        self.text = False

    def see(self, line: int, text: str) -> None:
        if self.text or text in MISSING:
            return
        number = text.strip(_BLANKS)
        if _INTEGER.fullmatch(number):
            self.integer = self.integer or (line, number)
        elif _NUMBER.fullmatch(number):
            self.fraction = self.fraction or (line, number)
        else:
            self.text = True

    def kind(self, name: str, is_key: bool, path: Path) -> str:
        if self.text or not (self.integer or self.fraction):
            return "text"
        if not self.fraction:
            return "int"
        if is_key and self.integer:
            raise Error(
                f"{path}: column '{name}' has integers (line {self.integer[0]}: "
                f"{shortened(self.integer[1])}) and fractions (line {self.fraction[0]}: "
                f"{shortened(self.fraction[1])}): say by --key-type what its keys are, float or "
                "text"
            )
        return "float"


def _column(header: list[str], name: str, path: Path) -> int:
    count = header.count(name)
    if count == 0:
        has = ", ".join(shortened(column) for column in header[:50])
        raise Error(f"{path} has no column '{name}': it has {has}", "not_found")
    if count > 1:
        raise Error(f"{path} has {count} columns '{name}': give each a name of its own")
    return header.index(name)


def _checked_delimiter(delimiter: str) -> str:
    if delimiter == "\\t":
        return "\t"
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise Error(
            f"the delimiter is '{shortened(delimiter)}': give one character that is no quote"
        )
    return delimiter


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
    Raises Error: no such column, no text, packed data that is damaged, a quote that is not closed,
    and different texts that would be one key.
    """
    for kind in (key_kind, value_kind):
        if kind not in KINDS:
            raise Error(f"there is no kind of column '{kind}': use one of {', '.join(KINDS)}")
    names = [key, value] + ([group] if group else [])
    with open_bytes(path) as file:
        table = _Table(path, file, _checked_delimiter(delimiter), names)
        kinds = [key_kind, value_kind]
        if "auto" in kinds:
            kinds = _survey(table, kinds)
        columns = [
            _Column(f"--{what}", kind, given != "auto", what == "key")
            for what, kind, given in zip(
                ("key", "value"), kinds, (key_kind, value_kind), strict=True
            )
        ]
        return _Reader(table, columns, on_rows).read()


@dataclass
class TextColumns:
    """What was read as it is."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # first row of each group
    bad_rows: list[str] = field(default_factory=list)  # the first of them
    bad_count: int = 0


def read_text(
    path: Path,
    key: str,
    value: str,
    group: str | None = None,
    delimiter: str = ",",
    on_rows: Callable[[int], None] = lambda rows: None,
) -> TextColumns:
    """Reads columns `key` and `value` as they are, as UTF-8; else as read().

    Rows with too few columns are left out and named in `bad_rows`.
    """
    names = [key, value] + ([group] if group else [])
    columns = TextColumns()
    last: str | None = None
    with open_bytes(path) as file:
        table = _Table(path, file, _checked_delimiter(delimiter), names)
        count = 0
        for count, (line, row) in enumerate(table.rows(), 1):
            if max(table.places) >= len(row):
                columns.bad_count += 1
                if len(columns.bad_rows) < MOST_MESSAGES:
                    columns.bad_rows.append(f"line {line}: it has {len(row)} columns only")
                continue
            cells = [row[place] for place in table.places]
            if group is not None and (cells[2] != last or not columns.starts):
                columns.starts.append(len(columns.keys))
                last = cells[2]
            columns.keys.append(cells[0].encode())
            columns.values.append(cells[1].encode())
            if count % 20000 == 0:
                on_rows(count)
        on_rows(count)
    return columns


class _Table:
    """The rows of a file, from its first to its last as often as one likes."""

    def __init__(self, path: Path, file: Callable[[], Lines], delimiter: str, names: list[str]):
        self.path = path
        self.names = names
        self._open = file
        self._delimiter = delimiter
        self.places: list[int] = []

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yields each row with the number of its last line."""
        with self._open() as lines:
            reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
            try:
                header = next(reader, None)
                if not header:
                    raise Error(f"{self.path} is empty: it has no header line")
                self.places = [_column(header, name, self.path) for name in self.names]
                lines.row_ended()
                for row in reader:
                    lines.row_ended()
                    if row:
                        yield lines.number, row
            except csv.Error as error:
                complaint = self._complaint(lines, error)
                lines.check_rest()
                raise Error(complaint, "damaged") from None
            except Error:
                lines.check_rest()
                raise

    def _complaint(self, lines: Lines, error: csv.Error) -> str:
        opened = open_quote(lines.row, self._delimiter)
        first = lines.number - len(lines.row) + 1
        if "field limit" in str(error):
            hint = "" if opened is None else ": is the quote closed that was opened there?"
            return (
                f"{self.path}, line {first + (opened or 0)}: a field has over "
                f"{csv.field_size_limit():,} characters{hint}"
            )
        if opened is not None and "unexpected end" in str(error):
            return f"{self.path}, line {first + opened}: a quote is opened there and never closed"
        return f"{self.path}, line {lines.number}: {error}"


def _survey(table: _Table, kinds: list[str]) -> list[str]:
    surveys = [_Survey(), _Survey()]
    for line, row in table.rows():
        for survey, place in zip(surveys, table.places, strict=False):
            if place < len(row):
                survey.see(line, row[place])
    return [
        survey.kind(name, index == 0, table.path) if kind == "auto" else kind
        for index, (survey, name, kind) in enumerate(zip(surveys, table.names, kinds, strict=False))
    ]


class _Reader:
    def __init__(
        self, table: _Table, columns: list[_Column], on_rows: Callable[[int], None]
    ) -> None:
        self._table = table
        self._columns = columns
        self._on_rows = on_rows
        self._keys = array("Q")
        self._values = array("Q")
        self._identities = array("q")
        self._lines = array("Q")
        self._starts: list[int] = []
        self._group: str | None = None
        self._bad: list[str] = []
        self._bad_count = 0

    def read(self) -> Columns:
        count = 0
        for count, (line, row) in enumerate(self._table.rows(), 1):
            self._add(line, row)
            if count % 20000 == 0:
                self._on_rows(count)
        self._on_rows(count)
        keys = np.frombuffer(self._keys, np.uint64)
        self._check_identities(keys)
        key, value = self._columns
        return Columns(
            keys,
            np.frombuffer(self._values, np.uint64),
            self._starts,
            key.kind,
            value.kind,
            self._bad,
            self._bad_count,
        )

    def _add(self, line: int, row: list[str]) -> None:
        places = self._table.places
        key, value = self._columns
        name = self._table.names[0]
        try:
            text = row[places[0]]
            number = key.convert(text)
            name = self._table.names[1]
            stored = value.convert(row[places[1]])
            group = row[places[2]] if len(places) > 2 else None
        except IndexError:
            self._refuse(f"line {line}: it has {len(row)} columns only")
            return
        except ValueError as error:
            self._refuse(f"line {line}, column {name}: {error}")
            return
        if group is not None and (group != self._group or not self._starts):
            self._starts.append(len(self._keys))
            self._group = group
        self._keys.append(number)
        self._values.append(stored)
        self._identities.append(hash(key.identity(text)))
        self._lines.append(line)

    def _refuse(self, why: str) -> None:
        self._bad_count += 1
        if len(self._bad) < MOST_MESSAGES:
            self._bad.append(why)

    def _check_identities(self, keys: npt.NDArray[np.uint64]) -> None:
        """Raises Error where two different texts are one key."""
        identities = np.frombuffer(self._identities, np.int64)
        order = np.lexsort((identities, keys))
        ordered, what = keys[order], identities[order]
        clashes = np.nonzero((ordered[1:] == ordered[:-1]) & (what[1:] != what[:-1]))[0]
        if clashes.size == 0:
            return
        lines = np.frombuffer(self._lines, np.uint64)
        pairs = np.sort(np.stack((lines[order[clashes]], lines[order[clashes + 1]])), axis=0)
        first, second = (int(line) for line in pairs[:, np.argmin(pairs[1])])
        texts = {line: "" for line in (first, second)}
        place = self._table.places[0]
        for line, row in self._table.rows():
            if line in texts:
                texts[line] = shortened(row[place])
        kind = self._columns[0].kind
        remedy = {
            "text": "their 64-bit hashes are the same, so they cannot be in one store",
            "int": "--key-type int takes texts for one key that are one number, text for two",
            "float": "--key-type float takes texts for one key that are one number, text for two",
        }[kind]
        raise Error(
            f"{self._table.path}, lines {first} and {second}: '{texts[first]}' and "
            f"'{texts[second]}' would be the same key: {remedy}"
        )
