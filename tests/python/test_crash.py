"""Crash campaigns: the oracle, the plan, a sound store, and stores that are broken on purpose."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import holdfast
from conftest import Run
from holdfast.crash import Batch, Campaign, Gpkvs, Options, Table, make_plan
from holdfast.crash.apps import judge
from holdfast.crash.plan import WARM_UP
from holdfast.crash.watch import Seen, TransactionWatch


def u64(*values: int) -> npt.NDArray[np.uint64]:
    return np.array(values, np.uint64)


BEFORE = Table(u64(1, 3, 5), u64(10, 30, 50))
SETS = Batch(u64(3, 4), u64(31, 40))
ERASES = Batch(u64(1, 9), erase=True)


def test_a_table_follows_its_batches() -> None:
    after = BEFORE.after(Batch(u64(7, 3, 0, 7), u64(1, 2, 3, 4)))
    assert after.keys.tolist() == [0, 1, 3, 5, 7]
    assert after.values.tolist() == [3, 10, 2, 50, 4]
    assert after.after(Batch(u64(0, 5, 6), erase=True)).keys.tolist() == [1, 3, 7]
    assert Table().after(SETS).keys.tolist() == [3, 4]


def test_a_table_agrees_with_a_dictionary() -> None:
    rng = np.random.default_rng(5)
    table = Table()
    model: dict[int, int] = {}
    for _ in range(60):
        keys = rng.integers(0, 200, 40).astype(np.uint64)
        values = rng.integers(0, 1000, 40).astype(np.uint64)
        if rng.random() < 0.3:
            table = table.after(Batch(keys, erase=True))
            for key in keys.tolist():
                model.pop(key, None)
        else:
            table = table.after(Batch(keys, values))
            model.update(zip(keys.tolist(), values.tolist(), strict=True))
        assert dict(zip(table.keys.tolist(), table.values.tolist(), strict=True)) == model


@pytest.mark.parametrize(
    ("keys", "values", "batch", "in_flight", "lost"),
    [
        ((5, 1, 3), (50, 10, 30), None, "none", 0),
        ((5, 1, 3), (50, 10, 30), SETS, "absent", 0),
        ((4, 1, 3, 5), (40, 10, 31, 50), SETS, "whole", 0),
        ((1, 3, 5), (10, 31, 50), SETS, "torn", 0),
        ((1, 3, 4, 5), (10, 30, 40, 50), SETS, "torn", 0),
        ((1, 3), (10, 30), SETS, "absent", 1),
        ((1, 3, 5), (10, 30, 51), SETS, "absent", 1),
        ((1, 3, 5, 8), (10, 30, 50, 1), SETS, "absent", 1),
        ((1, 3, 5), (10, 99, 50), SETS, "torn", 1),
        ((1, 3, 5), (10, 30, 50), ERASES, "absent", 0),
        ((3, 5), (30, 50), ERASES, "whole", 0),
        ((), (), ERASES, "whole", 2),
        ((1, 3, 3, 5), (10, 30, 30, 50), SETS, "torn", 0),
        ((1, 1, 3, 5), (10, 10, 30, 50), None, "none", 1),
    ],
)
def test_the_oracle(
    keys: tuple[int, ...],
    values: tuple[int, ...],
    batch: Batch | None,
    in_flight: str,
    lost: int,
) -> None:
    verdict = judge(u64(*keys), u64(*values), BEFORE, batch)
    assert (verdict.in_flight, verdict.lost) == (in_flight, lost)


@pytest.mark.parametrize("kills", [1, 2, 7, 25, 200])
@pytest.mark.parametrize("batches", [None, 30, 365])
def test_the_plan(kills: int, batches: int | None) -> None:
    plan, count = make_plan(7, kills, batches)
    assert sum(len(kill) for kill in plan) == kills
    assert make_plan(7, kills, batches) == (plan, count)
    assert batches is None or count == batches
    assert all(WARM_UP <= kill.batch < count for kill in plan)
    assert [kill.batch for kill in plan] == sorted(kill.batch for kill in plan)
    if kills >= 25:
        assert make_plan(8, kills, batches)[0] != plan
        in_recovery = sum(len(kill.recoveries) for kill in plan)
        assert in_recovery == round(kills * 0.2)
        in_batch = [kill for kill in plan if kill.kind == "batch"]
        assert len(in_batch) > kills // 2
        assert 0 < sum(kill.in_transaction for kill in in_batch) < len(in_batch)
        assert not any(kill.in_transaction for kill in plan if kill.kind != "batch")


def test_a_transaction_is_seen_while_it_is_open(tmp_path: Path) -> None:
    with holdfast.create(tmp_path / "r.hf", 1 << 20) as region:
        state = region.allocate("tx", 2, "uint64")
        watch = TransactionWatch(region, "tx")
        opened = threading.Event()
        watch.start(opened.set)
        assert not opened.wait(0.05)
        state[1] = 4 * 7 + 1
        assert opened.wait(10)
        time.sleep(0.02)
        state[1] = 4 * 8
        seen = watch.stop()
        assert seen.after >= 0.05
        assert seen.seconds >= 0.02
        watch.start()
        assert watch.stop() == Seen()
        del state, watch


def campaign(
    mode: str | None,
    folder: Path,
    kills: int = 10,
    seed: int = 11,
    max_batch: int = 512,
    layout: str = "in_place",
) -> Campaign:
    command = None
    if mode:
        command = [sys.executable, str(Path(__file__).with_name("broken_workers.py")), mode]
    options = Options(kills=kills, seed=seed, folder=str(folder), worker_command=command)
    return Campaign(Gpkvs(max_batch, layout=layout), options)


def test_a_sound_store_survives(tmp_path: Path) -> None:
    before = set(Path("/dev/shm").iterdir())
    # Batches large enough for a kill to meet a transaction; on a busy machine few do.
    for seed in range(11, 16):
        result = campaign(None, tmp_path, kills=20, seed=seed, max_batch=4096).run()
        assert result.ok, result.problems
        if result.recoveries:
            break
    assert result.kills == 20
    assert result.kills_in_batch > 0
    assert result.recoveries > 0
    assert result.images_verified > 0
    assert result.verified >= 16
    assert result.acknowledged + result.found_whole == result.batches
    assert not list(tmp_path.iterdir())
    # Other tests run beside this one, whose arenas go in time.
    left = set(Path("/dev/shm").iterdir()) - before
    until = time.monotonic() + 60
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left &= set(Path("/dev/shm").iterdir())
    assert not left


def test_a_log_survives(tmp_path: Path) -> None:
    result = campaign(None, tmp_path, kills=20, layout="log").run()
    assert result.ok, result.problems
    assert result.kills == 20
    assert result.images_verified > 0
    assert result.acknowledged + result.found_whole == result.batches
    assert not list(tmp_path.iterdir())


def test_a_seed_gives_the_same_batches(tmp_path: Path) -> None:
    tables = []
    for _ in range(2):
        run = campaign(None, tmp_path, kills=3)
        assert run.run().ok
        tables.append(run.table)
    assert tables[0].same_as(tables[1])


@pytest.mark.parametrize("mode", ["early", "halves", "forgets", "keeps", "scribbles"])
def test_a_broken_store_is_caught(tmp_path: Path, mode: str) -> None:
    result = campaign(mode, tmp_path, kills=20 if mode == "halves" else 10).run()
    assert not result.ok
    assert result.problems
    if mode == "halves":
        assert result.torn > 0
    elif mode == "scribbles":
        assert result.lost > 0 or result.inconsistent > 0
    else:
        assert result.lost > 0


def test_the_command(run: Run) -> None:
    answer = run("crash", "gpkvs", "--kills", 5, "--seed", 3, "--json")
    assert answer.status == 0, answer.err
    assert answer.json["ok"] is True
    assert (answer.json["kills"], answer.json["seed"]) == (5, 3)
    assert (answer.json["lost"], answer.json["torn"]) == (0, 0)
    answer = run("crash", "gpkvs", "--kills", 3, "--set", "layout=log", "--json")
    assert answer.status == 0, answer.err
    assert answer.json["ok"] is True
    for refused in ("layout=heap", "cache=on"):
        answer = run("crash", "gpkvs", "--set", refused)
        assert answer.status == 1
        assert "layout=log" in answer.err
    for option in (("--size", "paper"), ("--steps", 0)):
        answer = run("crash", "gpkvs", *option)
        assert answer.status == 1
        assert "gpkvs in mode gpm takes --max-batch" in answer.err
    answer = run("crash", "srad", "--max-batch", 4096)
    assert answer.status == 1
    assert "--max-batch is of gpkvs" in answer.err
    answer = run("crash", "nothing")
    assert answer.status == 1
    assert "gpkvs" in answer.err
    assert run("crash", "gpkvs", "--kills", 0).status == 2


def test_the_demo(run: Run) -> None:
    answer = run("demo", "--kills", 6, "--batches", 40, "--seed", 5, "--json")
    assert answer.status == 0, answer.out + answer.err
    result = answer.json
    assert result["ok"] is True
    assert result["backend"] in ("cpu", "cuda")
    assert result["records"] > 30_000
    assert result["kills"] == 6
    assert result["acknowledged"] + result["found_whole"] == 40
    assert (result["lost"], result["torn"]) == (0, 0)
    answer = run("demo", "--kills", 3, "--batches", 20)
    assert answer.status == 0
    for word in ("records", "batches", "kills", "acknowledged", "lost", "torn", "seed"):
        assert word in answer.out
