"""Reads messages by physical offset, and accepts only real records.

A client may send any offset, and a body may contain bytes that look like a record of another topic. A record is real if
the unit of its queue points to it. A record without a unit (its topic was deleted, or it is a prepared message of a
transaction) is real if a scan of its log file from the front reaches it.

Source: DefaultMessageStore.lookMessageByOffset, which performs no such check.
"""

from __future__ import annotations

import asyncio

from gantrymq.broker import names
from gantrymq.errors import RemotingError
from gantrymq.kernels.codes import CHECK_OFF
from gantrymq.model.message import PROPERTY_REAL_TOPIC, StoredMessage
from gantrymq.store.log.log_scanner import LogScanner
from gantrymq.store.log.record_batch import RecordScan
from gantrymq.store.message_store import MessageStore

_MAX_WALKS = 16


class StoredRecords:
    """Finds messages by offset. Thread rule: the event loop's thread, except for :meth:`is_record_start`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._one_walk = asyncio.Semaphore(1)  # each scan reads a file of the log
        self._walks = 0

    def queued(self, phy_offset: int) -> StoredMessage | None:
        """The message at an offset if its queue's unit points to it, else None."""
        message = self._store.message_at(phy_offset)
        if message is None:
            return None
        unit = self._store.lookup.unit_at(message.topic, message.queue_id, message.queue_offset)
        return message if unit is not None and unit[:2] == (message.phy_offset, message.size_bytes) else None

    def topic_at(self, phy_offset: int) -> str | None:
        """The topic of the record at an offset, real or not; None if there is no record."""
        message = self._store.message_at(phy_offset)
        return message.topic if message is not None else None

    def real_topic_at(self, phy_offset: int) -> str | None:
        """The topic that the half message of a transaction at an offset is for, real or not; None without one."""
        message = self._store.message_at(phy_offset)
        if message is None or message.topic != names.TRANS_HALF_TOPIC:
            return None
        return message.properties.get(PROPERTY_REAL_TOPIC)

    def record_of(self, message: StoredMessage) -> memoryview | None:
        """The bytes of a message's record, or None if it is deleted."""
        held = self._store.lookup.log.get_message(message.phy_offset, message.size_bytes)
        if held is None:
            return None
        with held:
            return held.array.data

    async def find(self, phy_offset: int) -> StoredMessage | None:
        """The message at an offset, with or without a unit; None if no record begins there.

        Raises RemotingError if too many requests for messages without a unit are waiting.
        """
        message = self.queued(phy_offset)
        if message is not None or self._store.message_at(phy_offset) is None:
            return message
        if self._walks == _MAX_WALKS:
            raise RemotingError(f"{_MAX_WALKS} other messages are being looked for in the log: try again")
        self._walks += 1
        try:
            async with self._one_walk:
                loop = asyncio.get_running_loop()
                is_real = await loop.run_in_executor(None, self.is_record_start, phy_offset)
        finally:
            self._walks -= 1
        return self._store.message_at(phy_offset) if is_real else None

    def is_record_start(self, phy_offset: int) -> bool:
        """Whether a scan of the log file from its front reaches this offset. It reads the file up to there.

        Thread rule: any thread.
        """
        log = self._store.lookup.log
        file = log.queue.find(phy_offset)
        if file is None:
            return False
        scanner = LogScanner(log, file.file_from_offset, phy_offset, RecordScan(CHECK_OFF))
        for _ in scanner:
            pass
        return scanner.offset == phy_offset and not scanner.stop
