"""After two random damages a rescue has every message, or names it; ``losses.py`` tries many more."""

import os
from pathlib import Path

from losses import A_SEED, KnownStore, try_loss

LOSS = os.environ.get("LOSS")
A_BATCH = 20


def test_lost_files_cost_no_remaining_message(seed: int, tmp_path: Path) -> None:
    whole = KnownStore.make(tmp_path / "whole", with_old_queues=True)
    first = seed % A_SEED * A_BATCH
    for number in range(first, first + A_BATCH) if LOSS is None else [int(LOSS)]:
        try_loss(whole, number, tmp_path)
