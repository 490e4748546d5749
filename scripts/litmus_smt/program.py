"""What the threads of a litmus test do, as expressions of z3."""

# One branch for each operation or axiom.
# ruff: noqa: C901, PLR0912, PLR0915
from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import z3
from text import Test


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


def holds(left, compare: str, right):
    return {"==": left == right, "!=": left != right, "<": left < right, ">": left > right}[compare]


def mentions(expression, variable) -> bool:
    return expression.eq(variable) or any(mentions(e, variable) for e in expression.children())


class Program:
    """The operations of a test's threads."""

    def __init__(self, test: Test) -> None:
        self.test = test
        self.solver = z3.Solver()
        self.names = itertools.count()
        self.events: list[Event] = []
        self.po: list[list[Event]] = []
        self.registers: list[dict[int, z3.ArithRef]] = []  # at the end
        for number in range(len(test.threads)):
            self.make_thread(number)
        for number, event in enumerate(self.events):
            event.number = number

    def apart(self, a: Event, b: Event) -> int:
        one, other = self.test.threads[a.thread], self.test.threads[b.thread]
        if (one.launch == 0) != (other.launch == 0):
            return 2
        return 0 if (one.launch, one.block) == (other.launch, other.block) else 1

    def allowed(self) -> bool:
        found = self.solver.check()
        if found == z3.unknown:
            raise RuntimeError(
                f"{self.test.name}: z3 does not know: {self.solver.reason_unknown()}"
            )
        return found == z3.sat

    def make_thread(self, number: int) -> None:
        thread = self.test.threads[number]
        registers: dict[int, z3.ArithRef] = {}
        self.registers.append(registers)
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
                    access, scope, place = step[2:5] if kind == "load" else step[1:4]
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
