"""What the link, or a medium, alone would take for the bytes that a step moves."""

from __future__ import annotations

from dataclasses import dataclass

from .results import DELTA, STORING, Line, fact

_BUCKET = 128  # bytes of a bucket of gpKVS, read as a whole
_SECTOR = 32  # bytes: the least that a GPU reads over the link
_UPDATED = 1 / 20  # of gpDB's rows in a step


@dataclass(frozen=True)
class Bound:
    """Bytes of a step over the link, and seconds for them. Directions do not share the link."""

    written: float
    read: float
    at_most: bool  # `read` is an upper bound
    seconds: float


def _number_before(line: Line, word: str) -> int:
    """Reads "2000000 SETs" of the input's words; 0 where they do not say. For older results."""
    words = str(line["input"]).split()
    return int(words[words.index(word) - 1]) if word in words[1:] else 0


def _reads(line: Line) -> tuple[float, bool]:
    """Returns the bytes that kernels of a step read from the medium, where they are known."""
    name = line["workload"]
    if line["mode"] not in STORING or fact(line, "cache") == "on":
        return 0, False
    if name in ("gpkvs", "gpkvs_95_5"):
        # Operations of one bucket read it once: fewer than operations, above all by Zipf's law.
        counts = (
            int(fact(line, kind.lower()) or _number_before(line, kind)) for kind in ("GETs", "SETs")
        )
        return _BUCKET * sum(counts), True
    if name == "gpdb_update":
        # Beside what it changes, a row's measurements: one sector.
        return _SECTOR * _UPDATED * _number_before(line, "flights"), False
    return 0, False


def link_bound(line: Line, gb_per_s: float) -> Bound:
    """Returns what a link of that many GB/s, both ways at once, takes for a step."""
    read, at_most = _reads(line)
    written = float(line["bytes_per_step"])
    return Bound(written, read, at_most, max(written, read) / gb_per_s / 1e9)


# Optane's bandwidth by how stores fall (GB/s; the paper's section 6.1), and how ours do.
OPTANE = {"aligned": 12.5, "unaligned": 3.13, "random": 0.72}
PATTERNS = {
    "gpkvs": "random",
    "gpkvs_95_5": "random",
    "gpdb_update": "random",
    "bfs": "random",
    "srad": "unaligned",
}


def pattern(line: Line) -> str:
    """Returns how the stores of a run fall: copies, which CAP makes, are aligned streams."""
    if line["mode"] not in (*STORING, *DELTA):
        return "aligned"
    return str(line.get("kernel_access") or PATTERNS.get(line["workload"], "aligned"))


def on_optane(line: Line) -> float:
    """Projects a step's time: what was measured, or what the medium would take if that is more."""
    # What a run says is streamed falls so, whatever most of its stores do: a coalesced log.
    streamed = float(line.get("streamed_bytes_per_step", 0))
    unchanged = float(line.get("unchanged_bytes_per_step", 0))
    scattered = float(line["bytes_per_step"]) - streamed - unchanged
    medium = (scattered / OPTANE[pattern(line)] + streamed / OPTANE["aligned"]) / 1e9
    return max(float(line["cost_seconds"]), medium)
