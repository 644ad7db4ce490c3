"""Names of topics and consumer groups: which are allowed, which are the system's, which belong to a group.

Source: TopicValidator, MixAll, NamespaceUtil, FAQUrl.
"""

import re

from gantrymq.errors import RemotingError

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
AUTO_CREATE_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_TRANS_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYNC_MEMBER_PREFIX = SYSTEM_TOPIC_PREFIX + "SYNC_BROKER_MEMBER_"
REVIVE_TOPIC_PREFIX = SYSTEM_TOPIC_PREFIX + "REVIVE_LOG_"

SYSTEM_TOPICS = frozenset(
    {
        *(AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, TRANS_HALF_TOPIC, TRACE_TOPIC, TRANS_OP_HALF_TOPIC),
        *(TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_EVENT, CHECKPOINT_TOPIC),
        *(ROCKSDB_TRANS_HALF_TOPIC, ROCKSDB_TRANS_OP_HALF_TOPIC),
    }
)
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        *(SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC),
        *(OFFSET_MOVED_EVENT, ROCKSDB_TRANS_HALF_TOPIC, ROCKSDB_TRANS_OP_HALF_TOPIC),
    }
)
# System topics that hold messages of other topics, or say what happened to them.
MIXED_TOPICS = frozenset(
    {
        *(SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, ROCKSDB_TRANS_HALF_TOPIC, ROCKSDB_TRANS_OP_HALF_TOPIC),
        *(TRANS_CHECK_MAX_TIME_TOPIC, OFFSET_MOVED_EVENT, TRACE_TOPIC),
    }
)

TOOLS_GROUP = "TOOLS_CONSUMER"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
# What every broker knows from its start (SubscriptionGroupManager.init).
FIRST_GROUPS = (
    *(TOOLS_GROUP, "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL"),
    *("CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS"),
)
PREDEFINED_GROUPS = frozenset(
    {
        *FIRST_GROUPS,
        *("DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER"),
        *("CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP"),
    }
)

# RocketMQ ends many a remark so.
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

_ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_-]")
_TOPIC_MAX_LENGTH = 127
_GROUP_MAX_LENGTH = 120
_RETRY_OR_DLQ_MAX_LENGTH = 255
MAX_LENGTH = 512  # of a name that is kept and not checked otherwise: client ids, groups of producers, expression types


def retry_topic(group: str) -> str:
    """Where messages wait that ``group`` is to consume again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where messages end that ``group`` could not consume."""
    return DLQ_PREFIX + group


def is_retry_or_dlq(topic: str) -> bool:
    """Whether a topic belongs to a consumer group."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_system_group(group: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_mixed_topic(topic: str) -> bool:
    """Whether a topic of the system holds messages of other topics, or says what happened to them.

    Of those that begin with ``rmq_sys_`` the timer wheel's does (``rmq_sys_wheel_timer``), the log of POP, and traces.
    """
    return topic in MIXED_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX) or topic.endswith(REPLY_TOPIC_SUFFIX)


def wrong_topic(topic: str) -> str | None:
    """Why ``topic`` is no name for one, in RocketMQ's words; None where it is."""
    if not topic.strip():
        return "The specified topic is blank."
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
    """Why ``group`` is no name for one, in RocketMQ's words; None where it is."""
    if not group.strip():
        return "The specified group is blank."
    if _ILLEGAL.search(group):
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > _GROUP_MAX_LENGTH:
        return f"The specified group: {group}, is longer than group max length: {_GROUP_MAX_LENGTH}"
    return None


def require_short(what: str, *texts: str | None) -> None:
    """Raises RemotingError where a text that a client gives and that is kept is longer than a name may be."""
    for text in texts:
        if text is not None and len(text) > MAX_LENGTH:
            raise RemotingError(f"the {what} has {len(text)} characters, more than {MAX_LENGTH}")
