"""Crash states: the axioms A1 to A10 of docs/model.md, under both models."""

# One branch for each operation or axiom.
# ruff: noqa: C901, PLR0912
from __future__ import annotations

import itertools

import z3
from program import Event, Program, holds
from text import Test


class Encoding(Program):
    """One test under one model: satisfiable if the condition may hold after a crash."""

    def __init__(self, test: Test, model: str) -> None:
        super().__init__(test)
        self.epoch = model == "epoch"
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

    # ---- Executions: sequentially consistent, up to the crash

    def before(self, first: Event, second: Event) -> z3.BoolRef:
        return self.time[first.number] < self.time[second.number]

    def needs(self, event: Event, earlier: Event) -> None:
        done = z3.And(self.run[earlier.number], self.before(earlier, event))
        self.solver.add(z3.Implies(z3.And(self.run[event.number], earlier.guard), done))

    def of_launch(self, launch: int) -> list[Event]:
        return [
            e for i, t in enumerate(self.test.threads) if t.launch == launch for e in self.po[i]
        ]

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
        """`wanted[e]`: what was published up to e must be durable, a set closed under pmo."""
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
            claims += [
                z3.Implies(self.run[e.number], self.wanted[e.number])
                for e in own[:at]
                if e.number in edges
            ]
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
        """A2, A3, A8: release, or fence before a write, to acquire, or fence behind a read."""
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
                since = z3.Or(
                    [
                        z3.And(self.run[e.number], self.before(event, e))
                        for e in self.events
                        if e is not event
                    ]
                )
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
            last = z3.And(
                durable,
                *[
                    z3.Or(z3.Not(known), self.before(other, event))
                    for other, known in mine
                    if other is not event
                ],
            )
            self.solver.add(z3.Implies(last, result == event.value))
        return result
