"""Masters, slaves, clients and everything that can go wrong, from one seed each. README.md tells the model.

Replay a seed in one line, with what happened:

    SIMULATION=4711 .venv/bin/python -m pytest tests/simulation/test_simulation.py -k replayed
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from promises import BrokenPromise
from world import World

TIMES = int(os.environ.get("COUNT", "1"))
REPLAYED = os.environ.get("SIMULATION", "")
SEEDS = 12 if TIMES == 1 else 500 * TIMES  # 10,000 in `make crash`
BLOCK = 4 if TIMES == 1 else 50
REPLAY = "SIMULATION={} .venv/bin/python -m pytest tests/simulation/test_simulation.py -k replayed"
CountUp = Callable[[str, int], None]


def run(seed: int) -> World:
    """Run a seed. A failure says how to replay it."""
    world = World(seed)
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {seed}; replay with: {REPLAY.format(seed)}")
        raise
    return world


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_promises_hold_after_every_step_of_each_seed(first: int, count_up: CountUp) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        world = run(seed)
        count_up("simulations of masters and slaves", 1)
        count_up("steps of simulations", world.steps)


@pytest.mark.skipif(not REPLAYED, reason="SIMULATION names no seed")
def test_replayed_seed_keeps_its_promises(capsys: pytest.CaptureFixture[str]) -> None:
    world = World(int(REPLAYED or 0))
    try:
        world.run()
    finally:
        with capsys.disabled():
            print("", *world.told, world.plan.text, sep="\n")


def test_same_seed_gives_the_same_run_in_another_process() -> None:
    text = "import sys; sys.path[:0] = sys.argv[2:]; from world import World; w = World(int(sys.argv[1])); w.run()"
    here = Path(__file__).parent
    paths = [str(here), str(here.parent / "support")]
    command = [sys.executable, "-W", "ignore", "-c", f"{text}; print(w.digest())", "5", *paths]
    other = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "7"}
    )
    assert other.stdout.split()[-1] == run(5).digest()


def test_failing_seed_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: World) -> None:
        raise BrokenPromise("prefix", "planted")

    monkeypatch.setattr(World, "_make_whole", fail)
    with pytest.raises(BrokenPromise) as raised:
        run(3)
    assert any("SIMULATION=3 .venv/bin/python -m pytest" in note for note in raised.value.__notes__)
