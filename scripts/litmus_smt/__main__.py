"""Litmus tests by an SMT solver: python scripts/litmus_smt [options] [FOLDER|FILE]...

Reads the text form with a parser of its own and gives the axioms of docs/model.md to z3 as they
stand there: whether there is an execution, a moment of it and a legal crash state in which the
condition holds; or, of a test without a crash, whether sequential consistency and PTX's axioms
allow its end. Nothing is shared with src/check. Exits with 0 only if every test comes out as it
says, under all models that it names. Needs z3-solver (requirements-dev.txt).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from crash import Encoding
from memory import Memory
from text import Parser


def check(job: tuple[Path, str, str]) -> tuple[str, str, bool, bool, float]:
    """One test under one model: its name, the model, what it expects, what z3 finds, seconds."""
    file, name, model = job
    test = next(t for t in Parser(file.read_text()).tests() if t.name == name)
    start = time.monotonic()
    encoding = Memory(test, model == "ptx") if model in ("sc", "ptx") else Encoding(test, model)
    found = encoding.allowed()
    return name, model, test.expected[model], found, time.monotonic() - start


def jobs_of(paths: list[Path], names: list[str]) -> list[tuple[Path, str, str]]:
    jobs = []
    for path in paths:
        for file in sorted(path.glob("*.litmus")) if path.is_dir() else [path]:
            for test in Parser(file.read_text()).tests():
                if not names or test.name in names:
                    jobs += [(file, test.name, model) for model in test.expected]
    return jobs


def main() -> int:
    parser = argparse.ArgumentParser(description="Litmus tests by an SMT solver.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="FOLDER|FILE")
    parser.add_argument("--test", action="append", default=[], help="this test alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--sample", type=int, metavar="N", help="N runs, chosen by --seed")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    options = parser.parse_args()
    folder = Path(__file__).resolve().parents[2] / "litmus"
    jobs = jobs_of(options.paths or [folder], options.test)
    if options.sample is not None:
        print(f"sample of seed {options.seed}")
        jobs = random.Random(options.seed).sample(jobs, min(options.sample, len(jobs)))
    if not jobs:
        print("litmus_smt: no such test", file=sys.stderr)
        return 2
    start = time.monotonic()
    wrong = 0
    slowest = (0.0, "")
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, model, expected, found, seconds in pool.map(check, jobs, chunksize=8):
            slowest = max(slowest, (seconds, f"{name} ({model})"))
            if expected != found:
                wrong += 1
                words = {True: "allowed", False: "forbidden"}
                print(f"{name} ({model}): expected {words[expected]}, z3 finds {words[found]}")
    print(
        f"{len(jobs)} runs, {wrong} wrong, {time.monotonic() - start:.1f} s; "
        f"slowest: {slowest[1]}, {slowest[0]:.1f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
