"""Checks as tests of pytest: `pytest_plugins = ["holdfast.check.pytest_plugin"]` in a conftest.py.

A test asks for the fixture `holdfast_check` and calls it with a program's name and options:

    def test_append(holdfast_check):
        holdfast_check("append", "--threads", 1)

It passes where the verdict is `passed`, is skipped where no failure was found but not all was
explored (or passes, where a budget was asked for), and fails otherwise. `--check-max-seconds`,
`--check-max-states` and `--check-schedules` are budgets of all checks of a run, `--check-seed` is
their seed, and `--check-program` an executable of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .tool import replay_command, run

_BUDGETS = ("max-seconds", "max-states", "schedules")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("holdfast", "checks of crash states")
    for name in (*_BUDGETS, "seed"):
        group.addoption(f"--check-{name}", metavar="N", help=f"--{name} of each holdfast_check()")
    group.addoption("--check-program", type=Path, help="The executable that checks.")


def _options(config: pytest.Config) -> list[str]:
    words = []
    for name in (*_BUDGETS, "seed"):
        value = config.getoption(f"--check-{name}")
        if value is not None:
            words += [f"--{name}", str(value)]
    return words


def _words(result: dict[str, Any], program: Path | None) -> str:
    lines = [f"{result['program']}: {result['verdict']}", *result["limits"]]
    lines += [*result["void_reasons"], *result["dead_workers"]]
    for failure in result["failures"]:
        lines += [failure["message"], failure["advice"], replay_command(failure, program)]
    lines += [race["what"] for race in result["races"]]
    return "\n".join(lines)


@pytest.fixture
def holdfast_check(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Returns a function that checks a program, and ends the test as its verdict says.

    It takes the words of a command line and returns the report, of a program that passed (or,
    within a budget, does not fail). Raises Error if there is no executable or it said nothing.
    """
    program = request.config.getoption("--check-program")

    def check(name: str, *words: object) -> dict[str, Any]:
        options = _options(request.config)
        answer = run([name, *map(str, words), *options], program)
        result = answer.result
        if "error" in result:
            pytest.fail(result["error"]["message"], pytrace=False)
        if answer.status == 3 and not result["budget"]:
            pytest.skip(_words(result, program))
        if answer.status not in (0, 3):
            pytest.fail(_words(result, program), pytrace=False)
        return result

    return check
