"""Object stores as the remote tier: obstore's own stores, and a server of S3's protocol (moto)."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import objects_worker
from conftest import Run
from holdfast import Error, History
from holdfast._objects import Objects

obstore = pytest.importorskip("obstore")
from obstore.store import LocalStore, MemoryStore, from_url  # noqa: E402

BUCKET = "checkpoints"
LARGE = (19 << 20) // 8  # cells whose bytes take three parts of an upload

# No waiting for what a test has broken.
NO_RETRIES = {"retry_config": {"max_retries": 0}}


class Server:
    """A server of S3's protocol in a process of its own."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        port = self.endpoint.rpartition(":")[2]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        for _ in range(600):
            with contextlib.suppress(OSError):
                self.ask("GET", "/moto-api/")
                break
            assert self._process.poll() is None, log.read_text()
            time.sleep(0.05)
        self.ask("PUT", f"/{BUCKET}")

    def ask(self, method: str, path: str) -> str:
        request = urllib.request.Request(self.endpoint + path, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    @property
    def options(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
            "client_options": {"allow_http": True},
            **NO_RETRIES,
        }

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_ALLOW_HTTP": "true",
        }

    def open_uploads(self) -> int:
        return self.ask("GET", f"/{BUCKET}?uploads").count("<UploadId>")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("moto.server")
    running = Server(tmp_path_factory.mktemp("moto") / "log")
    yield running
    running.stop()


@dataclass
class Place:
    """Where a history's objects go, and how a test looks at them past the history."""

    remote: Any
    store: Any
    options: dict[str, Any] = field(default_factory=dict)

    def open(self, **tiers: Any) -> History:
        return History(remote=self.remote, remote_options=self.options or None, **tiers)

    def names(self) -> set[str]:
        return {row["path"] for row in obstore.list_with_delimiter(self.store)["objects"]}

    def get(self, key: str) -> bytes:
        return bytes(obstore.get(self.store, key).bytes())

    def flip(self, key: str, at: int) -> None:
        data = bytearray(self.get(key))
        data[at] ^= 1
        obstore.put(self.store, key, data)


@pytest.fixture(params=["file", "memory", "local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    folder = tmp_path / "objects"
    if request.param == "file":
        return Place(folder.as_uri(), LocalStore(folder, mkdir=True))
    if request.param in ("memory", "local"):
        store = MemoryStore() if request.param == "memory" else LocalStore(folder, mkdir=True)
        return Place(store, store)
    return in_s3(request.getfixturevalue("server"), tmp_path)


def in_s3(server: Server, tmp_path: Path) -> Place:
    url = f"s3://{BUCKET}/runs/{tmp_path.name}"
    return Place(url, from_url(url, **server.options), server.options)


def name_of(step: int) -> str:
    return f"step-{step:020}.holdfast"


def content(step: int, cells: int) -> npt.NDArray[np.int64]:
    return np.arange(cells, dtype=np.int64) * (step + 1) + step


def save_all(history: History, sizes: dict[int, int]) -> None:
    for step, cells in sizes.items():
        history.protect("field", content(step, cells))
        history.save(step)
    history.flush()


def restored(history: History, step: int) -> npt.NDArray[np.int64]:
    array = np.zeros(history.size(step, "field") // 8, np.int64)
    history.protect("field", array)
    history.restore(step)
    return array


SIZES = {0: 1, 1: 5000, 2: LARGE, 3: (8 << 20) // 8, 4: 700_000}


def test_what_is_saved_is_found_with_an_empty_disk(place: Place, tmp_path: Path) -> None:
    with place.open(disk=tmp_path / "disk", host=4 << 20) as history:
        save_all(history, SIZES)
        assert place.names() == {"history.holdfast", "history.lock", *map(name_of, SIZES)}
        assert history.stats().flushed_to["remote"].checkpoints == len(SIZES)
    assert place.names() == {"history.holdfast", *map(name_of, SIZES)}
    shutil.rmtree(tmp_path / "disk")
    with place.open(disk=tmp_path / "disk") as history:
        assert history.steps() == sorted(SIZES)
        assert history.latest("remote") == 4
        for step in (2, 0, 4, 1, 3):
            assert np.array_equal(restored(history, step), content(step, SIZES[step])), step
            history.verify(step)
        assert history.discard(3)
        history.flush()
    assert name_of(3) not in place.names()


def test_an_object_is_the_file_of_a_folder(place: Place, tmp_path: Path) -> None:
    with place.open() as history:  # and no other tier
        save_all(history, SIZES)
    folder = tmp_path / "folder"
    folder.mkdir()
    for key in place.names():
        (folder / key).write_bytes(place.get(key))
        (folder / key).chmod(0o600)
    with History(disk=folder) as history:
        assert history.steps() == sorted(SIZES)
        for step, cells in SIZES.items():
            assert np.array_equal(restored(history, step), content(step, cells))


def test_what_the_store_damages_or_loses(place: Place, tmp_path: Path) -> None:
    with place.open(disk=tmp_path / "disk") as history:
        save_all(history, {0: 5000, 1: 5000, 2: 5000})
    place.flip(name_of(0), 4096 + 77)
    obstore.delete(place.store, name_of(1))
    with place.open(disk=tmp_path / "disk") as history:  # the disk has them
        with pytest.raises(Error, match="checksum") as raised:
            history.verify(0)
        assert raised.value.code == "damaged"
        history.flush()
        for step in range(3):
            history.verify(step)
    place.flip(name_of(0), 4096 + 77)
    obstore.put(place.store, name_of(1), place.get(name_of(1))[:-1])
    with place.open() as history:
        assert history.steps() == [0, 2]
        with pytest.raises(Error, match="no tier has it whole") as raised:
            restored(history, 0)
        assert raised.value.code == "damaged"
        with pytest.raises(Error, match="its header counts"):
            restored(history, 1)
        assert np.array_equal(restored(history, 2), content(2, 5000))
        history.protect("field", content(1, 10))
        history.save(1)  # a damaged object makes way
        history.flush()
        assert np.array_equal(restored(history, 1), content(1, 10))


def test_one_history_at_a_time(place: Place) -> None:
    with place.open():
        with pytest.raises(Error, match="open for writing") as raised:
            place.open()
        assert raised.value.code == "in_use"
    place.open().close()


# ---- Uploads ------------------------------------------------------------------------------------


def test_an_upload_that_fails_leaves_nothing(server: Server, tmp_path: Path) -> None:
    place = in_s3(server, tmp_path)
    objects = Objects(place.store, "here")
    for fails_in in range(4):
        parts = 0

        def fill(part: bytearray, last: int = fails_in) -> None:
            nonlocal parts
            if parts == last:
                raise Error("the source is gone", "damaged")
            parts += 1

        with pytest.raises(Error, match="the source is gone"):
            objects.put("large", 8 * LARGE + (16 << 20), fill)
        assert parts == fails_in
        assert not place.names()
        assert server.open_uploads() == 0
    objects.put("large", 20 << 20, lambda part: None)
    assert len(place.get("large")) == 20 << 20


MEMORY = """
import sys, numpy, holdfast
def high():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1])
field = numpy.ones(24 << 20)  # 192 MiB
with holdfast.History(disk=sys.argv[1], remote=sys.argv[2]) as history:
    history.protect("small", numpy.ones(1))
    history.save(0)
    history.flush()
    history.unprotect("small")
    history.protect("field", field)
    before = high()
    history.save(1)
    history.flush()
with holdfast.History(remote=sys.argv[2]) as history:
    history.protect("field", field)
    field[:] = 0
    history.restore(1)
assert (field == 1).all()
print(high() - before)
"""


def test_memory_is_bounded(tmp_path: Path) -> None:
    url = (tmp_path / "objects").as_uri()
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "disk"), url],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert int(done.stdout) < 100_000, done.stdout  # KiB, of 196,608


# ---- Processes that end -------------------------------------------------------------------------

LEFT_OPEN = """
import os, sys, numpy, holdfast
field = numpy.arange(1_000_000)
history = holdfast.History(disk=sys.argv[1], remote=sys.argv[2])
history.protect("field", field)
history.save(1)
child = os.fork()
if child == 0:
    sys.exit(0)  # as any process ends, with a copy of a history that is not its own
assert os.waitpid(child, 0)[1] == 0
field += 1
history.save(2)
"""


def test_the_interpreters_end_waits_for_uploads(tmp_path: Path) -> None:
    url = (tmp_path / "objects").as_uri()
    subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, str(tmp_path / "disk"), url],
        check=True,
        timeout=120,
    )
    assert {path.name for path in (tmp_path / "objects").iterdir()} == {
        "history.holdfast",
        name_of(1),
        name_of(2),
    }
    with History(remote=url) as history:
        assert np.array_equal(restored(history, 2), np.arange(1_000_000) + 1)


def run_and_kill(place: Place, disk: Path, seed: int) -> tuple[set[int], set[int]]:
    """Returns the steps that the worker knew to be remote, and those that it discarded."""
    dice = random.Random(seed)
    worker = subprocess.Popen(
        [
            sys.executable,
            objects_worker.__file__,
            str(disk),
            place.remote,
            json.dumps(place.options),
            str(seed),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    known: set[int] = set()
    gone: set[int] = set()

    def read() -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            word, _, step = line.partition(" ")
            if word == "remote":
                known.add(int(step))
            elif word == "discarding":
                gone.add(int(step))

    assert worker.stdout.readline() == "open\n"
    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(dice.uniform(0.05, 1.2))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    reader.join()
    return known, gone


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_killed_in_uploads(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = tmp_path / "objects"
    place = (
        Place(folder.as_uri(), LocalStore(folder, mkdir=True))
        if kind == "file"
        else in_s3(request.getfixturevalue("server"), tmp_path)
    )
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", random.randrange(2**32)))
    print(f"HOLDFAST_TEST_SEED={seed}")
    remote: set[int] = set()
    for i in range(5):
        disk = tmp_path / f"disk {i % 2}"
        known, gone = run_and_kill(place, disk, seed + i)
        remote = (remote | known) - gone
        shutil.rmtree(disk)
        with place.open() as history:  # at once: that process is dead
            steps = history.steps()
            assert remote <= set(steps)
            for step in steps:
                assert np.array_equal(restored(history, step), objects_worker.content(step))


# ---- Errors -------------------------------------------------------------------------------------


def refused(code: str, match: str, make: Callable[[], Any]) -> None:
    with pytest.raises(Error, match=match) as raised:
        make()
    assert raised.value.code == code, raised.value
    assert "Debug source" not in str(raised.value)


def test_without_obstore(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    refused("unsupported", r"pip install 'holdfast\[object\]'", lambda: History(remote="s3://a/b"))
    History(disk=tmp_path / "a", remote=tmp_path / "b").close()


def test_what_is_no_object_store(tmp_path: Path) -> None:
    refused("invalid_argument", "s3://bucket/prefix", lambda: History(remote="nonsense://x/y"))
    refused("invalid_argument", "remote 's3://'", lambda: History(remote="s3://"))
    refused("invalid_argument", "a store of obstore", lambda: History(remote=object()))  # type: ignore[arg-type]
    refused(
        "invalid_argument",
        "remote_options are for a URL",
        lambda: History(remote=tmp_path, remote_options={"region": "x"}),
    )
    refused(
        "invalid_argument",
        "colour",
        lambda: History(remote="s3://a/b", remote_options={"colour": "red"}),
    )
    (tmp_path / "note").write_text("mine")
    refused("foreign", "'note'", lambda: History(remote=LocalStore(tmp_path)))


def test_a_bucket_that_is_not_there(server: Server) -> None:
    refused(
        "not_found",
        "s3://elsewhere/run.*bucket",
        lambda: History(remote="s3://elsewhere/run", remote_options=server.options),
    )


def test_a_server_that_is_down(server: Server, tmp_path: Path) -> None:
    options = {**server.options, "endpoint": "http://127.0.0.1:9"}
    refused(
        "io",
        f"s3://{BUCKET}/run.*address and the network",
        lambda: History(remote=f"s3://{BUCKET}/run", remote_options=options),
    )


class Answering:
    """A server that answers everything alike, or not at all."""

    def __init__(self, status: int | None) -> None:
        over = self.over = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                if status is None:
                    over.wait(60)
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(403, "permission", "credentials"), (401, "permission", "credentials"), (None, "io", "run")],
)
def test_a_server_that_refuses_or_is_silent(
    server: Server, status: int | None, code: str, words: str
) -> None:
    with Answering(status) as answering:
        options = {
            **server.options,
            "endpoint": answering.endpoint,
            "client_options": {"allow_http": True, "timeout": "1s"},
        }
        refused(code, words, lambda: History(remote=f"s3://{BUCKET}/run", remote_options=options))


def test_a_store_that_goes_away(tmp_path: Path) -> None:
    own = Server(tmp_path / "log")
    try:
        place = in_s3(own, tmp_path)
        history = place.open(disk=tmp_path / "disk", on_error="warn")
        save_all(history, {0: 5000})
        own.stop()
        history.protect("field", content(1, LARGE))
        ticket = history.save(1)
        ticket.wait()
        with pytest.raises(Error, match="network"):
            ticket.wait("remote")
        assert np.array_equal(restored(history, 1), content(1, LARGE))
        with pytest.raises(Error, match="network"):
            history.close()
        assert history.closed
    finally:
        own.stop()
    with History(disk=tmp_path / "disk") as history:
        assert history.steps() == [0, 1]


# ---- The command line ---------------------------------------------------------------------------


def test_the_command_line(server: Server, tmp_path: Path, run: Run) -> None:
    place = in_s3(server, tmp_path)
    with place.open() as history:
        save_all(history, {0: 100, 1: 5000, 2: 300})
    url, environment = str(place.remote), server.environment
    shown = run("history", "show", url, "--json", **environment).json
    assert [step["step"] for step in shown["steps"]] == [0, 1, 2]
    assert shown["path"] == url
    assert shown["steps"][1]["path"] == f"{url}/{name_of(1)}"
    place.flip(name_of(1), 9000)
    verified = run("history", "verify", url, "--json", **environment)
    assert verified.status != 0
    assert [file["step"] for file in verified.json["damaged"]] == [1]
    assert run("history", "discard", url, "1", **environment).status == 0
    assert place.names() == {"history.holdfast", name_of(0), name_of(2)}
    nothing = run("history", "show", f"s3://{BUCKET}/nothing", **environment)
    assert nothing.status != 0
    assert "no history in" in nothing.err
    missing = tmp_path / "missing"
    assert run("history", "show", missing.as_uri()).status != 0
    assert not missing.exists()
