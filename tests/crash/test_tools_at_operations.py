"""The disk fails, or its power, at operation k of a rebuild or a salvage: the store keeps every promise."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from crash_cases import SHARES, TIMES, Machine
from ledger import Ledger

from faulty_file_system import FaultyFileSystem, broken_disk, disk_full
from gantrymq.errors import GantrymqError, NotAStoreError
from gantrymq.model.message import Message
from gantrymq.store.geometry import require_store
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.swap_journal import ReadySwap
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.reports import LossAccount
from gantrymq.tools.salvage import salvage_store
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, ROOT, SMALL, await_dispatch, content, files_of, open_store

CountUp = Callable[[str, int], None]
TRIED = 4 if TIMES == 1 else 1 << 20
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
def test_disk_error_at_any_operation_of_tool_loses_no_message(name: str, machine: Machine, count_up: CountUp) -> None:
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
def test_power_cut_at_any_operation_of_tool_loses_no_message(name: str, machine: Machine, count_up: CountUp) -> None:
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


SHORT = replace(SMALL, mapped_file_size_commit_log=4096, max_index_num=40)
BROKEN = 5


def closed_and_damaged(rng: random.Random) -> MemoryFileSystem:
    """A bit of one body in the first file is another one, so that recovery must not begin there; one file is stray."""
    fs = MemoryFileSystem()
    with open_store(fs, config=SHORT) as store:
        results = [
            store.put(Message("orders", b"%06d" % number * 20, queue_id=number % 3, keys=[f"key-{number}"]))
            for number in range(120)
        ]
        await_dispatch(store)
    fs.open(ROOT / "commitlog" / f"{0:020d}", writable=True).write_at(results[BROKEN].phy_offset + 100, b"?")
    fs.open(ROOT / "consumequeue/orders/1" / f"{800:020d}", writable=True, create=True).resize(400)
    return fs.crash_clone(1.0, 0)


def what_is_there(fs: MemoryFileSystem) -> tuple[object, object]:
    """Every whole message by its queue, and where each key leads."""
    with open_store(fs, config=SHORT) as store:
        await_dispatch(store)
        messages = content(store)
        messages["orders", BROKEN % 3].pop(BROKEN // 3, None)
        whole = (number for number in range(120) if number != BROKEN)
        return messages, {number: list(store.query_offsets("orders", f"key-{number}")) for number in whole}


def rebuilt(fs: FaultyFileSystem, *, index: bool = True) -> None:
    rebuild_store(ROOT, SHORT, index=index, given=GEOMETRY_KEYS, fs=fs)


@pytest.mark.parametrize("index", [True, False])
def test_swap_mark_is_durable_before_files_move(index: bool, rng: random.Random) -> None:
    disk, marked = closed_and_damaged(rng), list[bool]()

    def see(number: int) -> None:
        if fs.operations[-1][1].is_relative_to(ROOT / "consumequeue") and fs.operations[-1][0] == "remove":
            marked.append(ReadySwap(disk.crash_clone(0.0, number), StorePaths(ROOT)).is_set)

    fs = FaultyFileSystem(disk, see=see)
    rebuilt(fs, index=index)
    assert marked
    assert all(marked)


@pytest.mark.parametrize("ends", ["by an error", "by a power cut"])
def test_interrupted_rebuild_truncates_no_damaged_log(ends: str, rng: random.Random, count_up: CountUp) -> None:
    index, damaged = rng.random() < 0.5, closed_and_damaged(rng)
    expected, disk = what_is_there(damaged.kill_clone()), damaged.kill_clone()
    cuts: list[MemoryFileSystem] = []
    fs = FaultyFileSystem(disk, see=lambda number: cuts.append(disk.crash_clone(rng.choice(SHARES), number)))
    rebuilt(fs, index=index)
    swap = next(number for number, (name, _) in enumerate(fs.operations) if name == "rename")
    every = [*range(1, swap, 50), *range(swap, len(fs.operations) + 1)]
    for k in sorted(rng.sample(every, min(3 * TRIED, len(every)))):
        left = cuts[k - 1]
        if ends == "by an error":
            left = damaged.kill_clone()
            with suppress(GantrymqError):
                rebuilt(FaultyFileSystem(left, k, broken_disk, keeps_failing=True), index=index)
        assert what_is_there(left.kill_clone()) == expected, (k, fs.operations[k - 1])
        rebuilt(FaultyFileSystem(left))
        assert what_is_there(left) == expected, (k, fs.operations[k - 1])
        count_up(f"rebuilds of a damaged log ended {ends}", 1)


def account_of(name: str, fs: FaultyFileSystem) -> LossAccount:
    if name == "rebuild":
        return rebuild_store(ROOT, SHORT, given=GEOMETRY_KEYS, fs=fs).account
    return salvage_store(ROOT, OUT, SHORT, given=GEOMETRY_KEYS, fs=fs).account


@pytest.mark.parametrize("operation", ["open", "read_at", "scan"])
@pytest.mark.parametrize("name", TOOLS)
def test_transient_error_loses_no_message(name: str, operation: str, rng: random.Random, count_up: CountUp) -> None:
    """A tool goes on without bytes that the disk cannot read, but asks twice, or says that it cannot."""
    damaged = closed_and_damaged(rng)
    disk = damaged.kill_clone()
    fs = FaultyFileSystem(disk)
    expected, content_after = account_of(name, fs), files_of(disk)
    every = [k for k, (one, _) in enumerate(fs.operations, 1) if one == operation]
    for k in sorted(rng.sample(every, min(2 * TRIED, len(every)))):
        disk = damaged.kill_clone()
        fs = FaultyFileSystem(disk, k, broken_disk)
        try:
            account = account_of(name, fs)
        except GantrymqError:
            continue
        assert account == expected, (k, fs.operations[k - 1])
        assert files_of(disk) == content_after, (k, fs.operations[k - 1])
        count_up(f"errors of {name} that passed", 1)


def look(
    machine: Machine, name: str, disk: MemoryFileSystem, ledger: Ledger, k: int, operation: tuple[str, Path]
) -> None:
    """What was salvaged is a store with everything, or none that anything opens; a retry needs no cleaning."""
    try:
        if name == "salvage":
            assert files_of(disk) == files_of(machine.fs)
            look_at_salvaged(machine, disk.kill_clone())
        machine.check(disk.kill_clone(), ledger)
    except BaseException as problem:
        problem.add_note(f"operation {k}: {operation}")
        raise


def look_at_salvaged(machine: Machine, disk: MemoryFileSystem) -> None:
    if not machine.salvaged:
        whole = machine.fs.kill_clone()
        salvage(machine, FaultyFileSystem(whole))
        machine.salvaged = files_of(whole, OUT)
    try:
        require_store(disk, StorePaths(OUT))
    except NotAStoreError:
        with pytest.raises(GantrymqError):
            MessageStore.open(OUT, machine.config, given=GEOMETRY_KEYS, fs=disk, create=False)
        assert not disk.exists(OUT / "commitlog") or disk.exists(OUT / "salvage.unfinished")
        salvage(machine, FaultyFileSystem(disk))
    assert files_of(disk, OUT) == machine.salvaged


def whole(ledger: Ledger) -> Ledger:
    """Nothing may be lost of what was there before."""
    copy = ledger.copy()
    placed = [line.place for line in copy.lines.values() if line.place is not None]
    copy.durable_end = max((offset + size for offset, size, _ in placed), default=0)
    return copy
