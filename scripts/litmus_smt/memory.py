"""What threads read of each other: sequential consistency, and PTX's axioms."""

# One branch for each operation or axiom.
# ruff: noqa: C901, PLR0912
from __future__ import annotations

import itertools

import z3
from program import Event, Program, holds, mentions
from text import Test


class Memory(Program):
    """One test without a crash: satisfiable if its end is one that the model allows.

    A relation holds at least where it must: z3 takes the least."""

    def __init__(self, test: Test, ptx: bool) -> None:
        super().__init__(test)
        self.events = [
            e for e in self.events if e.kind in ("store", "load", "update", "fence", "dfence")
        ]
        for number, event in enumerate(self.events):
            event.number = number
            if event.kind == "dfence":
                event.scope = 2
        self.strong = [e.place is None or e.access != "plain" for e in self.events]
        self.co_at = [z3.Int(f"co{e.number}") for e in self.events]
        self.solver.add(z3.Distinct(self.co_at))
        self.communicate()
        if ptx:
            self.causality()
        else:
            self.sequential()
        self.end()

    def is_write(self, event: Event) -> bool:
        return event.kind in ("store", "update")

    def is_read(self, event: Event) -> bool:
        return event.kind in ("load", "update")

    def wrote(self, event: Event) -> z3.BoolRef:
        if not self.is_write(event):
            return z3.BoolVal(False)
        return event.writes if event.writes is not None else z3.BoolVal(True)

    def pairs(self):
        return itertools.permutations(self.events, 2)

    def table(self, name: str):
        return {
            (a.number, b.number): z3.Bool(f"{name}_{a.number}_{b.number}")
            for a in self.events
            for b in self.events
        }

    def after(self, a: Event, b: Event) -> bool:
        return a.thread == b.thread and a.number < b.number

    def communicate(self) -> None:
        self.rf = self.table("rf")
        no = z3.BoolVal(False)
        self.co, self.fr = {}, {}
        rank = [z3.Int(f"rank{e.number}") for e in self.events]  # values come from somewhere
        for read in self.events:
            sources = [
                w
                for w in self.events
                if self.is_write(w)
                and self.is_read(read)
                and w is not read
                and w.place == read.place
            ]
            for w in self.events:
                if w not in sources:
                    self.solver.add(z3.Not(self.rf[w.number, read.number]))
            if not self.is_read(read):
                continue
            choice = [self.rf[w.number, read.number] for w in sources]
            self.solver.add(z3.AtMost(*choice, 1) if choice else True)
            initial = self.test.variables[read.place[0]].initial
            self.solver.add(z3.Implies(z3.Not(z3.Or(choice)), read.got == initial))
            for w in sources:
                source = self.rf[w.number, read.number]
                self.solver.add(z3.Implies(source, z3.And(self.wrote(w), read.got == w.value)))
                self.solver.add(z3.Implies(source, rank[w.number] < rank[read.number]))
            if read.awaited is not None:
                self.solver.add(read.awaited)
            for w in self.events:  # what is stored is computed from what was read before
                if self.is_write(w) and self.after(read, w) and mentions(w.value, read.got):
                    self.solver.add(rank[read.number] < rank[w.number])
        for a, b in self.pairs():
            same = a.place is not None and a.place == b.place
            both = z3.And(self.wrote(a), self.wrote(b)) if same else no
            self.co[a.number, b.number] = z3.And(both, self.co_at[a.number] < self.co_at[b.number])
        for r, w in self.pairs():
            later = no
            if self.is_read(r) and self.is_write(w) and r.place == w.place:
                sources = [s for s in self.events if s is not r and self.is_write(s)]
                later = z3.And(
                    self.wrote(w),
                    z3.And(
                        [
                            z3.Implies(self.rf[s.number, r.number], self.co[s.number, w.number])
                            if s is not w
                            else z3.Not(self.rf[w.number, r.number])
                            for s in sources
                        ]
                    ),
                )
            self.fr[r.number, w.number] = later
            if r.kind == "update" and self.is_write(w):  # its write comes next
                self.solver.add(z3.Not(z3.And(later, self.co[w.number, r.number])))

    def sequential(self) -> None:
        at = [z3.Int(f"at{e.number}") for e in self.events]
        for a, b in self.pairs():
            key = (a.number, b.number)
            if self.after(a, b):
                self.solver.add(at[a.number] < at[b.number])
            edge = z3.Or(self.rf[key], self.co[key], self.fr[key])
            self.solver.add(z3.Implies(edge, at[a.number] < at[b.number]))

    def morally_strong(self, a: Event, b: Event) -> bool:
        if not (self.strong[a.number] and self.strong[b.number]):
            return False
        return a.thread == b.thread or min(a.scope, b.scope) >= self.apart(a, b)

    def patterns(self, release: bool):
        """(first, write) of release patterns, or (read, last) of acquire patterns."""
        found = []
        for x in self.events:
            access = self.is_write(x) if release else self.is_read(x)
            if not access or not self.strong[x.number]:
                continue
            for y in self.events:
                special = (
                    y.place == x.place
                    and y.access == "persist"
                    and (self.is_write(y) if release else self.is_read(y))
                )
                ordered = self.after(y, x) if release else self.after(x, y)
                if (y is x and special) or (ordered and (special or y.place is None)):
                    found.append((y, x) if release else (x, y))
        return found

    def causality(self) -> None:
        obs, base, cause = self.table("obs"), self.table("base"), self.table("cause")
        fence_at = [z3.Int(f"fence{e.number}") for e in self.events]
        self.solver.add(z3.Distinct(fence_at))
        add = self.solver.add
        for a, b in self.pairs():
            key = (a.number, b.number)
            if self.after(a, b):
                add(base[key])
            if self.morally_strong(a, b):
                add(z3.Implies(self.rf[key], obs[key]))
                if a.place is None and b.place is None:
                    sc = fence_at[a.number] < fence_at[b.number]
                    add(z3.Implies(sc, base[key]), z3.Implies(cause[key], sc))
        for w, z, r in itertools.product(self.events, repeat=3):
            via = (w.number, z.number), (z.number, r.number), (w.number, r.number)
            if z.kind == "update":
                add(z3.Implies(z3.And(obs[via[0]], obs[via[1]]), obs[via[2]]))
            add(z3.Implies(z3.And(base[via[0]], base[via[1]]), base[via[2]]))
            add(z3.Implies(z3.And(obs[via[0]], base[via[1]]), cause[via[2]]))
        for first, write in self.patterns(True):
            for read, last in self.patterns(False):
                if write.thread != read.thread and self.morally_strong(first, last):
                    seen = obs[write.number, read.number]
                    add(z3.Implies(seen, base[first.number, last.number]))
        for a in self.events:
            add(z3.Not(cause[a.number, a.number]))
            for b in self.events:
                add(z3.Implies(base[a.number, b.number], cause[a.number, b.number]))
        for a, b in self.pairs():  # Coherence, Causality
            back = (b.number, a.number)
            communicates = z3.Or(self.rf[back], self.co[back], self.fr[back])
            add(z3.Implies(cause[a.number, b.number], z3.Not(communicates)))
        at = [z3.Int(f"place{e.number}") for e in self.events]  # SC per location
        for a, b in self.pairs():
            if a.place is None or a.place != b.place:
                continue
            key = (a.number, b.number)
            if self.after(a, b):
                add(at[a.number] < at[b.number])
            elif self.morally_strong(a, b):
                edge = z3.Or(self.rf[key], self.co[key], self.fr[key])
                add(z3.Implies(edge, at[a.number] < at[b.number]))

    def end(self) -> None:
        for of, compare, value in self.test.condition:
            if of[0] == "register":
                self.solver.add(holds(self.registers[of[1]][of[2]], compare, value))
                continue
            result = z3.Int(f"end{next(self.names)}")
            writes = [e for e in self.events if self.is_write(e) and e.place == of]
            initial = self.test.variables[of[0]].initial
            none = z3.And([z3.Not(self.wrote(w)) for w in writes])
            self.solver.add(z3.Implies(none, result == initial))
            for w in writes:
                last = z3.And(
                    self.wrote(w),
                    *[z3.Not(self.co[w.number, v.number]) for v in writes if v is not w],
                )
                self.solver.add(z3.Implies(last, result == w.value))
            self.solver.add(holds(result, compare, value))
