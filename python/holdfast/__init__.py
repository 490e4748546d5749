"""Holdfast: persistent memory for GPU programs.

>>> import holdfast
>>> with holdfast.create("state.hf", size=1 << 20) as region:
...     weights = region.allocate("weights", 1000, "float32")
...     weights[:] = 1.0
"""

from typing import TYPE_CHECKING

from . import _backend
from ._checkpoint import Checkpoint, PendingSave, StoredBuffer
from ._errors import Error
from ._history import History, Ticket
from ._map import Map
from ._memory_server import MemoryServer
from ._region import DeviceArray, Region, backup, create, destroy, open, open_or_create
from ._snapshot import HistorySnapshot
from ._state import RestoredState, restore_state, save_state
from ._store import RESERVED_KEY, KeyValueStore

if TYPE_CHECKING:
    __version__: str
    backend: str  # "cpu" or "cuda"


def __getattr__(name: str) -> str:
    if name == "backend":
        return _backend.name()
    if name == "__version__":
        return _backend.ext.version()
    raise AttributeError(f"module 'holdfast' has no attribute '{name}'")


__all__ = [
    "RESERVED_KEY",
    "Checkpoint",
    "DeviceArray",
    "Error",
    "History",
    "HistorySnapshot",
    "KeyValueStore",
    "Map",
    "MemoryServer",
    "PendingSave",
    "Region",
    "RestoredState",
    "StoredBuffer",
    "Ticket",
    "backend",
    "backup",
    "create",
    "destroy",
    "open",
    "open_or_create",
    "restore_state",
    "save_state",
]
