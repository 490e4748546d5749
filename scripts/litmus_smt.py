"""Litmus tests by an SMT solver: scripts/litmus_smt.py [--test NAME]... [--jobs N] [FOLDER|FILE]...

Reads the text form with a parser of its own and gives the axioms of docs/model.md to z3 as they
stand there: whether there is an execution, a moment of it and a legal crash state in which the
condition holds. Nothing is shared with src/check. Exits with 0 only if every test comes out as it
says, under both models. Needs z3-solver (requirements-dev.txt).
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import z3

SCOPES = {"block": 0, "device": 1, "system": 2}
TOKEN = re.compile(r'\s+|//[^\n]*|("[^"\n]*"|\w+|==|!=|&&|\.\.|[{}\[\],;:.=<>])')


@dataclass
class Variable:
    name: str
    persistent: bool
    width: int
    count: int
    initial: int


@dataclass
class Event:
    """One operation of one thread, under the branches that lead to it."""

    kind: str
    thread: int
    guard: z3.BoolRef
    scope: int = 2
    access: str = "plain"  # plain, strong, persist
    place: tuple[str, int, int] | None = None  # variable, first element, how many
    value: z3.ArithRef | None = None  # that is stored
    got: z3.ArithRef | None = None  # that is read
    awaited: z3.BoolRef | None = None
    writes: z3.BoolRef | None = None  # of a read-modify-write: whether it does
    launch: int = 0
    barrier: int = 0
    waits_for: list[int] = field(default_factory=list)  # synchronize, wait_event: launches
    number: int = 0


@dataclass
class Thread:
    launch: int
    stream: str
    block: int
    steps: list


@dataclass
class Test:
    name: str
    variables: dict[str, Variable]
    threads: list[Thread]
    condition: list
    expected: dict[str, bool]


class Parser:
    """The text form of docs/model.md."""

    def __init__(self, text: str) -> None:
        self.tokens = [t for t in TOKEN.findall(text) if t]
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if expected is not None and token != expected:
            raise ValueError(f"expected {expected!r}, found {token!r}")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def tests(self) -> list[Test]:
        found = []
        while self.peek():
            found.append(self.test())
        return found

    def test(self) -> Test:
        self.take("test")
        name = self.take()
        while self.accept("."):
            name += "." + self.take()
        if self.peek().startswith('"'):
            self.take()
        self.variables: dict[str, Variable] = {}
        self.threads = [Thread(0, "", 0, [])]
        self.launches = 0
        self.streams: set[str] = set()
        self.events: dict[str, int] = {}
        condition: list = []
        expected = {}
        self.take("{")
        while not self.accept("}"):
            item = self.peek()
            if item in ("persistent", "volatile"):
                self.declare()
            elif item in ("thread", "kernel"):
                self.kernel("default")
            elif item == "stream":
                self.stream()
            elif item == "host":
                self.take()
                self.threads[0].steps += self.steps()
            elif item in ("synchronize", "start", "acknowledge"):
                self.threads[0].steps.append(self.step())
            elif item == "crash":
                self.take()
                condition.append(self.term())
                while self.accept("&&"):
                    condition.append(self.term())
            else:
                model = self.take()
                self.take(":")
                expected[model] = self.take() == "allowed"
        return Test(name, self.variables, self.threads, condition, expected)

    def declare(self) -> None:
        persistent = self.take() == "persistent"
        width = {"u32": 4, "u64": 8}[self.take()]
        while True:
            name = self.take()
            count = 1
            if self.accept("["):
                count = int(self.take(), 0)
                self.take("]")
            initial = int(self.take(), 0) if self.accept("=") else 0
            self.variables[name] = Variable(name, persistent, width, count, initial)
            if not self.accept(","):
                return

    def launch(self) -> int:
        self.launches += 1
        self.threads[0].steps.append(("launch", self.launches))
        return self.launches

    def kernel(self, stream: str) -> None:
        launch = self.launch()
        closed = self.accept("kernel")
        if closed:
            self.take("{")
        while self.accept("thread"):
            self.take()
            self.take("block")
            block = int(self.take(), 0)
            self.threads.append(Thread(launch, stream, block, self.steps()))
        if closed:
            self.take("}")

    def stream(self) -> None:
        self.take("stream")
        name = "S:" + self.take()
        self.streams.add(name)
        self.take("{")
        while not self.accept("}"):
            if self.peek() in ("thread", "kernel"):
                self.kernel(name)
            else:
                kind = self.take()
                launch = self.launch()
                if kind == "copy":
                    place = self.place()
                    self.take("=")
                    if self.peek() in self.variables:
                        steps = [("load", 0, "plain", 2, self.place()),
                                 ("store", "plain", 2, place, ("r", 0))]
                    else:
                        steps = [("store", "plain", 2, place, self.value())]
                else:
                    event = self.take()
                    if kind == "record":
                        self.events[event] = launch
                        steps = [("record",)]
                    else:
                        steps = [("wait_event", self.events[event])]
                self.threads.append(Thread(launch, name, -launch, steps))
            self.accept(";")

    def steps(self) -> list:
        self.take("{")
        steps = []
        while not self.accept("}"):
            steps.append(self.step())
            self.accept(";")
        return steps

    def scope(self) -> int:
        self.take(".")
        return SCOPES[self.take()]

    def place(self) -> tuple[str, int, int]:
        name = self.take()
        if not self.accept("["):
            return (name, 0, 1)
        first = int(self.take(), 0)
        last = int(self.take(), 0) if self.accept("..") else first
        self.take("]")
        return (name, first, last - first + 1)

    def value(self):
        token = self.take()
        return ("r", int(token[1:])) if token[0] == "r" else ("n", int(token, 0))

    def update(self, result):
        kind = self.take()
        scope = self.scope()
        place = self.place()
        self.take(",")
        values = [self.value()]
        if kind == "cas":
            self.take(",")
            values.append(self.value())
        return (kind, result, scope, place, values)

    def step(self):
        token = self.take()
        if token in ("ofence", "barrier", "start", "acknowledge"):
            return (token,)
        if token in ("dfence", "persist"):
            return ("dfence",)
        if token == "synchronize":
            name = self.peek()
            if "S:" + name in self.streams:
                self.take()
                return ("synchronize", "stream", "S:" + name)
            if name in self.events:
                self.take()
                return ("synchronize", "event", self.events[name])
            return ("synchronize", "all", None)
        if token == "fence":
            return ("fence", self.scope())
        if token in ("prel", "strong"):
            scope = self.scope()
            place = self.place()
            self.take("=")
            access = "persist" if token == "prel" else "strong"
            return ("store", access, scope, place, self.value())
        if token == "wait":
            access = "persist" if self.take() == "pacq" else "strong"
            scope = self.scope()
            return ("wait", access, scope, self.place(), self.take(), self.value())
        if token in ("add", "cas"):
            self.at -= 1
            return self.update(None)
        if token == "if":
            register, compare, value = self.value()[1], self.take(), self.value()
            return ("if", register, compare, value,
                    [self.step()] if self.accept(":") else self.steps())
        if re.fullmatch(r"r\d{1,2}", token):
            register = int(token[1:])
            self.take("=")
            if self.peek() in ("add", "cas"):
                return self.update(register)
            access, scope = "plain", 2
            if self.peek() in ("strong", "pacq"):
                access = "persist" if self.take() == "pacq" else "strong"
                scope = self.scope()
            return ("load", register, access, scope, self.place())
        self.at -= 1
        place = self.place()
        self.take("=")
        return ("store", "plain", 2, place, self.value())

    def term(self):
        if self.peek() in ("started", "acknowledged"):
            return (self.take(), self.take(), int(self.take(), 0))
        return (self.place(), self.take(), int(self.take(), 0))


def holds(left, compare: str, right):
    return {"==": left == right, "!=": left != right, "<": left < right, ">": left > right}[compare]


class Encoding:
    """One test under one model: satisfiable if the condition may hold after a crash."""

    def __init__(self, test: Test, model: str) -> None:
        self.test = test
        self.epoch = model == "epoch"
        self.solver = z3.SolverFor("QF_LIA") if False else z3.Solver()
        self.names = itertools.count()
        self.events: list[Event] = []
        self.po: list[list[Event]] = []
        for number in range(len(test.threads)):
            self.make_thread(number)
        for number, event in enumerate(self.events):
            event.number = number
        # run: done before the crash; time: when.
        self.run = [z3.Bool(f"run{e.number}") for e in self.events]
        self.time = [z3.Int(f"time{e.number}") for e in self.events]
        self.solver.add(z3.Distinct(self.time))
        self.program_order()
        self.reads_from()
        self.durable_sets()
        self.persist_order()
        self.floor()
        self.condition()

    # ---- Programs

    def make_thread(self, number: int) -> None:
        thread = self.test.threads[number]
        registers: dict[int, z3.ArithRef] = {}
        own: list[Event] = []
        self.po.append(own)
        barriers = itertools.count(1)

        def value(of):
            return registers[of[1]] if of[0] == "r" else z3.IntVal(of[1])

        def add(kind: str, guard, **more) -> Event:
            event = Event(kind, number, guard, **more)
            own.append(event)
            self.events.append(event)
            return event

        def cut(place, expression):
            return expression % (1 << (8 * self.test.variables[place[0]].width))

        def set_register(register, guard, got) -> None:
            if register is not None:
                registers[register] = z3.If(guard, got, registers.get(register, z3.IntVal(0)))

        def walk(steps, guard) -> None:
            for step in steps:
                kind = step[0]
                if kind == "if":
                    inner = z3.And(guard, holds(registers[step[1]], step[2], value(step[3])))
                    walk(step[4], inner)
                elif kind == "store":
                    stored = value(step[4])
                    if step[4][0] == "r":
                        stored = cut(step[3], stored)
                    add("store", guard, access=step[1], scope=step[2], place=step[3], value=stored)
                elif kind in ("load", "wait"):
                    access, scope, place = (step[2:5] if kind == "load" else step[1:4])
                    got = z3.Int(f"got{next(self.names)}")
                    event = add("load", guard, access=access, scope=scope, place=place, got=got)
                    if kind == "wait":
                        event.awaited = holds(got, step[4], value(step[5]))
                    else:
                        set_register(step[1], guard, got)
                elif kind in ("add", "cas"):
                    _, register, scope, place, values = step
                    got = z3.Int(f"got{next(self.names)}")
                    event = add("update", guard, access="strong", scope=scope, place=place, got=got)
                    if kind == "add":
                        event.writes = z3.BoolVal(True)
                        event.value = cut(place, got + value(values[0]))
                    else:
                        event.writes = got == cut(place, value(values[0]))
                        event.value = cut(place, value(values[1]))
                    set_register(register, guard, got)
                elif kind == "fence":
                    add("fence", guard, scope=step[1])
                elif kind == "barrier":
                    add("barrier", guard, barrier=next(barriers))
                elif kind == "launch":
                    add("launch", guard, launch=step[1])
                elif kind == "synchronize":
                    add("synchronize", guard, waits_for=self.covered(own, step))
                elif kind == "wait_event":
                    add("wait_event", guard, waits_for=[step[1]])
                else:
                    add(kind, guard)

        walk(thread.steps, z3.BoolVal(True))

    def streams_until(self, launch: int, stream: str, inclusive: bool) -> list[int]:
        """A stream's launches up to this one, and those of the events that it waited for (A10)."""
        found: set[int] = set()
        for thread in self.test.threads[1:]:
            limit = thread.launch <= launch if inclusive else thread.launch < launch
            if thread.stream != stream or not limit or thread.launch in found:
                continue
            found.add(thread.launch)
            if thread.steps and thread.steps[0][0] == "wait_event":
                found.update(self.of_event(thread.steps[0][1]))
        return sorted(found)

    def of_event(self, record: int) -> list[int]:
        stream = next(t.stream for t in self.test.threads if t.launch == record)
        return self.streams_until(record, stream, True)

    def covered(self, before: list[Event], step) -> list[int]:
        """What a synchronize of the host waits for: launches."""
        last = max([e.launch for e in before], default=0)
        if step[1] == "all":
            return list(range(1, last + 1))
        if step[1] == "stream":
            return self.streams_until(last, step[2], True)
        return self.of_event(step[2])

    # ---- Executions: sequentially consistent, up to the crash

    def before(self, first: Event, second: Event) -> z3.BoolRef:
        return self.time[first.number] < self.time[second.number]

    def needs(self, event: Event, earlier: Event) -> None:
        done = z3.And(self.run[earlier.number], self.before(earlier, event))
        self.solver.add(z3.Implies(z3.And(self.run[event.number], earlier.guard), done))

    def of_launch(self, launch: int) -> list[Event]:
        return [e for i, t in enumerate(self.test.threads) if t.launch == launch for e in self.po[i]]

    def program_order(self) -> None:
        threads = self.test.threads
        for own in self.po:
            for i, event in enumerate(own):
                self.solver.add(z3.Implies(self.run[event.number], event.guard))
                if event.awaited is not None:
                    self.solver.add(z3.Implies(self.run[event.number], event.awaited))
                for earlier in own[:i]:
                    self.needs(event, earlier)
        for i, thread in enumerate(threads[1:], 1):
            launch = next(e for e in self.po[0] if e.kind == "launch" and e.launch == thread.launch)
            for event in self.po[i]:
                self.needs(event, launch)
                for other in threads[1:]:
                    if other.stream == thread.stream and other.launch < thread.launch:
                        for earlier in self.of_launch(other.launch):
                            self.needs(event, earlier)
        for event in self.events:
            for launch in event.waits_for:
                for earlier in self.of_launch(launch):
                    self.needs(event, earlier)
            if event.kind == "barrier":
                self.behind_barrier(event)

    def behind_barrier(self, barrier: Event) -> None:
        own = self.po[barrier.thread]
        thread = self.test.threads[barrier.thread]
        for i, other in enumerate(self.test.threads):
            if (other.launch, other.block) != (thread.launch, thread.block):
                continue
            for arrival in self.po[i]:
                if arrival.kind == "barrier" and arrival.barrier == barrier.barrier:
                    for event in own[own.index(barrier) + 1 :]:
                        self.needs(event, arrival)

    @staticmethod
    def elements(place) -> list[tuple[str, int]]:
        return [(place[0], place[1] + i) for i in range(place[2])]

    def wrote(self, event: Event) -> z3.BoolRef:
        if event.kind == "store":
            return self.run[event.number]
        if event.kind == "update":
            return z3.And(self.run[event.number], event.writes)
        return z3.BoolVal(False)

    def reads_from(self) -> None:
        """rf[w, r]: all that r reads of what it shares with w is w's."""
        self.writers: dict[tuple[str, int], list[Event]] = {}
        for event in self.events:
            if event.kind in ("store", "update"):
                for element in self.elements(event.place):
                    self.writers.setdefault(element, []).append(event)
        self.rf: dict[tuple[int, int, tuple[str, int]], z3.BoolRef] = {}
        for read in self.events:
            if read.kind not in ("load", "update"):
                continue
            parts = []
            for element in self.elements(read.place):
                parts.append(self.read_element(read, element))
            wide = len(parts) == 2
            total = parts[0] + parts[1] * (1 << 32) if wide else parts[0]
            self.solver.add(z3.Implies(self.run[read.number], read.got == total))

    def read_element(self, read: Event, element) -> z3.ArithRef:
        part = z3.Int(f"part{next(self.names)}")
        writers = [w for w in self.writers.get(element, []) if w is not read]
        earlier = {w.number: z3.And(self.wrote(w), self.before(w, read)) for w in writers}
        run = self.run[read.number]
        none = z3.Not(z3.Or([earlier[w.number] for w in writers])) if writers else z3.BoolVal(True)
        initial = self.test.variables[element[0]].initial
        self.solver.add(z3.Implies(z3.And(run, none), part == initial))
        for write in writers:
            last = z3.And(
                earlier[write.number],
                *[
                    z3.Or(z3.Not(earlier[w.number]), self.before(w, write))
                    for w in writers
                    if w is not write
                ],
            )
            rf = z3.Bool(f"rf{next(self.names)}")
            self.solver.add(rf == z3.And(run, last))
            self.rf[write.number, read.number, element] = rf
            self.solver.add(z3.Implies(rf, part == write.value))
        return part

    # ---- Crash states

    def durable_sets(self) -> None:
        """One boolean for each persist: whether it is durable. Persists have been made."""
        self.persists: list[tuple[Event, list[tuple[str, int]], z3.BoolRef]] = []
        for event in self.events:
            if event.kind not in ("store", "update"):
                continue
            variable = self.test.variables[event.place[0]]
            if not variable.persistent:
                continue
            words: dict[int, list[tuple[str, int]]] = {}
            for element in self.elements(event.place):
                words.setdefault(element[1] * variable.width // 8, []).append(element)
            for elements in words.values():
                durable = z3.Bool(f"durable{next(self.names)}")
                self.solver.add(z3.Implies(durable, self.wrote(event)))
                self.persists.append((event, elements, durable))

    def all_durable(self, of: Event) -> z3.BoolRef:
        """All persists of an operation, if it has been done."""
        mine = [durable for event, _, durable in self.persists if event is of]
        return z3.Implies(self.wrote(of), z3.And(mine)) if mine else z3.BoolVal(True)

    def apart(self, a: Event, b: Event) -> int:
        one, other = self.test.threads[a.thread], self.test.threads[b.thread]
        if (one.launch == 0) != (other.launch == 0):
            return 2
        return 0 if (one.launch, one.block) == (other.launch, other.block) else 1

    def morally_strong(self, write: Event, read: Event) -> bool:
        if write.place != read.place or "plain" in (write.access, read.access):
            return False
        reach = min(write.scope, read.scope)
        return write.thread == read.thread or reach >= self.apart(write, read)

    @staticmethod
    def is_fence(event: Event) -> bool:
        return event.kind in ("fence", "ofence", "dfence")

    @staticmethod
    def reach(event: Event) -> int:
        return {"fence": event.scope, "dfence": 2}.get(event.kind, -1)

    def observations(self) -> dict[tuple[int, int], z3.BoolRef]:
        """obs[w, r] holds at least where r reads from w, or from an update that observes it."""
        reads = [e for e in self.events if e.kind in ("load", "update")]
        writes = [e for e in self.events if e.kind in ("store", "update")]
        obs = {
            (w.number, r.number): z3.Bool(f"obs{next(self.names)}")
            for w in writes
            for r in reads
            if w is not r and w.place == r.place
        }
        for (w, r), observed in obs.items():
            write, read = self.events[w], self.events[r]
            if not self.morally_strong(write, read):
                continue
            whole = z3.And([self.rf[w, r, x] for x in self.elements(read.place)])
            self.solver.add(z3.Implies(whole, observed))
            if write.kind != "update":
                continue
            for first in writes:
                if (first.number, w) in obs and (first.number, r) in obs:
                    through = z3.And(whole, obs[first.number, w])
                    self.solver.add(z3.Implies(through, obs[first.number, r]))
        return obs

    def persist_order(self) -> None:
        """`wanted[e]`: what was published up to e must be durable. Such sets are closed under pmo."""
        self.wanted = [z3.Bool(f"wanted{e.number}") for e in self.events]
        for event, elements, durable in self.persists:  # A5
            for other, others, known in self.persists:
                if other is not event and set(elements) & set(others):
                    again = z3.And(durable, self.wrote(other), self.before(other, event))
                    self.solver.add(z3.Implies(again, known))
        if self.epoch:
            return
        edges: dict[int, list[tuple[z3.BoolRef, int]]] = {}
        self.message_edges(edges)
        self.barrier_edges(edges)
        # Who wants an operation wants all persists before it, and what came in by then.
        for event in self.events:
            own = self.po[event.thread]
            at = own.index(event)
            claims = [self.all_durable(e) for e in own[:at]]
            claims += [z3.Implies(self.run[e.number], self.wanted[e.number]) for e in own[:at]
                       if e.number in edges]
            self.solver.add(z3.Implies(self.wanted[event.number], z3.And(claims)))
            for condition, source in edges.get(event.number, []):
                reached = z3.And(self.wanted[event.number], condition)
                self.solver.add(z3.Implies(reached, self.wanted[source]))
        for event, _, durable in self.persists:
            own = self.po[event.thread]
            at = own.index(event)
            for earlier in own[:at]:
                if self.is_fence(earlier) or earlier.number in edges:  # A1; A2 to A4
                    runs = z3.And(durable, self.run[earlier.number])
                    want = self.wanted[earlier.number]
                    if self.is_fence(earlier):
                        self.solver.add(z3.Implies(runs, want))
                    else:
                        sources = [z3.Implies(c, self.wanted[s]) for c, s in edges[earlier.number]]
                        self.solver.add(z3.Implies(runs, z3.And(sources)))
            if event.access == "persist":  # A6
                for earlier in own[:at]:
                    self.solver.add(z3.Implies(durable, self.all_durable(earlier)))

    def message_edges(self, edges) -> None:
        """A2, A3 and A8: from a release, or a fence before a write, to an acquire, or a fence behind
        a read, in another thread."""
        for (w, r), observed in self.observations().items():
            write, read = self.events[w], self.events[r]
            if write.thread == read.thread or not self.morally_strong(write, read):
                continue
            apart = self.apart(write, read)
            mine, theirs = self.po[write.thread], self.po[read.thread]
            sources = [e for e in mine[: mine.index(write)] if self.reach(e) >= apart]
            targets = [e for e in theirs[theirs.index(read) + 1 :] if self.reach(e) >= apart]
            if write.kind == "store" and write.access == "persist":
                sources.append(write)
            if read.kind == "load" and read.access == "persist":
                targets.append(read)
            for source, target in itertools.product(sources, targets):
                runs = z3.And(observed, self.run[source.number])
                edges.setdefault(target.number, []).append((runs, source.number))

    def barrier_edges(self, edges) -> None:
        """A4: fences on both sides of a barrier."""
        barriers = [e for e in self.events if e.kind == "barrier"]
        for a, b in itertools.permutations(barriers, 2):
            one, other = self.test.threads[a.thread], self.test.threads[b.thread]
            if (one.launch, one.block, a.barrier) != (other.launch, other.block, b.barrier):
                continue
            mine, theirs = self.po[a.thread], self.po[b.thread]
            for source in [e for e in mine[: mine.index(a)] if self.is_fence(e)]:
                for target in [e for e in theirs[theirs.index(b) + 1 :] if self.is_fence(e)]:
                    runs = self.run[source.number]
                    edges.setdefault(target.number, []).append((runs, source.number))

    def waits(self, event: Event) -> bool:
        if event.kind == "dfence":
            return True
        if not self.epoch:
            return False
        if event.kind == "ofence" or (event.kind == "fence" and event.scope == 2):
            return True
        return event.access == "persist"

    def floor(self) -> None:
        """A7, A9 and A10: what has been waited for is durable."""
        for event in self.events:
            own = self.po[event.thread]
            if self.waits(event):
                claims = [self.all_durable(e) for e in own[: own.index(event)]]
                # A fence of the host: its stores are durable anyway.
                self.solver.add(z3.Implies(self.run[event.number], z3.And(claims)))
            for launch in event.waits_for if event.kind == "synchronize" else []:
                claims = [self.all_durable(e) for e in self.of_launch(launch)]
                self.solver.add(z3.Implies(self.run[event.number], z3.And(claims)))
            if event.thread == 0 and event.kind in ("store", "update"):
                # Word by word: torn only if nothing has happened since.
                since = z3.Or([z3.And(self.run[e.number], self.before(event, e))
                               for e in self.events if e is not event])
                self.solver.add(z3.Implies(since, self.all_durable(event)))

    def condition(self) -> None:
        counts = {
            "started": [e for e in self.events if e.kind == "start"],
            "acknowledged": [e for e in self.events if e.kind == "acknowledge"],
        }
        for of, compare, value in self.test.condition:
            if isinstance(of, str):
                count = z3.Sum([z3.If(self.run[e.number], 1, 0) for e in counts[of]] + [0])
                self.solver.add(holds(count, compare, value))
                continue
            for element in self.elements(of):
                self.solver.add(holds(self.recovered(element), compare, value))

    def recovered(self, element) -> z3.ArithRef:
        mine = [(e, durable) for e, elements, durable in self.persists if element in elements]
        result = z3.Int(f"recovered{next(self.names)}")
        initial = self.test.variables[element[0]].initial
        none = z3.Not(z3.Or([durable for _, durable in mine])) if mine else z3.BoolVal(True)
        self.solver.add(z3.Implies(none, result == initial))
        for event, durable in mine:
            last = z3.And(durable, *[z3.Or(z3.Not(known), self.before(other, event))
                                     for other, known in mine if other is not event])
            self.solver.add(z3.Implies(last, result == event.value))
        return result

    def allowed(self) -> bool:
        found = self.solver.check()
        if found == z3.unknown:
            raise RuntimeError(f"{self.test.name}: z3 does not know: {self.solver.reason_unknown()}")
        return found == z3.sat


def read_tests(paths: list[Path]) -> list[Test]:
    files = [f for p in paths for f in (sorted(p.glob("*.litmus")) if p.is_dir() else [p])]
    return [test for file in files for test in Parser(file.read_text()).tests()]


def check(job: tuple[Path, str, str]) -> tuple[str, str, bool, bool, float]:
    """One test under one model: its name, the model, what it expects, what z3 finds, seconds."""
    file, name, model = job
    test = next(t for t in Parser(file.read_text()).tests() if t.name == name)
    start = time.monotonic()
    found = Encoding(test, model).allowed()
    return name, model, test.expected[model], found, time.monotonic() - start


def jobs_of(paths: list[Path], names: list[str]) -> list[tuple[Path, str, str]]:
    jobs = []
    for path in paths:
        for file in sorted(path.glob("*.litmus")) if path.is_dir() else [path]:
            for test in Parser(file.read_text()).tests():
                if not names or test.name in names:
                    jobs += [(file, test.name, m) for m in ("sbrp", "epoch") if m in test.expected]
    return jobs


def main() -> int:
    parser = argparse.ArgumentParser(description="Litmus tests by an SMT solver.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="FOLDER|FILE")
    parser.add_argument("--test", action="append", default=[], help="this test alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args()
    folder = Path(__file__).resolve().parent.parent / "litmus"
    jobs = jobs_of(options.paths or [folder], options.test)
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
    print(f"{len(jobs)} runs, {wrong} wrong, {time.monotonic() - start:.1f} s; "
          f"slowest: {slowest[1]}, {slowest[0]:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
