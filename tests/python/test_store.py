"""The key-value store on NumPy arrays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import holdfast
from holdfast import KeyValueStore

CAPACITY = 4096
MAX_BATCH = 512


@pytest.fixture
def store(path: Path) -> Iterator[KeyValueStore]:
    size = KeyValueStore.region_bytes(CAPACITY, MAX_BATCH)
    with holdfast.create(path, size) as region:
        yield KeyValueStore(region, capacity=CAPACITY, max_batch=MAX_BATCH)


def u64(*values: int) -> npt.NDArray[np.uint64]:
    return np.array(values, np.uint64)


def test_set_get_erase(store: KeyValueStore) -> None:
    result = store.set(u64(1, 2, 3), u64(10, 20, 30))
    assert (result.inserted, result.updated, result.evicted) == (3, 0, 0)
    result = store.set([2, 4], [21, 40])
    assert (result.inserted, result.updated) == (1, 1)
    values, found = store.get([1, 2, 3, 4, 5])
    assert values.tolist() == [10, 21, 30, 40, 0]
    assert found.tolist() == [True, True, True, True, False]
    assert values.dtype == np.uint64
    assert found.dtype == np.bool_
    assert store.erase([1, 5]).removed == 1
    assert len(store) == 3
    keys, values = store.scan()
    assert dict(zip(keys.tolist(), values.tolist(), strict=True)) == {2: 21, 3: 30, 4: 40}
    assert store.verify() == ""
    assert store.stats().batches == 3
    assert store.stats().total.inserted == 4
    assert store.timing().update >= 0


@pytest.mark.parametrize("index", ["whole", "fingerprints"])
def test_a_log_holds_what_the_table_would(path: Path, index: str) -> None:
    rng = np.random.default_rng(7)
    size = KeyValueStore.region_bytes(1024, 200, "log")
    oracle: dict[int, int] = {}
    with holdfast.create(path, size) as region:
        log = KeyValueStore(region, capacity=1024, max_batch=200, layout="log", index=index)
        for round_ in range(30):
            keys = rng.integers(0, 900, 200, np.uint64)
            if round_ % 4 == 3:
                log.erase(keys)
                for key in keys.tolist():
                    oracle.pop(key, None)
            else:
                log.set(keys, keys * np.uint64(round_))
                oracle.update((key, key * round_) for key in keys.tolist())
        keys, values = log.scan()
        assert dict(zip(keys.tolist(), values.tolist(), strict=True)) == oracle
        stats = log.stats()
        assert (stats.layout, stats.index, stats.records) == ("log", index, len(oracle))
        assert stats.cached == (index == "whole")
        asked = range(750, 950)  # from 900 on there are none
        values, found = log.get(np.array(asked, np.uint64))
        assert found.tolist() == [key in oracle for key in asked]
        assert values.tolist() == [oracle.get(key, 0) for key in asked]
        assert stats.copied_records > 0
        assert stats.write_amplification > 1
        assert stats.space_amplification >= 1
        with pytest.raises(holdfast.Error) as raised:
            for first in range(0, 2000, 200):
                log.set(np.arange(first, first + 200, dtype=np.uint64), np.zeros(200, np.uint64))
        assert raised.value.code == "no_space"
        assert log.verify() == ""
    with holdfast.open(path) as region:
        log = KeyValueStore(region)
        assert log.stats().layout == "log"
        assert log.verify() == ""
        for other in ("fingerprints", "whole"):  # whatever it had before
            log = KeyValueStore.open(region, index=other)
            assert log.stats().index == other
            assert log.verify() == ""
        with pytest.raises(holdfast.Error, match="automatic, whole or fingerprints"):
            KeyValueStore.open(region, index="tree")


def test_layouts_are_named(path: Path) -> None:
    with holdfast.create(path, KeyValueStore.region_bytes(64, 10)) as region:
        assert KeyValueStore(region, 64, 10).stats().index == "none"
    with pytest.raises(holdfast.Error, match="in_place or log"):
        KeyValueStore.region_bytes(100, 10, "tree")
    with pytest.raises(holdfast.Error, match="log_records"):
        KeyValueStore.region_bytes(100, 10, "in_place", 1000)
    with pytest.raises(holdfast.Error, match="log_records"):
        KeyValueStore.region_bytes(100, 10, "log", -1)


def test_opened_again_the_earlier_one_is_closed(store: KeyValueStore) -> None:
    store.set([1], [5])
    again = KeyValueStore(store.region)
    again.set([1], [7])
    calls = (lambda: store.get([1]), lambda: store.set([1], [6]), store.scan, store.verify)
    for call in calls:
        with pytest.raises(holdfast.Error) as raised:
            call()
        assert raised.value.code == "closed"
    assert again.get([1])[0].tolist() == [7]
    assert again.verify() == ""


def test_it_is_there_again(path: Path) -> None:
    keys = np.arange(1, 301, dtype=np.uint64)
    with holdfast.create(path, KeyValueStore.region_bytes(CAPACITY, MAX_BATCH)) as region:
        with pytest.raises(holdfast.Error) as raised:
            KeyValueStore(region)
        assert raised.value.code == "not_found"
        KeyValueStore(region, CAPACITY, MAX_BATCH).set(keys, keys * np.uint64(3))
    with holdfast.open(path) as region:
        store = KeyValueStore(region)
        assert not store.recovery().needed
        values, found = store.get(keys)
        assert found.all()
        np.testing.assert_array_equal(values, keys * np.uint64(3))


@pytest.mark.parametrize("cache", ["on", "off", "automatic"])
def test_cache(path: Path, cache: str) -> None:
    size = KeyValueStore.region_bytes(CAPACITY, MAX_BATCH)
    with holdfast.create(path, size) as region:
        with pytest.raises(holdfast.Error, match="use automatic, on or off"):
            KeyValueStore(region, CAPACITY, MAX_BATCH, cache="yes")
        store = KeyValueStore.create(region, CAPACITY, MAX_BATCH, cache=cache)
        if cache != "automatic":  # that depends on the device
            assert store.stats().cached == (cache == "on")
        store.set([1, 2], [10, 20])
        store.erase([2])
        values, found = store.get([1, 2])
        assert (values.tolist(), found.tolist()) == ([10, 0], [True, False])
        assert store.verify() == ""
    with holdfast.open(path) as region:
        store = KeyValueStore.open(region, cache=cache)
        assert store.get([1])[0].tolist() == [10]
        assert store.verify() == ""


def test_bad_input_changes_nothing(store: KeyValueStore) -> None:
    store.set([1], [1])
    wide = np.zeros((2, 2), np.uint64)
    with pytest.raises(TypeError, match="masked array"):
        store.set(np.ma.array(u64(1, 2), mask=[False, True]), u64(1, 2))
    with pytest.raises(TypeError, match="astype"):
        store.set(np.array([1]), u64(1))
    with pytest.raises(ValueError, match="ravel"):
        store.set(wide, wide)
    with pytest.raises(ValueError, match="ascontiguousarray"):
        store.set(wide.T[0], u64(1, 2))
    with pytest.raises(ValueError, match="2\\*\\*64"):
        store.get([-1])
    with pytest.raises(ValueError, match="list of lists"):
        store.set([[1], [2]], [[1], [2]])
    operations = np.ma.array(np.zeros(2, np.uint8), mask=[False, True])
    with pytest.raises(holdfast.Error, match="masked array"):
        store.apply(operations, u64(1, 2), u64(1, 2))
    for opening in (KeyValueStore, KeyValueStore.open, lambda none: KeyValueStore.create(none, 8)):
        with pytest.raises(holdfast.Error, match="the region of a store is None"):
            opening(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        store.get(["a"])
    with pytest.raises(holdfast.Error, match="2 keys and 1 values"):
        store.set([1, 2], [1])
    for keys in (np.arange(MAX_BATCH + 1, dtype=np.uint64), u64(5, holdfast.RESERVED_KEY)):
        with pytest.raises(holdfast.Error) as raised:
            store.set(keys, keys)
        assert raised.value.code == "invalid_argument"
    assert len(store) == 1
    assert store.verify() == ""


def test_a_store_ends_with_its_region(path: Path) -> None:
    region = holdfast.create(path, KeyValueStore.region_bytes(CAPACITY, MAX_BATCH))
    store = KeyValueStore.create(region, CAPACITY, MAX_BATCH)
    region.close()
    with pytest.raises(holdfast.Error) as raised:
        store.set([1], [1])
    assert raised.value.code == "closed"
    del store


def test_threads_take_turns(store: KeyValueStore) -> None:
    def work(first: int) -> None:
        keys = np.arange(first, first + 100, dtype=np.uint64)
        for _ in range(5):
            store.set(keys, keys)

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store) == 400
    assert store.verify() == ""


@pytest.mark.parametrize("order", ["automatic", "ordered", "unordered"])
def test_the_order_does_not_matter(store: KeyValueStore, order: str) -> None:
    store.set_order(order)
    keys = np.random.default_rng(1).permutation(np.arange(1, 401, dtype=np.uint64))
    store.set(keys, keys)
    values, found = store.get(keys)
    assert found.all()
    np.testing.assert_array_equal(values, keys)


def test_order_and_size_are_checked(store: KeyValueStore, tmp_path: Path) -> None:
    with pytest.raises(holdfast.Error, match="order"):
        store.set_order("sideways")
    with holdfast.create(tmp_path / "small.hf", 1 << 16) as region:
        with pytest.raises(holdfast.Error) as raised:
            KeyValueStore(region, capacity=1 << 20)
        assert raised.value.code == "no_space"
