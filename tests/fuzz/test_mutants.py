"""Stores with random changes in every kind of file: nothing hangs, eats memory, or ends in an error without a name.

``make fuzz`` tries 100,000 of them (COUNT and SEED choose others). MUTANT=number tries that one alone.
"""

import os
from pathlib import Path

import pytest
from limits import all_within_limits, within_limits

MUTANT = os.environ.get("MUTANT")
A_BATCH = 100
# Found once: a queue pointed behind the last of its extended units; a count in an index file's header overflowed.
KNOWN = [173, 1000009654]


def test_damaged_stores_stay_within_limits(seed: int, tmp_path: Path) -> None:
    outcomes = all_within_limits(range(seed * A_BATCH, (seed + 1) * A_BATCH), tmp_path)
    assert outcomes["open and write: done"], "not everything that is damaged is unreadable"


@pytest.mark.parametrize("mutant", KNOWN if MUTANT is None else [int(MUTANT)])
def test_one_damaged_store_stays_within_limits(mutant: int, tmp_path: Path) -> None:
    within_limits(mutant, tmp_path)
