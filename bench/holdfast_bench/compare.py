"""Two builds of the benchmark programs, in turn, on one machine: is the second slower?

    python -m holdfast_bench.compare --before DIR --after DIR --commits A B --results FILE \\
        [--rounds 5] [--seconds 480] "log_bench --repeat=5" "kvs_bench --sweep=0" ...

DIR is a tree's folder of benchmark programs. Rounds alternate; no round is begun after so many
seconds. Of each figure, the median over the rounds of either side, and what the second costs of the
first: 1.02 is 2 % slower, whether it is a time or a rate.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shlex
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast import Error
from holdfast._backend import ext

from .runner import machine, measured

Key = tuple[str, str, int, str]  # command, benchmark, number of its line, figure
Line = dict[str, Any]
_TIME = re.compile(r"(^|_)(ns|us|ms|seconds)$")


def cost(figure: str, before: float, after: float) -> float | None:
    """Returns what the second costs of the first; None where `figure` is no time and no rate."""
    if before <= 0 or after <= 0:
        return None
    if figure.endswith("_per_s"):
        return before / after
    return after / before if _TIME.search(figure) else None


def compared(runs: dict[str, list[dict[str, list[Line]]]]) -> list[Line]:
    """Returns a line for each figure of `runs`: by side, rounds of lines by command.

    What one side alone measures is left out.
    """
    values: dict[str, dict[Key, list[float]]] = {side: {} for side in runs}
    words: dict[Key, Line] = {}
    for side, rounds in runs.items():
        for by_command in rounds:
            for command, lines in by_command.items():
                seen: Counter[str] = Counter()
                for line in lines:
                    benchmark = str(line["benchmark"])
                    seen[benchmark] += 1
                    for figure, value in line.items():
                        if cost(figure, 1, 1) is None or not isinstance(value, int | float):
                            continue
                        key = (command, benchmark, seen[benchmark], figure)
                        values[side].setdefault(key, []).append(float(value))
                        words[key] = {k: v for k, v in line.items() if cost(k, 1, 1) is None}
    result = []
    for key, line in words.items():
        if any(key not in values[side] for side in values):
            continue
        before, after = (statistics.median(values[side][key]) for side in ("before", "after"))
        ratio = cost(key[3], before, after)
        if ratio is None:
            continue
        spread = [max(v) / min(v) if min(v) > 0 else 0 for v in (values[s][key] for s in values)]
        result.append(
            {
                **line,
                "command": key[0],
                "figure": key[3],
                "before": before,
                "after": after,
                "cost": round(ratio, 4),
                "spread": round(max(spread), 3),
            }
        )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="holdfast_bench.compare", description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--after", type=Path, required=True)
    parser.add_argument("--commits", nargs=2, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("commands", nargs="+")
    given = parser.parse_args()
    started = time.monotonic()
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    sides = {"before": given.before, "after": given.after}
    runs: dict[str, list[dict[str, list[Line]]]] = {side: [] for side in sides}
    longest = 0.0
    for number in range(given.rounds):
        begun = time.monotonic()
        if begun - started + longest > given.seconds:
            break
        # Who comes first has a cooler machine: they take turns.
        for side in list(sides) if number % 2 == 0 else list(reversed(sides)):
            one: dict[str, list[Line]] = {}
            for command in given.commands:
                name, *arguments = shlex.split(command)
                one[command] = list(measured(sides[side] / name, arguments))
            runs[side].append(one)
        longest = max(longest, time.monotonic() - begun)
        print(f"round {number + 1} took {time.monotonic() - begun:.0f} s", file=sys.stderr)
    if not runs["after"]:
        raise Error("no round was run: give more seconds")
    lines = compared(runs)
    if not lines:
        raise Error("the two sides measure nothing that is the same")
    results = {
        "program": "holdfast_bench.compare",
        "command": "; ".join(given.commands),
        "date": date,
        "commit": dict(zip(("before", "after"), given.commits, strict=True)),
        "backend": ext.backend_name(),
        "medium": "dram",
        "machine": machine(),
        "rounds": len(runs["after"]),
        "results": lines,
    }
    given.results.write_text(json.dumps(results, indent=1) + "\n")
    for line in sorted(lines, key=lambda line: -line["cost"]):
        if line["cost"] > 1.03 or line["cost"] < 0.97:
            print(json.dumps(line))
    costs = [float(line["cost"]) for line in lines]
    print(f"{len(costs)} figures, median cost {statistics.median(costs):.3f}, ", end="")
    print(f"{sum(c > 1.03 for c in costs)} over 1.03, {sum(c < 0.97 for c in costs)} under 0.97")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as error:
        sys.exit(f"holdfast_bench.compare: {error}")
