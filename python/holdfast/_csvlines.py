"""The lines of a text file that may be packed, and what is wrong with them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ._errors import Error

_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda source: gzip.GzipFile(fileobj=source),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
LONGEST_LINE = 1 << 24  # characters


def shortened(text: str) -> str:
    """Returns a text as a message can have it."""
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Unpacked(io.RawIOBase):
    """The bytes of a packed file; what unpacking raises becomes Error."""

    def __init__(self, source: Any, path: Path) -> None:
        self._source = source
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._source.read(len(buffer))
        except MemoryError:
            raise
        except Exception as error:  # zlib, lzma, bz2 and zipfile have many of their own
            raise _damaged(self._path, error) from None
        buffer[: len(data)] = data
        return len(data)


def _damaged(path: Path, error: Exception) -> Error:
    return Error(f"{path} is not a readable {path.suffix} file: {error}", "damaged")


class Lines:
    """Lines of a file, with their numbers and those of the row that is being read."""

    def __init__(self, path: Path, text: io.TextIOWrapper, stack: ExitStack, packed: bool) -> None:
        self._path = path
        self._text = text
        self._packed = packed
        self._stack = stack
        self.number = 0  # of the last line
        self.row: list[str] = []  # lines since the last row ended

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self._text.readline(LONGEST_LINE)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) >= LONGEST_LINE:
            raise self._refuse(f"it has over {LONGEST_LINE:,} characters, so this is no CSV file")
        if "\0" in line:
            raise self._refuse("it has a zero byte, so the file is no UTF-8: convert it (iconv)")
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError as error:  # what could not be decoded is a lone surrogate
                byte = ord(line[error.start]) & 0xFF
                raise self._refuse(
                    f"the byte {byte:#04x} is not UTF-8: convert the file (iconv -t utf-8)"
                ) from None
        self.row.append(line)
        return line

    def row_ended(self) -> None:
        self.row.clear()

    def check_rest(self) -> None:
        """Raises Error if what is left of a packed file is damaged.

        What was read of it may then be wrong, too: checksums stand behind what they are of.
        """
        if self._packed:
            while self._text.buffer.read(1 << 20):
                pass

    def _refuse(self, why: str) -> Error:
        return Error(f"{self._path}, line {self.number}: {why}", "damaged")


def open_quote(row: list[str], delimiter: str) -> int | None:
    """Returns which line of an unfinished row opened the quote that is open at its end."""
    opened: int | None = None
    at_start = True  # of a field
    for index, line in enumerate(row):
        place = 0
        while place < len(line):
            character = line[place]
            if opened is not None:
                if character == '"':
                    if line[place + 1 : place + 2] == '"':
                        place += 1
                    else:
                        opened = None
                        at_start = False
            elif character == '"' and at_start:
                opened = index
            else:
                at_start = character in (delimiter, "\r", "\n")
            place += 1
    return opened


def _unpack(path: Path, source: IO[bytes], stack: ExitStack) -> Any:
    ending = path.suffix.lower()
    if ending not in (".zip", *_OPENERS):
        return source
    try:
        if ending == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(source))
            names = [name for name in archive.namelist() if not name.endswith("/")]
            if len(names) != 1:
                raise Error(f"{path} holds {len(names)} files: pack one CSV file alone")
            packed = stack.enter_context(archive.open(names[0]))
        else:
            packed = stack.enter_context(_OPENERS[ending](source))
    except (Error, MemoryError):
        raise
    except Exception as error:
        raise _damaged(path, error) from None
    return io.BufferedReader(_Unpacked(packed, path), 1 << 16)


@contextmanager
def open_bytes(path: Path) -> Iterator[Callable[[], Lines]]:
    """Opens a file, packed as its ending says. What is yielded gives its lines, from the first.

    One that cannot be read twice, such as a pipe, is copied to a temporary file.
    """
    with ExitStack() as outer:
        source: IO[bytes] = outer.enter_context(path.open("rb"))
        if not stat.S_ISREG(path.stat().st_mode):
            copy = outer.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source, copy)
            source = copy

        def lines() -> Lines:
            source.seek(0)
            stack = ExitStack()
            try:
                unpacked = _unpack(path, source, stack)
                text = io.TextIOWrapper(unpacked, "utf-8-sig", errors="surrogateescape", newline="")
            except BaseException:
                stack.close()
                raise
            stack.callback(text.detach)  # before what it reads from; the file stays open
            return Lines(path, text, stack, unpacked is not source)

        yield lines
