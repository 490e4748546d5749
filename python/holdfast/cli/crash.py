"""holdfast crash: kills a program again and again and checks what is left."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from .. import workloads
from .._errors import Error
from ..crash import APPS, Campaign, Options, ResumeCampaign
from . import campaign_view, common
from .run import options_of


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


def _resume(what: workloads.Run, kills: int, seed: int, folder: Path | None, as_json: bool) -> None:
    with common.progress(as_json) as bar:
        task = bar.add_task(f"crash {what.workload}", total=kills)
        campaign = ResumeCampaign(
            what, kills, seed, str(folder) if folder else None, lambda: bar.advance(task)
        )
        result = campaign.run()
    if as_json:
        common.emit(result.as_json())
    else:
        common.out.print(f"crash {what.workload}, seed {seed}; input: {result.input}")
        common.out.print(
            f"{result.kills} kills, {result.kills_in_setup} of them in set-up; {result.finished} "
            f"runs were killed, resumed and ended, {result.midway} of them midway in their steps"
        )
        for wrong in result.wrong:
            common.out.print(f"wrong: {wrong}")
        if result.ok:
            common.out.print(f"each holds what the uninterrupted run holds: {result.digest}")
    if not result.ok:
        raise typer.Exit(common.EXIT_FAILED)


@common.command
def crash(
    application: Annotated[
        str,
        typer.Argument(
            metavar="APP", help="What to run: gpkvs, or another workload of `holdfast run --list`."
        ),
    ],
    kills: Kills = 50,
    seed: Seed = None,
    max_batch: Annotated[
        int | None,
        typer.Option(
            min=1, max=1 << 22, help="Operations per batch of gpkvs at most. Default: 4096."
        ),
    ] = None,
    folder: Folder = None,
    arena_folder: ArenaFolder = None,
    size: Annotated[
        str | None,
        typer.Option(help="Of another workload's input: test, real or paper. Default: test."),
    ] = None,
    mode: Annotated[str, typer.Option(help="Of a workload: see `holdfast run --help`.")] = "gpm",
    steps: Annotated[
        int | None, typer.Option(min=0, help="Of another workload. 0: what the size says.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE. gpkvs in mode gpm takes layout=in_place or log."),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Kills APP with SIGKILL again and again. Exits with 0 only if nothing was lost or torn.

    gpkvs: in a batch, between batches, in recovery and in a commit. After each kill the region is
    opened in a new process, recovered, and compared in whole with an oracle in another process that
    knows what was sent and what was acknowledged.

    Other workloads, and gpkvs in another mode than gpm, are killed at random moments and resume
    until they end; then they must hold what an uninterrupted run holds, bit for bit, whose result
    their oracle has confirmed.
    """
    given = options_of(options)
    if application not in APPS or mode != "gpm":
        if max_batch is not None:
            raise Error("--max-batch is of gpkvs in mode gpm: others take --set NAME=VALUE")
        what = workloads.Run(
            application,
            mode=mode,
            size=size or "test",
            steps=steps or 0,
            data=workloads.default_data(),
            options=given,
        )
        _resume(what, kills, seed_or_random(seed), folder, as_json)
        return
    if size is not None or steps is not None:
        raise Error(
            f"{application} in mode gpm takes --max-batch; --size and --steps are of others"
        )
    layout = given.pop("layout", "in_place")
    if given or layout not in ("in_place", "log"):
        raise Error(
            f"--set: {application} in mode gpm takes layout=in_place or layout=log, nothing else"
        )
    plan = Options(
        kills=kills,
        seed=seed_or_random(seed),
        folder=str(folder) if folder else None,
        arena_folder=str(arena_folder) if arena_folder else None,
    )
    with campaign_view.View(f"crash {application}", quiet=as_json) as view:
        app = APPS[application](max_batch or 4096, layout=layout)
        campaign = Campaign(app, plan, on_event=view.event)
        view.start(campaign)
        result = campaign.run()
    if as_json:
        common.emit(result.as_json())
    else:
        campaign_view.show(result, f"crash {application}, seed {result.seed}")
    if not result.ok:
        raise typer.Exit(common.EXIT_FAILED)
