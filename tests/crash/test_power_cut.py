"""The power fails at any moment, also after a kill and in the middle of a recovery: what opens keeps every promise."""

import random

import pytest
from crash_cases import TIMES, Machine


def live(machine: Machine) -> None:
    """One life of a store: open, work, and an end of one kind or another."""
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


@pytest.mark.parametrize("run", range(12 * TIMES))
def test_lives_that_end_in_any_way(run: int, rng: random.Random) -> None:
    machine = Machine.draw(rng)
    for _ in range(5):
        live(machine)
    machine.check(machine.fs, machine.ledger)
