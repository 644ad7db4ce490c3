"""A dead letter: the topic that its message had, and the message that a producer sends to repeat it."""

from __future__ import annotations

from collections.abc import Mapping

from gantrymq.client.namespace import DLQ_PREFIX, RETRY_PREFIX, without_namespace, wrap_namespace
from gantrymq.errors import MQClientError
from gantrymq.model import message as names
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.receipt_handle import normal_topic

# The broker and the producer set these again. The old values would delay the message, or count its old failures.
_DROPPED = frozenset(
    {
        names.PROPERTY_UNIQ_KEY,
        names.PROPERTY_CLUSTER,
        names.PROPERTY_MSG_REGION,
        names.PROPERTY_TRACE_SWITCH,
        names.PROPERTY_WAIT,
        names.PROPERTY_DELAY,
        names.PROPERTY_REAL_TOPIC,
        names.PROPERTY_REAL_QUEUE_ID,
        names.PROPERTY_RECONSUME_TIME,
        names.PROPERTY_MAX_RECONSUME_TIMES,
        names.PROPERTY_TAGS,
        names.PROPERTY_KEYS,
        names.PROPERTY_FIRST_POP_TIME,
        names.PROPERTY_POP_CK,
    }
)


def origin_of(properties: Mapping[str, str], group: str) -> str | None:
    """The topic that a dead letter of ``group`` had, by its properties; None if they do not say.

    Both names have their namespace, if there is one.

    A broker of RocketMQ writes the retry topic into RETRY_TOPIC if the message was popped from there.
    """
    name = properties.get(names.PROPERTY_RETRY_TOPIC)
    return None if name is None else normal_topic(name, group) or None


def displayed_origin_topic(properties: Mapping[str, str], group: str, namespace: str) -> str | None:
    """:func:`origin_of` for names as a client with a namespace sees them."""
    origin = origin_of(properties, wrap_namespace(namespace, group))
    return None if origin is None else without_namespace(namespace, origin)


def copy_to_send(letter: StoredMessage, topic: str, origin: str | None = None) -> Message:
    """The message to send to ``topic``. Its properties are those of its sender; a retry also has the original topic.

    ``origin`` replaces the original topic that the letter names. Raises MQClientError if its body is still compressed:
    it could not be decompressed.
    """
    if letter.sys_flag & COMPRESSED:
        raise MQClientError("its body cannot be decompressed; `gantrymq admin dlq export` writes it as it is stored")
    dropped = _DROPPED
    is_retry = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    if not is_retry:
        dropped |= {names.PROPERTY_RETRY_TOPIC}
    properties = {
        name: value
        for name, value in letter.properties.items()
        if name not in dropped and not name.startswith("TIMER_")
    }
    if is_retry and origin is not None:
        properties[names.PROPERTY_RETRY_TOPIC] = origin
    return Message(topic, letter.body, tags=letter.tags, keys=letter.keys, properties=properties, flag=letter.flag)
