"""Chooses the compiled module: $HOLDFAST_BACKEND, else CUDA where it can run, else the CPU."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import Error

if TYPE_CHECKING:
    from . import _cpu as ext
else:
    ext = None

__all__ = ["ext", "name", "why_not_cuda"]

# Why the CUDA backend is not in use; empty if it is, or was not wanted.
why_not_cuda = ""


def _cuda() -> tuple[Any, str]:
    """Returns the CUDA module if it can run a kernel here, or why not."""
    try:
        module = importlib.import_module("holdfast._cuda")
    except ModuleNotFoundError:
        note = Path(__file__).with_name("_cuda_missing.txt")
        built = note.read_text().strip() if note.exists() else "it was not built"
        return None, f"this installation has no CUDA module: {built}"
    except ImportError as error:
        return None, f"the CUDA module does not load: {error}"
    usable, why = module.usable()
    return (module, "") if usable else (None, why)


def _choose() -> tuple[Any, str]:
    wanted = os.environ.get("HOLDFAST_BACKEND", "")
    if wanted not in ("", "cpu", "cuda"):
        raise Error(f"HOLDFAST_BACKEND is '{wanted}': use cpu or cuda, or leave it unset")
    why = ""
    if wanted != "cpu":
        module, why = _cuda()
        if module is not None:
            return module, ""
        if wanted == "cuda":
            raise Error(f"HOLDFAST_BACKEND is cuda, but {why}", "unsupported")
    return importlib.import_module("holdfast._cpu"), why


class _Unusable:
    """Stands for the module where none can be used: raises the reason at the first use.

    So the command line, too, gets to say it in its own way.
    """

    def __init__(self, error: Error) -> None:
        self._error = error

    def __getattr__(self, attribute: str) -> Any:
        raise self._error


if not TYPE_CHECKING:
    try:
        ext, why_not_cuda = _choose()
    except Error as error:
        ext = _Unusable(error)


def name() -> str:
    """Returns "cpu" or "cuda"."""
    return ext.backend_name()
