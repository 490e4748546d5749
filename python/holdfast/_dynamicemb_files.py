"""The files of dynamicemb's tables: raw arrays, and a meta file of JSON.

A dump that is cut off is not taken for one: its files get their names once all of them are whole
and durable, and the meta file last, with what the dump has; the one of an earlier dump goes first.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from ._errors import Error

ITEM_BYTES = (8, 4, 8, 4)  # keys, embeddings, scores, optimizer states
_RECORD = "holdfast"  # in the meta file: rows, and which files there are
_PART = ".part"


_CODES = {errno.ENOENT: "not_found", errno.ENOSPC: "no_space", errno.EACCES: "permission"}


def _failed(path: object, error: OSError) -> Error:
    return Error(
        f"{path}: {error.strerror}: give the path of a file that can be read or written",
        _CODES.get(error.errno or 0, "io"),
    )


class Dump:
    """Writes the four files of arrays, of which some may not be wanted, and the meta file."""

    def __init__(self, paths: list[str | None], meta_path: str | None) -> None:
        self._paths, self._meta_path = paths, meta_path
        self._rows = 0
        self._has = [False] * len(paths)
        self._open: list[BinaryIO | None] = []

    def __enter__(self) -> Dump:
        try:
            for path in self._paths:
                self._open.append(Path(path + _PART).open("wb") if path else None)
        except OSError as error:
            self._drop()
            raise _failed(error.filename, error) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def _drop(self) -> None:
        for file, path in zip(self._open, self._paths, strict=False):
            if file is not None:
                file.close()
                Path(f"{path}{_PART}").unlink(missing_ok=True)
        if self._meta_path is not None:
            Path(self._meta_path + _PART).unlink(missing_ok=True)

    def write(self, tensors: tuple[Any, ...]) -> None:
        """Appends rows, of tensors in the host's memory: keys, embeddings, scores, states."""
        self._rows += tensors[0].numel()
        for number, (file, tensor) in enumerate(zip(self._open, tensors, strict=True)):
            if file is None or tensor is None:
                continue
            self._has[number] = True
            try:
                file.write(
                    ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
                )
            except OSError as error:
                raise _failed(file.name, error) from None

    def finish(self, meta: dict[str, Any]) -> None:
        """Gives the files their names. `meta` goes to the meta file, if one is wanted."""
        record = {"rows": self._rows, "scores": self._has[2], "states": self._has[3]}
        try:
            for file in self._open:
                if file is not None:
                    _settle(file)
            if self._meta_path is not None:
                Path(self._meta_path).unlink(missing_ok=True)
                _settle_folder(self._meta_path)
            for path in self._paths:
                if path is not None:
                    Path(path + _PART).replace(path)
                    _settle_folder(path)
            if self._meta_path is not None:
                with Path(self._meta_path + _PART).open("wb") as file:
                    file.write(json.dumps({**meta, _RECORD: record}).encode())
                    _settle(file)
                Path(self._meta_path + _PART).replace(self._meta_path)
                _settle_folder(self._meta_path)
        except OSError as error:
            raise _failed(error.filename or self._paths[0], error) from None


def _settle(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _settle_folder(path: str) -> None:
    folder = os.open(Path(path).parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_meta(path: str) -> dict[str, Any]:
    """Returns what a meta file has; nothing where no path is given. Raises Error."""
    if not path:
        return {}
    try:
        meta = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Error(
            f"{path} is not there: a dump that was cut off has none. Dump the table again, or give "
            "'' in place of its path to load the files without it",
            "not_found",
        ) from None
    except OSError as error:
        raise _failed(path, error) from None
    except ValueError as error:  # of JSON, and of UTF-8
        raise Error(f"{path} is no meta file of a dump: {error}", "damaged") from None
    if not isinstance(meta, dict) or not isinstance(meta.get(_RECORD, {}), dict):
        raise Error(f"{path} is no meta file of a dump: it has no object", "damaged")
    return meta


def files_of_dump(paths: list[str | None], meta: dict[str, Any]) -> list[str | None]:
    """Returns the paths without those of scores and states that the dump did not write.

    Without a dump's record, as of dynamicemb's own, those that are not there are not read.
    Raises Error where one is missing that the dump has.
    """
    record = meta.get(_RECORD)
    result = list(paths)
    for number, what in ((2, "scores"), (3, "states")):
        path = paths[number]
        if path is None:
            continue
        there = Path(path).exists()
        if record is not None and record.get(what) and not there:
            raise Error(f"{path} is not there, and the dump has {what}: give the files of one dump")
        if not there or (record is not None and not record.get(what)):
            result[number] = None
    return result


def check_files(paths: list[str | None], widths: list[int], meta: dict[str, Any]) -> None:
    """Raises Error where the files have not the rows that they say, or not equally many."""
    count = meta.get(_RECORD, {}).get("rows")
    told_by = "its meta file" if count is not None else str(paths[0])
    for path, width, itemsize in zip(paths, widths, ITEM_BYTES, strict=True):
        if path is None:
            continue
        try:
            rows, rest = divmod(Path(path).stat().st_size, width * itemsize)
        except OSError as error:
            raise _failed(path, error) from None
        if count is None:
            count = rows
        if rest or rows != count:
            raise Error(
                f"{path} has {rows} rows of {width * itemsize} bytes and {rest} bytes more; "
                f"{told_by} has {count} keys: give the files of one dump"
            )
