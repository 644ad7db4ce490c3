"""The contents of a store for tests: the messages of a topic, and an error text that shows them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from gantrymq.client.requests.records import or_as_stored
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import NotAStoreError
from gantrymq.format.packed_body import with_decompressed_body
from gantrymq.model.message import StoredMessage
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader

_CATCH_UP_S = 0.001
_MESSAGES_A_READ = 1000
_SHOWN = 20
_BODY_SHOWN = 60


def messages_of(store: MessageStore, topic: str, max_decompressed_body_size: int) -> list[StoredMessage]:
    """All messages of a topic in an open store, including those that were put just before.

    Bodies are decompressed, as in a consumer.
    """
    while store.dispatch_behind_bytes and not store.failures:
        time.sleep(_CATCH_UP_S)
    messages: list[StoredMessage] = []
    for name, queue_id, offset, max_offset in store.queues():
        while name == topic and offset < max_offset:
            result = store.get(topic, queue_id, offset, max_msgs=_MESSAGES_A_READ)
            messages += [or_as_stored(message, max_decompressed_body_size) for message in result.messages]
            offset = max(result.next_begin_offset, offset + 1)
    return messages


def read_messages(store: Path, topic: str, config: MessageStoreConfig) -> list[StoredMessage]:
    """All messages of a topic in a store that is closed, or whose broker was killed: what a recovery would keep."""
    limit = config.max_decompressed_body_size_bytes
    try:
        with StoreReader.open(store, config) as reader:
            return [or_as_stored(message, limit) for message in reader.messages(topic)]
    except NotAStoreError:
        return []


def body_of(message: StoredMessage, max_decompressed_body_size: int) -> bytes:
    """The decompressed body of one of these messages. Raises ValueError if it cannot be decompressed."""
    return with_decompressed_body(message, max_decompressed_body_size).body


def table(messages: Sequence[StoredMessage]) -> str:
    """The messages as human-readable lines."""
    lines = [
        f"  queue {message.queue_id} offset {message.queue_offset} tags {message.tags!r} keys {message.keys} "
        f"{len(message.body)} bytes {message.body[:_BODY_SHOWN]!r}"
        for message in messages[:_SHOWN]
    ]
    more = len(messages) - len(lines)
    return "\n".join([*lines, *([f"  … and {more} more"] if more > 0 else [])]) or "  nothing"
