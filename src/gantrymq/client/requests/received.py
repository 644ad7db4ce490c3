"""A message as a consumer receives it.

Source: MessageExt, MessageClientExt, PullAPIWrapper.processPullResult,
DefaultMQPushConsumerImpl.resetRetryAndNamespace.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from gantrymq.client.namespace import without_namespace
from gantrymq.client.requests.calls import PullResult
from gantrymq.client.requests.records import decode_lists
from gantrymq.format.lazy_record import READERS
from gantrymq.model.message import PROPERTY_RETRY_TOPIC, PROPERTY_UNIQ_KEY, Readers, StoredMessage, message_id
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import SubscriptionData

_STORED = [field.name for field in fields(StoredMessage)]


@dataclass(slots=True)
class ReceivedMessage(StoredMessage):
    """A message with its body decompressed, without its namespace, under the topic it was sent to.

    A body that cannot be decompressed stays as it is stored, and ``sys_flag`` still has the COMPRESSED bit.
    ``broker_name`` is the broker that delivered it, ``min_offset`` and ``max_offset`` the bounds of its queue at the
    pull. ``consume_start_ms`` is the time of the last listener call, ``in_listener_since_ms`` the same on the monotonic
    clock. ``reconsume_times`` counts its failures. A message that a simple consumer received has a ``receipt_handle``,
    and no bounds of its queue.
    """

    broker_name: str = ""
    min_offset: int = 0
    max_offset: int = 0
    receipt_handle: str = field(default="", repr=False)
    consume_start_ms: int = 0
    in_listener_since_ms: int | None = field(default=None, repr=False, compare=False)

    @property
    def msg_id(self) -> str:
        """The producer's id (UNIQ_KEY), or the broker's if there is none."""
        return self.properties.get(PROPERTY_UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The broker's id: store host and physical offset in hexadecimal."""
        return message_id(self.store_host, self.phy_offset)


def received(message: StoredMessage, queue: MessageQueue, pulled: PullResult) -> ReceivedMessage:
    """A stored message that was pulled from ``queue``."""
    values = {name: getattr(message, name) for name in _STORED}
    return ReceivedMessage(
        **values, broker_name=queue.broker_name, min_offset=pulled.min_offset, max_offset=pulled.max_offset
    )


def _readers(broker_name: str, min_offset: int, max_offset: int) -> Readers:
    """The readers of the messages of a pull. They refer to no part of its bytes, which a message would keep."""
    return {
        **READERS,
        "broker_name": lambda record: broker_name,
        "min_offset": lambda record: min_offset,
        "max_offset": lambda record: max_offset,
        "receipt_handle": lambda record: "",
        "consume_start_ms": lambda record: 0,
        "in_listener_since_ms": lambda record: None,
    }


def received_messages(
    pulled: PullResult, broker_name: str, *, decompressed: bool, max_decompressed_body_size: int
) -> list[ReceivedMessage]:
    """All messages of a pull. Raises RemotingCommandError if the bytes are not records."""
    readers = _readers(broker_name, pulled.min_offset, pulled.max_offset)
    limit = max_decompressed_body_size if decompressed else None
    messages: list[ReceivedMessage] = []
    for part in decode_lists(pulled.records, ReceivedMessage, readers, limit):
        messages += part
    return messages


def pulled_messages(
    pulled: PullResult,
    queue: MessageQueue,
    wanted: SubscriptionData,
    *,
    decompressed: bool,
    max_decompressed_body_size: int,
) -> list[ReceivedMessage]:
    """The messages of a pull that match the subscription.

    The broker compares only hashes of tags, so tags are compared here.

    Raises RemotingCommandError if the bytes are not records.
    """
    messages = received_messages(
        pulled,
        queue.broker_name,
        decompressed=decompressed,
        max_decompressed_body_size=max_decompressed_body_size,
    )
    tags = frozenset(wanted.tags_set)
    return [message for message in messages if message.tags in tags] if tags else messages


def restore_topic(message: ReceivedMessage, retry_topic: str, namespace: str) -> None:
    """Give a message of the retry topic its original topic, and remove the namespace."""
    if message.topic == retry_topic:  # first, because other messages need not decode their properties
        message.topic = message.properties.get(PROPERTY_RETRY_TOPIC, retry_topic)
    if namespace:
        message.topic = without_namespace(namespace, message.topic)
