"""Names of topics and consumer groups: which are valid, which are the system's, which belong to a group.

Source: TopicValidator, MixAll, NamespaceUtil, FAQUrl.
"""

import re

from gantrymq.errors import RemotingError
from gantrymq.model import message, system_names

RETRY_PREFIX = system_names.RETRY_PREFIX
DLQ_PREFIX = system_names.DLQ_PREFIX
AUTO_CREATE_TOPIC = system_names.AUTO_CREATE_TOPIC
SELF_TEST_TOPIC = system_names.SELF_TEST_TOPIC
BENCHMARK_TOPIC = system_names.BENCHMARK_TOPIC
SCHEDULE_TOPIC = message.SCHEDULE_TOPIC
OFFSET_MOVED_EVENT = system_names.OFFSET_MOVED_EVENT
TRANS_HALF_TOPIC = message.TRANS_HALF_TOPIC
TRANS_OP_HALF_TOPIC = message.TRANS_OP_HALF_TOPIC
ROCKSDB_TRANS_HALF_TOPIC = system_names.ROCKSDB_TRANS_HALF_TOPIC
ROCKSDB_TRANS_OP_HALF_TOPIC = system_names.ROCKSDB_TRANS_OP_HALF_TOPIC
TRANS_CHECK_MAX_TIME_TOPIC = system_names.TRANS_CHECK_MAX_TIME_TOPIC
TRACE_TOPIC = system_names.TRACE_TOPIC
CHECKPOINT_TOPIC = system_names.CHECKPOINT_TOPIC
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX = system_names.SYSTEM_TOPIC_PREFIX
SYNC_MEMBER_PREFIX = SYSTEM_TOPIC_PREFIX + "SYNC_BROKER_MEMBER_"
REVIVE_TOPIC_PREFIX = message.REVIVE_TOPIC_PREFIX

SYSTEM_TOPICS = system_names.BROKER_SYSTEM_TOPICS
# System topics with messages of other topics, or with information about them.
MIXED_TOPICS = frozenset(
    {
        *(SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, ROCKSDB_TRANS_HALF_TOPIC, ROCKSDB_TRANS_OP_HALF_TOPIC),
        *(TRANS_CHECK_MAX_TIME_TOPIC, OFFSET_MOVED_EVENT, TRACE_TOPIC),
    }
)

TOOLS_GROUP = "TOOLS_CONSUMER"
SYSTEM_GROUP_PREFIX = system_names.SYSTEM_GROUP_PREFIX
TRANS_GROUP = message.TRANS_GROUP  # its offsets say how far transactions are decided
REVIVE_GROUP = message.REVIVE_GROUP  # its offsets say how far checkpoints of POP are revived
# The groups that exist on every broker (SubscriptionGroupManager.init).
FIRST_GROUPS = (
    *(TOOLS_GROUP, "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL"),
    *("CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", TRANS_GROUP),
)
PREDEFINED_GROUPS = frozenset(
    {
        *FIRST_GROUPS,
        *("DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER"),
        *("CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP"),
    }
)

# RocketMQ ends many remarks with this text.
BLANK_TOPIC = "The specified topic is blank."
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

_ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_-]")
_TOPIC_MAX_LENGTH = 127
_GROUP_MAX_LENGTH = 120
_RETRY_OR_DLQ_MAX_LENGTH = 255
MAX_LENGTH = 512  # for stored names without another check: client ids, producer groups, expression types


def retry_topic(group: str) -> str:
    """The topic of the messages that ``group`` must consume again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic of the messages that ``group`` failed to consume."""
    return DLQ_PREFIX + group


def is_retry_or_dlq(topic: str) -> bool:
    """Whether a topic belongs to a consumer group."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_system_group(group: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_mixed_topic(topic: str) -> bool:
    """Whether a system topic holds messages of other topics, or information about them.

    All topics with the prefix ``rmq_sys_`` count, such as the timer wheel (``rmq_sys_wheel_timer``), the log of POP,
    and traces.
    """
    return topic in MIXED_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX) or topic.endswith(REPLY_TOPIC_SUFFIX)


def wrong_topic(topic: str) -> str | None:
    """Why ``topic`` is not a valid name, in RocketMQ's words; None if it is valid."""
    if not topic.strip():
        return BLANK_TOPIC
    if _ILLEGAL.search(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if is_retry_or_dlq(topic):
        if len(topic) > _RETRY_OR_DLQ_MAX_LENGTH:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {_RETRY_OR_DLQ_MAX_LENGTH}"
            )
    elif len(topic) > _TOPIC_MAX_LENGTH:
        return f"The specified topic: {topic}, is longer than topic max length: {_TOPIC_MAX_LENGTH}"
    return None


def wrong_group(group: str) -> str | None:
    """Why ``group`` is not a valid name, in RocketMQ's words; None if it is valid."""
    if not group.strip():
        return "The specified group is blank."
    if _ILLEGAL.search(group):
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > _GROUP_MAX_LENGTH:
        return f"The specified group: {group}, is longer than group max length: {_GROUP_MAX_LENGTH}"
    return None


def require_short(what: str, *texts: str | None) -> None:
    """Raises RemotingError if a text from a client that is to be stored is longer than MAX_LENGTH."""
    for text in texts:
        if text is not None and len(text) > MAX_LENGTH:
            raise RemotingError(f"the {what} has {len(text)} characters, more than {MAX_LENGTH}")
