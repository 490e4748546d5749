"""Holdfast: persistent memory for GPU programs.

>>> import holdfast
>>> with holdfast.create("state.hf", size=1 << 20) as region:
...     weights = region.allocate("weights", 1000, "float32")
...     weights[:] = 1.0
"""

from . import _backend
from ._errors import Error
from ._region import DeviceArray, Region, create, destroy, open
from ._store import RESERVED_KEY, KeyValueStore

__version__: str = _backend.ext.version()
backend: str = _backend.name()

__all__ = [
    "RESERVED_KEY",
    "DeviceArray",
    "Error",
    "KeyValueStore",
    "Region",
    "backend",
    "create",
    "destroy",
    "open",
]
