"""Holdfast: persistent memory for GPU programs.

>>> import holdfast
>>> with holdfast.create("state.hf", size=1 << 20) as region:
...     weights = region.allocate("weights", 1000, "float32")
...     weights[:] = 1.0
"""

from typing import TYPE_CHECKING

from . import _backend
from ._bytes_map import BytesMap, ByteStrings
from ._checkpoint import Checkpoint, PendingSave, StoredBuffer
from ._errors import Error
from ._history import History, Ticket
from ._log_map import LogMap
from ._map import Map
from ._map_changes import MapChanges, MapVersion
from ._map_evict import MapEvicted
from ._map_memory import MapCache
from ._map_mixed import MapApplied
from ._memory_server import MemoryServer
from ._partner_memory import PartnerMemory
from ._region import DeviceArray, Region, backup, create, destroy, open, open_or_create
from ._sharded_map import ShardedMap
from ._snapshot import HistorySnapshot
from ._state import RestoredState, restore_state, save_state
from ._store import RESERVED_KEY, KeyValueStore

if TYPE_CHECKING:
    from ._backend import ext

    MapOp = ext.MapOp
    MapStatus = ext.MapStatus
    __version__: str
    backend: str  # "cpu" or "cuda"


def __getattr__(name: str) -> object:  # what needs a backend, which there may be none of
    if name == "backend":
        return _backend.name()
    if name in ("MapOp", "MapStatus"):
        return getattr(_backend.ext, name)
    if name == "__version__":
        return _backend.ext.version()
    raise AttributeError(f"module 'holdfast' has no attribute '{name}'")


__all__ = [
    "RESERVED_KEY",
    "ByteStrings",
    "BytesMap",
    "Checkpoint",
    "DeviceArray",
    "Error",
    "History",
    "HistorySnapshot",
    "KeyValueStore",
    "LogMap",
    "Map",
    "MapApplied",
    "MapCache",
    "MapChanges",
    "MapEvicted",
    "MapOp",
    "MapStatus",
    "MapVersion",
    "MemoryServer",
    "PartnerMemory",
    "PendingSave",
    "Region",
    "RestoredState",
    "ShardedMap",
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
