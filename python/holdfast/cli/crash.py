"""holdfast crash: kills a program again and again and checks what is left."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from .._errors import Error
from ..crash import APPS, Campaign, Options
from . import campaign_view, common


def seed_or_random(seed: int | None) -> int:
    return secrets.randbelow(2**31) if seed is None else seed


Kills = Annotated[int, typer.Option(min=1, help="How often the program is killed.")]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Replays the same batches and the same planned kills. The plan's times are fractions "
        "of measured durations, so where exactly a kill lands differs from run to run. "
        "Without it one is drawn, and printed."
    ),
]
Folder = Annotated[Path | None, typer.Option(help="Where the region's file goes.")]
ArenaFolder = Annotated[
    Path | None, typer.Option(help="Where the region's shared memory goes. Default: /dev/shm.")
]


@common.command
def crash(
    application: Annotated[
        str, typer.Argument(metavar="APP", help=f"What to run: {', '.join(APPS)}.")
    ],
    kills: Kills = 50,
    seed: Seed = None,
    max_batch: Annotated[
        int, typer.Option(min=1, max=1 << 22, help="Operations per batch at most.")
    ] = 4096,
    folder: Folder = None,
    arena_folder: ArenaFolder = None,
    as_json: common.Json = False,
) -> None:
    """Kills APP with SIGKILL in a batch, between batches, in recovery and in a commit.

    After each kill the region is opened in a new process, recovered, and compared in whole with
    an oracle in another process that knows what was sent and what was acknowledged. Exits with 0
    only if nothing was lost or torn.
    """
    if application not in APPS:
        raise Error(f"there is no application '{application}': use one of {', '.join(APPS)}")
    options = Options(
        kills=kills,
        seed=seed_or_random(seed),
        folder=str(folder) if folder else None,
        arena_folder=str(arena_folder) if arena_folder else None,
    )
    with campaign_view.View(f"crash {application}", quiet=as_json) as view:
        campaign = Campaign(APPS[application](max_batch), options, on_event=view.event)
        view.start(campaign)
        result = campaign.run()
    if as_json:
        common.emit(result.as_json())
    else:
        campaign_view.show(result, f"crash {application}, seed {result.seed}")
    if not result.ok:
        raise typer.Exit(common.EXIT_FAILED)
