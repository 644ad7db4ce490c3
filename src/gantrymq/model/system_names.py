"""The names of RocketMQ's own topics and groups, and the prefixes of topics that belong to a group.

A broker makes these topics itself, clients add no namespace to them, and the 5.x clients may not use them.

Source: TopicValidator, MixAll.
"""

from gantrymq.model.message import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_TOPIC_PREFIXES = (SYSTEM_TOPIC_PREFIX, "RMQ_SYS_")
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
AUTO_CREATE_TOPIC = "TBW102"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
ROCKSDB_TRANS_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"  # a broker's alone: clients treat it as a user's
SYSTEM_TOPICS = frozenset(
    {
        *(AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, TRANS_HALF_TOPIC, TRACE_TOPIC, TRANS_OP_HALF_TOPIC),
        *(TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_EVENT),
        *(ROCKSDB_TRANS_HALF_TOPIC, ROCKSDB_TRANS_OP_HALF_TOPIC),
    }
)
# System topics that no producer may write.
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        *(SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC),
        *(OFFSET_MOVED_EVENT, ROCKSDB_TRANS_HALF_TOPIC, ROCKSDB_TRANS_OP_HALF_TOPIC),
    }
)
BROKER_SYSTEM_TOPICS = SYSTEM_TOPICS | {CHECKPOINT_TOPIC}


def group_of_retry(topic: str) -> str:
    """The group of a retry topic. That of POP has the topic after the group (``%RETRY%group+topic``)."""
    return topic[len(RETRY_PREFIX) :].partition("+")[0]


def is_system_topic(topic: str) -> bool:
    """Whether a topic is RocketMQ's own: it holds messages of other topics, or none of a user's."""
    return topic in BROKER_SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIXES)
