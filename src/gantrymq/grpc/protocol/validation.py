"""The checks of names and texts in requests. Each raises CallError with the code and text of RocketMQ's proxy.

Source: GrpcValidator, Validators, SendMessageActivity.
"""

from __future__ import annotations

import re

from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.status import CallError
from gantrymq.model.system_names import SYSTEM_GROUP_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS

_TOPIC_MAX_LENGTH = 127
_GROUP_MAX_LENGTH = 120
_ALLOWED = "^[%|a-zA-Z0-9_-]+$"
_illegal = re.compile(r"[^%|a-zA-Z0-9_-]").search
_control = re.compile("[\x00-\x1f\x7f-\x9f]").search  # Character.isISOControl


def has_control(text: str) -> bool:
    """Whether a text has a control character. Those with the numbers 1 and 2 would begin another property."""
    return _control(text) is not None


def require_topic(topic: str) -> str:
    """Return a topic's name if it is valid, and not the system's."""
    if not topic.strip():
        raise CallError(Code.ILLEGAL_TOPIC, "The specified topic is blank")
    if len(topic) > _TOPIC_MAX_LENGTH:
        raise CallError(Code.ILLEGAL_TOPIC, f"The specified topic is longer than topic max length {_TOPIC_MAX_LENGTH}.")
    if _illegal(topic):
        text = f"The specified topic[{topic}] contains illegal characters, allowing only {_ALLOWED}"
        raise CallError(Code.ILLEGAL_TOPIC, text)
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX):
        raise CallError(Code.ILLEGAL_TOPIC, "cannot access system topic")
    return topic


def require_group(group: str) -> str:
    """Return a consumer group's name if it is valid, and not the system's."""
    if not group.strip():
        raise CallError(Code.ILLEGAL_CONSUMER_GROUP, "the specified group is blank")
    if len(group) > _GROUP_MAX_LENGTH:
        text = f"the specified group[{group}] is longer than group max length: {_GROUP_MAX_LENGTH}."
        raise CallError(Code.ILLEGAL_CONSUMER_GROUP, text)
    if _illegal(group):
        text = f"the specified group[{group}] contains illegal characters, allowing only {_ALLOWED}"
        raise CallError(Code.ILLEGAL_CONSUMER_GROUP, text)
    if group.startswith(SYSTEM_GROUP_PREFIX):
        raise CallError(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return group


def require_invisible_time(invisible_ms: int, most_ms: int, least_ms: int = 0) -> int:
    """Return an invisible time in ms if it is between ``least_ms`` and ``most_ms``."""
    if invisible_ms < least_ms:
        text = f"the invisibleTime is too small. min is {least_ms}"
        raise CallError(Code.ILLEGAL_INVISIBLE_TIME, text)
    if invisible_ms > most_ms:
        text = f"the invisibleTime is too large. max is {most_ms}"
        raise CallError(Code.ILLEGAL_INVISIBLE_TIME, text)
    return invisible_ms


def require_tag(tag: str) -> None:
    """Check a message's tag; an empty one is valid."""
    if not tag:
        return
    if not tag.strip():
        raise CallError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot be the char sequence of whitespace")
    if "|" in tag:
        raise CallError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    if _control(tag):
        raise CallError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain control character")


def require_key(key: str) -> None:
    """Check one of a message's keys; an empty one is valid."""
    if not key:
        return
    if not key.strip():
        raise CallError(Code.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace")
    if _control(key):
        raise CallError(Code.ILLEGAL_MESSAGE_KEY, "key cannot contain control character")


def require_message_group(group: str, most_bytes: int) -> None:
    """Check the message group of a FIFO message. It must be shorter than ``most_bytes``, unless that is 0 or less."""
    if not group.strip():
        raise CallError(Code.ILLEGAL_MESSAGE_GROUP, "message group cannot be the char sequence of whitespace")
    if 0 < most_bytes <= len(group.encode()):
        text = f"message group exceed the max size {most_bytes}"
        raise CallError(Code.ILLEGAL_MESSAGE_GROUP, text)
    if _control(group):
        raise CallError(Code.ILLEGAL_MESSAGE_GROUP, "message group cannot contain control character")


def require_user_property(name: str, value: str, reserved: frozenset[str]) -> None:
    """Check a user property. Its name must not be one of RocketMQ's."""
    if name in reserved:
        raise CallError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
    if _control(name):
        text = "the key of property cannot contain control character"
        raise CallError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
    if _control(value):
        text = "the value of property cannot contain control character"
        raise CallError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
