"""holdfast.dynamicemb against the contract of dynamicemb's Storage: types.py, and its callers.

With PyTorch where that is installed, and else with what stands for its tensors.
"""

from __future__ import annotations

import abc
import enum
import gc
import importlib.util
import inspect
import json
import os
import random
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
import tensor_stand_in
from holdfast.dynamicemb import MapStorage, region_bytes, storage_in

INITIAL = 0.5  # of optimizer states


class CopyMode(enum.Enum):
    EMBEDDING = "embedding"
    VALUE = "value"


class Evict(enum.Enum):
    LRU = 0
    LFU = 1


@dataclass
class Options:
    dim: int
    embedding_dtype: Any
    max_capacity: int = 500
    evict_strategy: Any = Evict.LFU
    dist_type: str = "roundrobin"


class Optimizer:
    """Adam's widths; of a state the first column alone goes to files."""

    def __init__(self, kind: str = "adam") -> None:
        self.kind = kind
        self.rate = 0.1

    def get_state_dim(self, dim: int) -> int:
        return 0 if self.kind == "sgd" else 2 * dim

    def get_ckpt_state_dim(self, dim: int) -> int:
        return 0 if self.kind == "sgd" else dim

    def get_initial_optim_states(self) -> float:
        return INITIAL

    def get_opt_args(self) -> dict[str, Any]:
        return {"opt_type": self.kind, "lr": self.rate}

    def set_opt_args(self, args: dict[str, Any]) -> None:
        self.rate = args["lr"]


FILES = "table_id meta_file_path emb_key_path embedding_file_path score_file_path opt_file_path"
# The abstract methods of dynamicemb.types.Storage.
CONTRACT = {
    "find": "unique_keys table_ids copy_mode lfu_accumulated_frequency",
    "insert": "keys table_ids values scores preserve_existing",
    "dump": f"{FILES} timestamp",
    "load": f"{FILES} include_optim timestamp",
    "embedding_dtype": "",
    "embedding_dim": "table_id",
    "value_dim": "table_id",
    "max_embedding_dim": "",
    "max_value_dim": "",
    "embedding_dims": "on_device",
    "all_dims_vec4": "",
    "init_optimizer_state": "",
    "export_keys_values": "device batch_size table_id",
}


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    if importlib.util.find_spec("torch") is None:
        if holdfast.backend == "cuda":
            pytest.skip("tensors of the CPU alone")
        monkeypatch.setitem(sys.modules, "torch", tensor_stand_in.module())
    import torch

    return torch


class Tables:
    """Two tables in a region, and what they hold: (table, key) to (row, score)."""

    DIMS = (4, 6)

    def __init__(self, torch: Any, path: Path, optimizer: Optimizer | None = None) -> None:
        self.torch, self.path = torch, path
        self.optimizer = optimizer or Optimizer()
        states = [self.optimizer.get_state_dim(dim) for dim in self.DIMS]
        self.states = states
        self.there: dict[tuple[int, int], tuple[tuple[list[float], list[float]], int]] = {}
        if path.exists():
            self.region = holdfast.open(path)
        else:
            size = region_bytes([(500, torch.float32, dim + state) for dim, state
                                 in zip(self.DIMS, states, strict=True)], 100)  # fmt: skip
            self.region = holdfast.create(path, size)
        self.storage: Any = self.make()

    def make(self, evict: Evict = Evict.LFU) -> Any:
        kind = storage_in(self.region, "emb", max_batch=100)
        options = [Options(dim, self.torch.float32, evict_strategy=evict) for dim in self.DIMS]
        return kind(options, self.optimizer)

    def close(self) -> None:
        self.region.abandon()

    def integers(self, numbers: Any) -> Any:
        return self.torch.tensor(list(numbers), dtype=self.torch.int64, device=self.storage.device)

    def insert(
        self, pairs: list[tuple[int, int]], rows: Any, scores: list[int] | None, keep: bool = False
    ) -> None:
        first = self.storage.max_embedding_dim()
        values = self.torch.tensor(
            rows.tolist(), dtype=self.torch.float32, device=self.storage.device
        )
        self.storage.insert(
            self.integers(key for _, key in pairs),
            self.integers(table for table, _ in pairs),
            values,
            None if scores is None else self.integers(scores),
            preserve_existing=keep,
        )
        for i, (table, key) in enumerate(pairs):
            new = (table, key) not in self.there
            _, score = self.there.get((table, key), (None, 0))
            if scores is not None and (new or not keep):
                score = scores[i]
            row = rows[i].tolist()
            state = row[first : first + self.states[table]]
            self.there[table, key] = ((row[: self.DIMS[table]], state), score)

    def expect_found(self, pairs: list[tuple[int, int]], mode: CopyMode, lfu: bool) -> None:
        keys, ids = (self.integers(pair[i] for pair in pairs) for i in (1, 0))
        frequency = self.integers(range(1, len(pairs) + 1)) if lfu else None
        number, missing_keys, at, tables, missing_scores, founds, scores, values = (
            self.storage.find(keys, ids, copy_mode=mode, lfu_accumulated_frequency=frequency)
        )
        absent = [i for i, pair in enumerate(pairs) if pair not in self.there]
        assert isinstance(number, int)
        assert number == len(absent)
        assert at.tolist() == absent
        assert missing_keys.tolist() == [pairs[i][1] for i in absent]
        assert tables.tolist() == [pairs[i][0] for i in absent]
        assert (missing_scores.tolist() if lfu else missing_scores) == (
            [i + 1 for i in absent] if lfu else None
        )
        assert founds.tolist() == [pair in self.there for pair in pairs]
        first = self.storage.max_embedding_dim()
        width = first if mode is CopyMode.EMBEDDING else self.storage.max_value_dim()
        assert list(values.shape) == [len(pairs), width]
        for i, (pair, row) in enumerate(zip(pairs, values.tolist(), strict=True)):
            if pair not in self.there:
                assert scores[i] == 0
                assert not any(row)
                continue
            (embedding, state), score = self.there[pair]
            if lfu:
                score += i + 1
                self.there[pair] = ((embedding, state), score)
            assert scores[i] == score
            assert row[: self.DIMS[pair[0]]] == embedding
            if mode is CopyMode.VALUE:
                assert row[first : first + len(state)] == state

    def expect_exported(self) -> None:
        for table, dim in enumerate(self.DIMS):
            found = {}
            for keys, embeddings, states, scores in self.storage.export_keys_values(
                self.torch.device("cpu"), 70, table
            ):
                assert 0 < len(keys) <= 70
                assert list(embeddings.shape) == [len(keys), dim]
                parts = (keys.tolist(), embeddings.tolist(),
                         states.tolist() if states is not None else [[]] * len(keys),
                         scores.tolist())  # fmt: skip
                for key, embedding, state, score in zip(*parts, strict=True):
                    assert key not in found
                    found[key] = ((embedding, state), score)
            expected = {key: row for (of, key), row in self.there.items() if of == table}
            assert found == expected


@pytest.fixture
def tables(torch: Any, path: Path) -> Iterator[Tables]:
    made = Tables(torch, path)
    yield made
    made.close()


def some(rng: np.random.Generator, count: int, width: int) -> tuple[list[tuple[int, int]], Any]:
    """Keys of both tables, each once, and rows."""
    flat = rng.choice(600, count, replace=False).tolist()
    rows = rng.integers(-50, 50, (count, width)).astype(np.float32)
    return [(number % 2, number // 2) for number in flat], rows


def test_it_has_what_the_contract_names(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> None:
    for name, parameters in CONTRACT.items():
        has = list(inspect.signature(getattr(MapStorage, name)).parameters)[1:]
        wanted = parameters.split()
        assert has[: len(wanted)] == wanted, name
        assert callable(getattr(tables.storage, name))
    module = types.ModuleType("dynamicemb.types")
    storage: Any = abc.ABCMeta(
        "Storage", (), {name: abc.abstractmethod(lambda: 0) for name in CONTRACT}
    )
    vars(module)["Storage"] = storage
    monkeypatch.setitem(sys.modules, "dynamicemb.types", module)
    kind = storage_in(tables.region, "other")
    assert issubclass(kind, storage)  # as external_storage has to be
    # What its write-back asks any storage.
    assert getattr(tables.storage._state, "no_eviction_next_index", None) is None


def test_dimensions(tables: Tables) -> None:
    storage = tables.storage
    assert [storage.embedding_dim(table) for table in (0, 1)] == [4, 6]
    assert [storage.value_dim(table) for table in (0, 1)] == [12, 18]
    assert (storage.max_embedding_dim(), storage.max_value_dim()) == (6, 18)
    for on_device in (False, True):
        dims = storage.embedding_dims(on_device)
        assert dims.tolist() == [4, 6]
        assert dims is storage.embedding_dims(on_device=on_device)  # lives as long as the storage
    assert not storage.all_dims_vec4()
    assert storage.init_optimizer_state() == INITIAL
    assert storage.embedding_dtype() == tables.torch.float32


def test_random_programs_leave_what_a_dict_has(torch: Any, path: Path) -> None:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", random.randrange(2**32)))
    print(f"HOLDFAST_TEST_SEED={seed}")
    rng = np.random.default_rng(seed)
    tables = Tables(torch, path)
    for step in range(24):
        pairs, rows = some(rng, int(rng.integers(1, 300)), tables.storage.max_value_dim())
        what = int(rng.integers(5))
        if what < 3:
            scores = rng.integers(1, 1000, len(pairs)).tolist() if what else None
            tables.insert(pairs, rows, scores, keep=what == 2)
        else:
            mode = CopyMode.VALUE if rng.integers(2) else CopyMode.EMBEDDING
            tables.expect_found(pairs, mode, lfu=what == 4)
        assert tables.storage.size() == len(tables.there)
        if step % 8 == 7:  # as a killed process leaves it
            tables.expect_exported()
            there = tables.there
            tables.close()
            tables = Tables(torch, path)
            tables.there = there
    tables.expect_exported()
    tables.expect_found([], CopyMode.VALUE, lfu=True)
    tables.close()


def test_rows_of_half_precision_that_do_not_fill_words(torch: Any, path: Path) -> None:
    size = region_bytes([(100, torch.float16, 5)], 64)
    with holdfast.create(path, size) as region:
        kind = storage_in(region, "half", max_batch=64)
        storage = kind([Options(5, torch.float16, 100)], Optimizer("sgd"))
        assert (storage.value_dim(0), storage.max_value_dim()) == (5, 5)
        keys = torch.tensor([7, 8], dtype=torch.int64, device=storage.device)
        ids = torch.tensor([0, 0], dtype=torch.int64, device=storage.device)
        rows = torch.tensor(
            [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], dtype=torch.float16, device=storage.device
        )
        storage.insert(keys, ids, rows)
        found = storage.find(keys, ids, CopyMode.VALUE)
        assert found[7].tolist() == rows.tolist()
        ((_, embeddings, states, _),) = storage.export_keys_values(torch.device("cpu"), 1000)
        assert states is None
        assert embeddings.dtype == torch.float32


def paths_in(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [str(folder / name) for name in ("meta", "keys", "embeddings", "scores", "states")]


@pytest.mark.parametrize("evict", Evict)
def test_dumps_are_loaded(torch: Any, tmp_path: Path, evict: Evict) -> None:
    rng = np.random.default_rng(5)
    tables = Tables(torch, tmp_path / "a.hf")
    tables.storage = None
    tables.storage = tables.make(evict)
    pairs, rows = some(rng, 300, 18)
    tables.insert(pairs, rows, rng.integers(100, 900, 300).tolist())
    for table in (0, 1):
        tables.storage.dump(table, *paths_in(tmp_path / str(table)), include_optim=True,
                            include_meta=True, current_score=41, timestamp=1000)  # fmt: skip
    keys = np.fromfile(tmp_path / "1" / "keys", np.int64)
    assert {(1, key) for key in keys.tolist()} == {pair for pair in pairs if pair[0] == 1}
    embeddings = np.fromfile(tmp_path / "1" / "embeddings", np.float32).reshape(-1, 6)
    scores = np.fromfile(tmp_path / "1" / "scores", np.int64)
    states = np.fromfile(tmp_path / "1" / "states", np.float32).reshape(-1, 6)
    for key, embedding, score, state in zip(
        keys.tolist(), embeddings.tolist(), scores.tolist(), states.tolist(), strict=True
    ):
        (expected, expected_state), expected_score = tables.there[1, key]
        assert embedding == expected
        assert state == expected_state[:6]  # as many as the optimizer writes to files
        assert score == (1000 - expected_score if evict is Evict.LRU else expected_score)

    other = Tables(torch, tmp_path / "b.hf")
    other.storage = None
    other.storage = other.make(evict)
    other.optimizer.rate = 9
    for table in (0, 1):
        assert other.storage.load(table, *paths_in(tmp_path / str(table)), True, 1500) == 41
    assert other.optimizer.rate == 0.1
    for pair, ((embedding, state), score) in tables.there.items():
        kept = tables.DIMS[pair[0]]
        later = score + 500 if evict is Evict.LRU else score
        other.there[pair] = ((embedding, state[:kept] + [INITIAL] * kept), later)
    other.expect_exported()

    # Without states, scores and meta: those of new rows.
    for pair, ((embedding, state), _) in other.there.items():
        if pair[0] == 0:
            score = other.there[pair][1]
            other.there[pair] = ((embedding, [INITIAL] * len(state)), score)
    names = paths_in(tmp_path / "0")
    other.storage.load(0, "", names[1], names[2], None, None)
    other.expect_exported()
    tables.close()
    other.close()
    for name in ("a.hf", "b.hf"):
        holdfast.destroy(tmp_path / name)


def test_files_that_do_not_fit_are_refused(tables: Tables, tmp_path: Path) -> None:
    pairs, rows = some(np.random.default_rng(5), 50, 18)
    tables.insert(pairs, rows, [1] * 50)
    names = paths_in(tmp_path / "dump")
    tables.storage.dump(0, *names)
    meta = json.loads(Path(names[0]).read_text())
    assert meta == {"opt_type": "adam", "lr": 0.1, "dist_type": "roundrobin"}
    with pytest.raises(holdfast.Error, match=r"embeddings has .* rows of 24 bytes"):
        tables.storage.load(1, *names)
    whole = Path(names[3]).read_bytes()
    Path(names[3]).write_bytes(whole[:-8])
    with pytest.raises(holdfast.Error, match=r"scores has .* rows of 8 bytes"):
        tables.storage.load(0, *names)
    Path(names[3]).write_bytes(whole)
    Path(names[0]).write_text(json.dumps({**meta, "dist_type": "continuous"}))
    with pytest.raises(holdfast.Error, match="by continuous, and the table's are by roundrobin"):
        tables.storage.load(0, *names)
    for text in (b"{", b"\xff\xfe", b"[]", b'{"step_score": "x"}', b"[" * 100_000):
        Path(names[0]).write_bytes(text)
        with pytest.raises(holdfast.Error, match="meta is no meta file") as damaged:
            tables.storage.load(0, *names)
        assert damaged.value.code == "damaged"
    Path(names[0]).write_text(json.dumps(meta))
    for which in (0, 1, 2, 3):
        kept = Path(names[which]).read_bytes()
        Path(names[which]).unlink()
        with pytest.raises(holdfast.Error, match=Path(names[which]).name):
            tables.storage.load(0, *names)
        Path(names[which]).write_bytes(kept)
    tables.expect_exported()  # nothing of them was inserted
    with pytest.raises(holdfast.Error, match="nowhere") as nowhere:
        tables.storage.dump(0, *[str(tmp_path / "nowhere" / name) for name in "abcde"])
    assert nowhere.value.code == "not_found"
    for wrong, says in (
        ([*names[:3], str(tmp_path), names[4]], "is a folder"),
        ([*names[:3], names[1], names[4]], "given twice"),
    ):
        with pytest.raises(holdfast.Error, match=says):
            tables.storage.dump(0, *wrong)
    with pytest.raises(holdfast.Error, match="current_score"):
        tables.storage.dump(0, *names, current_score="x")
    tables.storage.load(0, *names)  # the earlier one is as it was
    assert sorted(path.name for path in (tmp_path / "dump").iterdir()) == sorted(
        Path(name).name for name in names
    )


def test_a_dump_without_states_does_not_take_those_of_an_earlier_one(
    torch: Any, tmp_path: Path
) -> None:
    tables = Tables(torch, tmp_path / "a.hf")
    pairs, rows = some(np.random.default_rng(5), 50, 18)
    tables.insert(pairs, rows, [1] * 50)
    names = paths_in(tmp_path / "dump")
    tables.storage.dump(0, *names)
    tables.storage.dump(0, *names, include_optim=False)
    other = Tables(torch, tmp_path / "b.hf")
    other.storage.load(0, *names)
    for (table, key), ((embedding, state), score) in tables.there.items():
        if table == 0:
            other.there[table, key] = ((embedding, [INITIAL] * len(state)), score)
    other.expect_exported()
    for made in (tables, other):
        made.close()
        holdfast.destroy(made.path)


class Killed(BaseException):
    """Stands for the end of the process: what handles Exception does not see it."""


def cut_off(monkeypatch: pytest.MonkeyPatch, left: int, dump: Any) -> bool:
    """Dumps, and ends where files change for the `left`-th time. Returns whether it did not."""

    def counted(function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return function(*args, **options)

        return call

    with monkeypatch.context() as patched:
        for name in ("open", "unlink", "replace"):
            patched.setattr(Path, name, counted(getattr(Path, name)))
        patched.setattr(os, "fsync", counted(os.fsync))
        try:
            dump()
        except Killed:
            return False
    return True


def loaded(torch: Any, path: Path, names: list[str], dumps: dict[int, Any]) -> int | None:
    """Returns which of the dumps is there, by its scores; None: load() refuses."""
    other = Tables(torch, path)
    try:
        other.storage.load(0, *names)
    except holdfast.Error as error:
        assert error.code == "damaged"
        return None
    else:
        (scores,) = (part[3] for part in other.storage.export_keys_values("cpu", 10_000, 0))
        (which,) = set(scores.tolist())
        other.there = dumps[which]
        other.expect_exported()
        return int(which)
    finally:
        other.close()
        holdfast.destroy(path)


@pytest.mark.parametrize(
    "options", [{}, {"include_meta": False}, {"include_optim": False}], ids=["all", "meta", "optim"]
)
def test_a_dump_that_is_cut_off_is_none(
    monkeypatch: pytest.MonkeyPatch, torch: Any, tmp_path: Path, options: dict[str, bool]
) -> None:
    """At every change of the folder: the earlier dump is there, or this one, or load() refuses."""
    pairs, rows = some(np.random.default_rng(5), 60, 18)
    dumps: dict[int, Any] = {1: {}, 2: {}}
    for which, there in dumps.items():
        with_states = which == 1 or options.get("include_optim", True)
        for pair, row in zip(pairs, (rows + which).tolist(), strict=True):
            if pair[0] == 0:
                state = row[6:10] if with_states else [INITIAL] * 4
                there[pair] = ((row[:4], state + [INITIAL] * 4), which)
    outcomes: list[int | None] = []
    done = False
    while not done:
        names = paths_in(tmp_path / str(len(outcomes)))
        tables = Tables(torch, tmp_path / "a.hf")
        dump = tables.storage.dump
        tables.insert(pairs, rows + 1, [1] * 60)
        dump(0, *names)
        tables.insert(pairs, rows + 2, [2] * 60)  # as many rows
        done = cut_off(monkeypatch, len(outcomes), partial(dump, 0, *names, **options))
        tables.close()
        holdfast.destroy(tables.path)
        outcomes.append(loaded(torch, tmp_path / "b.hf", names, dumps))
        assert len(outcomes) < 200
    assert outcomes[-1] == 2
    assert outcomes == sorted(outcomes, key=lambda which: {1: 0, None: 1, 2: 2}[which])
    assert set(outcomes) == {1, None, 2}


def test_misuse_is_named(torch: Any, tables: Tables) -> None:
    kind = type(tables.storage)
    options = [Options(4, torch.float32)]
    numbers = tables.integers
    row = np.ones((2, 18), np.float32)
    for keys, ids, values, score, says in (
        ([1, 2], [0, 2], row, None, "1 of 2 table ids are of no table"),
        ([1, 2], [-1, -1], row, None, "2 of 2 table ids"),
        ([1, 2], [0], row, None, "2 keys have 1 table ids"),
        ([1, 2], [0, 1], np.ones((2, 19), np.float32), None, r"\[2, 19\]"),
        ([1, 2], [0, 1], row, np.ones(2, np.float32), "whole number"),
        ([1, 2], [0, 1], row, np.ones(3, np.int64), "3 scores"),
    ):
        device = tables.storage.device
        given = torch.tensor(values.tolist(), dtype=torch.float32, device=device)
        scores = None
        if score is not None:
            kind_of = torch.float32 if score.dtype == np.float32 else torch.int64
            scores = torch.tensor(score.tolist(), dtype=kind_of, device=device)
        with pytest.raises(holdfast.Error, match=says):
            tables.storage.insert(numbers(keys), numbers(ids), given, scores)
    with pytest.raises(holdfast.Error, match="of no table"):
        tables.storage.find(numbers([1]), numbers([2]), CopyMode.VALUE)
    for of_table in (2, -1):
        with pytest.raises(holdfast.Error, match="table_id"):
            tables.storage.embedding_dim(of_table)
        with pytest.raises(holdfast.Error, match="table_id"):
            list(tables.storage.export_keys_values(torch.device("cpu"), 10, of_table))
    assert tables.storage.size() == 0
    with pytest.raises(holdfast.Error, match="give each group a class of its own") as raised:
        kind(options, Optimizer())
    assert raised.value.code == "in_use"
    with pytest.raises(holdfast.Error, match=r"storage_in\(region\)"):
        MapStorage(options, Optimizer())
    with pytest.raises(holdfast.Error, match="several embedding_dtypes"):
        storage_in(tables.region, "x")([*options, Options(4, torch.float16)], Optimizer())
    tables.storage = None
    gc.collect()
    with pytest.raises(holdfast.Error, match="float32 x 12, and is opened for float32 x 24"):
        kind([Options(8, torch.float32)], Optimizer())
    tables.storage = tables.make()
    with pytest.raises(holdfast.Error, match="larger max_capacity") as raised:
        for first in range(0, 1000, 100):
            pairs = [(0, first + i) for i in range(100)]
            tables.insert(pairs, np.zeros((100, 18), np.float32), None)
    assert raised.value.code == "no_space"
