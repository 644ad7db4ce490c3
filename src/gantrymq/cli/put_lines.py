"""Lines of input, their messages, and the results of putting them into a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from gantrymq.cli.input_lines import TOO_LONG
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import is_topic_storable
from gantrymq.model.message import SCHEDULE_TOPIC, Message, message_id
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore

_ROOM_FOR_PROPERTIES = 1 << 20


class _Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The JSON object of a line. A null field counts as absent."""

    topic: str
    body: str | None = None
    body_base64: bytes | None = None
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=0x7FFFFFFF)] | None = None
    tags: str | None = None
    keys: list[str] | None = None
    properties: dict[str, str] | None = None
    delay_level: Annotated[int, msgspec.Meta(ge=0, le=0x7FFFFFFF)] | None = None


_decoder = msgspec.json.Decoder(_Line)


def read_message(line: bytes) -> Message:
    """The message of a line. Raises ValueError with the reason."""
    if line is TOO_LONG:
        raise ValueError("the line is too long for any message")
    if not line or line.isspace():
        raise ValueError("the line is empty")
    given = _decoder.decode(line)
    if given.body_base64 is not None:
        body = given.body_base64
        if given.body is not None:
            raise ValueError("body and bodyBase64 exclude each other")
    elif given.body is not None:
        body = given.body.encode()
    else:
        raise ValueError("either body or bodyBase64 must be there")
    return Message(
        given.topic,
        body,
        given.queue_id or 0,
        given.tags or "",
        given.keys or (),
        given.properties or {},
        given.delay_level or 0,
    )


Result = dict[str, object]


class LinePutter:
    """Puts lines into ``store`` and counts them. A message is acknowledged when :meth:`put` returns its result."""

    def __init__(self, store: MessageStore) -> None:
        self.lines = self.rejected = self.bytes_read = 0
        # JSON may take six characters for one (\\u001f), so a longer line cannot be a message.
        self.longest_line = 8 * store.config.max_message_size_bytes + _ROOM_FOR_PROPERTIES
        self._store = store
        self._host = store.store_host

    def put(self, lines: Sequence[bytes]) -> list[Result]:
        """Store the messages of ``lines``. Returns one result for each line, in order. Raises DiskFullError."""
        read = [_read(line) for line in lines]
        outcomes = self._store_all([message for message in read if isinstance(message, Message)])
        results = []
        for line, message in zip(lines, read, strict=True):
            self.lines += 1
            self.bytes_read += len(line) + 1
            result = (
                next(outcomes) if isinstance(message, Message) else _rejected(PutMessageStatus.MESSAGE_ILLEGAL, message)
            )
            self.rejected += "phyOffset" not in result  # a FLUSH_DISK_TIMEOUT message is stored
            results.append({"line": self.lines, **result})
        return results

    def _store_all(self, messages: Sequence[Message]) -> Iterator[Result]:
        config = self._store.config
        if len(messages) == 1:
            result = self._store.put(messages[0])
            if not result.is_stored:
                return iter([_refused(messages[0], result.status, config)])
            return iter([self._stored(messages[0], result.status, result.phy_offset, result.queue_offset)])
        if not messages:
            return iter(())
        batch = self._store.put_batch(messages)
        phy_offsets, queue_offsets = batch.phy_offsets.tolist(), batch.queue_offsets.tolist()
        return (
            _refused(message, batch.rejected[number], config)
            if number in batch.rejected
            else self._stored(message, batch.status, phy_offsets[number], queue_offsets[number])
            for number, message in enumerate(messages)
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
    """The message of a line, or what is wrong with it."""
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
    """The reason for a status, as text."""
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
