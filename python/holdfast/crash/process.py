"""The campaign's side of a worker process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from .._errors import Error
from . import wire

# A step that takes longer is taken for a hang. First use of a GPU takes seconds.
STEP_TIMEOUT = 120.0


class WorkerProcess:
    """A worker that is started at once and may be killed at any time."""

    def __init__(self, command: list[str] | None = None) -> None:
        command_read, self._commands = os.pipe()
        self._answers, answer_write = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        argv = command or [sys.executable, "-m", "holdfast._crash_worker"]
        self._process = subprocess.Popen(
            [*argv, str(command_read), str(answer_write)],
            pass_fds=(command_read, answer_write),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the campaign, which then ends this process
        )
        os.close(command_read)
        os.close(answer_write)
        self._receiver = wire.Receiver(self._answers)
        self.identity: tuple[str, str] | None = None  # backend, device

    def wait_ready(self) -> None:
        if self.identity is None:
            message = self._expect("ready")
            self.identity = (message[1], message[2])

    def send(self, *command: Any) -> None:
        try:
            wire.send(self._commands, command)
        except BrokenPipeError:
            raise self._died(f"before it was told to {command[0]}") from None

    def wait_begin(self, what: str) -> None:
        self._expect("begin", what)

    def wait_done(self, what: str) -> tuple[float, Any]:
        """Returns the step's duration in seconds and its report."""
        message = self._expect("done", what)
        return message[2], message[3]

    def call(self, what: str, *command: Any) -> tuple[float, Any]:
        self.send(*command)
        self.wait_begin(what)
        return self.wait_done(what)

    def kill_in(self, what: str, seconds: float, *command: Any) -> list[Any]:
        """Sends `command` and has the process killed `seconds` into its step `what`.

        Returns all that the process said. If the step ends sooner, the kill comes right after.
        """
        self.send("kill_in", what, seconds)
        return self._send_and_see_killed(what, *command)

    def kill_in_transaction(self, lead: float, seconds: float, *command: Any) -> list[Any]:
        """The same, `seconds` into the transaction of the step "batch", which has a lead."""
        self.send("kill_in_transaction", lead, seconds)
        return self._send_and_see_killed("batch", *command)

    def _send_and_see_killed(self, what: str, *command: Any) -> list[Any]:
        self.send(*command)
        messages = []
        deadline = time.monotonic() + STEP_TIMEOUT
        while (message := self._receiver.receive(deadline)) is not None:
            self._raise_failure(message)
            messages.append(message)
            if message[:2] == ("done", what):
                break
        if message is None and not self._receiver.ended:
            raise Error(f"the worker hangs in '{what}' for {STEP_TIMEOUT} s", "livelock")
        messages += self.kill()
        if self._process.returncode != -signal.SIGKILL:
            raise self._died(f"in '{what}'")
        if ("begin", what) not in messages:
            raise Error(f"the worker was killed and never began '{what}'", "io")
        return messages

    def kill(self) -> list[Any]:
        """Kills the process now; returns what it had said and was not read."""
        self._process.kill()
        self._process.wait()
        messages = []
        while (message := self._receiver.receive()) is not None:
            self._raise_failure(message)
            messages.append(message)
        return messages

    def end(self) -> None:
        """Ends the process, whatever it does, and frees what it used. May be called twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if not self._log.closed:
            os.close(self._commands)
            os.close(self._answers)
            self._log.close()

    def _expect(self, *start: str) -> Any:
        message = self._receiver.receive(time.monotonic() + STEP_TIMEOUT)
        if message is None:
            if self._receiver.ended:
                raise self._died(f"when '{' '.join(start)}' was expected")
            raise Error(f"the worker hangs: no '{' '.join(start)}' in {STEP_TIMEOUT} s", "livelock")
        self._raise_failure(message)
        if tuple(message[: len(start)]) != start:
            raise Error(f"the worker said {message[:2]} when {start} was expected", "io")
        return message

    @staticmethod
    def _raise_failure(message: Any) -> None:
        if message[0] == "error":
            raise Error(f"the worker failed to {message[1]}: {message[3]}", message[2])

    def _died(self, when: str) -> Error:
        code = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip()[-2000:]
        return Error(f"the worker died by itself (exit status {code}) {when}: {said}", "io")
