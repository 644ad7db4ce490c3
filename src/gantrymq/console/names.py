"""Kinds of topics and groups by their names, and permissions as text.

Source: TopicValidator, MixAll, PermName.
"""

from __future__ import annotations

from collections.abc import Collection

from gantrymq.broker import names

NORMAL, RETRY, DLQ, SYSTEM = "normal", "retry", "dlq", "system"
PERMS = {6: "read and write", 4: "read", 2: "write", 0: "none"}


def kind_of(topic: str, servers: Collection[str] = ()) -> str:
    """``retry`` or ``dlq`` for a topic of a group, ``system`` for RocketMQ's own, else ``normal``.

    ``servers`` are the names of brokers and clusters: each has a topic of its name, which is RocketMQ's own.
    """
    if topic.startswith(names.RETRY_PREFIX):
        return RETRY
    if topic.startswith(names.DLQ_PREFIX):
        return DLQ
    is_system = topic in names.SYSTEM_TOPICS or topic in servers
    is_system = is_system or topic.startswith(names.SYSTEM_TOPIC_PREFIX) or topic.endswith(names.REPLY_TOPIC_SUFFIX)
    return SYSTEM if is_system else NORMAL


def is_own_group(group: str) -> bool:
    """Whether a group is an application's, not one of those that exist on every broker."""
    return group not in names.PREDEFINED_GROUPS and not names.is_system_group(group)


def perm_text(perm: int) -> str:
    """A permission for people: ``read and write``."""
    return PERMS.get(perm & 6, str(perm))
