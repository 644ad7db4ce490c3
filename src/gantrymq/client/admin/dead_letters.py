"""Sending a dead letter again: the message that a producer sends for it."""

from __future__ import annotations

from gantrymq.client.namespace import DLQ_PREFIX, RETRY_PREFIX
from gantrymq.errors import MQClientError
from gantrymq.model import message as names
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.message import Message, StoredMessage

# The broker and the producer set these again. The old values would delay the message, or count its old failures.
_DROPPED = frozenset(
    {
        names.PROPERTY_UNIQ_KEY, names.PROPERTY_CLUSTER, names.PROPERTY_MSG_REGION, names.PROPERTY_TRACE_SWITCH,
        names.PROPERTY_WAIT, names.PROPERTY_DELAY, names.PROPERTY_REAL_TOPIC, names.PROPERTY_REAL_QUEUE_ID,
        names.PROPERTY_RECONSUME_TIME, names.PROPERTY_MAX_RECONSUME_TIMES, names.PROPERTY_TAGS, names.PROPERTY_KEYS,
    }
)  # fmt: skip


def copy_to_send(letter: StoredMessage, topic: str) -> Message:
    """The message to send to ``topic``. Its properties are those of its sender; a retry also has the original topic.

    Raises MQClientError if its body is still compressed: it could not be decompressed.
    """
    if letter.sys_flag & COMPRESSED:
        raise MQClientError("its body cannot be decompressed; `gantrymq admin dlq export` writes it as it is stored")
    dropped = _DROPPED
    if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        dropped |= {names.PROPERTY_RETRY_TOPIC}
    kept = {
        name: value
        for name, value in letter.properties.items()
        if name not in dropped and not name.startswith("TIMER_")
    }
    return Message(topic, letter.body, tags=letter.tags, keys=letter.keys, properties=kept, flag=letter.flag)
