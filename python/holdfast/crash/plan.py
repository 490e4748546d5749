"""When to kill: drawn from a seed before anything runs, so that a seed replays the plan."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .._errors import Error

# Of all kills. The rest land in a batch.
_SHARE_RECOVERY = 0.20
_SHARE_COMMIT = 0.10
_SHARE_BETWEEN = 0.05
# Of those in a batch.
_SHARE_IN_TRANSACTION = 0.6


@dataclass
class Kill:
    """One planned kill, and those that follow it while the program recovers.

    Times are fractions of the measured duration of what is interrupted.
    """

    batch: int  # the batch that is in flight, or the next one
    kind: str  # "batch", "between" or "commit"
    fraction: float
    # (what is interrupted: "open" or "recover", fraction of its duration)
    recoveries: list[tuple[str, float]] = field(default_factory=list)
    in_transaction: bool = False  # of a batch: aimed at its transaction, not at all of it

    def __len__(self) -> int:
        return 1 + len(self.recoveries)


# Batches that run undisturbed first: they measure how long a batch and a commit take.
WARM_UP = 4


def make_plan(seed: int, kills: int, batches: int | None = None) -> tuple[list[Kill], int]:
    """Returns the kills in order, and the number of batches in all.

    batches: how many there are; None: as many as the kills need.
    """
    rng = np.random.default_rng([seed, 1])
    recoveries = round(_SHARE_RECOVERY * kills)
    commits = round(_SHARE_COMMIT * kills)
    between = round(_SHARE_BETWEEN * kills)
    kinds = ["batch"] * (kills - recoveries - commits - between)
    kinds += ["commit"] * commits + ["between"] * between
    if batches is None:
        places = WARM_UP + np.cumsum(rng.integers(1, 5, len(kinds)))
        batches = int(places[-1]) + 2 if len(places) else WARM_UP
    else:
        room = batches - WARM_UP
        if room < 1:
            raise Error(f"{batches} batches are too few to kill in: {WARM_UP} only measure")
        # At least one batch apart; with more kills than batches several fall on one batch.
        places = WARM_UP + np.sort(rng.choice(room, len(kinds), replace=len(kinds) > room))
    plan = [
        Kill(int(place), kinds[index], float(rng.uniform(0.02, 0.98)))
        for place, index in zip(places, rng.permutation(len(kinds)), strict=True)
    ]
    in_batch = [kill for kill in plan if kill.kind == "batch"]
    for _ in range(recoveries):
        stage = "open" if rng.random() < 0.25 else "recover"
        victim = in_batch[int(rng.integers(len(in_batch)))]
        victim.recoveries.append((stage, float(rng.uniform(0.02, 0.98))))
    for kill in in_batch:
        kill.in_transaction = bool(rng.random() < _SHARE_IN_TRANSACTION)
    return plan, batches
