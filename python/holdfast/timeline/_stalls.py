"""Says in words for what a program was kept waiting."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from ._trace import CALLS, Census, Event, Trace

_MOST_NAMED = 4  # checkpoints in one list
_FULL = 0.9  # of a cache's bytes


@dataclass(frozen=True)
class Stall:
    """A call that kept its caller."""

    event: Event
    text: str


def duration_text(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1e3:.1f} ms"
    return f"{microseconds / 1e6:.2f} s"


def listed(steps: Iterable[int]) -> str:
    """Returns "3", "3 and 4", "3, 4, 5, 6 and 17 more"."""
    every = list(dict.fromkeys(steps))
    named = [str(step) for step in every[:_MOST_NAMED]]
    if len(every) > _MOST_NAMED:
        return f"{', '.join(named)} and {len(every) - _MOST_NAMED} more"
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def longest_stalls(trace: Trace, count: int = 10) -> list[Stall]:
    """Returns the calls that took longest, the longest first, each explained."""
    calls = sorted(trace.of(*CALLS), key=lambda call: -call.duration)
    teller = _Teller(trace)
    return [Stall(call, teller.tell(call)) for call in calls[: max(count, 0)]]


def _overlaps(event: Event, begin: float, end: float) -> bool:
    return event.begin < end and event.end > begin


class _Teller:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._parts: dict[int, list[Event]] = {}  # by track
        for part in trace.of("wait", "direct"):
            self._parts.setdefault(part.track, []).append(part)
        self._flushes = trace.of("flush")
        self._fetches = trace.of("fetch")
        self._copies = trace.of("copy")
        self._left = trace.of("evicted")
        self._held: dict[str, list[Event]] = {tier: [] for tier in trace.tiers}
        for event in trace.of("held"):
            self._held.setdefault(event.target, []).append(event)

    def tell(self, call: Event) -> str:
        parts = [
            part
            for part in self._parts.get(call.track, [])
            if call.begin <= part.begin and part.end <= call.end + 1
        ]
        told = [text for part in parts if (text := self._part(call, part))]
        verb = {"flush()": "flush()", "wait()": f"wait() for {call.step}"}.get(
            call.kind, f"{call.kind} of {call.step}"
        )
        head = f"{verb} took {duration_text(call.duration)}"
        if call.outcome != "done":
            head += " and failed"
        if call.kind == "flush()":
            told = [self._flushing(call)]
        return f"{head}: {'; '.join(told or [self._plain(call)])}"

    # --- Parts of a call ---------------------------------------------------------------------

    def _part(self, call: Event, part: Event) -> str:
        if part.kind == "direct":
            return self._read(call, part) if part.target == "program" else self._write(call, part)
        tell = {
            "room": self._room,
            "fetch": self._fetch,
            "copy": self._copy,
            "flush": self._on_its_way,
            "durable": self._durable,
        }.get(part.why)
        if tell:
            return tell(call, part)
        return (
            f"an earlier checkpoint of the number {call.step} was being removed for "
            f"{duration_text(part.duration)}"
        )

    def _plain(self, call: Event) -> str:
        if call.outcome != "done":
            return "nothing was waited for"
        where = call.target if call.kind == "save" else call.source
        if where == "program":
            return "nothing was waited for"
        way = "into" if call.kind == "save" else "from"
        copy = next((one for one in self._copies if one.step == call.step), None)
        if call.kind == "save" and copy and copy.duration > call.duration / 2:
            return f"its copies into {where} took {duration_text(copy.duration)}"
        text = f"nothing was waited for, it was copied {way} {where}"
        above = self._above(where)
        if call.kind == "restore" and above:
            text += f", since {self._why_not_fetched(call)}"
        return text

    def _room(self, call: Event, part: Event) -> str:
        tier = part.target
        text = f"it waited {duration_text(part.duration)} for room in {tier}"
        if part.census:
            text += f", {_census_text(part.census)}"
        return text + self._drain(tier, part.begin, part.end)

    def _drain(self, tier: str, begin: float, end: float) -> str:
        """What emptied a cache meanwhile, and whether the tier behind it held that up."""
        out = [one for one in self._flushes if one.source == tier and _overlaps(one, begin, end)]
        if not out:
            return ""
        slowest = max(out, key=lambda one: one.duration)
        text = (
            f"; meanwhile {listed(one.step for one in out)} went from {tier} to {slowest.target} "
            f"({_each(out)})"
        )
        failed = [one for one in out if one.outcome == "failed"]
        if failed:
            return f"{text}; the flush of {failed[0].step} failed: {failed[0].message}"
        below = slowest.target
        if self._share_of(below, begin) > _FULL:
            behind = [
                one for one in self._flushes if one.source == below and _overlaps(one, begin, end)
            ]
            text += f"; {below} was full, too"
            if behind:
                text += (
                    f", so that it went at the pace of the flushes to {behind[0].target}: "
                    f"{listed(one.step for one in behind)} ({_each(behind)})"
                )
        return text

    def _share_of(self, tier: str, moment: float) -> float:
        """The part of a cache's bytes that was taken; 0 of a tier without a limit."""
        capacity = self._trace.tiers.get(tier, 0)
        events = self._held.get(tier, [])
        at = bisect_left([event.begin for event in events], moment)
        return events[at - 1].nbytes / capacity if capacity and at else 0.0

    def _fetch(self, call: Event, part: Event) -> str:
        own = [
            one
            for one in self._fetches
            if one.step == call.step
            and one.target == part.target
            and _overlaps(one, part.begin - 1, part.end + 1)
        ]
        text = f"it waited {duration_text(part.duration)} for its fetch into {part.target}"
        if not own:
            return text
        fetch = own[-1]
        before = call.begin - fetch.begin
        text = (
            f"it was {_at(fetch.source)}; it waited {duration_text(part.duration)} for its fetch "
            f"from there into {fetch.target}, which began {duration_text(abs(before))} "
            f"{'before' if before >= 0 else 'after'} the call and took "
            f"{duration_text(fetch.duration)}"
        )
        if fetch.paused > 0:
            text += f", {duration_text(fetch.paused)} of that giving way to other reads"
        if fetch.outcome != "done":
            text += f", and ended as {fetch.outcome}"
            return f"{text} ({fetch.message})" if fetch.message else text
        late = part.end - fetch.end
        if late > max(1000.0, 0.2 * part.duration):
            text += (
                f"; it went on only {duration_text(late)} after that, as where a machine is too "
                "busy to wake it"
            )
        ahead = self._queue_before(fetch)
        if ahead:
            text += f", behind the fetches of {listed(one.step for one in ahead)}"
        return text

    def _queue_before(self, fetch: Event) -> list[Event]:
        """The fetches of a lane without a pause up to this one, in order."""
        lane = [one for one in self._fetches if one.track == fetch.track and one.end <= fetch.begin]
        chain: list[Event] = []
        begin = fetch.begin
        for one in reversed(lane):
            if begin - one.end > max(200.0, 0.1 * one.duration):
                break
            chain.append(one)
            begin = one.begin
        return chain[::-1]

    def _copy(self, call: Event, part: Event) -> str:
        text = f"its own save was still being copied into {part.target}"
        for copy in self._copies:
            if copy.step == call.step and _overlaps(copy, part.begin - 1, part.end + 1):
                text += f", which was queued {duration_text(call.begin - copy.begin)} before"
        return f"{text}; it waited {duration_text(part.duration)} for that"

    def _on_its_way(self, _: Event, part: Event) -> str:
        return (
            f"it was on its way to {part.target}; it waited {duration_text(part.duration)} for that"
        )

    def _durable(self, call: Event, part: Event) -> str:
        begin, end, target = part.begin, part.end, part.target
        text = f"it waited for {call.step} to be {_at(target)}"
        own = [one for one in self._flushes if one.step == call.step and _overlaps(one, begin, end)]
        for one in own:
            text += (
                f"; its flush from {one.source} to {one.target} took {duration_text(one.duration)}"
            )
            if one.outcome != "done":
                text += f" and ended as {one.outcome} ({one.message})"
        others = [
            one
            for one in self._flushes
            if one.step != call.step
            and one.target == target
            and _overlaps(one, begin, own[-1].begin if own else end)
        ]
        if others:
            text += f"; before it came {listed(one.step for one in others)}"
        return text

    def _flushing(self, call: Event) -> str:
        meanwhile = [one for one in self._flushes if _overlaps(one, call.begin, call.end)]
        if not meanwhile:
            return "nothing was left to flush"
        last = list(self._trace.tiers)[-1]
        count = len({one.step for one in meanwhile})
        slowest = max(meanwhile, key=lambda one: one.duration)
        failed = [one for one in meanwhile if one.outcome == "failed"]
        text = (
            f"until everything was {_at(last)}, {count} checkpoint{'s' if count > 1 else ''} "
            f"were on their way; the slowest flush, of {slowest.step} to {slowest.target}, took "
            f"{duration_text(slowest.duration)}"
        )
        if failed:
            text += f"; {len(failed)} flushes failed, the first of {failed[0].step}: "
            text += failed[0].message
        return text

    # --- Past the caches ---------------------------------------------------------------------

    def _write(self, call: Event, part: Event) -> str:
        caches = [tier for tier in self._trace.tiers if tier in ("gpu", "host", "partner")]
        why = ", past the caches, in which nothing could make room" if caches else ""
        return f"it was written to {part.target} in {duration_text(part.duration)}{why}"

    def _read(self, call: Event, part: Event) -> str:
        text = f"it was {_at(part.source)} alone, and was read from there"
        text += f" in {duration_text(part.duration)}"
        if part.outcome == "damaged":
            return f"{text}, where it turned out to be damaged"
        if part.outcome != "done":
            return f"{text}, which failed"
        return f"{text}, since {self._why_not_fetched(call)}"

    def _above(self, tier: str) -> str:
        """The next faster tier; empty: there is none."""
        tiers = list(self._trace.tiers)
        at = tiers.index(tier) if tier in tiers else 0
        return tiers[at - 1] if at else ""

    def _why_not_fetched(self, call: Event) -> str:
        if not call.hinted:
            earlier = [
                one for one in self._fetches if one.step == call.step and one.end < call.begin
            ]
            if earlier and earlier[-1].outcome in ("failed", "damaged"):
                return f"its fetch had {_ended(earlier[-1])}"
            return "no hint had named it"
        if not call.prefetching:
            return "prefetch_start() had not been called"
        busy = [one for one in self._fetches if _overlaps(one, call.begin, call.begin + 1)]
        reasons = [f"its fetch had not come to it yet: {_busy_text(busy)}"] if busy else []
        above = self._above(call.source)
        if above and call.census and self._share_of(above, call.begin) > _FULL:
            reasons.append(f"there was no room in {above}, {_census_text(call.census)}")
        return "; ".join(reasons) or "its fetch had not begun"


def _at(tier: str) -> str:
    return f"{'on' if tier in ('disk', 'remote') else 'in'} {tier}"


def _each(transfers: list[Event]) -> str:
    longest = duration_text(max(one.duration for one in transfers))
    return longest if len(transfers) == 1 else f"up to {longest} each"


def _busy_text(busy: list[Event]) -> str:
    each = [f"{one.step} was being fetched from {one.source} into {one.target}" for one in busy]
    return " and ".join(each)


def _ended(fetch: Event) -> str:
    text = "failed" if fetch.outcome == "failed" else "found it damaged"
    return f"{text} ({fetch.message})" if fetch.message else text


def _census_text(census: Census) -> str:
    parts = []
    if census.unflushed:
        parts.append(f"{census.unflushed} not flushed yet")
    if census.ready:
        parts.append(f"{census.ready} fetched ahead and not restored")
    if census.moving:
        parts.append(f"{census.moving} on the way in")
    if census.evictable:
        parts.append(f"{census.evictable} that could go")
    noun = "checkpoint" if census.total == 1 else "checkpoints"
    return f"which had {census.total} {noun}: {', '.join(parts)}"
