"""The power fails at any moment, also after a kill and in the middle of a recovery: what opens keeps every promise."""

import random
from collections.abc import Callable

import pytest
from crash_cases import TIMES, Machine

CountUp = Callable[[str, int], None]
ENDS = {"cut": "power cuts at the end of a life", "kill": "kills of a simulated process", "close": "clean ends"}


def live(machine: Machine) -> str:
    """One life of a store: open, work, and an end of one kind or another, which is returned."""
    rng = machine.rng
    store = machine.open()
    machine.ledger.check(store, rng)
    machine.work(store)
    end = rng.choice(("cut", "cut", "cut", "kill", "close"))
    if end == "close":
        store.close()
        assert not store.failures
    elif end == "kill":
        machine.fs = machine.fs.kill_clone()
    else:
        machine.fs = machine.power_cut()
    return end


@pytest.mark.parametrize("run", range(8 * TIMES))
def test_lives_ending_in_any_way_lose_no_durable_message(run: int, rng: random.Random, count_up: CountUp) -> None:
    machine = Machine.draw(rng)
    for _ in range(5):
        count_up(ENDS[live(machine)], 1)
    machine.check(machine.fs, machine.ledger)
