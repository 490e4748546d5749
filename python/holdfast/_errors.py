"""The exception that every failure of the library becomes."""

from __future__ import annotations

import errno
import itertools
import operator
from collections.abc import Iterable
from typing import Any


class Error(RuntimeError):
    """What the library raises. The message names the thing and the remedy.

    `code` is one of the names of holdfast::Errc, such as "damaged", "in_use" or "no_space".
    """

    def __init__(self, message: str, code: str = "invalid_argument") -> None:
        super().__init__(message)
        self.code = code


_CODES = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EEXIST: "already_exists",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EISDIR: "invalid_argument",
    errno.ELOOP: "invalid_argument",
    errno.ENAMETOOLONG: "invalid_argument",
}


_MOST_EXTENTS = 32  # of an array of NumPy, before its second version


def code_of(error: OSError) -> str:
    """Returns what holdfast::Errc calls a failure of the system."""
    return _CODES.get(error.errno or 0, "io")


def checked_number(value: Any, what: str, least: int = 0, most: int = 2**64 - 1) -> int:
    """Returns an integer that the compiled module can take. Raises Error."""
    try:
        number = operator.index(value)
    except TypeError:
        raise Error(f"{what} is {value!r}: give a whole number from {least} to {most}") from None
    if not least <= number <= most:
        raise Error(f"{what} is {number}: give a number from {least} to {most}")
    return number


def extents_of(shape: Any, what: str) -> tuple[int, ...]:
    """Returns those of a shape, which one number is, too. Raises Error."""
    several = isinstance(shape, Iterable) and not isinstance(shape, str | bytes)
    given = tuple(itertools.islice(shape, _MOST_EXTENTS + 1)) if several else (shape,)
    if len(given) > _MOST_EXTENTS:
        raise Error(f"{what} has more than {_MOST_EXTENTS} extents: give a shape")
    try:
        extents = tuple(map(operator.index, given))
    except TypeError:
        raise Error(f"{what} is {shape!r}: every extent must be a whole number") from None
    if any(extent >= 2**63 for extent in extents):
        raise Error(f"{what} is {shape!r}: that is more than can be addressed")
    return extents


def checked_text(value: Any, what: str) -> str:
    """Returns a string that the compiled module can take. Raises Error."""
    if not isinstance(value, str):
        raise Error(f"{what} is {value!r}: give a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Error(f"{what} is {value!r}, which has no UTF-8: give text that has") from None
    return value


def missing_extra(extra: str, what: str) -> Error:
    """Returns the error of a command whose packages, an extra of this one, are not installed."""
    return Error(f"{what} not installed: pip install 'holdfast[{extra}]'", "unsupported")
