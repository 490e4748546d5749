"""Object stores as the remote tier of a history, through the package obstore (extra `object`)."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._errors import Error, missing_extra

# S3 takes parts of at least 5 MiB, and at most 10,000 of them.
PART_BYTES = 8 << 20
MOST_PARTS = 10_000
# Parts of an upload that are on their way at a time; each takes its memory.
PARTS_AT_ONCE = 4

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(place: object) -> bool:
    return isinstance(place, str) and _URL.match(place) is not None


def is_memory_url(place: object) -> bool:
    """Whether it is memory of another node: tcp://HOST:PORT/NAME, of a MemoryServer."""
    return isinstance(place, str) and place.startswith("tcp://")


def _obstore() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ModuleNotFoundError:
        raise missing_extra("object", "the package obstore, for object stores, is") from None
    return obstore


def _said(error: BaseException) -> str:
    """What a store said, without the dump of structures that obstore puts behind it."""
    text = str(error).split("\n\nDebug source:", 1)[0]
    return " ".join(text.split()) or type(error).__name__


class Objects:
    """Objects under the prefix of one of obstore's stores.

    The compiled module calls it from threads of the history. Raises holdfast.Error.
    Thread safety: any number of threads.
    """

    def __init__(self, store: Any, path: str) -> None:
        self._obstore = _obstore()
        self._store = store
        self.path = path

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        exceptions = self._obstore.exceptions
        try:
            yield
        except Error:
            raise
        except FileNotFoundError as error:
            raise Error(_said(error), "not_found") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise Error(_said(error), "permission") from None
        except (exceptions.NotSupportedError, NotImplementedError) as error:
            raise Error(_said(error), "unsupported") from None
        except Exception as error:
            # Of a bucket that is not there, a listing says no more than this.
            missing = "status code: 404" in str(error)
            raise Error(_said(error), "not_found" if missing else "io") from None

    def put(self, key: str, size: int, fill: Callable[[bytearray], None]) -> None:
        part_bytes = max(PART_BYTES, -(-size // MOST_PARTS // 4096) * 4096 + 4096)
        with self._translated():
            if size <= part_bytes:
                whole = bytearray(size)
                fill(whole)
                self._obstore.put(self._store, key, whole, use_multipart=False)
                return
            # Each part in memory of its own, since obstore keeps it until it is there. Where the
            # iterator raises, obstore takes the upload back.
            self._obstore.put(
                self._store,
                key,
                _parts(size, part_bytes, fill),
                use_multipart=True,
                chunk_size=part_bytes,
                max_concurrency=PARTS_AT_ONCE,
            )

    def put_new(self, key: str, data: bytes) -> bool:
        with self._translated():
            try:
                self._obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
            return True

    def read(self, key: str, offset: int, size: int) -> Any:
        with self._translated():
            try:
                return self._obstore.get_range(self._store, key, start=offset, length=size)
            except self._obstore.exceptions.GenericError:
                found = self.head(key)
                if found is not None and offset >= found[0]:
                    return b""
                raise

    def head(self, key: str) -> tuple[int, int] | None:
        with self._translated():
            try:
                found = self._obstore.head(self._store, key)
            except FileNotFoundError:
                return None
            return found["size"], _unix_ns(found)

    def list(self) -> list[tuple[str, int, int]]:
        with self._translated():
            found = self._obstore.list_with_delimiter(self._store)["objects"]
            return [(row["path"], row["size"], _unix_ns(row)) for row in found]

    def remove(self, key: str) -> None:
        with self._translated(), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, key)


def _unix_ns(found: Mapping[str, Any]) -> int:
    return max(0, int(found["last_modified"].timestamp() * 1e9))


def _parts(size: int, part_bytes: int, fill: Callable[[bytearray], None]) -> Iterator[bytearray]:
    for begin in range(0, size, part_bytes):
        part = bytearray(min(part_bytes, size - begin))
        fill(part)
        yield part


# What a store of obstore's is of: the scheme of its URL, and the setting that names the bucket.
_KINDS = {
    "S3Store": ("s3", "bucket"),
    "GCSStore": ("gs", "bucket"),
    "AzureStore": ("az", "container_name"),
}


def _path_of(store: Any) -> str:
    kind = type(store).__name__
    prefix = str(getattr(store, "prefix", None) or "")
    if kind == "LocalStore":
        return f"file://{prefix}"
    scheme, setting = _KINDS.get(kind, ("", ""))
    bucket = getattr(store, "config", {}).get(setting) if scheme else None
    if bucket is None:
        return repr(store)
    return f"{scheme}://{bucket}/{prefix}".rstrip("/")


def objects_of(remote: Any, options: Mapping[str, Any] | None, make: bool) -> Objects | None:
    """Returns what a remote tier is in if that is one of obstore's stores.

    None: it is a folder, or memory of another node, which the library knows itself.

    remote: a path, a URL, or one of obstore's stores. options: of the store, for a URL. make: the
    folder of a file:// is made where it is not there.
    Raises Error: no store, or one that obstore cannot make of the URL and the options.
    """
    if is_url(remote) and not is_memory_url(remote):
        store = _obstore().store
        settings = dict(options or {})
        if make and remote.lower().startswith("file://"):
            settings.setdefault("mkdir", True)
        try:
            return Objects(store.from_url(remote, **settings), remote.split("?")[0].rstrip("/"))
        except Error:
            raise
        except Exception as error:
            raise Error(
                f"remote '{remote}': {_said(error)}; give a URL such as s3://bucket/prefix, and "
                "what its store wants as remote_options or in the environment"
            ) from None
    if options:
        if is_memory_url(remote):
            raise Error("remote_options are for object stores, and tcp:// is none: leave them out")
        raise Error("remote_options are for a URL: configure the store, or leave them out")
    if remote is None or isinstance(remote, (str, os.PathLike)):
        return None
    if type(remote).__module__.split(".")[0] == "obstore" and isinstance(
        remote, _obstore().store.ObjectStore
    ):
        return Objects(remote, _path_of(remote))
    raise Error(
        f"remote is {remote!r}: give a folder, a URL such as s3://bucket/prefix or "
        "tcp://host:port/name, or a store of obstore.store"
    )
