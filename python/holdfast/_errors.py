"""The exception that every failure of the library becomes."""


class Error(RuntimeError):
    """What the library raises. The message names the thing and the remedy.

    `code` is one of the names of holdfast::Errc, such as "damaged", "in_use" or "no_space".
    """

    def __init__(self, message: str, code: str = "invalid_argument") -> None:
        super().__init__(message)
        self.code = code
