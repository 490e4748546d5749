"""The collective calls of a sharded map: what ranks agree on, and the chunks that they exchange."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _shard_set
from ._backend import ext
from ._buffers import Buffer
from ._errors import Error
from ._exchange import Exchange, Wait
from ._map import Map
from ._rows import Order

_OPERATIONS = (
    "insert", "insert_or_assign", "find_or_insert", "assign", "erase", "accumulate", "find",
    "contains", "size", "load", "insert_and_evict", "reserve",
)  # fmt: skip
_INSERTED, _KEPT, _SUPERSEDED = 1, 3, 6  # MapStatus
_BINS = 256  # of an owner's keys, at first
_BINS_OF_A_CHUNK = 16
_MOST_BINS = 1 << 16


@dataclass
class Call:
    """A rank's part of a collective call."""

    operation: str
    count: int
    keys: Buffer
    values: Buffer | None = None
    out: Buffer | None = None
    answers: Buffer | None = None  # statuses, or whether it is there; None: nobody asks
    scores: Buffer | None = None
    # Of insert_and_evict(): makes the caller's arrays for keys, values and scores of what this
    # rank's shard lets go, which come chunk by chunk.
    rooms: Callable[[int], list[tuple[Any, Buffer]]] | None = None
    parts: list[list[Any]] = field(default_factory=list)
    gone: list[Any] = field(default_factory=list)

    @property
    def looks_up(self) -> bool:
        return self.operation in ("find", "contains")

    def has_row(self, answers: Any) -> Any:
        """Returns for which operations with these answers a row was found."""
        return answers if self.looks_up else (answers == _INSERTED) | (answers == _KEPT)


@dataclass
class _Plan:
    """What a rank says of its operations before any of them goes anywhere."""

    order: Order
    values: Any  # as given, or where those of several operations become one with their sum
    ends: Any  # of bins


@dataclass
class _Batch:
    """A call's rows where ranks exchange them."""

    keys: Any
    values: Any
    scores: Any
    out: Any
    answers: Any
    order: Order
    cuts: Any  # [owner][chunk], where in the order the chunk begins
    counts: Any  # [chunk][from][to]


@dataclass
class _Chunk:
    """A part of a call that is on its way."""

    at: Any  # operations that this rank has sent
    counts: Any  # [from][to]
    waits: list[Wait]
    keys: Any
    values: Any
    scores: Any
    sent: list[Any]  # and later answers and rows for others
    answers: Any = None
    out: Any = None


class _Beside:
    """A shard's work, on a thread of its own: the map's calls return when they are done.

    end() waits for it, and returns the error that it has met. Where there is nothing to do
    meanwhile (`threaded`) it is done there.
    """

    def __init__(self, rows: Any, work: Callable[[], Exception | None], threaded: bool) -> None:
        self._rows, self._work, self._device = rows, work, ext.device_number()
        self._error: Exception | None = None
        self._ended = threading.Event()
        # Not a daemon: one that comes back from the map to an interpreter that ends would abort it.
        self._thread = threading.Thread(target=self._run, name="holdfast-shard")
        self._threaded = threaded

    def start(self) -> None:
        if self._threaded:
            self._thread.start()

    def _run(self) -> None:
        def on_device() -> Exception | None:
            with self._rows.beside():
                ext.set_device(self._device)
                return self._work()

        answers: list[Exception | None] = []
        error = error_of(lambda: answers.append(on_device()))
        self._error = answers[0] if answers else error
        self._ended.set()

    def end(self) -> Exception | None:
        if not self._threaded:
            return self._work()
        self.settle()
        return self._error

    def settle(self) -> None:
        """Returns when the map is not in use any more, an interrupt meanwhile notwithstanding.

        By an event of its own: where an interrupt comes to Thread.join(), Python 3.11 takes the
        thread for dead.
        """
        interrupted: KeyboardInterrupt | None = None
        while self._thread.ident is not None and not self._ended.is_set():
            try:
                self._ended.wait()
            except KeyboardInterrupt as interrupt:
                interrupted = interrupt
        if interrupted is not None:
            raise interrupted


class Calls:
    """What the ranks of a sharded map do together."""

    def __init__(self, exchange: Exchange, shard: Map, where: str, map_id: str, chunk: int) -> None:
        self._exchange, self._rows, self._shard = exchange, exchange.rows, shard
        self._where, self._map_id = where, int(map_id, 16)
        self._beside: _Beside | None = None  # the latest; an interrupted call may have left it
        self._most = shard.stats().max_batch
        self._chunk = int(exchange.gather([min(chunk, self._most)]).min())
        self.loads = ""  # the map whose load() has to be made again first

    def agree(
        self,
        operation: str,
        error: Exception | None,
        count: int = 0,
        scored: bool = False,
        ends: Any = None,
    ) -> tuple[int, Any]:
        """Returns how many operations all ranks have, and what each sends, once all make this call.

        The second one is [from][to][bin], of those whose bins, _BINS for each owner, end at `ends`.
        Collective. Calls of every kind give as many numbers, so that different ones meet here.
        """
        if self._beside is not None:
            self._beside.settle()
        if error is None and self.loads and operation not in ("load", "size", "reserve"):
            error = Error(
                f"{self._where}: a load() from map {self.loads} was cut off: call it again first",
                "conflict",
            )
        size = self._exchange.size
        said = [_OPERATIONS.index(operation), count, error is not None, scored, self._map_id]
        sent = [0] * (size * _BINS) if ends is None else np.diff(ends).tolist()
        rows = self._exchange.gather(said + sent)
        for rank, row in enumerate(rows[:, : len(said)].tolist()):
            if row[0] != rows[0, 0]:
                calls = (
                    f"rank 0 calls {_OPERATIONS[rows[0, 0]]}(), rank {rank} {_OPERATIONS[row[0]]}()"
                )
                raise Error(f"{self._where}: {calls}: all ranks make the same calls", "conflict")
            if row[4] != rows[0, 4]:
                raise Error(
                    f"{operation}() of {self._where}: ranks 0 and {rank} call it of different maps "
                    f"({rows[0, 4]:012x}, {row[4]:012x}): all ranks make the same calls",
                    "conflict",
                )
            if row[3] != rows[0, 3]:
                raise Error(
                    f"{operation}() of {self._where}: of ranks 0 and {rank} one gives scores: all "
                    "ranks give them, or none",
                    "conflict",
                )
        if rows[:, 2].any():
            _shard_set.raise_first(self._exchange, f"{operation}() of {self._where}", error)
        return int(rows[:, 1].sum()), rows[:, len(said) :].reshape(size, size, _BINS)

    def _check_words(self, call: Call, keys: Any, values: Any) -> None:
        """Refuses here what the owner's shard would."""
        where = f"{call.operation}() of {self._where}"
        short = self._shard.key.nbytes <= 8 and not call.looks_up
        if short and self._rows.is_empty_key(keys):
            raise Error(
                f"{where}: an operation has the key -1, which marks an empty slot (EmptyKey): "
                "nothing of this call was done"
            )
        stored = values is not None and call.operation != "accumulate"
        if stored and self._shard.value.nbytes == 8 and self._rows.is_empty_value(values):
            raise Error(
                f"{where}: an operation has a value that cannot be stored (EmptyValue): nothing of "
                "this call was done"
            )

    def call(self, operation: str, given: Callable[[], Call], scored: bool = False) -> list[int]:
        """Does a call. Returns how many of its operations had which status."""
        calls: list[Call] = []
        error = error_of(lambda: calls.append(given()))
        with self._rows.scope():
            rows: list[Any] = []
            plans: list[_Plan] = []

            def prepare() -> None:
                rows.extend(self._owned(calls[0]))
                plans.extend(self._planned(calls[0], rows))

            if error is None:
                error = error_of(prepare)
            count = calls[0].count if calls else 0
            ends = plans[0].ends if plans else None
            total, sent = self.agree(operation, error, count, scored, ends)
            keys, values, scores, out, answers = rows
            call = calls[0]
            if not plans:
                self._apply(call, count, keys, values, scores, out, answers)
            else:
                plan = plans[0]
                cuts, counts = self._cut(plan, sent, total)
                batch = _Batch(keys, plan.values, scores, out, answers, plan.order, cuts, counts)
                self._exchange_all(call, batch)
            if call.rooms is not None:
                error = error_of(lambda: self._hand_over(call))
                _shard_set.agree(self._exchange, f"{operation}() of {self._where}", error)
            if call.out is not None:
                self._rows.give(out, call.out, self._shard.value.nbytes)
            if call.answers is not None:
                self._rows.give(answers, call.answers, 1)
            return [] if call.looks_up else self._rows.counts(answers)

    def _owned(self, call: Call) -> list[Any]:
        """Returns keys, values, out and answers where ranks exchange them."""
        of, key_bytes, value_bytes = self._rows, self._shard.key.nbytes, self._shard.value.nbytes
        written = [one for one in (call.out, call.answers) if one is not None]

        def given(buffer: Buffer | None, row_bytes: int) -> Any:
            if buffer is None:
                return None
            rows = of.own(buffer, row_bytes)
            # Answers to one chunk come before another one has gone.
            return of.joined([rows]) if any(_overlap(buffer, one) for one in written) else rows

        keys, values = given(call.keys, key_bytes), given(call.values, value_bytes)
        scores = given(call.scores, 8)
        out = None if call.out is None else of.own(call.out, value_bytes)
        answers = of.empty(call.count, 1)
        if call.answers is not None:
            answers = of.own(call.answers, 1)
        self._check_words(call, keys, values)
        return [keys, values, scores, out, answers]

    def _hand_over(self, call: Call) -> None:
        """Gives the caller keys, values and scores of what this rank's shard let go."""
        assert call.rooms is not None
        columns = zip(*call.parts, self._rooms(0), strict=True)
        rows = [self._rows.joined(list(column)) for column in columns]
        rooms = call.rooms(len(rows[0]))
        for column, (room, buffer), width in zip(rows, rooms, self._widths, strict=True):
            self._rows.give(column, buffer, width)
            call.gone.append(room)

    @property
    def _widths(self) -> tuple[int, int, int]:
        return self._shard.key.nbytes, self._shard.value.nbytes, 8

    def _rooms(self, count: int) -> list[Any]:
        """Returns rows for keys, values and scores."""
        return [self._rows.empty(count, width) for width in self._widths]

    def _planned(self, call: Call, rows: list[Any]) -> list[_Plan]:
        """Returns which operations go to whom; none where this rank alone takes all at once."""
        if self._exchange.size == 1 and call.count <= self._most:
            return []
        order, values = self._rows.ordered(rows[0]), rows[1]
        if call.operation == "accumulate" and len(order.superseded):
            values = self._rows.summed(values, order, self._shard.value.dtype)
        return [_Plan(order, values, self._rows.ends(order.hashes, self._exchange.size, _BINS))]

    def _cut(self, plan: _Plan, sent: Any, total: int) -> tuple[Any, Any]:
        """Returns a batch's cuts and counts; `sent`: by each rank, to each one, in each bin."""
        size, bins, ends = self._exchange.size, _BINS, plan.ends
        while bins * size * self._chunk < _BINS_OF_A_CHUNK * total and bins < _MOST_BINS:
            bins *= 2
        while True:
            if bins != _BINS:
                ends = self._rows.ends(plan.order.hashes, size, bins)
                sent = self._exchange.gather(np.diff(ends).tolist()).reshape(size, size, bins)
            if int(sent.sum(axis=0).max()) <= self._chunk:
                break
            if bins >= _MOST_BINS:
                raise Error(
                    f"{self._where}: {int(sent.sum(axis=0).max())} operations are on one key, each "
                    "of another rank, or cannot be told apart by their hash, and a shard takes "
                    f"{self._chunk} at once: give a larger max_batch and chunk"
                )
            bins *= 16
        firsts = self._firsts(sent.sum(axis=0), bins)  # [to][chunk]
        cuts = np.stack([ends[to * bins + firsts[to]] for to in range(size)])
        before = np.concatenate([np.zeros_like(sent[:, :, :1]), sent.cumsum(axis=2)], axis=2)
        at_cuts = np.stack([before[:, to, firsts[to]] for to in range(size)], axis=1)
        return cuts, np.ascontiguousarray(np.diff(at_cuts, axis=2).transpose(2, 0, 1))

    def _firsts(self, loads: Any, bins: int) -> Any:
        """Returns for each owner the first bin of each chunk, and the end; chunks fit a shard."""
        firsts: list[list[int]] = []
        for of_owner in loads.tolist():
            own, held = [0], 0
            for number, load in enumerate(of_owner):
                if held + load > self._chunk:
                    own.append(number)
                    held = 0
                held += load
            firsts.append(own)
        chunks = max(map(len, firsts))
        return np.array([own + [bins] * (chunks + 1 - len(own)) for own in firsts])

    def _exchange_all(self, call: Call, batch: _Batch) -> None:
        """Chunk by chunk: while a shard works on one, others are on their way to it and back."""
        error: Exception | None = None
        chunks = len(batch.counts)
        coming, answered = self._post(batch, 0), None
        for number in range(chunks):
            chunk = coming
            for wait in chunk.waits:
                wait()
            work = _Beside(self._rows, self._working(call, chunk, error), chunks > 1)
            self._beside = work
            try:
                work.start()
                if number + 1 < chunks:
                    coming = self._post(batch, number + 1)
                if answered is not None:
                    self._finish(call, batch, answered)
            finally:
                error = work.end()
            self._answer(chunk, error)
            answered = chunk
        assert answered is not None
        self._finish(call, batch, answered)
        if len(batch.order.superseded):
            self._answer_superseded(call, batch)
        _shard_set.agree(self._exchange, f"{call.operation}() of {self._where}", error)

    def _post(self, batch: _Batch, number: int) -> _Chunk:
        """Sends the operations of a chunk to their owners."""
        of, counts = self._rows, batch.counts[number]
        kept, cuts = batch.order.kept, batch.cuts[:, number : number + 2]
        at = of.joined([kept[begin:end] for begin, end in cuts.tolist()])
        received = int(counts[:, self._exchange.rank].sum())
        waits: list[Wait] = []
        sent: list[Any] = []

        def column(rows: Any, row_bytes: int) -> Any:
            if rows is None:
                return None
            coming = of.empty(received, row_bytes)
            sent.append(of.take(rows, at))
            waits.append(self._exchange.start(sent[-1], counts, coming))
            return coming

        keys = column(batch.keys, self._shard.key.nbytes)
        values = column(batch.values, self._shard.value.nbytes)
        return _Chunk(at, counts, waits, keys, values, column(batch.scores, 8), sent)

    def _working(
        self, call: Call, chunk: _Chunk, error: Exception | None
    ) -> Callable[[], Exception | None]:
        """Returns what does what others have sent, unless there is an error, and returns the first.

        The answers are for _answer() to send.
        """
        of, count = self._rows, len(chunk.keys)
        answers = of.empty(count, 1)
        out = None if call.out is None else of.empty(count, self._shard.value.nbytes)
        chunk.sent = [answers, out]

        def work() -> Exception | None:
            return error or error_of(
                lambda: self._apply(
                    call, count, chunk.keys, chunk.values, chunk.scores, out, answers
                )
            )

        return work

    def _answer(self, chunk: _Chunk, error: Exception | None) -> None:
        """Sends others the answers to what they have sent; 0, if they had not all been done."""
        of, (answers, out) = self._rows, chunk.sent
        if error is not None:
            of.fill(answers, 0)
        back = np.ascontiguousarray(chunk.counts.T)
        chunk.answers = of.empty(len(chunk.at), 1)
        chunk.waits = [self._exchange.start(answers, back, chunk.answers)]
        if out is not None:
            chunk.out = of.empty(len(chunk.at), self._shard.value.nbytes)
            chunk.waits.append(self._exchange.start(out, back, chunk.out))

    def _finish(self, call: Call, batch: _Batch, chunk: _Chunk) -> None:
        """Puts the answers to a chunk where the caller has its operations."""
        for wait in chunk.waits:
            wait()
        self._rows.put(batch.answers, chunk.at, chunk.answers)
        if chunk.out is not None:
            self._rows.put_found(batch.out, chunk.at, chunk.out, call.has_row(chunk.answers))

    def _answer_superseded(self, call: Call, batch: _Batch) -> None:
        of, gone, by = self._rows, batch.order.superseded, batch.order.by
        answers = of.take(batch.answers, by)
        if not call.looks_up:
            of.fill(answers, _SUPERSEDED)
        of.put(batch.answers, gone, answers)
        if batch.out is not None:
            of.put_found(batch.out, gone, of.take(batch.out, by), call.has_row(answers))

    def _apply(
        self, call: Call, count: int, keys: Any, values: Any, scores: Any, out: Any, answers: Any
    ) -> None:
        """Works on the shard; answers are statuses, or whether a key is there."""
        if count == 0:
            return
        of, table, operation = self._rows, self._shard._map, call.operation
        streams = list(of.streams)
        at = [0 if rows is None else of.address(rows) for rows in (keys, values, out, answers)]
        if operation in ("find", "contains"):
            table.find(at[0], at[2], at[3], count, streams)
        elif operation == "insert_and_evict":
            gone = self._rooms(count)
            to = [of.address(rows) for rows in gone]
            by = 0 if scores is None else of.address(scores)
            said = table.insert_and_evict(
                at[0], at[1], by, count, to[0], to[1], to[2], at[3], streams
            )
            # Copies: what a chunk had room for is not kept.
            call.parts.append([of.joined([rows[: said.count]]) for rows in gone])
        elif operation == "accumulate":
            dtype = self._shard.value.dtype
            table.accumulate(dtype, at[0], at[1], count, at[3], streams)
        else:
            table.update(operation, at[0], at[1], at[2], count, at[3], streams)


def _overlap(a: Buffer, b: Buffer) -> bool:
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


def error_of(work: Callable[[], Any]) -> Exception | None:
    """Returns what a rank's own work raises, for all ranks to know of it. Not rank_lost."""
    try:
        work()
    except Exception as error:
        if isinstance(error, Error) and error.code == "rank_lost":
            raise
        return error
    return None
