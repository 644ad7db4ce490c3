"""When the writer is killed: random, but the same for the same seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

MAX_DELAY_MS = 12.0


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL, ``delay_ms`` after the acknowledgement of row ``after_row`` was heard.

    The delay puts the kill anywhere within the writing of a batch: into a body, between two records, into a queue.
    """

    after_row: int
    delay_ms: float


def plan_kills(rows: int, kills: int, seed: int) -> list[Kill]:
    """``kills`` of them, in order: each within its own share of the rows, and the last share is left alone."""
    rng = random.Random(seed)
    share = rows / (kills + 1)
    return [
        Kill(round(share * (number + rng.uniform(0.2, 0.95))), round(rng.uniform(0, MAX_DELAY_MS), 2))
        for number in range(kills)
    ]
