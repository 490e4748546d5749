"""The hash map's speed, as `map_bench` measures it: docs/results/map.md, and the README's row."""

from __future__ import annotations

from .gpm.results import Line, Results
from .gpm.tables import table
from .kept import RESULTS, ROOT

PAGE = ROOT / "docs" / "results" / "map.md"
MEASURED = Results(RESULTS, ("cuda",))
OPERATIONS = ("find", "find_absent", "contains", "insert_or_assign", "insert", "erase")


FILLED = Results(RESULTS, ("cpu",))  # no speed, and the same on any backend


def _lines(name: str, benchmark: str, results: Results = MEASURED) -> list[Line]:
    return [line for line in results.report(name).lines if line["benchmark"] == benchmark]


def _rate(line: Line) -> str:
    rate = line["million_per_s"]
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def speed(name: str, value_bytes: int) -> str:
    """One row for each kind of batch; M operations/s by batch."""
    lines = [x for x in _lines(name, "map") if x["value_bytes"] == value_bytes
             and x["operation"] in OPERATIONS]  # fmt: skip
    batches = sorted({x["batch"] for x in lines})
    rows: list[list[object]] = []
    for directory in ("on", "off"):
        for order in ("automatic", "ordered", "unordered"):
            for operation in OPERATIONS:
                here = {x["batch"]: x for x in lines if (x["directory"], x["order"],
                        x["operation"]) == (directory, order, operation)}  # fmt: skip
                if here:
                    rates = (_rate(here[n]) if n in here else "" for n in batches)
                    rows.append([f"`{operation}`", directory, order, *rates])
    return table(["", "directory", "batches", *(f"{n:,}" for n in batches)], rows)


def resizing() -> str:
    """A growth at once, and beside batches."""
    rows: list[list[object]] = []
    for line in _lines("map_resize", "map_resize"):
        rows.append([f"{line['pairs']:,} pairs, at once", line["directory"],
                     f"{line['resize_ms']:.1f} ms", "", ""])  # fmt: skip
    for line in _lines("map_resize", "map_resize_beside"):
        rows.append([f"in {line['steps']} steps, beside `{line['operation']}` by {line['batch']:,}",
                     line["directory"], f"{line['growth_ms']:,.0f} ms, a step at most "
                     f"{line['longest_step_ms']:.2f}", f"{line['steady_million_per_s']:,.0f}",
                     f"{line['least_share_of_steady']:.2f}"])  # fmt: skip
    header = ["", "directory", "took", "before it, M/s", "least window of 50 ms, of that"]
    return table(header, rows)


def cache() -> str:
    """Lookups by a power law, by cache and batch."""
    lines = _lines("map_cache", "map_cache")
    batches = sorted({x["batch"] for x in lines})
    rows: list[list[object]] = []
    kinds = dict.fromkeys((x["value_bytes"], x["exponent"], x["cache_share"]) for x in lines)
    for value_bytes, exponent, share in kinds:
        here = {x["batch"]: x for x in lines
                if (x["value_bytes"], x["exponent"], x["cache_share"])
                == (value_bytes, exponent, share)}  # fmt: skip
        last = here[batches[-1]]
        missing = f"{100 * last['miss_share']:.1f} %"
        rates = (_rate(here[n]) for n in batches)
        rows.append([value_bytes, exponent, f"{100 * share:g} %", missing, *rates,
                     f"{last['share_of_link']:.2f}"])  # fmt: skip
    header = ["value bytes", "exponent", "cache", "misses", *(f"{n:,}" for n in batches),
              "of the link's bound, at the last"]  # fmt: skip
    return table(header, rows)


def opening() -> str:
    """Opening, and how full a table becomes."""
    rows: list[list[object]] = []
    for line in _lines("map_bench", "map_open"):
        rows.append(
            [
                f"opening {line['pairs']:,} pairs, directory {line['directory']}",
                f"{line['open_ms']:,.0f} ms beyond {line['pin_ms']:,.0f} of pinning",
            ]
        )
    for line in _lines("map_fill", "map_fill", FILLED):
        rows.append([f"load factor at the first key that does not fit, {line['slots']:,} slots",
                     f"{line['load_factor_at_first_failure']:.3f}"])  # fmt: skip
    return table(["", ""], rows)


def mixed() -> str:
    """Mixed batches beside a batch of each kind."""
    lines = _lines("map_mixed_bench", "map_mixed")
    batches = sorted({x["batch"] for x in lines})
    rows: list[list[object]] = []
    for exponent in dict.fromkeys(x["exponent"] for x in lines):
        for how in dict.fromkeys(x["how"] for x in lines):
            here = {x["batch"]: x for x in lines if (x["exponent"], x["how"]) == (exponent, how)}
            rows.append([how, exponent, *(_rate(here[n]) for n in batches)])
    return table(["", "exponent", *(f"{n:,}" for n in batches)], rows)


def strings() -> str:
    """The map of strings, by operation."""
    rows: list[list[object]] = []
    for line in _lines("bytes_map_bench", "bytes_map"):
        rows.append([f"`{line['operation']}`", line.get("how", "batch"), f"{line['batch']:,}",
                     _rate(line)])  # fmt: skip
    return table(["", "by", "at once", "M operations/s"], rows)


def log_map(name: str) -> str:
    """The log map beside the hash map, on the same batches."""
    lines = _lines(name, "log_map")
    batches = sorted({x["batch"] for x in lines})
    rows: list[list[object]] = []
    for operation in dict.fromkeys(x["operation"] for x in lines):
        for kind in dict.fromkeys(x["map"] for x in lines):
            here = {x["batch"]: x for x in lines if (x["operation"], x["map"]) == (operation, kind)}
            rows.append(
                [f"`{operation}`", kind.replace("_", " "), *(_rate(here[n]) for n in batches)]
            )
    return table(["", "", *(f"{n:,}" for n in batches)], rows)


def shapes() -> str:
    """How full a table is at the first key that does not fit, by its shape."""
    rows: list[list[object]] = []
    for line in _lines("map_shapes", "map_shapes", FILLED):
        rows.append([line["shape"], line["width"], f"{line['slots']:,}",
                     f"{line['load_factor_at_first_failure']:.3f}"])  # fmt: skip
    return table(["levels, hashes, slots of a bucket", "threads", "slots", "load factor"], rows)


def shards() -> str:
    """A sharded map by number of GPUs."""
    lines = _lines("sharded_map", "sharded_map")
    rows: list[list[object]] = []
    for batch, chunk in dict.fromkeys((x["batch"], x["chunk"]) for x in lines):
        for operation in dict.fromkeys(x["operation"] for x in lines):
            here = [x for x in lines if (x["batch"], x["chunk"], x["operation"])
                    == (batch, chunk, operation)]  # fmt: skip
            cells = (f"{_rate(x)} ({x['times_the_first']:.2f})" for x in here)
            rows.append([f"`{operation}`", f"{batch:,}", f"{chunk:,}", *cells])
    ranks = dict.fromkeys(x["ranks"] for x in lines)
    header = ["", "batch of a rank", "chunk", *(f"{n} GPU{'s' * (n > 1)}" for n in ranks)]
    return table(header, rows)


def stores() -> str:
    """Batches that change the map beside the stores that they come to, on one machine."""
    bare = {x["operation"]: x for x in _lines("map_stores", "map_stores")}
    batch = next(iter(bare.values()))["batch"] if bare else 0
    here = {(x["operation"], x["order"]): x for x in _lines("map_16m", "map")
            if x["batch"] == batch}  # fmt: skip
    rows: list[list[object]] = []
    for change, operation in (
        ("insert", "insert"), ("assign", "insert_or_assign"), ("erase", "erase")
    ):  # fmt: skip
        if change in bare and (operation, "ordered") in here:
            best = max((here[operation, order] for order in ("ordered", "unordered")),
                       key=lambda line: float(line["million_per_s"]))  # fmt: skip
            share = best["million_per_s"] / bare[change]["million_per_s"]
            rows.append([f"`{operation}`", _rate(bare[change]), _rate(best), f"{share:.2f}"])
    return table(["M/s, batches of " + f"{batch:,}", "its stores alone", "the map", "share"], rows)


def bare() -> str:
    """A table's lookups beside the reads of the medium that they come to."""
    lines = _lines("map_bare", "map_stores")
    alone = {(x["operation"], x["batch"]): x for x in lines}
    here = {(x["operation"], x["batch"]): x for x in _lines("map_bare", "map")
            if x["value_bytes"] == 128}  # fmt: skip
    batches = list(dict.fromkeys(x["batch"] for x in lines))
    rows: list[list[object]] = [
        ["its reads alone", *(_rate(alone["find", batch]) for batch in batches)],
        ["`find`", *(_rate(here["find", batch]) for batch in batches)],
    ]
    return table(["M/s", *(f"{batch:,}" for batch in batches)], rows)


TABLES = {
    "map-bare": bare,
    "map-stores": stores,
    "log-map": lambda: log_map("log_map_bench"),
    "log-map-aged": lambda: log_map("log_map_aged"),
    "map-aged": lambda: speed("map_aged", 128),
    "map-mixed": mixed,
    "map-strings": strings,
    "map-shapes": shapes,
    "map-shards": shards,
    "map-speed": lambda: speed("map_ordered", 128),
    "map-automatic": lambda: speed("map_automatic", 128),
    "map-speed-8": lambda: speed("map_ordered", 8),
    "map-factors": lambda: speed("map_bench", 128),
    "map-resize": resizing,
    "map-cache": cache,
    "map-open": opening,
}


def readme_rows() -> list[list[object]]:
    """Returns the README's rows: finds and upserts of a large table, of both maps."""
    here = {(x["operation"], x["batch"]): x for x in _lines("map_ordered", "map")
            if x["value_bytes"] == 128}  # fmt: skip
    find, upsert = (here[name, 1 << 20] for name in ("find", "insert_or_assign"))
    rows: list[list[object]] = [
        ["hash map: 67 M pairs, values of 128 bytes, batches of 1 M",
         MEASURED.report("map_ordered").where,
         f"{_rate(find)} M finds/s, {_rate(upsert)} M upserts/s, each durable"]
    ]  # fmt: skip
    logged, aged = (
        {x["operation"]: x for x in _lines(name, "log_map")
         if x["map"] == "log_map" and x["batch"] == 1 << 20}
        for name in ("log_map_bench", "log_map_aged")
    )  # fmt: skip
    upserts = f"{_rate(logged['insert_or_assign'])} M upserts/s"
    rows.append(["log map: the same, each batch a transaction",
                 MEASURED.report("log_map_bench").where,
                 f"{_rate(logged['find'])} M finds/s, {upserts}, "
                 f"{_rate(aged['insert_or_assign'])} once every place was used"])  # fmt: skip
    return rows
