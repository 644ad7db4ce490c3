"""From lines of input to messages in a store, and to the result of each line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gantrymq.cli.input_lines import read_message
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.host import Host
from gantrymq.model.message import SCHEDULE_TOPIC, Message, message_id
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.consume_queues import is_topic_storable
from gantrymq.store.message_store import MessageStore

Result = dict[str, object]
_ROOM_FOR_PROPERTIES = 1 << 20


class LinePutter:
    """Puts lines into ``store`` and counts them. What :meth:`put` returned is acknowledged."""

    def __init__(self, store: MessageStore) -> None:
        self.lines = self.rejected = self.bytes_read = 0
        # A character may take six in JSON (\\u001f); what is longer than this is no message in any spelling.
        self.longest_line = 8 * store.config.max_message_size_bytes + _ROOM_FOR_PROPERTIES
        self._store = store
        # An address in brackets is read as it is, IPv4 or IPv6.
        self._host = Host.parse(f"[{store.config.broker_ip1}]:{store.config.listen_port}")

    def put(self, lines: Sequence[bytes]) -> list[Result]:
        """Store what ``lines`` mean; one result for each, in order. Raises DiskFullError."""
        read = [_read(line) for line in lines]
        outcomes = self._store_all([one for one in read if isinstance(one, Message)])
        results = []
        for line, one in zip(lines, read, strict=True):
            self.lines += 1
            self.bytes_read += len(line) + 1
            result = next(outcomes) if isinstance(one, Message) else _rejected(PutMessageStatus.MESSAGE_ILLEGAL, one)
            self.rejected += "phyOffset" not in result  # with FLUSH_DISK_TIMEOUT a message is stored
            results.append({"line": self.lines, **result})
        return results

    def _store_all(self, messages: Sequence[Message]) -> Iterator[Result]:
        config = self._store.config
        if len(messages) == 1:
            one = self._store.put(messages[0])
            if not one.is_stored:
                return iter([_refused(messages[0], one.status, config)])
            return iter([self._stored(messages[0], one.status, one.phy_offset, one.queue_offset)])
        if not messages:
            return iter(())
        batch = self._store.put_batch(messages)
        phy_offsets, queue_offsets = batch.phy_offsets.tolist(), batch.queue_offsets.tolist()
        return (
            _refused(message, batch.rejected[place], config)
            if place in batch.rejected
            else self._stored(message, batch.status, phy_offsets[place], queue_offsets[place])
            for place, message in enumerate(messages)
        )

    def _stored(self, message: Message, status: PutMessageStatus, phy_offset: int, queue_offset: int) -> Result:
        topic, queue_id = message.topic, message.queue_id
        if message.delay_level > 0:
            topic = SCHEDULE_TOPIC
            queue_id = min(message.delay_level, len(self._store.config.delay_levels_ms)) - 1
        return {
            "status": status.value,
            "topic": topic,
            "queueId": queue_id,
            "phyOffset": phy_offset,
            "queueOffset": queue_offset,
            "msgId": message_id(self._host, phy_offset),
        }


def _read(line: bytes) -> Message | str:
    """The message, or what is wrong with the line."""
    try:
        return read_message(line)
    except ValueError as error:
        return str(error)


def _rejected(status: PutMessageStatus, error: str) -> Result:
    return {"status": status.value, "error": error}


def _refused(message: Message, status: PutMessageStatus, config: MessageStoreConfig) -> Result:
    return {
        "status": status.value,
        "topic": message.topic,
        "queueId": message.queue_id,
        "error": _reason(message, status, config),
    }


def _reason(message: Message, status: PutMessageStatus, config: MessageStoreConfig) -> str:
    """What a person would want to know beside the status."""
    if status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED:
        return "tags, keys and properties together are too long"
    if len(message.body) > config.max_message_size_bytes:
        return f"the body has {len(message.body)} bytes, maxMessageSize is {config.max_message_size_bytes}"
    if status is not PutMessageStatus.MESSAGE_ILLEGAL:
        return "the store did not take the message"
    if not is_topic_storable(message.topic):
        return "the topic is no name of a directory (empty, longer than 255 bytes, with a slash, or only dots)"
    texts = (*message.properties, *message.properties.values(), *message.keys, message.tags)
    if any("\x01" in text or "\x02" in text for text in texts):
        return "a tag, key or property holds 0x01 or 0x02, which separate properties"
    return f"the record is longer than a file of the log, {config.mapped_file_size_commit_log} bytes"
