"""What a map's record of changes gives."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._backend import ext
from ._errors import Error, checked_number


class MapVersion(NamedTuple):
    """A moment of a map that records its changes. It says nothing to any other map."""

    opening: int  # of the map; drawn at random
    number: int  # operations recorded before it
    seen: int = 0  # who is at it may have values of operations up to here


class MapChanges(NamedTuple):
    """What has changed in a map between two versions; Map.export_changes() gives it."""

    upserts: tuple[Any, Any]  # keys that are there, and their values
    tombstones: Any  # keys that are not there
    since: MapVersion
    to: MapVersion


def native_version(version: Any, what: str) -> ext.MapVersion:
    if not isinstance(version, tuple) or len(version) not in (2, 3):
        raise Error(f"{what} is {version!r}: give a MapVersion, such as version() returns")
    return ext.MapVersion(*(checked_number(number, what) for number in version))


def version_of(version: ext.MapVersion) -> MapVersion:
    return MapVersion(version.opening, version.number, version.seen)
