"""The text form of litmus tests (docs/model.md), read anew."""

# One branch for each operation or axiom.
# ruff: noqa: C901, PLR0911, PLR0912
from __future__ import annotations

import re
from dataclasses import dataclass

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
    names: dict[str, int]  # of threads


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
        self.names: dict[str, int] = {}
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
            elif item in ("crash", "final"):
                self.take()
                condition.append(self.term())
                while self.accept("&&"):
                    condition.append(self.term())
            else:
                model = self.take()
                self.take(":")
                expected[model] = self.take() == "allowed"
        return Test(name, self.variables, self.threads, condition, expected, self.names)

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
            self.names[self.take()] = len(self.threads)
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
                        steps = [
                            ("load", 0, "plain", 2, self.place()),
                            ("store", "plain", 2, place, ("r", 0)),
                        ]
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
            return (
                "if",
                register,
                compare,
                value,
                [self.step()] if self.accept(":") else self.steps(),
            )
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
        if self.peek(1) == ".":
            thread = self.names[self.take()]
            self.take(".")
            return (("register", thread, int(self.take()[1:])), self.take(), int(self.take(), 0))
        return (self.place(), self.take(), int(self.take(), 0))
