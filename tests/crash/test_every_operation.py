"""The disk fails at operation k, for k = 1, 2, … until nothing fails any more; or the power fails there.

Each scenario is a store on a small disk and a piece of work on it, the same for every k up to there. What is left must
keep every promise, as a kill leaves it and as a power cut does. After a failed sync nothing more is acknowledged, and
the store does not end as if it were closed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crash_cases import FLUSHES, TIMES, Machine
from ledger import Ledger
from stepped_store import settle

from faulty_file_system import FaultyFileSystem, broken_disk, disk_full
from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType, RecoverRule
from gantrymq.errors import GantrymqError
from gantrymq.model.message import Message
from gantrymq.store.log import mapped_file
from gantrymq.store.message_store import MessageStore
from memory_file_system import MemoryFileSystem
from store_cases import ROOT

CountUp = Callable[[str, int], None]
TRIED = 3 if TIMES == 1 else 1 << 20
SYNCS = ("sync", "sync_directory")
TAKES_SPACE = ("open", "write_at", "reserve", "resize", "make_directory", "rename", "sync")
HOUR_MS = 3_600_000
SMALLEST = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 60, "max_index_num": 40}
EAGER = {"flush_commit_log_thorough_interval_ms": 0, "flush_consume_queue_thorough_interval_ms": 0}


@dataclass(frozen=True)
class Scenario:
    """Settings, how the store before ended (None: there was none), whether it deletes and delivers, and has timers."""

    before: str | None = None
    housekeeping: bool = False
    timers: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def small(before: str | None, *settings: dict[str, Any], housekeeping: bool = False, timers: bool = False) -> Scenario:
    merged = dict(SMALLEST)
    for some in settings:
        merged |= some
    return Scenario(before, housekeeping, timers, merged)


TIMED = {"timer_flush_interval_ms": 1, "mapped_file_size_timer_log": 68 + 52, "timer_roll_window_slots": 40}
SYNC = FLUSHES["SYNC_FLUSH"]
SCENARIOS = {
    **{f"new, {name}": small(None, EAGER, flush) for name, flush in FLUSHES.items()},
    **{f"after a close, {name}": small("close", flush) for name, flush in FLUSHES.items()},
    **{f"after a kill, {name}": small("kill", flush) for name, flush in FLUSHES.items()},
    **{f"after a power cut, {name}": small("cut", flush) for name, flush in FLUSHES.items()},
    "enableConsumeQueueExt": small("kill", {"enable_consume_queue_ext": True}),
    "recoverRule 4.x": small("cut", {"recover_rule": RecoverRule.V4}),
    "messageIndexSafe": small("cut", {"message_index_enable": True, "message_index_safe": True}),
    "warmMapedFileEnable": small("close", {"warm_maped_file_enable": True}),
    "retention": small("close", EAGER, {"delete_when": ";".join(map(str, range(24)))}, housekeeping=True),
    "retention, SYNC_FLUSH": small("kill", EAGER, SYNC, {"file_reserved_time_hours": 0}, housekeeping=True),
    "timers": small("close", EAGER, TIMED, housekeeping=True, timers=True),
    "timers, SYNC_FLUSH": small("cut", SYNC, TIMED, housekeeping=True, timers=True),
    "delayed": small("close", EAGER, {"flush_delay_offset_interval_ms": 1}, housekeeping=True),
    "delayed, SYNC_FLUSH": small(
        "cut", SYNC, {"flush_commit_log_timed": True, "flush_delay_offset_interval_ms": 1}, housekeeping=True
    ),
}


class Trial:
    """A scenario with its disk prepared, to be run again and again from the same state."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.seed = seed
        self.machine = machine = Machine.draw(random.Random(seed), **scenario.settings)
        machine.housekeeping = machine.ledger.expires = scenario.housekeeping
        machine.timers = scenario.timers
        if scenario.before is not None:
            store = machine.open()
            machine.work(store, 25)
            if scenario.before == "close":
                store.close()
            machine.fs = machine.power_cut() if scenario.before == "cut" else machine.fs.kill_clone()
            machine.check(machine.fs.kill_clone(), machine.ledger, go_on=False)

    def fresh(self) -> Machine:
        """The machine as it was prepared."""
        base = self.machine
        clock = ManualClock(base.clock.now_ms())
        disk = base.fs.kill_clone()
        disk.clock = clock
        return Machine(
            random.Random(self.seed), base.config, disk, clock, base.ledger.copy(), base.housekeeping, base.timers
        )

    @staticmethod
    def run(machine: Machine, fs: FaultyFileSystem) -> MessageStore | None:
        """Open, put, let time pass, close; returns the store if it opened. Only named errors may come."""
        store = None
        try:
            store = machine.open(fs)
            for _ in machine.moments(store, 8):
                if machine.housekeeping:
                    machine.clock.advance(machine.rng.choice((1_000, 61_000, 40 * HOUR_MS)))
                    machine.ledger.put(store, [machine.timed() if machine.timers else delayed()])
                    settle(store)
            store.close()
        except GantrymqError:
            pass
        for _, error in store.failures if store is not None else ():
            assert isinstance(error, GantrymqError), error
        return store

    def operations(self) -> list[tuple[str, Path]]:
        """What the scenario asks of the disk where nothing fails."""
        machine = self.fresh()
        fs = FaultyFileSystem(machine.fs)
        store = self.run(machine, fs)
        assert store is not None
        assert not store.failures
        machine.check(machine.fs, machine.ledger)
        return fs.operations


def delayed() -> Message:
    return Message("orders", b"soon", delay_level=1)


def acknowledged(ledger: Ledger) -> set[int]:
    """The numbers of the messages that were said to be stored, and waited for the disk if that was wanted."""
    is_sync = ledger.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    waited = {number for number, line in ledger.lines.items() if line.message.wait_store_msg_ok or not is_sync}
    return {number for number in waited if ledger.lines[number].place is not None}


def in_flight(ledger: Ledger, *, log_fails: bool) -> set[int]:
    """What is being put just now may still be acknowledged, unless it waits for the very file that failed."""
    is_sync = ledger.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    return set() if is_sync and log_fails else set(ledger.lines)


def fail(trial: Trial, k: int, error: Callable[[Path], Exception], *, keeps_failing: bool) -> None:
    """Operation k fails, and all behind it where it ``keeps_failing``; then look at what is left."""
    machine = trial.fresh()
    before: list[set[int]] = []

    def see(number: int) -> None:
        if number == k:
            log_fails = "commitlog" in fs.operations[-1][1].parts
            before.append(acknowledged(machine.ledger) | in_flight(machine.ledger, log_fails=log_fails))

    fs = FaultyFileSystem(machine.fs, k, error, keeps_failing=keeps_failing, see=see)
    trial.run(machine, fs)
    name, path = fs.operations[k - 1]
    try:
        if name in SYNCS:
            assert acknowledged(machine.ledger) <= before[0], "acknowledged after a failed sync"
            # The last sync of a close is that of the name of abort, when all else is durable.
            assert path == ROOT or fs.exists(ROOT / "abort"), "ended like a close after a failed sync"
        for left in (machine.fs.kill_clone(), machine.power_cut()):
            machine.check(left, machine.ledger.copy())
    except BaseException as problem:
        problem.add_note(f"operation {k} failed: {name} {path}")
        raise


def chosen(trial: Trial, rng: random.Random, names: tuple[str, ...] = ()) -> list[int]:
    """Which operations to fail: some by default, every single one by ``make crash``."""
    done = trial.operations()
    every = [k for k, (name, _) in enumerate(done, start=1) if not names or name in names]
    assert every
    return every if len(every) <= TRIED else sorted(rng.sample(every, TRIED))


@pytest.mark.parametrize("name", ["retention", "delayed"])
def test_scenario_has_same_disk_operations_on_slow_machine(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else operation k, which was found in one run, is another one in the next, or is not reached."""
    trial = Trial(SCENARIOS[name], seed)
    asked = []
    for passes_s in (0, 60):
        seconds = count(step=passes_s)
        monkeypatch.setattr(mapped_file, "time", SimpleNamespace(monotonic=lambda seconds=seconds: next(seconds)))
        asked.append(trial.operations())
    assert asked[0] == asked[1]


@pytest.mark.parametrize("name", SCENARIOS)
def test_disk_error_at_any_operation_loses_no_acknowledged_message(
    name: str, seed: int, rng: random.Random, count_up: CountUp
) -> None:
    trial = Trial(SCENARIOS[name], seed)
    for k in chosen(trial, rng):
        fail(trial, k, broken_disk, keeps_failing=rng.random() < 0.3)
        count_up("operations failed with EIO", 1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_full_disk_at_any_operation_loses_no_acknowledged_message(
    name: str, seed: int, rng: random.Random, count_up: CountUp
) -> None:
    trial = Trial(SCENARIOS[name], seed)
    for k in chosen(trial, rng, TAKES_SPACE):
        fail(trial, k, disk_full, keeps_failing=rng.random() < 0.5)
        count_up("operations failed with ENOSPC", 1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_power_cut_at_any_operation_loses_no_flushed_message(
    name: str, seed: int, rng: random.Random, count_up: CountUp
) -> None:
    trial = Trial(SCENARIOS[name], seed)
    ks = set(chosen(trial, rng))
    machine = trial.fresh()
    left: list[tuple[int, MemoryFileSystem, Ledger]] = []

    def see(number: int) -> None:
        if number in ks:
            disk = machine.fs.kill_clone()
            disk.clock = ManualClock(machine.clock.now_ms())
            left.append((number, disk, machine.ledger.copy()))

    fs = FaultyFileSystem(machine.fs, see=see)
    trial.run(machine, fs)
    assert len(left) == len(ks)
    for k, disk, ledger in left:
        try:
            machine.clock = disk.clock
            machine.check(machine.power_cut(disk), ledger)
            count_up("power cuts at an operation", 1)
        except BaseException as problem:
            problem.add_note(f"power cut before operation {k}: {fs.operations[k - 1]}")
            raise
