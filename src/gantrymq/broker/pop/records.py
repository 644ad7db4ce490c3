"""How the broker puts a checkpoint or an acknowledgement of POP, and how a popped message becomes one of a retry topic.

Pure: no I/O, no clock.

Source: PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck, PopReviveService.reviveRetry.
"""

from __future__ import annotations

from dataclasses import replace

from gantrymq.broker import names
from gantrymq.format.pop_checkpoint import (
    ACK_TAG,
    AHEAD_MS,
    CHECKPOINT_TAG,
    PopAck,
    PopCheckpoint,
    PopKey,
    encode_pop_ack,
    encode_pop_checkpoint,
)
from gantrymq.format.properties import encode_properties
from gantrymq.format.record import MAX_PROPERTIES_LENGTH
from gantrymq.model.flags import HOSTS_V6
from gantrymq.model.host import Host
from gantrymq.model.java import INT_MAX
from gantrymq.model.message import (
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_KEY,
    Message,
    StoredMessage,
)
from gantrymq.model.receipt_handle import retry_topic_v1, retry_topic_v2

# Messages


def checkpoint_message(point: PopCheckpoint, topic: str, queue_id: int, now_ms: int, host: Host) -> Message:
    """The message of a checkpoint for a queue of the revive topic, with the time of its delivery.

    Its put does not wait for the disk: without the checkpoint the group's offset is not committed either, and its
    acknowledgements are behind it in the log. Those in memory are not in its body: each of them is put as a record.
    """
    unique_key = f"{_named(point.key)}@{CHECKPOINT_TAG}"
    deliver_ms = point.revive_time_ms - AHEAD_MS
    body = encode_pop_checkpoint(replace(point, acked=0) if point.acked else point)
    message = _message(topic, queue_id, body, CHECKPOINT_TAG, unique_key, deliver_ms, now_ms, host)
    message.wait_store_msg_ok = False
    return message


def ack_message(ack: PopAck, topic: str, queue_id: int, deliver_ms: int, now_ms: int, host: Host) -> Message:
    """The message of an acknowledgement for a queue of the revive topic."""
    key = ack.key._replace(start_offset=-1 if ack.is_batch else ack.offsets[0])
    return _message(topic, queue_id, encode_pop_ack(ack), ack.tag, f"{_named(key)}@{ACK_TAG}", deliver_ms, now_ms, host)


def _named(key: PopKey) -> str:
    return f"{key.topic}@{key.queue_id}@{key.start_offset}@{key.group}@{key.pop_time_ms}@{key.broker_name}"


def _message(
    topic: str, queue_id: int, body: bytes, tag: str, unique_key: str, deliver_ms: int, now_ms: int, host: Host
) -> Message:
    properties = {
        PROPERTY_TAGS: tag,
        PROPERTY_TIMER_DELIVER_MS: str(max(deliver_ms, 0)),
        PROPERTY_UNIQ_KEY: unique_key,
    }
    return Message(topic, body, queue_id, properties=properties, born_timestamp_ms=now_ms, born_host=host)


# Retry topics


def retry_topic(topic: str, group: str, *, is_v2: bool) -> str:
    """The retry topic that messages of ``topic`` go to that ``group`` popped and did not acknowledge."""
    if topic.startswith(names.RETRY_PREFIX):
        return topic
    return retry_topic_v2(topic, group) if is_v2 else retry_topic_v1(topic, group)


def retried_message(stored: StoredMessage, point: PopCheckpoint, topic: str, queue_id: int, host: Host) -> Message:
    """The copy of an unacknowledged message that is put into a queue of its retry topic."""
    properties = dict(stored.properties)
    if stored.reconsume_times == 0 or PROPERTY_FIRST_POP_TIME not in properties:
        properties[PROPERTY_FIRST_POP_TIME] = str(point.key.pop_time_ms)
    properties[PROPERTY_ORIGIN_GROUP] = point.key.group
    if len(encode_properties(properties)) > MAX_PROPERTIES_LENGTH:  # the message is worth more than what is added
        properties = dict(stored.properties)
    return Message(
        topic,
        stored.body,
        queue_id,
        properties=properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag & ~HOSTS_V6,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=host,
        reconsume_times=min(stored.reconsume_times + (0 if point.is_suspended else 1), INT_MAX),
        wait_store_msg_ok=False,
    )
