"""A running history is seen by others as it is, and a killed one is not taken for running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import holdfast
from conftest import Run
from holdfast import Error, History

WORKER = Path(__file__).with_name("history_live_worker.py")


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own group, so that what it forks ends with it."""
    with subprocess.Popen(
        [sys.executable, WORKER, folder, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_running_history_is_shown(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(folder) as process:
        shown = run("history", "show", folder, "--json").json
        live = shown["running"]
        assert live["pid"] == process.pid
        assert live["phase"] == "open"
        assert [tier["name"] for tier in live["tiers"]] == ["gpu", "host", "disk"]
        assert [tier["checkpoints"] for tier in live["tiers"]] == [4, 6, 6]
        assert [one["step"] for one in live["checkpoints"]] == list(range(6))
        assert live["checkpoints"][5]["states"] == {
            "gpu": "flushed",
            "host": "flushed",
            "disk": "written alone",
        }
        assert live["hints"] == [5, 2]
        assert live["transfers"] == live["callers"] == []
        assert [step["step"] for step in shown["steps"]] == list(range(6))
        said = run("history", "show", folder).out
        for words in (f"process {process.pid} has it, open", "2 hints are ahead", "1. next"):
            assert words in said
        # The socket itself shows what runs, and nothing of a folder.
        alone = run("history", "show", folder / "history.socket", "--json").json
        assert alone["running"]["pid"] == process.pid
        assert "steps" not in alone


@pytest.mark.parametrize("arguments", [[], ["fork"]], ids=["alone", "with a child that lives"])
def test_a_killed_one_is_not_running(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    folder = tmp_path / "run"
    with running(folder, *arguments) as process:
        process.kill()
        process.wait()
        assert (folder / "history.socket").is_socket()
        answer = run("history", "show", folder, "--json")
        assert answer.status == 0
        assert answer.json["running"] is None
        assert [step["step"] for step in answer.json["steps"]] == list(range(6))
        said = run("history", "show", folder)
        assert "of a process that has ended" in " ".join(said.err.split())  # lines are wrapped
        answer = run("history", "show", folder / "history.socket", "--json")
        assert (answer.status, answer.json["error"]["code"]) == (1, "not_found")
    with History(disk=folder):  # the next one replaces what was left
        assert run("history", "show", folder, "--json").json["running"]["pid"] == os.getpid()
    assert run("history", "show", folder, "--json").json["running"] is None
    assert not (folder / "history.socket").exists()


def test_a_history_without_a_folder_has_a_socket_where_it_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / ("long " * 30) / "seen"
    path.parent.mkdir()
    with History(host=1 << 20, status=path) as history:
        field = np.zeros(1000)
        history.protect("field", field)
        history.save(7)
        live = run("history", "show", path, "--json").json["running"]
        assert [one["step"] for one in live["checkpoints"]] == [7]
        with pytest.raises(Error, match="a process answers at the socket") as refused:
            History(host=1 << 20, status=path)
        assert refused.value.code == "in_use"


def test_a_snapshot_within_the_program(tmp_path: Path) -> None:
    with History(host=1 << 20, disk=tmp_path / "run") as history:
        field = np.zeros(1000)
        history.protect("field", field)
        history.save(1).wait()
        history.hint(1)
        seen = history.snapshot()
        assert isinstance(seen, holdfast.HistorySnapshot)
        assert [(tier.name, tier.checkpoints) for tier in seen.tiers] == [("host", 1), ("disk", 1)]
        assert seen.checkpoints[0].states == {"host": "flushed", "disk": "written alone"}
        assert seen.checkpoints[0].nbytes == 8000
        assert seen.hints == [1]
    with pytest.raises(Error) as closed:
        history.snapshot()
    assert closed.value.code == "closed"


def answering(path: Path, text: bytes) -> threading.Thread:
    """One that is no history answers at a socket, once."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer() -> None:
        with listener, listener.accept()[0] as peer:
            peer.sendall(text)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "io"),
        (b"hello", "damaged"),
        (b"[]", "damaged"),
        (b'{"holdfast_history_status": 2}', "newer_version"),
        (b'{"holdfast_history_status": 1, "pid": {}}', "damaged"),
        (b'{"holdfast_history_status": 1, "pid": 1, "unix_ns": 1, "phase"', "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"\xff\x00", "damaged"),
    ],
)
def test_what_answers_and_is_no_history(run: Run, tmp_path: Path, text: bytes, code: str) -> None:
    thread = answering(tmp_path / "seen", text)
    answer = run("history", "show", tmp_path / "seen", "--json")
    thread.join()
    assert (answer.status, answer.json["error"]["code"]) == (1, code)
