"""What the end of a `with` block closes, whether it ended well or not."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

_Opened = TypeVar("_Opened", bound="Closing")


class Closing:
    """Has close(), which may be called again."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Opened) -> _Opened:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
