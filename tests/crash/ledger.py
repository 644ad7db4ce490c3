"""The model that every crash test compares with: a plain dict of what was said about each message.

Each message carries its number in a property of its own, so whatever is found in a store can be looked up here. Nothing
is taken from the store's word but the acknowledgement: what a record must hold follows from the message that was put.

The rules: what was acknowledged under SYNC_FLUSH is there (``durable_end``); what is lost otherwise is the end of the
log; nothing is there twice, or with other bytes, or was never put; queue offsets have no hole; queues, index and log
agree.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.errors import GantrymqError
from gantrymq.format.index import index_keys
from gantrymq.format.queue_entry import QueueEntry, tags_code
from gantrymq.format.record import Layout, decode_record
from gantrymq.model import flags
from gantrymq.model.message import SCHEDULE_TOPIC, TIMER_TOPIC, Message, StoredMessage
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore
from gantrymq.store.queue.consume_queue import ConsumeQueue
from store_cases import physical

NUMBER = "N"
_QUESTIONS = 10
_WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
Place = tuple[int, int, int]  # physical offset, size, queue offset


@dataclass(slots=True)
class Line:
    """One message of the ledger; ``place`` is None until its put was acknowledged, or it was found in a store."""

    message: Message
    place: Place | None = None


@dataclass
class Ledger:
    """What was said of the messages of one store, over all its lives.

    ``durable_end``: the log must reach so far after a power cut. ``expires`` says that retention is at work, so the
    log may begin later. Any thread may put.
    """

    config: MessageStoreConfig
    expires: bool = False
    lines: dict[int, Line] = field(default_factory=dict)
    durable_end: int = 0
    refused: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def copy(self) -> Ledger:
        """As it is now: a later acknowledgement is not in it."""
        with self.guard:
            lines = {number: replace(line) for number, line in self.lines.items()}
            return Ledger(self.config, self.expires, lines, self.durable_end)

    # Putting

    def put(self, store: MessageStore, messages: Sequence[Message]) -> None:
        """Put one message, or several as a batch, and note what was said. Errors of the disk are no reason to stop."""
        with self.guard:
            for number, message in enumerate(messages, start=len(self.lines)):
                message.properties[NUMBER] = str(number)
                self.lines[number] = Line(message)
        try:
            if len(messages) == 1:
                one = store.put(messages[0])
                status, places = one.status, [(one.phy_offset, one.size_bytes, one.queue_offset)]
            else:
                many = store.put_batch(messages)
                status, places = (
                    many.status,
                    [*zip(*_lists(many.phy_offsets, many.sizes, many.queue_offsets), strict=True)],
                )
                assert set(many.rejected.values()) <= {PutMessageStatus.SERVICE_NOT_AVAILABLE}
                assert len(many.rejected) in (0, len(messages)), "all of a batch, or none"
        except GantrymqError:
            self.refused += 1
            return
        if status is PutMessageStatus.PUT_OK:
            self.acknowledge(messages, places)
        else:
            self.refused += 1

    def acknowledge(self, messages: Sequence[Message], places: Sequence[Place]) -> None:
        """The store has said that the messages are stored there."""
        with self.guard:
            for message, place in zip(messages, places, strict=True):
                self.lines[int(message.properties[NUMBER])].place = place
                if self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH and message.wait_store_msg_ok:
                    self.durable_end = max(self.durable_end, place[0] + place[1])

    # Checking

    def check(self, store: MessageStore, rng: random.Random) -> None:
        """Every rule. Afterwards the ledger says what the store holds, for that is what its next life begins with."""
        end = store.max_phy_offset
        assert end >= self.durable_end, f"{self.durable_end} bytes of the log were durable, {end} are left"
        records = self._records(store)
        first = max(store.min_phy_offset, 0)
        assert first == 0 or self.expires
        found: set[int] = set()
        for record in records:
            self._check_record(record, found)
        self._check_lost(found, first, end)
        self._check_queues(store, records)
        self._check_index(store, records, rng)
        kept = found | {number for number, line in self.lines.items() if line.place and line.place[0] < first}
        for number in self.lines.keys() - kept:
            self.lines[number].place = None
        self.durable_end = min(self.durable_end, end)

    def _records(self, store: MessageStore) -> list[StoredMessage]:
        """Every record of the log, which must be unbroken from its first byte to its last."""
        log, records = store._log, []
        reached = max(log.min_offset, 0)
        for offset, found, file in physical(log, reached, log.max_offset) if log.queue.files else ():
            reached = offset
            if isinstance(found, Layout) and file is not None:
                record = decode_record(file.array.data, offset - file.file_from_offset, found)
                assert record.phy_offset == offset
                records.append(record)
        assert reached == log.max_offset, f"the log goes to {log.max_offset}, its records end at {reached}"
        return records

    def _check_record(self, record: StoredMessage, found: set[int]) -> None:
        number = int(record.properties[NUMBER])
        line = self.lines[number]
        message = line.message
        assert record.body == message.body, f"message {number} has other bytes"
        if message.delay_level and record.topic == message.topic:
            assert record.queue_id == message.queue_id
            return  # delivered: once, or again after a crash
        if message.topic == TIMER_TOPIC and (record.topic != TIMER_TOPIC or "TIMER_ROLL_TIMES" in record.properties):
            slot_ms, dequeued_ms = (int(record.properties[name]) for name in ("TIMER_OUT_MS", "TIMER_DEQUEUE_MS"))
            rolled = record.topic == TIMER_TOPIC
            assert rolled or (record.topic, record.queue_id) == ("orders", 0)
            assert rolled or dequeued_ms >= slot_ms + self.config.timer_precision_ms, "early"
            return  # likewise
        assert number not in found, f"message {number} is there twice"
        found.add(number)
        self._check_fields(record, message)
        place = (record.phy_offset, record.size_bytes, record.queue_offset)
        assert line.place is None or line.place == place, f"message {number} was stored at {line.place}, is at {place}"
        line.place = place

    def _check_fields(self, record: StoredMessage, message: Message) -> None:
        levels = len(self.config.delay_levels_ms)
        level = min(message.delay_level, levels)
        where = (SCHEDULE_TOPIC, level - 1) if level else (message.topic, message.queue_id)
        assert (record.topic, record.queue_id) == where
        wanted = dict(message.properties)
        wanted |= {"TAGS": message.tags, "KEYS": " ".join(message.keys)}
        wanted |= {"DELAY": str(level), "REAL_TOPIC": message.topic, "REAL_QID": str(message.queue_id)} if level else {}
        stored = {name: value for name, value in record.properties.items() if name != "__CRC32#"}
        assert stored == {name: value for name, value in wanted.items() if value}
        hosts = flags.BORN_HOST_V6 | flags.STORE_HOST_V6
        assert (record.flag, record.reconsume_times, record.prepared_transaction_offset, record.sys_flag & ~hosts) == (
            message.flag,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.sys_flag,
        )

    def _check_lost(self, found: set[int], first: int, end: int) -> None:
        for number, line in self.lines.items():
            if number not in found and line.place is not None and line.place[0] >= first:
                at = line.place[0]
                assert at >= end, f"message {number} was acknowledged at {at}, is lost, and the log goes to {end}"

    def _check_queues(self, store: MessageStore, records: list[StoredMessage]) -> None:
        wanted: dict[tuple[str, int], list[tuple[int, QueueEntry]]] = {}
        for record in records:
            if flags.is_consumable(record.sys_flag):
                code = tags_code(
                    record.topic, record.properties, record.store_timestamp_ms, self.config.delay_levels_ms
                )
                unit = (record.queue_offset, QueueEntry(record.phy_offset, record.size_bytes, code))
                wanted.setdefault((record.topic, record.queue_id), []).append(unit)
        for name, units in wanted.items():
            offsets = [offset for offset, _ in units]
            assert offsets == list(range(offsets[0], offsets[0] + len(units))), f"{name} has a hole, or an offset twice"
        first = max(store.min_phy_offset, 0)
        there = {(queue.topic, queue.queue_id): _units(queue, first) for queue in store._queues}
        there = {name: units for name, units in there.items() if units}
        for name in there.keys() | wanted.keys():
            assert there.get(name) == wanted.get(name), f"{name}: the queue and the log do not agree"

    def _check_index(self, store: MessageStore, records: list[StoredMessage], rng: random.Random) -> None:
        if not self.config.message_index_enable:
            return
        indexed = [record for record in records if flags.is_indexable(record.sys_flag)]
        answers: dict[tuple[str, str], set[int]] = {}
        for record in rng.sample(indexed, min(len(indexed), _QUESTIONS)) + indexed[-3:]:
            for question in ((record.topic, key) for key in index_keys(record.properties)):
                if question not in answers:
                    answers[question] = set(store.query_offsets(*question, max_num=10_000))
                assert record.phy_offset in answers[question], f"{record.phy_offset} is not found under {question}"

    def check_delivered(self, store: MessageStore) -> None:
        """Long after the last delay every delayed message of the log that a queue has is in its topic too."""
        records = self._records(store)
        delivered = {record.properties[NUMBER] for record in records if record.topic not in _WAITING_TOPICS}
        delayed = [one for one in records if one.topic in _WAITING_TOPICS and flags.is_consumable(one.sys_flag)]
        waiting = {record.properties[NUMBER] for record in delayed}
        assert waiting <= delivered, f"never delivered: {sorted(waiting - delivered)}"


def _units(queue: ConsumeQueue, first: int) -> list[tuple[int, QueueEntry]]:
    """The units of a queue that point at what the log still has."""
    units, offset = [], queue.min_offset
    while offset < queue.max_offset:
        for raw in queue.entries(offset, queue.max_offset - offset).tolist():
            unit = QueueEntry(*raw)
            if not unit.is_filler and unit.phy_offset >= first:
                units.append((offset, unit._replace(tags_code=queue.tags_code(unit.tags_code))))
            offset += 1
    return units


def _lists(*arrays: object) -> list[list[int]]:
    return [array.tolist() for array in arrays]  # type: ignore[attr-defined]
