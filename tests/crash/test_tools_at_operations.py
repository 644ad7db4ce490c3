"""The disk fails, or its power, at operation k of a rebuild or a salvage: the store keeps every promise."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from crash_cases import TIMES, Machine
from ledger import Ledger

from gantrymq.errors import GantrymqError
from gantrymq.fs.faulty import FaultyFileSystem, broken_disk, disk_full
from gantrymq.fs.memory import MemoryFileSystem
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from store_cases import GEOMETRY_KEYS, ROOT, files_of

CountUp = Callable[[str, int], None]
TRIED = 6 if TIMES == 1 else 1 << 20
OUT = Path("/salvaged")


@pytest.fixture
def machine(rng: random.Random) -> Machine:
    """A store that was closed or killed, with a few files of everything.

    Of some nothing is left: all their messages were in buffers of the process that was killed. Salvage refuses those.
    """
    machine = worked_on(rng)
    while not any(line.place for line in machine.ledger.lines.values()):
        machine = worked_on(rng)
    return machine


def worked_on(rng: random.Random) -> Machine:
    # With too few buffers in the pool a kill can leave a hole: files whose buffers were lost in front of one that was
    # written directly. A recovery cuts the log there; a rebuild vouches for the records behind it, as documented.
    sizes = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 60, "max_index_num": 40}
    machine = Machine.draw(rng, **sizes, transient_store_pool_size=64)
    store = machine.open()
    machine.work(store, 25)
    if rng.random() < 0.5:
        store.close()
    machine.fs = machine.fs.kill_clone()
    ledger = machine.ledger.copy()
    machine.check(machine.fs.kill_clone(), ledger, go_on=False)
    machine.ledger = ledger  # without what was only in a buffer of the process
    return machine


def rebuild(machine: Machine, fs: FaultyFileSystem) -> None:
    rebuild_store(ROOT, machine.config, given=GEOMETRY_KEYS, fs=fs)


def salvage(machine: Machine, fs: FaultyFileSystem) -> None:
    salvage_store(ROOT, OUT, machine.config, given=GEOMETRY_KEYS, fs=fs)


TOOLS = {"rebuild": rebuild, "salvage": salvage}


def ks(machine: Machine, tool: Callable[[Machine, FaultyFileSystem], None]) -> list[int]:
    fs = FaultyFileSystem(machine.fs.kill_clone())
    tool(machine, fs)
    every = range(1, len(fs.operations) + 1)
    return sorted(machine.rng.sample(every, min(TRIED, len(every))))


@pytest.mark.parametrize("name", TOOLS)
def test_an_error(name: str, machine: Machine, count_up: CountUp) -> None:
    rng = machine.rng
    for k in ks(machine, TOOLS[name]):
        disk = machine.fs.kill_clone()
        error = rng.choice((broken_disk, disk_full))
        fs = FaultyFileSystem(disk, k, error, keeps_failing=rng.random() < 0.5)
        with suppress(GantrymqError):
            TOOLS[name](machine, fs)
        look(machine, name, disk, whole(machine.ledger), k, fs.operations[k - 1])
        count_up(f"operations of {name} failed", 1)


@pytest.mark.parametrize("name", TOOLS)
def test_a_power_cut(name: str, machine: Machine, count_up: CountUp) -> None:
    if name == "salvage":
        machine.fs = machine.fs.crash_clone(1.0, 0)  # the store is only read, so all of it is on the disk before
    wanted, left, disk = set(ks(machine, TOOLS[name])), list[tuple[int, MemoryFileSystem]](), machine.fs.kill_clone()
    fs = FaultyFileSystem(
        disk, see=lambda number: left.append((number, machine.power_cut(disk))) if number in wanted else None
    )
    TOOLS[name](machine, fs)
    for k, cut in left:
        # What a killed store had not synced may be lost, but as the end of the log: a promise for any store.
        look(machine, name, cut, machine.ledger.copy(), k, fs.operations[k - 1])
        count_up(f"power cuts during {name}", 1)


def look(
    machine: Machine, name: str, disk: MemoryFileSystem, ledger: Ledger, k: int, operation: tuple[str, Path]
) -> None:
    """What was salvaged is not looked at: it is there when the salvage has ended without an error."""
    try:
        if name == "salvage":
            assert files_of(disk) == files_of(machine.fs)
        machine.check(disk.kill_clone(), ledger)
    except BaseException as problem:
        problem.add_note(f"operation {k}: {operation}")
        raise


def whole(ledger: Ledger) -> Ledger:
    """Nothing may be lost of what was there before."""
    copy = ledger.copy()
    placed = [line.place for line in copy.lines.values() if line.place is not None]
    copy.durable_end = max((offset + size for offset, size, _ in placed), default=0)
    return copy
