"""What a check found, on the terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.text import Text

from . import common

_VERDICTS = {
    "passed": "green",
    "failed": "red",
    "no failure found": "yellow",
    "racy": "yellow",
    "void": "yellow",
}
_FATES = {
    "killed": ("green", ""),
    "not needed": ("yellow", "the changed program passes at each of these sizes"),
    "not killed": ("red", "nothing was found to fail, and not all was explored"),
}
_KILLERS = {
    "state": "state: recovery fails after some crash",
    "race": "race: what threads see needs it, and no state that was tried",
    "executor": "executor: the program does not come to its end",
}
_MOST_LITMUS = 20


def show(report: dict[str, Any]) -> None:
    """Prints the report of one program."""
    colour = _VERDICTS[report["verdict"]]
    common.out.print(f"[bold]{escape(report['program'])}[/]: [bold {colour}]{report['verdict']}[/]")
    for name, lines in (("explored", _limits(report)), ("void", report["void_reasons"])):
        for number, line in enumerate(lines):
            _row(name if number == 0 else "", line)
    for part in report["models"]:
        _row(part["model"], _explored(part))
    _row("schedules", _schedules(report))
    nested = report["nested_states"]
    within = f", {nested:,} of them after a second crash, inside recovery" if nested else ""
    _row("states", f"{report['states']:,}{within}")
    _row(
        "recovery",
        f"ran {report['runs']:,} times; {report['memoised']:,} states were known from before",
    )
    _row(
        "program",
        f"size {report['sizes']}: {report['persists']:,} persists of {report['threads']:,} "
        f"threads, {report['crash_points']:,} crash points",
    )
    _row("cost", f"{report['seconds']:.2f} s, {common.size_text(report['peak_bytes'])}")
    for failure in report["failures"]:
        _show_failure(failure)
    for race in report["races"]:
        _show_race(race)
    if report["races"]:
        _words("guarantee void:", "with a race, what was explored promises nothing", indent=0)
    for hint in report["hints"]:
        common.out.print()
        _words("hint:", hint["what"], "yellow", indent=0)
        _show_place(hint["place"], 2)
    for dead in report["dead_workers"]:
        common.out.print()
        _words("died:", dead, "red", indent=0)
    if report.get("diagram"):
        common.out.print(f"\ndrew {report['diagram']}")


def _row(name: str, value: str) -> None:
    """Prints a name and a value, which goes on under its own beginning."""
    lines = textwrap.wrap(value, max(20, common.out.width - 12)) or [""]
    common.out.print(f"  [dim]{name:<9}[/] {escape(lines[0])}")
    for line in lines[1:]:
        common.out.print(" " * 12 + escape(line))


def _words(title: str, words: str, style: str = "bold", indent: int = 2) -> None:
    """Prints a title and a paragraph behind it, all of it indented."""
    first = " " * indent + title + " "
    lines = textwrap.wrap(words, common.out.width, initial_indent=first, subsequent_indent=" " * 4)
    common.out.print(f"{' ' * indent}[{style}]{title}[/] {escape(lines[0][len(first) :])}")
    for line in lines[1:]:
        common.out.print(escape(line))


def _limits(report: dict[str, Any]) -> list[str]:
    """Returns why the verdict is no stronger one, where that is what a person has to know."""
    return list(report["limits"]) if report["verdict"] == "no failure found" else []


def _schedules(report: dict[str, Any]) -> str:
    made = int(report["schedules"])
    if report["schedules_complete"]:
        return f"{made:,}, which is all"
    if report["schedules_share"] > 0:
        return f"{made:,}, about {100 * report['schedules_share']:.2g} % of all"
    return f"{made:,} of unknown many"


def _explored(part: dict[str, Any]) -> str:
    """Returns how thoroughly the states were explored under one model."""
    words = str(part["rung_in_words"])
    if part["failed"]:
        return "fails" if part["rung"] == "replay" else f"fails; {words}, up to the first that does"
    if part["rung"] == "components":
        words += f" ({part['components']:,} groups)"
    if part["rung"] == "sampled":
        words += f": {part['pairs_tried']:,} of {part['pairs']:,} pairs"
    if part["rung"] == "replay":
        return words
    if not part["complete"]:
        return words + "; not to the end"
    return words + ("" if part["nested_complete"] else "; second crashes not to the end")


def _short_name(function: str) -> str:
    """Returns a function's name without result, namespace, parameters and template arguments."""
    bare, depth = "", 0
    for letter in function.replace("(anonymous namespace)::", ""):
        depth += letter == "<"
        if depth == 0 and letter == "(":
            break
        if depth == 0:
            bare += letter
        depth -= letter == ">"
    return bare.replace("::", " ").split(" ")[-1]


def _place(place: dict[str, Any]) -> str:
    if not place["file"]:
        return str(place["function"] or "an unknown place")
    words = f"{Path(place['file']).name}:{place['line']}"
    function = _short_name(str(place["function"]))
    if function:
        words += f" in {function}"
    return f"{words}, from {place['context']}" if place["context"] else words


def _show_place(place: dict[str, Any], indent: int) -> None:
    common.out.print(f"{' ' * indent}[cyan]{escape(_place(place))}[/]", soft_wrap=True)
    if place.get("text"):
        common.out.print(f"{' ' * (indent + 2)}{escape(place['text'])}", soft_wrap=True)


def _value(value: int) -> str:
    return f"{value:,}" if value < 1 << 20 else f"{value:#x}"


def _show_persist(title: str, info: dict[str, Any]) -> None:
    if not info["bytes"]:
        return
    common.out.print(
        f"  [bold]{title}[/] {escape(info['object'])} = {_value(info['value'])}, "
        f"{info['bytes']} bytes, by {escape(info['thread'])}"
    )
    _show_place(info["place"], 4)


def _show_failure(failure: dict[str, Any]) -> None:
    common.out.print()
    _words("fails:", failure["message"], "red", indent=0)
    if failure["nested"]:
        common.out.print("  after a second crash, inside recovery")
    _show_persist("lost:", failure["lost"])
    _show_persist("kept:", failure["kept"])
    _words("cause:", failure["cause_in_words"])
    if failure["fix"]["file"]:
        common.out.print("  [bold]change:[/]")
        _show_place(failure["fix"], 4)
    _words("what to do:", failure["advice"])
    if failure.get("suggestion"):
        _words("suggested:", failure["suggestion"])
    common.out.print(f"  [bold]replay:[/] {escape(failure['command'])}", soft_wrap=True)


def _show_race(race: dict[str, Any]) -> None:
    common.out.print()
    _words("race:", race["what"], "yellow", indent=0)
    for name in ("first", "second"):
        _show_place(race[name], 2)


def show_mutants(result: dict[str, Any]) -> None:
    """Prints the mutation score, and each mutant."""
    if not result["unchanged"]["sound"]:
        show(result["unchanged"])
        common.out.print("\nThe program fails as it is: mend it before its mutants say anything.")
        return
    score = result["score"]
    common.out.print(
        f"[bold]{escape(result['program'])}[/]: {score['mutants']} mutants, "
        f"[green]{score['killed']} killed[/], [yellow]{score['not_needed']} not needed[/], "
        f"[{'red' if score['not_killed'] else 'green'}]{score['not_killed']} not killed[/]"
    )
    rows = [("change", "where", "fate", "sizes", "line")]
    for mutant in result["mutants"]:
        change, _, where = mutant["mutation"].partition("@")
        place = where + (" (recovery)" if mutant["in_recovery"] else "")
        fate = mutant["fate"]
        if fate == "killed":
            fate += f" by {mutant['killer']}"
        sizes = mutant["killed_at"] or ", ".join(mutant["sizes"])
        rows.append((change, place, fate, sizes, mutant["place"].get("text", "")))
    styles = {fate: colour for fate, (colour, _) in _FATES.items()}
    styles.update({f"killed by {killer}": "green" for killer in _KILLERS})
    _columns(rows, styles)
    _explain_fates(result)
    for dead in result["dead_workers"]:
        common.out.print(f"[red]died:[/] {escape(dead)}")


def _explain_fates(result: dict[str, Any]) -> None:
    killers = Counter(mutant["killer"] for mutant in result["mutants"])
    for killer, words in _KILLERS.items():
        if killers[killer]:
            common.out.print(f"[green]killed by[/] {words}")
    fates = Counter(mutant["fate"] for mutant in result["mutants"])
    for fate, (colour, words) in _FATES.items():
        if fates[fate] and fate != "killed":
            common.out.print(f"[{colour}]{fate}:[/] {words}")


def show_list(result: dict[str, Any]) -> None:
    """Prints the programs."""
    rows = []
    for program in result["programs"]:
        words = program["summary"] + ("" if program["correct"] else " (shows a bug)")
        rows.append((program["name"], words))
    _columns(rows, {name: "bold" for name, _ in rows})


def _columns(rows: Sequence[tuple[str, ...]], styles: dict[str, str]) -> None:
    """Prints rows under one another, cut at the terminal's width. `styles`: of whole cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text()
        for cell, width in zip(row, widths, strict=True):
            line.append(cell, styles.get(cell, "")).append(" " * (width - len(cell) + 2))
        line.rstrip()
        line.truncate(common.out.width, overflow="ellipsis")
        common.out.print(line, no_wrap=True)


def show_litmus(result: dict[str, Any]) -> None:
    """Prints how the litmus tests went, and those that failed."""
    runs = result["results"]
    failed = [run for run in runs if not run["passed"]]
    words = f"{result['tests']:,} litmus tests, {len(runs):,} runs"
    common.out.print(
        f"{words}: [green]all as the model says[/]"
        if not failed
        else f"{words}: [red]{len(failed)} failed[/]"
    )
    if len(runs) <= _MOST_LITMUS or failed:
        rows = [("test", "model", "expected", "found", "where")]
        for run in failed or runs:
            where = f"{Path(run['file']).name}:{run['line']}"
            rows.append((run["name"], run["model"], run["expected"], run["found"], where))
        _columns(rows, {})
