"""A store of known content, damages with known victims, and the invariant of every tool that rescues messages.

Every message is in the result, with its bytes at its topic, queue and offset, or the report names it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gantrymq.clock import ManualClock
from gantrymq.format.record import QUEUE_OFFSET_AT, SECTOR
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.tools.reports import LossAccount
from store_cases import GEOMETRY_KEYS, NOON_MS, SMALL, StoreReader, await_dispatch, open_store

LOG_FILE = SMALL.mapped_file_size_commit_log
QUEUE_ID_AT = 12
PHY_OFFSET_AT = QUEUE_OFFSET_AT + 8
BODY_AT = 88
OLD_QUEUES = [("orders", 4), ("audit", 0)]
QUEUES = [(topic, queue_id) for topic in ("orders", "bills") for queue_id in (0, 1, 5)]


class Slot(NamedTuple):
    """One queue offset of one queue."""

    topic: str
    queue_id: int
    queue_offset: int


class Put(NamedTuple):
    """A message that was put: where it lies, and its body."""

    phy_offset: int
    size_bytes: int
    body: bytes


@dataclass
class KnownStore:
    """A closed store of real files; ``puts`` is every message that was put, by its slot."""

    path: Path
    puts: dict[Slot, Put]

    @classmethod
    def make(cls, path: Path, messages: int = 420, *, with_old_queues: bool = False) -> KnownStore:
        """Messages of several queues in turn, but not evenly; each has its number in its body, and a key.

        They are of one millisecond, unless some of the queues are old ones: those have messages only in the first half
        of the log, and time passes.
        """
        puts, rng, clock = {}, random.Random(27), ManualClock(NOON_MS)
        with open_store(RealFileSystem(), path, clock=clock) as store:
            for number in range(messages):
                is_early = with_old_queues and number < messages // 2
                topic, queue_id = rng.choice([*QUEUES, *OLD_QUEUES] if is_early else QUEUES)
                clock.advance(rng.randrange(2_000) if with_old_queues else 0)
                body = b"%06d" % number * (10 + number % 13)
                put = store.put(Message(topic, body, queue_id=queue_id, tags="paid", keys=[f"key-{number}"]))
                puts[Slot(topic, queue_id, put.queue_offset)] = Put(put.phy_offset, put.size_bytes, body)
            await_dispatch(store, 120)  # the kernels may have to be compiled first
        return cls(path, puts)

    @property
    def log_files(self) -> list[Path]:
        """The files of the commit log, in order."""
        return sorted((self.path / "commitlog").iterdir())

    def log_path(self, phy_offset: int) -> Path:
        """The file that has a place of the log."""
        return self.path / "commitlog" / f"{phy_offset - phy_offset % LOG_FILE:020d}"

    def read(self, phy_offset: int, length: int) -> bytes:
        """Bytes of the log."""
        with self.log_path(phy_offset).open("rb") as file:
            file.seek(phy_offset % LOG_FILE)
            return file.read(length)

    def write(self, phy_offset: int, data: bytes) -> None:
        """Overwrite bytes of the log."""
        with self.log_path(phy_offset).open("r+b") as file:
            file.seek(phy_offset % LOG_FILE)
            file.write(data)

    def flip(self, phy_offset: int, mask: int) -> None:
        """Flip bits of a byte of the log."""
        self.write(phy_offset, bytes([self.read(phy_offset, 1)[0] ^ mask]))

    def at(self, share: float) -> tuple[Slot, Put]:
        """The message that lies at this share of the log."""
        ordered = sorted(self.puts.items(), key=lambda item: item[1].phy_offset)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def victims(self, start: int, end: int) -> set[Slot]:
        """The messages that lie in [start, end) of the log, if only in part."""
        return {
            slot for slot, put in self.puts.items() if put.phy_offset < end and start < put.phy_offset + put.size_bytes
        }


def read_back(path: Path) -> dict[Slot, bytes]:
    """Every message that a consumer gets, by the queue and the offset at which it is got."""
    found = {}
    with StoreReader.open(path, SMALL, given=GEOMETRY_KEYS) as reader:
        for topic, queue_id, low, high in reader.queues():
            for offset in range(low, high):
                result = reader.get(topic, queue_id, offset, max_msgs=1)
                if result.messages and result.next_begin_offset == offset + 1:
                    found[Slot(topic, queue_id, offset)] = result.messages[0].body
    return found


def named(account: LossAccount, store: KnownStore) -> set[Slot]:
    """The messages that a report names, by their slots or by their place in the log."""
    slots = {Slot(one.topic, one.queue_id, offset) for one in account.messages for offset in range(one.begin, one.end)}
    for place in account.ranges:
        slots |= store.victims(place.start, place.end)
    for record in account.quarantined:
        slots |= store.victims(record.phy_offset, record.phy_offset + record.size_bytes)
    return slots


def torn(store: KnownStore) -> set[Slot]:
    """The messages of which a sector of the topic or the properties is zeros now; the head and the body are whole.

    Other changes of properties cannot be told: no CRC covers them.
    """
    return {slot for slot, put in store.puts.items() if _is_torn(store, put)}


def _is_torn(store: KnownStore, put: Put) -> bool:
    if not store.log_path(put.phy_offset).exists():
        return False
    raw, topic_at = store.read(put.phy_offset, put.size_bytes), BODY_AT + len(put.body) + 1
    begin = -(put.phy_offset + topic_at) % SECTOR + topic_at
    sectors = (raw[at : at + SECTOR] for at in range(begin, len(raw), SECTOR))
    return raw[BODY_AT : topic_at - 1] == put.body and any(not any(sector) for sector in sectors)


def _shown(slots: set[Slot], result: dict[Slot, bytes]) -> str:
    """Some slots, and the begin of what is got there."""
    first = sorted(slots)[:3]
    return f"{len(slots)}, {[(*slot, result.get(slot, b'nothing')[:12]) for slot in first]}"


def assert_told(store: KnownStore, result: dict[Slot, bytes], account: LossAccount) -> set[Slot]:
    """The invariant; returns the slots of the messages that are lost. Nothing that is in the result is called lost.

    A torn message may be in the result. It is named, too, because its properties are lost.
    """
    lost = {slot for slot, put in store.puts.items() if result.get(slot) != put.body}
    names = named(account, store)
    assert lost <= names, f"lost and not named: {_shown(lost - names, result)}"
    assert torn(store) <= names, f"torn and not named: {_shown(torn(store) - names, result)}"
    by_slot = {
        Slot(one.topic, one.queue_id, offset) for one in account.messages for offset in range(one.begin, one.end)
    }
    kept = (by_slot & store.puts.keys()) - lost
    assert not kept, f"named as lost, but it is in the result: {_shown(kept, result)}"
    assert (account.is_empty and not lost) or not account.is_empty
    return lost


Damage = Callable[[KnownStore], None]
