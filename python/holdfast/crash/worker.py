"""The program that is killed: opens a region, recovers, and applies the batches that it is sent."""

from __future__ import annotations

import os
import time
from typing import Any

from .. import _region
from .._backend import ext, name
from .._errors import Error
from . import wire
from .apps import App, Batch
from .timer import KillTimer
from .watch import TransactionWatch


class Worker:
    """Answers commands. Every step is announced before it starts and reported once it is done."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = wire.Receiver(commands)
        self._answers = answers
        self._app: App | None = None
        self._region: _region.Region | None = None
        self._store: Any = None
        self._timer = KillTimer()
        self._watch: TransactionWatch | None = None
        self._kill_in: tuple[str, float] | None = None  # step, seconds into it
        self._kill_in_transaction: tuple[float, float] | None = None  # lead, seconds into it

    def serve(self) -> None:
        self._answer("ready", name(), ext.device_name())
        while (command := self._commands.receive()) is not None:
            verb, *arguments = command
            try:
                getattr(self, "do_" + verb)(*arguments)
            except (Error, OSError, ValueError) as error:
                self._answer("error", verb, getattr(error, "code", "io"), str(error))

    def _answer(self, *message: Any) -> None:
        wire.send(self._answers, message)

    def step(self, what: str, function: Any) -> Any:
        """Runs `function`, which returns (result, report)."""
        self._answer("begin", what)
        start = time.monotonic()
        if self._kill_in is not None and self._kill_in[0] == what:
            self._timer.start(self._kill_in[1])
        result, report = function()
        self._answer("done", what, time.monotonic() - start, report)
        return result

    def do_kill_in(self, what: str, seconds: float) -> None:
        """Makes the next step called `what` the last one: SIGKILL comes `seconds` into it."""
        self._kill_in = (what, seconds)

    def do_kill_in_transaction(self, lead: float, seconds: float) -> None:
        """Makes the next batch the last one: SIGKILL comes `seconds` into its transaction.

        lead: seconds of the batch before which none is open.
        """
        self._kill_in_transaction = (lead, seconds)

    def do_create(self, app: App, path: str, arena_folder: str) -> None:
        self._app = app
        region = _region.create(path, app.region_bytes(), arena_folder=arena_folder)
        self._region = region
        self._store = self.step("create", lambda: (app.create(region), region.guarantee().reason))
        self._watch_transactions()

    def do_open(self, app: App, path: str, arena_folder: str) -> None:
        self._app = app

        def reopen() -> tuple[_region.Region, bool]:
            region = _region.open(path, arena_folder=arena_folder)
            return region, region.open_report.arena_found

        region = self._region = self.step("open", reopen)
        self._store = self.step("recover", lambda: app.open(region))
        self._watch_transactions()

    def _watch_transactions(self) -> None:
        assert self._app is not None and self._region is not None
        if self._app.transaction:
            self._watch = TransactionWatch(self._region, self._app.transaction)

    def do_batch(self, batch: Batch) -> None:
        self.step("batch", lambda: (None, self._apply_watched(batch)))

    def _apply_watched(self, batch: Batch) -> dict[str, Any]:
        if self._watch is None:
            return self.apply(batch)
        if self._kill_in_transaction is None:
            self._watch.start()
        else:
            lead, seconds = self._kill_in_transaction
            self._watch.start(lambda: self._timer.start(seconds), lead)
        try:
            report = self.apply(batch)
        finally:
            seen = self._watch.stop()
        return {**report, "transaction_after": seen.after, "transaction_seconds": seen.seconds}

    def apply(self, batch: Batch) -> dict[str, Any]:
        assert self._app is not None
        return self._app.apply(self._store, batch)

    def do_commit(self) -> None:
        assert self._region is not None
        region = self._region
        self.step("commit", lambda: (None, region.commit().generation))

    def do_dump(self) -> None:
        app, store = self._app, self._store
        assert app is not None
        self.step("dump", lambda: (None, (app.dump(store), app.verify(store))))

    def do_close(self) -> None:
        assert self._region is not None
        region = self._region
        self._store = None
        self._watch = None

        def close() -> tuple[None, None]:
            region.close()
            return None, None

        self.step("close", close)


def main(arguments: list[str], worker_class: type[Worker] = Worker) -> None:
    commands, answers = (int(argument) for argument in arguments)
    try:
        worker_class(commands, answers).serve()
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)  # the campaign is gone: end as a crash would, and leave the region to it
