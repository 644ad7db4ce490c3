"""The settings of consumers, with RocketMQ's names in Python's spelling and its defaults.

Source: DefaultMQPushConsumer, DefaultLitePullConsumer, DefaultMQPushConsumerImpl.checkConfig, Validators.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path

from gantrymq.client.consumer.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import ConfigError

DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,120}")
_TIMESTAMP = "%Y%m%d%H%M%S"


class MessageModel(Enum):
    """Whether the members of a group share the messages, or each gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """Where a group without an offset begins: behind the last message, at the first, or at a time."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


# RocketMQ's key and what it allows.
_RANGES: dict[str, tuple[str, int, int]] = {
    "consume_thread_max": ("consumeThreadMax", 1, 1000),
    "consume_concurrently_max_span": ("consumeConcurrentlyMaxSpan", 1, 65535),
    "consume_max_span": ("consumeMaxSpan", 1, 65535),
    "pull_threshold_for_queue": ("pullThresholdForQueue", 1, 65535),
    "pull_threshold_size_for_queue": ("pullThresholdSizeForQueue", 1, 1024),
    "pull_interval_ms": ("pullInterval", 0, 65535),
    "consume_message_batch_max_size": ("consumeMessageBatchMaxSize", 1, 1024),
    "pull_batch_size": ("pullBatchSize", 1, 1024),
    "max_reconsume_times": ("maxReconsumeTimes", -1, 0x7FFFFFFF),
    "consume_timeout_minutes": ("consumeTimeout", 1, 0x7FFFFFFF),
    "auto_commit_interval_ms": ("autoCommitIntervalMillis", 1000, 0x7FFFFFFF),
}
# -1 says: no bound for the topic as a whole.
_TOPIC_RANGES: dict[str, tuple[str, int]] = {
    "pull_threshold_for_topic": ("pullThresholdForTopic", 6_553_500),
    "pull_threshold_size_for_topic": ("pullThresholdSizeForTopic", 102_400),
}


@dataclass(frozen=True, slots=True)
class ConsumerConfig(ClientConfig):
    """What push and lite-pull consumers share; times in milliseconds, ``pull_threshold_size_for_queue`` in MiB.

    ``consume_timestamp`` is ``yyyyMMddHHmmss`` in local time, half an hour ago unless told, for
    CONSUME_FROM_TIMESTAMP. ``instance_name`` is part of a broadcasting consumer's client id, under which its offsets
    lie in ``local_offset_store_dir``: give two on one host different ones.
    """

    consumer_group: str = DEFAULT_CONSUMER_GROUP
    instance_name: str = "DEFAULT"
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp: str = ""
    allocate_message_queue_strategy: AllocateMessageQueueStrategy = AllocateMessageQueueAveragely()
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100
    persist_consumer_offset_interval_ms: int = 5000
    poll_name_server_interval_ms: int = 30_000
    local_offset_store_dir: str | Path = "~/.rocketmq_offsets"

    def __post_init__(self) -> None:
        super(ConsumerConfig, self).__post_init__()
        if not _GROUP.fullmatch(self.consumer_group) or self.consumer_group == DEFAULT_CONSUMER_GROUP:
            allowed = f"1 to 120 of ^[%|a-zA-Z0-9_-]+$, and not {DEFAULT_CONSUMER_GROUP}"
            raise ConfigError("consumerGroup", self.consumer_group, allowed)
        if self.consume_timestamp:
            self.parse_consume_timestamp(0)
        _check_ranges({name: getattr(self, name) for name in self.__dataclass_fields__})

    def parse_consume_timestamp(self, now_ms: int) -> int:
        """``consume_timestamp`` in milliseconds since the epoch; half an hour before ``now_ms`` if none is set."""
        if not self.consume_timestamp:
            return now_ms - 30 * 60 * 1000
        try:
            return int(datetime.strptime(self.consume_timestamp, _TIMESTAMP).timestamp() * 1000)
        except ValueError as error:
            raise ConfigError("consumeTimestamp", self.consume_timestamp, "yyyyMMddHHmmss") from error


@dataclass(frozen=True, slots=True)
class PushConsumerConfig(ConsumerConfig):
    """A push consumer's settings.

    ``max_reconsume_times`` -1 means 16 for a concurrent listener and without end for an orderly one.
    ``await_termination_ms_when_shutdown`` is how long :meth:`close` waits for listeners that still work.
    """

    consume_thread_max: int = 20
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1
    pull_interval_ms: int = 0
    consume_message_batch_max_size: int = 1
    pull_batch_size: int = 32
    pull_batch_size_in_bytes: int = 256 * 1024
    post_subscription_when_pull: bool = False
    max_reconsume_times: int = -1
    suspend_current_queue_time_ms: int = 1000
    consume_timeout_minutes: int = 15
    await_termination_ms_when_shutdown: int = 10_000
    pull_time_delay_ms_when_exception: int = 3000


@dataclass(frozen=True, slots=True)
class LitePullConsumerConfig(ConsumerConfig):
    """A lite-pull consumer's settings."""

    pull_batch_size: int = 10
    pull_threshold_for_all: int = 10_000
    consume_max_span: int = 2000
    poll_timeout_ms: int = 5000
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5000
    broker_suspend_max_time_ms: int = 20_000
    consumer_timeout_ms_when_suspend: int = 30_000
    topic_metadata_check_interval_ms: int = 30_000
    pull_time_delay_ms_when_exception: int = 1000

    def __post_init__(self) -> None:
        super(LitePullConsumerConfig, self).__post_init__()
        if self.consumer_timeout_ms_when_suspend < self.broker_suspend_max_time_ms:
            raise ConfigError(
                "consumerTimeoutMillisWhenSuspend",
                self.consumer_timeout_ms_when_suspend,
                f"at least brokerSuspendMaxTimeMillis, {self.broker_suspend_max_time_ms}",
            )


def _check_ranges(values: Mapping[str, object]) -> None:
    for name, (key, low, high) in _RANGES.items():
        value = values.get(name)
        if isinstance(value, int) and not low <= value <= high:
            raise ConfigError(key, value, f"{low} to {high}")
    for name, (key, high) in _TOPIC_RANGES.items():
        value = values.get(name)
        if isinstance(value, int) and value != -1 and not 1 <= value <= high:
            raise ConfigError(key, value, f"-1 for no bound, or 1 to {high}")
