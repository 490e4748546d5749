"""Embedding tables of dynamicemb (NVIDIA recsys-examples) in holdfast.Map: its external storage.

>>> from holdfast.dynamicemb import storage_in
>>> options.external_storage = storage_in(region, "users")  # of DynamicEmbTableOptions

dynamicemb makes the storage itself, of the class that it is given. What it has inserted survives
what the region's persist rung survives, and is there again when the same tables are made over the
same region: nothing has to be dumped or loaded for that.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from . import _dynamicemb_files as files
from ._backend import ext
from ._errors import Error, checked_number
from ._map import MOST_OPERATIONS, Map
from ._region import Region

_LOAD = 0.85  # of the slots that are made for a table's capacity
_FILE_ROWS = 65536  # that are read or written at once

Tensor = Any  # torch.Tensor: PyTorch is imported where a storage is made


@dataclass
class _Table:
    """One of the tables: rows of embedding and optimizer state, and a score for each."""

    rows: Map
    scores: Map
    dim: int
    state_dim: int
    lru: bool  # scores are times of the last use
    options: Any

    @property
    def columns(self) -> int:
        return self.rows.value.shape[0]

    def changed(self, result: Any) -> None:
        if result.not_done:
            raise Error(
                f"{self.rows!r} is full: {result.not_done} rows were not stored; give its table a "
                "larger max_capacity and move the rows by dump() and load()",
                "no_space",
            )


class MapStorage:
    """dynamicemb's Storage over maps of a region; storage_in() gives the class to hand over.

    Follows dynamicemb 26.05 to 26.07: find() returns eight tensors, with the missing keys' table
    ids, as its callers take them (the annotation in types.py has seven). Rows are laid out on the
    medium by table: the embedding, then the optimizer's state. What a row is changes at once, also
    across a crash; a score follows its row, and may be lost with a crash in between, and is 0 then.

    Differences to dynamicemb's own: nothing is evicted, so that a full table raises Error
    (no_space); find() adds lfu_accumulated_frequency to scores, and changes none otherwise; scores
    have one word. The key -1 cannot be stored.
    Thread safety: as holdfast.Map.
    """

    region: ClassVar[Region | None] = None
    name: ClassVar[str] = "dynamicemb"
    max_batch: ClassVar[int] = 1 << 16
    directory: ClassVar[str] = "automatic"
    _live: ClassVar[weakref.ref[MapStorage] | None] = None

    # Where dynamicemb asks for parts of its own storages: there are none.
    _state = None

    def __init__(self, options: list[Any], optimizer: Any) -> None:
        import torch

        kind = type(self)
        if kind.region is None:
            raise Error("MapStorage has no region: give dynamicemb the class of storage_in(region)")
        if kind._live is not None and kind._live() is not None:
            raise Error(
                f"the tables '{kind.name}' of {kind.region.path} are in use by another group of "
                "tables: give each group a class of its own, storage_in(region, another name)",
                "in_use",
            )
        self._torch = torch
        self._optimizer = optimizer
        self._dtype = options[0].embedding_dtype
        if any(option.embedding_dtype != self._dtype for option in options):
            raise Error("the tables of a group have several embedding_dtypes: give them one")
        self._tables = [self._open(number, option) for number, option in enumerate(options)]
        self._max_dim = max(table.dim for table in self._tables)
        self._max_value_dim = max(table.dim + table.state_dim for table in self._tables)
        on_gpu = ext.backend_name() == "cuda" and torch.cuda.is_available()
        self.device = torch.device(f"cuda:{torch.cuda.current_device()}" if on_gpu else "cpu")
        dims = [table.dim for table in self._tables]
        self._dims = torch.tensor(dims, dtype=torch.int64, device="cpu")
        self._dims_on_device = torch.tensor(dims, dtype=torch.int64, device=self.device)
        kind._live = weakref.ref(self)

    def _open(self, number: int, options: Any) -> _Table:
        kind = type(self)
        assert kind.region is not None
        name = f"{kind.name}_{number}"
        state_dim = self._optimizer.get_state_dim(options.dim)
        value = row_of(self._dtype, options.dim + state_dim)
        common: dict[str, Any] = {
            "key": "int64",
            "capacity": slots_for(options.max_capacity),
            "max_batch": kind.max_batch,
            "directory": kind.directory,
        }
        lru = getattr(options.evict_strategy, "name", "") == "LRU"
        return _Table(
            Map(kind.region, name, value=value, **common),
            Map(kind.region, f"{name}_scores", value="int64", **common),
            options.dim, state_dim, lru, options,
        )  # fmt: skip

    # Rows.

    def find(
        self,
        unique_keys: Tensor,
        table_ids: Tensor,
        copy_mode: Any,
        lfu_accumulated_frequency: Tensor | None = None,
        **_: Any,
    ) -> tuple[int, Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor]:
        """Returns (num_missing, missing_keys, missing_indices, missing_table_ids, missing_scores,
        founds, output_scores, values).

        values: a row for each key, zeros where it is missing; of CopyMode.EMBEDDING embeddings, of
        CopyMode.VALUE also optimizer states, from column max_embedding_dim() on.
        """
        torch = self._torch
        count, device = unique_keys.numel(), unique_keys.device
        whole = copy_mode.value != "embedding"
        width = self._max_value_dim if whole else self._max_dim
        values = torch.zeros((count, width), dtype=self._dtype, device=device)
        founds = torch.zeros(count, dtype=torch.bool, device=device)
        scores = torch.zeros(count, dtype=torch.int64, device=device)
        frequency = lfu_accumulated_frequency
        for table, at in self._parts(unique_keys, table_ids):
            keys = unique_keys[at].to(torch.int64).contiguous()
            rows, found = self._find(table.rows, keys)
            score, _ = self._find(table.scores, keys)
            if frequency is not None:
                score = score + frequency[at].to(torch.int64)
                self._store(table, table.scores, keys[found], score[found])
            founds[at], scores[at] = found, score * found
            values[at, : table.dim] = rows[:, : table.dim]
            if whole and table.state_dim:
                first = self._max_dim
                values[at, first : first + table.state_dim] = self._state_of(table, rows)
        missing = torch.nonzero(~founds).flatten()
        return (
            missing.numel(), unique_keys[missing], missing, table_ids[missing],
            None if frequency is None else frequency[missing], founds, scores, values,
        )  # fmt: skip

    def insert(
        self,
        keys: Tensor,
        table_ids: Tensor,
        values: Tensor,
        scores: Tensor | None = None,
        preserve_existing: bool = False,
    ) -> None:
        """Stores rows, as find() gives them under CopyMode.VALUE, in place of those that are there.

        Values of another type are converted as by Tensor.to(). preserve_existing: scores of rows
        that are there stay as they are. Raises Error (no_space; and invalid_argument, with nothing
        stored).
        """
        torch = self._torch
        parts = self._parts(keys, table_ids)
        count = keys.numel()
        if list(values.shape) != [count, self._max_value_dim]:
            raise Error(
                f"values of shape {list(values.shape)}: give a row of {self._max_value_dim} "
                f"for each of the {count} keys"
            )
        with_scores = scores is not None and scores.numel() > 0
        if with_scores:
            assert scores is not None
            if scores.numel() != count or "float" in str(scores.dtype):
                raise Error(
                    f"{scores.numel()} scores of {scores.dtype} for {count} keys: give a whole "
                    "number for each"
                )
        for table, at in parts:
            given = values[at]
            rows = torch.zeros(
                (given.shape[0], table.columns), dtype=self._dtype, device=given.device
            )
            rows[:, : table.dim] = given[:, : table.dim]
            if table.state_dim:
                first = self._max_dim
                self._state_of(table, rows)[:] = given[:, first : first + table.state_dim]
            part = keys[at].to(torch.int64).contiguous()
            if not with_scores:
                self._store(table, table.rows, part, rows)
                continue
            assert scores is not None
            score = scores[at].to(torch.int64).contiguous()
            scored = part
            if preserve_existing:
                new = ~self._contains(table.rows, part)
                scored, score = part[new].contiguous(), score[new].contiguous()
            self._store(table, table.rows, part, rows)
            self._store(table, table.scores, scored, score)

    def size(self) -> int:
        """Rows of all tables."""
        return sum(len(table.rows) for table in self._tables)

    def _table(self, table_id: int) -> _Table:
        return self._tables[checked_number(table_id, "table_id", 0, len(self._tables) - 1)]

    def _parts(self, keys: Tensor, table_ids: Tensor) -> list[tuple[_Table, Any]]:
        """Returns each table that there are keys of, and where they are."""
        count = keys.numel()
        if table_ids.numel() != count:
            raise Error(f"{count} keys have {table_ids.numel()} table ids: give one for each")
        parts = [
            (table, self._torch.nonzero(table_ids == number).flatten())
            for number, table in enumerate(self._tables)
        ]
        named = sum(at.numel() for _, at in parts)
        if named != count:
            raise Error(
                f"{count - named} of {count} table ids are of no table: give 0 to "
                f"{len(self._tables) - 1}"
            )
        if len(parts) == 1:
            return [(self._tables[0], slice(None))] if count else []
        return [(table, at) for table, at in parts if at.numel() > 0]

    @staticmethod
    def _state_of(table: _Table, rows: Tensor) -> Tensor:
        return rows[:, table.dim : table.dim + table.state_dim]

    def _stream(self, tensor: Tensor) -> Any:
        return self._torch.cuda.current_stream() if tensor.device.type == "cuda" else None

    def _batches(self, count: int) -> Iterator[slice]:
        for first in range(0, count, type(self).max_batch):
            yield slice(first, min(count, first + type(self).max_batch))

    def _find(self, rows: Map, keys: Tensor) -> tuple[Tensor, Tensor]:
        torch, count = self._torch, keys.numel()
        dtype = self._dtype if rows.value.shape else torch.int64
        values = torch.zeros((count, *rows.value.shape), dtype=dtype, device=keys.device)
        found = torch.zeros(count, dtype=torch.bool, device=keys.device)
        for at in self._batches(count):
            rows.find(keys[at], out=values[at], found=found[at], stream=self._stream(keys))
        return values, found

    def _contains(self, rows: Map, keys: Tensor) -> Tensor:
        found = self._torch.zeros(keys.numel(), dtype=self._torch.bool, device=keys.device)
        for at in self._batches(keys.numel()):
            rows.contains(keys[at], found=found[at], stream=self._stream(keys))
        return found

    def _store(self, table: _Table, to: Map, keys: Tensor, values: Tensor) -> None:
        for at in self._batches(keys.numel()):
            table.changed(to.insert_or_assign(keys[at], values[at], stream=self._stream(keys)))

    # What rows are.

    def embedding_dtype(self) -> Any:
        return self._dtype

    def embedding_dim(self, table_id: int) -> int:
        return self._table(table_id).dim

    def value_dim(self, table_id: int) -> int:
        table = self._table(table_id)
        return table.dim + table.state_dim

    def max_embedding_dim(self) -> int:
        return self._max_dim

    def max_value_dim(self) -> int:
        return self._max_value_dim

    def embedding_dims(self, on_device: bool = False) -> Tensor:
        return self._dims_on_device if on_device else self._dims

    def all_dims_vec4(self) -> bool:
        return all(
            dim % 4 == 0
            for table in self._tables
            for dim in (table.dim, table.dim + table.state_dim)
        )

    def init_optimizer_state(self) -> float:
        return self._optimizer.get_initial_optim_states()  # type: ignore[no-any-return]

    # Files, as dynamicemb's own storage writes and reads them.

    def export_keys_values(
        self, device: Any, batch_size: int = _FILE_ROWS, table_id: int = 0
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Tensor]]:
        """Yields (keys, embeddings, optimizer states, scores), in no order.

        At most batch_size rows at a time; of float32. The states are None where there are none.
        """
        torch, table = self._torch, self._table(table_id)
        checked_number(batch_size, "batch_size", 1)
        for first in range(0, table.rows.stats().capacity, batch_size):
            keys = torch.empty(batch_size, dtype=torch.int64, device=device)
            rows = torch.empty((batch_size, table.columns), dtype=self._dtype, device=device)
            keys, rows = table.rows.export_batch(
                first, batch_size, keys=keys, values=rows, stream=self._stream(keys)
            )
            if keys.numel() == 0:
                continue
            scores, _ = self._find(table.scores, keys)
            states = None
            if table.state_dim:
                states = self._state_of(table, rows).to(torch.float32).contiguous()
            yield keys, rows[:, : table.dim].to(torch.float32).contiguous(), states, scores

    def dump(
        self,
        table_id: int,
        meta_file_path: str,
        emb_key_path: str,
        embedding_file_path: str,
        score_file_path: str | None,
        opt_file_path: str | None,
        timestamp: int = 0,
        *,
        include_optim: bool = True,
        include_meta: bool = True,
        current_score: int | None = None,
    ) -> None:
        """Writes a table to files. Of least recently used ones scores are ages at `timestamp`.

        They replace those of an earlier dump once all of them are whole and durable; where that is
        cut off load() refuses them. Without states a file of them from an earlier dump goes.
        Raises Error (invalid_argument, not_found, no_space, permission, io).
        """
        table = self._table(table_id)
        meta = {**self._optimizer.get_opt_args(), "dist_type": table.options.dist_type}
        if current_score is not None:
            meta["step_score"] = checked_number(current_score, "current_score", -(2**63))
        with_states = include_optim and table.state_dim > 0
        wanted = [emb_key_path, embedding_file_path, score_file_path,
                  opt_file_path if with_states else None]  # fmt: skip
        meta_path = meta_file_path if include_meta else None
        with files.Dump(wanted, meta_path, None if with_states else opt_file_path) as dump:
            for keys, embeddings, states, scores in self.export_keys_values(
                "cpu", _FILE_ROWS, table_id
            ):
                kept = states
                if kept is not None:  # what is padding in a row is in no file
                    kept = kept[:, : self._optimizer.get_ckpt_state_dim(table.dim)].contiguous()
                shown = timestamp - scores if table.lru else scores
                dump.write((keys, embeddings, shown, kept))
            dump.finish(meta)

    def load(
        self,
        table_id: int,
        meta_file_path: str,
        emb_key_path: str,
        embedding_file_path: str,
        score_file_path: str | None,
        opt_file_path: str | None,
        include_optim: bool = True,
        timestamp: int = 0,
    ) -> int | None:
        """Inserts what dump() wrote, of this rank's keys. Returns the score that dump() was given.

        Optimizer states are as those of new rows where there is no file of them, or the optimizer
        was another. '' in place of the meta file's path: without one. Raises Error: files of a dump
        that was cut off, or that do not fit to each other, or to the table.
        """
        table = self._table(table_id)
        meta = files.read_meta(meta_file_path)
        dist_type = meta.get("dist_type", "roundrobin")
        if dist_type != table.options.dist_type:
            told_by = meta_file_path or "without a meta file"
            raise Error(
                f"{told_by}: the rows were distributed by {dist_type}, and the table's are "
                f"by {table.options.dist_type}: load it with the same dist_type, and the meta file"
            )
        own = self._optimizer.get_opt_args().get("opt_type")
        with_states = (
            include_optim
            and table.state_dim > 0
            and opt_file_path is not None
            and Path(opt_file_path).exists()
            and meta.get("opt_type", own) == own
        )
        paths = [emb_key_path, embedding_file_path, score_file_path,
                 opt_file_path if with_states else None]  # fmt: skip
        widths = [1, table.dim, 1, self._optimizer.get_ckpt_state_dim(table.dim)]
        files.check_files(paths, widths)
        if with_states and meta:
            self._optimizer.set_opt_args(meta)
        for keys, embeddings, scores, states in self._read(paths, widths):
            times = scores
            if times is not None and table.lru:
                times = (timestamp - times).clip(0)
            self._insert_read(table_id, keys, embeddings, times, states)
        step: int | None = meta.get("step_score")
        return step

    def _read(
        self, paths: list[str | None], widths: list[int]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Tensor | None]]:
        torch = self._torch
        distributed: Any = getattr(torch, "distributed", None)
        spread = distributed is not None and distributed.is_available()
        spread = spread and distributed.is_initialized()
        world = distributed.get_world_size() if spread else 1
        with _opened(paths) as opened:
            while True:
                parts = [
                    self._part(file, width, dtype)
                    for file, width, dtype in zip(
                        opened, widths, (torch.int64, torch.float32) * 2, strict=True
                    )
                ]
                if parts[0] is None:
                    return
                if world > 1:
                    mine = parts[0] % world == distributed.get_rank()
                    parts = [None if part is None else part[mine] for part in parts]
                keys, embeddings, scores, states = (
                    part if part is None else part.to(self.device) for part in parts
                )
                yield keys, embeddings, scores, states

    def _part(self, file: BinaryIO | None, width: int, dtype: Any) -> Tensor | None:
        """Returns the next rows of a file; None: there is none, or it is at its end."""
        itemsize = 8 if dtype is self._torch.int64 else 4
        text = file.read(_FILE_ROWS * width * itemsize) if file else b""
        if not text:
            return None
        part = self._torch.frombuffer(bytearray(text), dtype=dtype)
        return part if itemsize == 8 else part.reshape(-1, width)

    def _insert_read(
        self, table_id: int, keys: Tensor, embeddings: Tensor, scores: Tensor | None, states: Any
    ) -> None:
        torch, table = self._torch, self._tables[table_id]
        count = keys.numel()
        values = torch.zeros((count, self._max_value_dim), dtype=self._dtype, device=keys.device)
        values[:, : table.dim] = embeddings.to(self._dtype)
        values[:, self._max_dim :] = self.init_optimizer_state()
        if states is not None:
            width = min(states.shape[1], table.state_dim)
            values[:, self._max_dim : self._max_dim + width] = states[:, :width].to(self._dtype)
        ids = torch.zeros(count, dtype=torch.int64, device=keys.device) + table_id
        self.insert(keys, ids, values, scores)


@contextmanager
def _opened(paths: list[str | None]) -> Iterator[list[Any]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Path(path).open("rb")) if path else None for path in paths]


def row_of(dtype: Any, columns: int) -> tuple[Any, int]:
    """Returns the type of a map's value that such a row fits in: a multiple of four bytes."""
    from ._map_types import element_of

    itemsize = element_of(dtype, "embedding_dtype").itemsize
    each = max(4 // itemsize, 1)
    return dtype, -(-columns // each) * each


def slots_for(capacity: int) -> int:
    """Returns how many slots a map is made with for a table of that many rows."""
    return int(checked_number(capacity, "max_capacity", 1) / _LOAD) + 1


def region_bytes(tables: list[tuple[int, Any, int]], max_batch: int = MapStorage.max_batch) -> int:
    """Returns the size of a region for tables of (max_capacity, embedding_dtype, value_dim)."""
    total = 0
    for capacity, dtype, value_dim in tables:
        slots = slots_for(capacity)
        total += Map.region_bytes(slots, "int64", row_of(dtype, value_dim), max_batch)
        total += Map.region_bytes(slots, "int64", "int64", max_batch)
    return total


def storage_in(
    region: Region,
    name: str = "dynamicemb",
    *,
    max_batch: int = MapStorage.max_batch,
    directory: str = "automatic",
) -> type[MapStorage]:
    """Returns the class for DynamicEmbTableOptions(external_storage=...).

    Its tables are the maps "<name>_0", "<name>_0_scores", "<name>_1", and so on, in `region`: made
    for max_capacity rows where they are not there, and else opened. Each group of tables needs a
    class of its own. `max_batch`, `directory`: as for holdfast.Map.
    """
    checked_number(max_batch, "max_batch", 1, MOST_OPERATIONS)
    members = {"region": region, "name": name, "max_batch": max_batch, "directory": directory}
    kind = type("MapStorage", (MapStorage,), members)
    types = sys.modules.get("dynamicemb.types")
    if types is not None:
        types.Storage.register(kind)
    return kind
