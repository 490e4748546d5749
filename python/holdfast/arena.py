"""Where a region's shared memory goes when the caller does not say."""

from __future__ import annotations

import os
import shutil
import tempfile

from ._errors import Error

DEFAULT_FOLDER = "/dev/shm"
# Room that is left to others, as a factor of the region's bytes.
_MARGIN = 1.25


def configured_folder() -> str:
    """Returns the folder that regions use by default."""
    return os.environ.get("HOLDFAST_ARENA_DIR") or DEFAULT_FOLDER


def free_bytes(folder: str) -> int:
    """Returns the bytes free in `folder`; 0 if there is no such folder."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def choose_arena(size: int) -> str:
    """Returns the first folder with room for a region of `size` bytes: shared memory, else disk.

    A folder on disk gives the same guarantee after a process crash; it is slower, because the
    system writes it back.
    """
    folders = [configured_folder(), tempfile.gettempdir()]
    for folder in folders:
        if free_bytes(folder) >= size * _MARGIN:
            return folder
    mib = size * _MARGIN / 2**20
    raise Error(
        f"neither {folders[0]} nor {folders[1]} has {mib:.0f} MiB free: set HOLDFAST_ARENA_DIR to "
        "a folder that has, or give the container more shared memory (docker run --shm-size=1g)",
        "no_shared_memory",
    )
