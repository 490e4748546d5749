"""Streams of other libraries as numbers."""

from __future__ import annotations

from typing import Any

from ._errors import Error


def stream_number(stream: Any) -> int | None:
    """Returns the cudaStream_t of a stream of PyTorch or CuPy, or the number that is one.

    None stays None. Raises Error: something else.
    """
    if stream is None or isinstance(stream, int):
        return stream
    handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", None))
    if not isinstance(handle, int):
        raise Error(
            f"stream is a {type(stream).__name__}: give a cudaStream_t as an int, or a stream "
            "of PyTorch or CuPy"
        )
    return handle
