"""holdfast history: what is in the folder of a history."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conftest import Run
from holdfast import History


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def filled(folder: Path, steps: range) -> None:
    with History(disk=folder) as history:
        for step in steps:
            history.protect("field[x]", np.full(5000, step))
            history.protect("time", np.full(1, step))
            history.save(step)


def file_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:020}.holdfast"


def test_show(run: Run, folder: Path) -> None:
    filled(folder, range(3))
    answer = run("history", "show", folder, "--json").json
    assert answer["ok"] is True
    assert [step["step"] for step in answer["steps"]] == [0, 1, 2]
    assert answer["latest"] == 2
    assert answer["damaged"] == []
    assert answer["file_bytes"] == sum(file_of(folder, n).stat().st_size for n in range(3))
    step = answer["steps"][1]
    assert step["path"] == str(file_of(folder, 1))
    assert step["saved"].endswith("+00:00")
    assert {part["name"]: part["nbytes"] for part in step["arrays"]} == {
        "field[x]": 40_000,
        "time": 8,
    }
    said = run("history", "show", folder)
    assert said.status == 0
    for word in ("2 (latest)", "field[x] 39.1 KiB", "time 8 bytes"):
        assert word in said.out


def steps_shown(run: Run, folder: Path) -> list[int]:
    return [step["step"] for step in run("history", "show", folder, "--json").json["steps"]]


def test_show_and_verify_work_beside_a_writer(run: Run, folder: Path) -> None:
    with History(disk=folder) as history:
        assert steps_shown(run, folder) == []
        assert run("history", "verify", folder).status == 0
        history.protect("a", np.zeros(10))
        history.save(1)
        assert steps_shown(run, folder) == [1]
        assert run("history", "verify", folder, "--json").json["whole"] == 1
        answer = run("history", "discard", folder, 1, "--json")
        assert (answer.status, answer.json["error"]["code"]) == (1, "in_use")
        history.save(2)  # it has changed nothing
    assert steps_shown(run, folder) == [1, 2]


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_damage_is_named(run: Run, folder: Path) -> None:
    filled(folder, range(4))
    flip(file_of(folder, 1), 100)  # what describes it
    flip(file_of(folder, 2), file_of(folder, 2).stat().st_size - 5000)
    shown = run("history", "show", folder, "--json")
    assert shown.status == 0
    assert [step["step"] for step in shown.json["steps"]] == [0, 2, 3]
    assert [(file["step"], file["code"]) for file in shown.json["damaged"]] == [(1, "damaged")]
    assert str(file_of(folder, 1)) in run("history", "show", folder).err.replace("\n", "")
    found = run("history", "verify", folder, "--json")
    assert found.status == 1
    assert found.json["ok"] is False
    assert found.json["whole"] == 2
    assert [(file["step"], file["path"]) for file in found.json["damaged"]] == [
        (step, str(file_of(folder, step))) for step in (1, 2)
    ]
    said = run("history", "verify", folder)
    assert said.status == 1
    assert "2 whole" in said.out and "2 damaged" in said.out
    assert run("history", "discard", folder, 1, 2, 2, "--json").json["discarded"] == [1, 2]
    assert run("history", "verify", folder, "--json").json["whole"] == 2


def test_discard_is_all_or_nothing(run: Run, folder: Path) -> None:
    filled(folder, range(3))
    answer = run("history", "discard", folder, 0, 7)
    assert answer.status == 1
    assert "checkpoint 7" in answer.err
    assert all(file_of(folder, step).exists() for step in range(3))
    assert run("history", "discard", folder, 0, 2).status == 0
    with History(disk=folder) as history:
        assert history.steps() == [1]


@pytest.mark.parametrize("command", [["show"], ["verify"], ["discard"]])
def test_what_is_no_history(run: Run, tmp_path: Path, command: list[str]) -> None:
    step = [1] if command == ["discard"] else []
    assert run("history", *command, tmp_path / "nothing", *step).status == 1
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "mine").mkdir()
    answer = run("history", *command, tmp_path / "mine", *step, "--json")
    assert (answer.status, answer.json["error"]["code"]) == (1, "not_found")
    assert list((tmp_path / "mine").iterdir()) == []
    (tmp_path / "file").write_text("")
    assert run("history", *command, tmp_path / "file", *step).status == 1
