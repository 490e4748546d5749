"""Memory of another node as the remote tier of a history: the class, and the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import holdfast
from conftest import Run
from holdfast import Error, History, MemoryServer


@pytest.fixture
def server() -> Iterator[MemoryServer]:
    with MemoryServer(1 << 26) as made:
        yield made


def save(place: str, steps: range, **options: object) -> None:
    field = np.zeros(20_000)
    with History(host=1 << 20, remote=place, **options) as history:  # type: ignore[arg-type]
        history.protect("field", field)
        for step in steps:
            field[:] = step
            history.save(step).wait("remote")


def test_what_was_saved_is_found_by_another_node(server: MemoryServer, tmp_path: Path) -> None:
    place = f"{server.address}/rank3"
    save(place, range(5), disk=tmp_path / "lost")
    assert server.names == 1
    assert server.used_bytes > 5 * 160_000
    field = np.zeros(20_000)
    with History(disk=tmp_path / "new", remote=place) as history:
        assert history.steps() == [0, 1, 2, 3, 4]
        assert history.latest("remote") == 4
        history.protect("field", field)
        history.restore(3)
        assert (field == 3).all()
        with pytest.raises(Error, match="open for writing") as refused:
            save(place, range(1))
        assert refused.value.code == "in_use"


def test_wrong_options(server: MemoryServer) -> None:
    for wrong in ("tcp://", "tcp://host", "tcp://host:1", f"{server.address}/a b"):
        with pytest.raises(Error, match="HOST:PORT") as refused:
            History(remote=wrong)
        assert refused.value.code == "invalid_argument"
    with pytest.raises(Error, match="remote_options"):
        History(remote=f"{server.address}/x", remote_options={"region": "here"})
    for arguments in ((0,), (1, "nonsense")):
        with pytest.raises(Error):
            MemoryServer(*arguments)
    for silence in (0.0, -1.0, float("nan"), 1e-3):
        with pytest.raises(Error):
            MemoryServer(1, silence=silence)
    with pytest.raises(Error, match="connections"):
        MemoryServer(1, connections=0)
    with pytest.raises(Error, match="another process"):
        MemoryServer(1, server.address.removeprefix("tcp://"))


def test_closed(tmp_path: Path) -> None:
    server = MemoryServer(1 << 20)
    server.close()
    server.close()
    assert server.address.startswith("tcp://127.0.0.1:")
    with pytest.raises(Error, match="closed"):
        server.used_bytes  # noqa: B018
    with pytest.raises(Error, match="connect") as refused:
        History(disk=tmp_path / "disk", remote=f"{server.address}/x")
    assert refused.value.code == "io"


@pytest.mark.skipif(holdfast.backend != "cpu", reason="a child cannot use CUDA")
def test_a_forked_child_ends(server: MemoryServer) -> None:
    child = os.fork()
    if child == 0:
        server.__exit__(None, None, None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    save(f"{server.address}/x", range(1))


def test_the_tools_look_at_it(run: Run, server: MemoryServer) -> None:
    place = f"{server.address}/rank3"
    save(place, range(3))
    shown = run("history", "show", place, "--json").json
    assert [step["step"] for step in shown["steps"]] == [0, 1, 2]
    assert shown["path"] == place
    assert "2 (latest)" in run("history", "show", place).out
    assert run("history", "verify", place, "--json").json["whole"] == 3
    assert run("history", "discard", place, 0, 1).status == 0
    assert run("history", "verify", place, "--json").json["whole"] == 1
    assert run("history", "show", f"{server.address}/none").status == 1


def test_the_command(tmp_path: Path, run: Run) -> None:
    command = [sys.executable, "-m", "holdfast", "history", "partner", "--memory", "64M", "--json"]
    for end in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as partner:
            assert partner.stdout is not None
            said = json.loads(partner.stdout.readline())
            assert said["pid"] == partner.pid
            place = f"{said['address']}/rank3"
            save(place, range(3), disk=tmp_path / f"disk{end}")
            assert [
                step["step"] for step in run("history", "show", place, "--json").json["steps"]
            ] == [
                0,
                1,
                2,
            ]
            partner.send_signal(end)
            assert partner.wait(60) == 0
        assert run("history", "show", place).status == 1
    for wrong in (["--memory", "much"], ["--memory", "0"], ["--memory", "1G", "--listen", "x"]):
        assert run("history", "partner", *wrong).status == 1


def test_a_partner_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "history", "partner", "--memory", "64M", "--json"]
    field = np.zeros(20_000)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as partner:
        assert partner.stdout is not None
        place = json.loads(partner.stdout.readline())["address"] + "/rank3"
        history = History(disk=tmp_path / "disk", remote=place)
        history.protect("field", field)
        history.save(0).wait("remote")
        partner.kill()
        partner.wait(60)
        ticket = history.save(1)
        ticket.wait("disk")
        with pytest.raises(Error):
            ticket.wait("remote")
        with pytest.raises(Error, match="connect"):
            history.save(2)  # says it, once
        history.save(2).wait("disk")
        with pytest.raises(Error, match="connect"):
            history.close()
    with History(disk=tmp_path / "disk") as again:
        assert again.steps() == [0, 1, 2]
