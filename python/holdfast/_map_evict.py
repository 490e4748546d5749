"""Batches of a map that evict pairs by their scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ._backend import ext
from ._buffers import Buffer, is_torch
from ._map_arrays import _FOUND, _SCORE, _STATUS, _Arrays

if TYPE_CHECKING:
    from ._map import Map


class MapEvicted(NamedTuple):
    """What Map.insert_and_evict() has left out of the map, and what became of the batch."""

    keys: Any  # of the pairs that went, in no order
    values: Any  # that they had
    scores: Any  # likewise; of uint64
    status: Any  # by operation: a MapStatus
    result: ext.MapResult  # how many had which

    @property
    def evicted(self) -> int:
        """How many were in the map; the others are of the batch, and are not done."""
        return len(self.keys) - self.result.not_done


def insert_and_evict(
    table: Map, arrays: _Arrays, keys: Any, values: Any, scores: Any, status: Any
) -> MapEvicted:
    """Makes the call, with arrays for what goes of the library of keys, and on their device."""
    given = table._given_keys(arrays, keys)
    count = given.shape[0]
    to = arrays.given(values, "values", table._value, count)
    by = 0 if scores is None else arrays.given(scores, "scores", _SCORE, count).address
    (went, at), (rows, rows_at), (had, had_at) = rooms_for(table, arrays, given, count)
    status, became = arrays.taken(status, "status", _STATUS, given)
    streams = arrays.streams()
    said = table._map.insert_and_evict(
        given.address, to.address, by, count,
        at.address, rows_at.address, had_at.address, became.address, streams,
    )  # fmt: skip
    some = said.count
    return MapEvicted(went[:some], rows[:some], had[:some], status, said.result)


def rooms_for(table: Map, arrays: _Arrays, given: Buffer, count: int) -> list[tuple[Any, Buffer]]:
    """Returns arrays for the keys, values and scores of what goes."""
    return [
        _room_for_keys(table, arrays, given, count),
        arrays.zeros(given, "evicted values", table._value, count),
        arrays.zeros(given, "evicted scores", _SCORE, count),
    ]


def _room_for_keys(table: Map, arrays: _Arrays, given: Buffer, count: int) -> tuple[Any, Buffer]:
    """As the keys are that were given: a library's on a device, else of the map's own type."""
    source = given.keep
    if is_torch(source) or type(source).__module__.partition(".")[0] == "cupy":
        return arrays.zeros(given, "evicted keys", table._key, count)
    room = table._room_for_keys(count)
    of = table._rows_of(arrays, room, "evicted keys")
    return room, arrays.given(of, "evicted keys", table._key, count, written=True)


def scores_of(table: Map, arrays: _Arrays, keys: Any) -> tuple[Any, Any]:
    """Returns (scores, found) of keys."""
    given = table._given_keys(arrays, keys)
    count = given.shape[0]
    scores, at = arrays.zeros(given, "scores", _SCORE, count)
    found, flags = arrays.zeros(given, "found", _FOUND, count)
    streams = arrays.streams()
    table._map.scores(given.address, at.address, flags.address, count, streams)
    return scores, found
