"""Messages by their physical offset, where only real records count.

A client names any offset it likes, and a body may hold bytes that read like a record of another topic. A record is real
where the unit of its queue points to it. One without a unit (its topic was deleted, or it is a prepared message of a
transaction) is real where the records of its file, read one after the other from the front, lead to it.

Source: DefaultMessageStore.lookMessageByOffset, which believes the bytes.
"""

from __future__ import annotations

import asyncio

from gantrymq.broker.message_store import BrokerMessageStore
from gantrymq.errors import RemotingError
from gantrymq.model.message import StoredMessage

_MOST_WALKS = 16


class StoredRecords:
    """Looks up messages by offset. Thread rule: the event loop's thread."""

    def __init__(self, store: BrokerMessageStore) -> None:
        self._store = store
        self._one_walk = asyncio.Semaphore(1)  # each reads a file of the log
        self._walks = 0

    def queued(self, phy_offset: int) -> StoredMessage | None:
        """The message at an offset to which its queue's unit points, or None."""
        message = self._store.message_at(phy_offset)
        if message is None:
            return None
        unit = self._store.unit_at(message.topic, message.queue_id, message.queue_offset)
        return message if unit is not None and unit[:2] == (message.phy_offset, message.size_bytes) else None

    async def find(self, phy_offset: int) -> StoredMessage | None:
        """The message at an offset, with or without a unit, or None where no record begins.

        Raises RemotingError where too many that ask for messages without a unit wait already.
        """
        message = self.queued(phy_offset)
        if message is not None or self._store.message_at(phy_offset) is None:
            return message
        if self._walks == _MOST_WALKS:
            raise RemotingError(f"{_MOST_WALKS} other messages are being looked for in the log: try again")
        self._walks += 1
        try:
            async with self._one_walk:
                loop = asyncio.get_running_loop()
                is_real = await loop.run_in_executor(None, self._store.is_record_start, phy_offset)
        finally:
            self._walks -= 1
        return self._store.message_at(phy_offset) if is_real else None
