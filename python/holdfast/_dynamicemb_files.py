"""The files of dynamicemb's tables: raw arrays, and a meta file of JSON.

A dump that is cut off is not taken for one. Its files are written beside their names. Once all are
whole and durable, a mark beside the file of keys says that they are not those of one dump; they get
their names, and the mark goes.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from ._errors import Error, code_of

ITEM_BYTES = (8, 4, 8, 4)  # keys, embeddings, scores, optimizer states
_PART = ".part"
_MARK = ".unfinished"  # beside the file of keys


def _failed(path: object, error: OSError) -> Error:
    return Error(
        f"{path}: {error.strerror}: give the path of a file that can be read or written",
        code_of(error),
    )


class Dump:
    """Writes the files of arrays whose paths are not None, and the meta file.

    The first one is that of keys. `stale`: of an earlier dump, which this one has none in place of.
    """

    def __init__(self, paths: list[str | None], meta_path: str | None, stale: str | None) -> None:
        self._paths = [path or None for path in (*paths, meta_path)]
        self._stale = stale or None
        self._open: list[BinaryIO | None] = []
        given = [path for path in (*self._paths, self._stale) if path is not None]
        for path in given:
            if Path(path).is_dir():
                raise Error(f"{path} is a folder: give the path of a file")
        if len({str(Path(path).absolute()) for path in given}) != len(given):
            raise Error(f"a file of a dump is given twice: {', '.join(given)}: give each its own")

    def __enter__(self) -> Dump:
        try:
            for path in self._paths:
                self._open.append(Path(path + _PART).open("wb") if path is not None else None)
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

    def write(self, tensors: tuple[Any, ...]) -> None:
        """Appends rows, of tensors in the host's memory: keys, embeddings, scores, states."""
        for file, tensor in zip(self._open[:-1], tensors, strict=True):
            if file is None or tensor is None:
                continue
            try:
                file.write(
                    ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
                )
            except OSError as error:
                raise _failed(file.name, error) from None

    def finish(self, meta: dict[str, Any]) -> None:
        """Gives the files their names. `meta` goes to the meta file, if one is wanted."""
        keys_path = self._paths[0]
        assert keys_path is not None
        try:
            for file in self._open:
                if file is not None:
                    if file is self._open[-1]:
                        file.write(json.dumps(meta).encode())
                    file.flush()
                    os.fsync(file.fileno())
            mark = Path(keys_path + _MARK)
            mark.open("wb").close()
            _settle_folder(keys_path)
            for path in self._paths:
                if path is not None:
                    Path(path + _PART).replace(path)
                    _settle_folder(path)
            if self._stale is not None:
                Path(self._stale).unlink(missing_ok=True)
                _settle_folder(self._stale)
            mark.unlink()
            _settle_folder(keys_path)
        except OSError as error:
            raise _failed(error.filename or keys_path, error) from None


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
    except OSError as error:
        raise Error(
            f"{path}: {error.strerror}: give the meta file of the dump, or '' to load the arrays "
            "without one",
            code_of(error),
        ) from None
    except (ValueError, RecursionError) as error:  # of JSON, and of UTF-8
        raise Error(f"{path} is no meta file of a dump: {error}", "damaged") from None
    if not isinstance(meta, dict) or not isinstance(meta.get("step_score", 0), int):
        raise Error(f"{path} is no meta file of a dump", "damaged")
    return meta


def check_files(paths: list[str | None], widths: list[int]) -> None:
    """Raises Error where files are none of one dump: cut off, or of other or unequal sizes."""
    if Path(f"{paths[0]}{_MARK}").exists():
        raise Error(
            f"{paths[0]}: a dump to this file, and those beside it, was cut off: dump the table "
            f"again (or remove {paths[0]}{_MARK}, if they are of one dump all the same)",
            "damaged",
        )
    count = None
    for path, width, itemsize in zip(paths, widths, ITEM_BYTES, strict=True):
        if path is None:
            continue
        try:
            bytes_of_file = Path(path).stat().st_size
        except OSError as error:
            raise _failed(path, error) from None
        if not Path(path).is_file():
            raise Error(f"{path} is no file: give the files of one dump")
        rows, rest = divmod(bytes_of_file, width * itemsize)
        if count is None:
            count = rows
        if rest or rows != count:
            raise Error(
                f"{path} has {rows} rows of {width * itemsize} bytes and {rest} bytes more; "
                f"{paths[0]} has {count} keys: give the files of one dump"
            )
