"""What the crash tests share: settings and work drawn at random, and what is left when the power fails."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ledger import Ledger
from stepped_store import open_stepped, settle, tick

from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig, RecoverRule
from gantrymq.fs.api import FileSystem
from gantrymq.model.message import TIMER_TOPIC, Message
from gantrymq.store.message_store import MessageStore
from memory_file_system import MemoryFileSystem
from store_cases import NOON_MS, SMALL, odd_message

FLUSHES: dict[str, dict[str, Any]] = {
    "ASYNC_FLUSH": {},
    "SYNC_FLUSH": {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
    "transientStorePoolEnable": {"transient_store_pool_enable": True, "transient_store_pool_size": 2},
}
TIMES = int(os.environ.get("COUNT", "1"))  # how many times as much as `make test` does
MINUTE_MS = 60_000
DELAYS_ARE_OVER_MS = 180 * MINUTE_MS
SHARES = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0)


def draw_config(rng: random.Random, **fixed: Any) -> MessageStoreConfig:
    """Settings of a store with small files: everything that bears on durability is drawn."""
    drawn = {
        "mapped_file_size_commit_log": rng.choice((4096, 8192, 16_384, 65_536)),
        "mapped_file_size_consume_queue": 20 * rng.choice((3, 20, 25, 1000)),
        "max_hash_slot_num": rng.choice((7, 50)),
        "max_index_num": rng.choice((5, 40, 200)),
        "message_index_enable": rng.random() < 0.85,
        "message_index_safe": rng.random() < 0.2,
        "flush_commit_log_timed": rng.random() < 0.5,
        "flush_commit_log_least_pages": rng.choice((0, 1, 4)),
        "flush_commit_log_thorough_interval_ms": rng.choice((0, 500, 10_000)),
        "commit_commit_log_least_pages": rng.choice((0, 1, 4)),
        "flush_consume_queue_least_pages": rng.choice((0, 1, 2)),
        "flush_consume_queue_thorough_interval_ms": rng.choice((0, 100, 60_000)),
        "enable_consume_queue_ext": rng.random() < 0.25,
        "mapped_file_size_consume_queue_ext": 1024,
        "enabled_append_prop_crc": rng.random() < 0.3,
        "recover_rule": rng.choice((RecoverRule.V5, RecoverRule.V5, RecoverRule.V4)),
        "warm_maped_file_enable": rng.random() < 0.2,
        **rng.choice(list(FLUSHES.values())),
        **fixed,
    }
    drawn.setdefault("force_verify_prop_crc", drawn["enabled_append_prop_crc"] and rng.random() < 0.5)
    return replace(SMALL, **drawn)


def draw_messages(rng: random.Random, config: MessageStoreConfig) -> list[Message]:
    """One message, or a batch."""
    most = min(600, config.mapped_file_size_commit_log // 16)
    count = rng.choice((1, 1, 1, rng.randrange(2, 30)))
    messages = [odd_message(rng, most=most) for _ in range(count)]
    if count == 1 and rng.random() < 0.1:
        messages[0].wait_store_msg_ok = False
    return messages


@dataclass
class Machine:
    """A disk, a clock and the store on it: what one seed makes of them, life after life."""

    rng: random.Random
    config: MessageStoreConfig
    fs: MemoryFileSystem
    clock: ManualClock
    ledger: Ledger
    housekeeping: bool = False
    timers: bool = False
    salvaged: dict[Path, bytes] = field(default_factory=dict)  # of the disk as it is, once it has been asked for

    @classmethod
    def draw(cls, rng: random.Random, **fixed: Any) -> "Machine":
        """A new one with an empty disk."""
        config = draw_config(rng, **fixed)
        clock = ManualClock(NOON_MS)
        return cls(rng, config, MemoryFileSystem(clock=clock), clock, Ledger(config))

    def open(self, fs: FileSystem | None = None) -> MessageStore:
        """Open the store, which recovers it."""
        return open_stepped(
            fs or self.fs, self.rng, config=self.config, clock=self.clock, housekeeping=self.housekeeping
        )

    def work(self, store: MessageStore, most: int = 40) -> None:
        """Puts, batches, steps of the services, and time that passes now and then."""
        for _ in self.moments(store, most):
            pass

    def moments(self, store: MessageStore, most: int) -> Iterator[None]:
        """The same, one thing after the other."""
        rng = self.rng
        for _ in range(rng.randrange(1, most)):
            self.ledger.put(store, draw_messages(rng, self.config))
            if self.timers and rng.random() < 0.4:
                self.ledger.put(store, [self.timed()])
            if rng.random() < 0.4:
                tick(store, rng)
            if rng.random() < 0.4:
                self.clock.advance(rng.choice((1, 200, 3_000, 61_000)))
            yield

    def timed(self) -> Message:
        """A timer message as the broker puts it, which is due within two minutes and may roll before."""
        slot_ms = self.clock.now_ms() // 1000 * 1000 + self.rng.choice((0, 1, 2, 20, 119)) * 1000
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": str(slot_ms)}
        return Message(TIMER_TOPIC, b"soon", properties=properties)

    def power_cut(self, disk: MemoryFileSystem | None = None) -> MemoryFileSystem:
        """What the disk holds after the power fails: torn at pages or at sectors, much or little of it lost."""
        rng = self.rng
        return (disk or self.fs).crash_clone(
            rng.choice(SHARES), rng.randrange(1 << 30), unit_bytes=rng.choice((4096, 512))
        )

    def check(self, disk: MemoryFileSystem, ledger: Ledger, *, go_on: bool = True) -> None:
        """A disk that a crash left keeps every promise of the ledger, also when it is recovered and closed twice."""
        before, self.ledger = self.ledger, ledger
        try:
            store = self.open(disk)
            ledger.check(store, self.rng)
            if go_on and self.rng.random() < 0.5:
                self.work(store, 6)
                settle(store)
                ledger.check(store, self.rng)
            store.close()
            assert not store.failures
            again = self.open(disk)
            ledger.check(again, self.rng)
            if self.housekeeping:
                # A timer message that rolled is put twice, and each put is visible after the next interval.
                for passed_ms in (DELAYS_ARE_OVER_MS, MINUTE_MS, *[MINUTE_MS] * self.timers):
                    self.clock.advance(passed_ms)
                    settle(again)
                ledger.check_delivered(again)
            again.close()
        finally:
            self.ledger = before
