"""Each planted fault is found by the simulation, and the promise that it breaks is named."""

from __future__ import annotations

import os

import pytest
from planted_faults import PLANTED_FAULTS
from promises import BrokenPromise
from world import World

SEARCHES = int(os.environ.get("COUNT", "1")) > 1  # from seed 0 on, and not from the one that is known to find it
WITHIN = 300


@pytest.mark.parametrize("name", PLANTED_FAULTS)
def test_planted_fault_is_found_within_300_seeds(name: str) -> None:
    fault = PLANTED_FAULTS[name]
    first = 0 if SEARCHES else fault.seed
    with fault.plant():
        for seed in range(first, first + WITHIN):
            try:
                World(seed).run()
            except BrokenPromise as broken:
                assert broken.name in fault.breaks, f"seed {seed}: {broken}"  # noqa: PT017
                return
    pytest.fail(f"{WITHIN} simulations did not find it")
