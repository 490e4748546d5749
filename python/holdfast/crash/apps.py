"""What a crash campaign can run. An application is one small class: see App."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .._region import Region

U64 = npt.NDArray[np.uint64]


def _no_values() -> U64:
    return np.empty(0, np.uint64)


@dataclass(frozen=True)
class Batch:
    """One transaction: SETs of `keys` to `values`, or ERASEs of `keys`."""

    keys: U64
    values: U64 = field(default_factory=_no_values)
    erase: bool = False

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Table:
    """What a store must hold: keys in ascending order, and their values."""

    keys: U64 = field(default_factory=_no_values)
    values: U64 = field(default_factory=_no_values)

    def __len__(self) -> int:
        return len(self.keys)

    def same_as(self, other: Table) -> bool:
        return np.array_equal(self.keys, other.keys) and np.array_equal(self.values, other.values)

    def after(self, batch: Batch) -> Table:
        """Returns the table once `batch` was applied. Of a key given twice, the last counts."""
        if batch.erase:
            kept = ~np.isin(self.keys, batch.keys)
            return Table(self.keys[kept], self.values[kept])
        reversed_keys = batch.keys[::-1]
        keys, last = np.unique(reversed_keys, return_index=True)
        values = batch.values[::-1][last]
        place = np.searchsorted(self.keys, keys)
        known = np.zeros(len(keys), bool)
        inside = place < len(self.keys)
        known[inside] = self.keys[place[inside]] == keys[inside]
        updated = self.values.copy()
        updated[place[known]] = values[known]
        new = ~known
        return Table(
            np.insert(self.keys, place[new], keys[new]),
            np.insert(updated, place[new], values[new]),
        )


@dataclass(frozen=True)
class Verdict:
    """What was found after a crash."""

    in_flight: str  # "none", "absent", "whole" or "torn": the batch that was not acknowledged
    lost: int  # acknowledged records that are missing, wrong, or back after an ERASE


def _look_up(keys: U64, values: U64, wanted: U64) -> tuple[npt.NDArray[np.bool_], U64]:
    """Returns which of `wanted` are in ascending `keys`, and their values."""
    place = np.searchsorted(keys, wanted)
    present = np.zeros(len(wanted), bool)
    inside = place < len(keys)
    present[inside] = keys[place[inside]] == wanted[inside]
    found = np.zeros(len(wanted), np.uint64)
    found[present] = values[place[present]]
    return present, found


def judge(keys: U64, values: U64, before: Table, batch: Batch | None) -> Verdict:
    """Compares all that a store holds with what it may hold.

    before: every acknowledged batch. batch: the one that was sent and not acknowledged.
    """
    order = np.argsort(keys, kind="stable")
    found = Table(keys[order], values[order])
    if batch is None:
        return Verdict("none", 0 if found.same_as(before) else _differences(found, before))
    after = before.after(batch)
    if found.same_as(after):
        return Verdict("whole", 0)
    if found.same_as(before):
        return Verdict("absent", 0)

    touched = np.unique(batch.keys)
    outside = [
        Table(table.keys[mask], table.values[mask])
        for table in (found, before)
        for mask in [~np.isin(table.keys, touched)]
    ]
    lost = _differences(*outside)
    states = [_look_up(table.keys, table.values, touched) for table in (found, before, after)]
    (found_present, found_value), *expected = states
    is_before, is_after = (
        (found_present == present) & (found_value == value) for present, value in expected
    )
    lost += int(np.count_nonzero(~is_before & ~is_after))
    duplicates = len(found.keys) - len(np.unique(found.keys))
    if is_after.all() and not duplicates:
        return Verdict("whole", lost)
    if is_before.all() and not duplicates:
        return Verdict("absent", lost)
    return Verdict("torn", lost)


def _differences(found: Table, expected: Table) -> int:
    """Counts keys that are missing, have another value, are there twice or should not be."""
    present, value = _look_up(found.keys, found.values, expected.keys)
    wrong = int(np.count_nonzero(~present | (value != expected.values)))
    stray = len(found.keys) - int(np.count_nonzero(present))
    return wrong + stray


class App(Protocol):
    """An application that a campaign can run. To add one, write this class and name it in APPS."""

    name: str
    # The object of the transaction that each batch is, for kills that are aimed at it; empty: none,
    # and such kills come at any moment of the batch.
    transaction: str

    def __init__(self, max_batch: int, *, layout: str = "in_place") -> None: ...

    # In the campaign's process, which never opens the region.
    def make_batch(self, rng: np.random.Generator, table: Table) -> Batch: ...
    def expected(self, table: Table, batch: Batch) -> Table: ...
    def compare(self, dump: Any, before: Table, batch: Batch | None) -> Verdict: ...
    def region_bytes(self) -> int: ...

    # In the worker's process.
    def create(self, region: Region) -> Any: ...
    def open(self, region: Region) -> tuple[Any, dict[str, Any]]: ...
    def apply(self, store: Any, batch: Batch) -> dict[str, Any]: ...
    def dump(self, store: Any) -> Any: ...
    def verify(self, store: Any) -> str: ...


class Gpkvs:
    """The key-value store: batches of SETs of new and of known keys, and of ERASEs."""

    name = "gpkvs"

    def __init__(
        self, max_batch: int = 4096, capacity: int | None = None, layout: str = "in_place"
    ) -> None:
        self.max_batch = max_batch
        self.layout = layout
        self.capacity = capacity or max(1 << 14, 64 * max_batch)
        # Few enough that no bucket of eight fills up: an eviction could not be told from a loss.
        self.most_records = self.capacity // 16
        self.transaction = "kvs.tx"
        if layout == "log":  # it evicts nothing; a small log is cleaned often
            self.capacity = self.most_records + max_batch
            self.transaction = ""

    def make_batch(self, rng: np.random.Generator, table: Table) -> Batch:
        count = int(rng.integers(min(64, self.max_batch), self.max_batch + 1))
        full = len(table) + count > self.most_records
        if len(table) and (full or rng.random() < 0.25):
            known = rng.choice(table.keys, min(count, len(table)), replace=False)
            absent = rng.integers(0, 2**64 - 1, max(1, count // 8), np.uint64)
            return Batch(rng.permutation(np.concatenate([known, absent]))[:count], erase=True)
        updates = int(rng.integers(0, count + 1)) if len(table) else 0
        fresh = rng.integers(0, 2**64 - 1, count - updates, np.uint64)
        keys = np.concatenate([rng.choice(table.keys, updates), fresh]) if updates else fresh
        return Batch(rng.permutation(keys), rng.integers(0, 2**64 - 1, count, np.uint64))

    def expected(self, table: Table, batch: Batch) -> Table:
        return table.after(batch)

    def compare(self, dump: Any, before: Table, batch: Batch | None) -> Verdict:
        keys, values = dump
        return judge(keys, values, before, batch)

    def region_bytes(self) -> int:
        from .._store import KeyValueStore

        return KeyValueStore.region_bytes(self.capacity, self.max_batch, self.layout)

    def create(self, region: Region) -> Any:
        from .._store import KeyValueStore

        return KeyValueStore.create(region, self.capacity, self.max_batch, layout=self.layout)

    def open(self, region: Region) -> tuple[Any, dict[str, Any]]:
        from .._store import KeyValueStore

        store = KeyValueStore.open(region)
        report = store.recovery()
        return store, {"needed": report.needed, "undone": report.undone}

    def apply(self, store: Any, batch: Batch) -> dict[str, Any]:
        result = store.erase(batch.keys) if batch.erase else store.set(batch.keys, batch.values)
        return {"evicted": result.evicted}

    def dump(self, store: Any) -> Any:
        return store.scan()

    def verify(self, store: Any) -> str:
        return str(store.verify())


APPS: dict[str, type[App]] = {"gpkvs": Gpkvs}
