"""The settings of consumers, with RocketMQ's names in Python's spelling and its defaults.

``pull_batch_size`` is 512 (RocketMQ: 32, and 10 for lite pull), because most of a small pull's cost is not that of its
messages. A broker of RocketMQ returns at most its maxTransferCountOnMessageInMemory, 32. A threshold is compared before
each pull, so a queue may have ``pull_batch_size`` messages more than it.

Source: DefaultMQPushConsumer, DefaultLitePullConsumer, DefaultMQPushConsumerImpl.checkConfig, Validators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path

from gantrymq.client.consumer.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from gantrymq.client.hooks import ConsumeMessageHook, check_hooks
from gantrymq.client.settings import GROUP_NAME, GROUP_NAME_ALLOWED, ClientConfig, ClientSettings, trace_topic
from gantrymq.config.keys import key
from gantrymq.errors import ConfigError
from gantrymq.model.java import LONG_MAX

DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
MAX_INVISIBLE_MS = 12 * 3600 * 1000  # maxInvisibleTimeMills of RocketMQ's proxy
_TIMESTAMP = "%Y%m%d%H%M%S"


class MessageModel(Enum):
    """Whether the members of a group share the messages, or each member gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """Where a group without a committed offset begins: after the last message, at the first, or at a time.

    As in RocketMQ, a new group begins at offset 0 of a queue whose first message is still in the broker's memory, also
    with CONSUME_FROM_LAST_OFFSET or a timestamp. That is the state of every embedded broker.
    """

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class GroupConfig(ClientConfig):
    """The settings that all consumers share. Times in milliseconds.

    Without ``decode_decompress_body`` bodies are delivered as they are stored. ``trace`` True traces each message to
    RMQ_SYS_TRACE_TOPIC; a text is the name of another topic. ``hooks`` are called before and after each listener call,
    poll or receive (:class:`gantrymq.client.hooks.ConsumeMessageHook`).
    """

    consumer_group: str = key("consumerGroup", DEFAULT_CONSUMER_GROUP)
    consume_from_where: ConsumeFromWhere = key("consumeFromWhere", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    poll_name_server_interval_ms: int = key("pollNameServerInterval", 30_000, min_value=1)
    decode_decompress_body: bool = key("com.rocketmq.decompress.body", True)
    trace: bool | str = False
    hooks: Sequence[ConsumeMessageHook] = ()

    def __post_init__(self) -> None:
        super(GroupConfig, self).__post_init__()
        if not GROUP_NAME.fullmatch(self.consumer_group) or self.consumer_group == DEFAULT_CONSUMER_GROUP:
            allowed = f"{GROUP_NAME_ALLOWED}, and not {DEFAULT_CONSUMER_GROUP}"
            raise ConfigError("consumerGroup", self.consumer_group, allowed)
        trace_topic(self.trace)
        check_hooks(self.hooks, of_producer=False)


@dataclass(frozen=True, slots=True)
class ConsumerConfig(GroupConfig):
    """The settings that push and lite-pull consumers share.

    Times in milliseconds, ``pull_threshold_size_for_queue`` in MiB.

    ``consume_timestamp`` is ``yyyyMMddHHmmss`` in local time, for CONSUME_FROM_TIMESTAMP; the default is half an hour
    ago. ``instance_name`` is part of a broadcasting consumer's client id, by which its offsets are filed in
    ``local_offset_store_dir``: give two consumers on one host different names.
    """

    instance_name: str = key("instanceName", "DEFAULT")
    message_model: MessageModel = key("messageModel", MessageModel.CLUSTERING)
    consume_timestamp: str = key("consumeTimestamp", "")
    allocate_message_queue_strategy: AllocateMessageQueueStrategy = AllocateMessageQueueAveragely()
    pull_threshold_for_queue: int = key("pullThresholdForQueue", 1000, min_value=1, max_value=65_535)
    pull_threshold_size_for_queue: int = key("pullThresholdSizeForQueue", 100, min_value=1, max_value=1024)
    persist_consumer_offset_interval_ms: int = key("persistConsumerOffsetInterval", 5000, min_value=1)
    local_offset_store_dir: str | Path = "~/.rocketmq_offsets"

    def __post_init__(self) -> None:
        super(ConsumerConfig, self).__post_init__()
        _ = self.local_offset_root
        if not self.instance_name or set(self.instance_name) & {"/", "\0"}:
            raise ConfigError("instanceName", self.instance_name, "a name of a directory: it is part of a path")
        if not callable(getattr(self.allocate_message_queue_strategy, "allocate", None)) or isinstance(
            self.allocate_message_queue_strategy, type
        ):
            given, allowed = self.allocate_message_queue_strategy, "an object with allocate(client_id, queues, clients)"
            raise ConfigError("allocateMessageQueueStrategy", given, allowed)
        if self.consume_timestamp:
            self.parse_consume_timestamp(0)

    @property
    def local_offset_root(self) -> Path:
        """``local_offset_store_dir`` with ``~`` expanded. Raises ConfigError."""
        given: object = self.local_offset_store_dir
        try:
            root = Path(given).expanduser()  # type: ignore[arg-type]
        except (TypeError, RuntimeError) as error:
            raise ConfigError("localOffsetStoreDir", given, f"the path of a directory ({error})") from error
        if "\0" in str(root):
            raise ConfigError("localOffsetStoreDir", given, "the path of a directory")
        return root

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

    ``max_reconsume_times`` -1 means 16 for a concurrent listener and unlimited for an orderly one.
    ``await_termination_ms_when_shutdown`` is the longest time that a close waits for listeners. Without
    ``client_rebalance`` the brokers assign queues to a concurrent listener, to be pulled or popped.
    """

    consume_thread_max: int = key("consumeThreadMax", 20, min_value=1, max_value=1000)
    consume_concurrently_max_span: int = key("consumeConcurrentlyMaxSpan", 2000, min_value=1, max_value=65_535)
    pull_threshold_for_topic: int = key("pullThresholdForTopic", -1, min_value=-1, max_value=6_553_500)
    pull_threshold_size_for_topic: int = key("pullThresholdSizeForTopic", -1, min_value=-1, max_value=102_400)
    pull_interval_ms: int = key("pullInterval", 0, min_value=0, max_value=65_535)
    consume_message_batch_max_size: int = key("consumeMessageBatchMaxSize", 1, min_value=1, max_value=1024)
    pull_batch_size: int = key("pullBatchSize", 512, min_value=1, max_value=1024)
    pull_batch_size_in_bytes: int = key("pullBatchSizeInBytes", 256 * 1024, min_value=1)
    post_subscription_when_pull: bool = key("postSubscriptionWhenPull", False)
    max_reconsume_times: int = key("maxReconsumeTimes", -1, min_value=-1)
    suspend_current_queue_time_ms: int = key("suspendCurrentQueueTimeMillis", 1000, min_value=0, max_value=LONG_MAX)
    consume_timeout_minutes: int = key("consumeTimeout", 15, min_value=1)
    await_termination_ms_when_shutdown: int = key(
        "awaitTerminationMillisWhenShutdown", 10_000, min_value=0, max_value=LONG_MAX
    )
    pull_time_delay_ms_when_exception: int = key(
        "pullTimeDelayMillsWhenException", 3000, min_value=0, max_value=LONG_MAX
    )
    client_rebalance: bool = key("clientRebalance", True)
    pop_invisible_time_ms: int = key("popInvisibleTime", 60_000, min_value=5_000, max_value=300_000)
    pop_batch_nums: int = key("popBatchNums", 32, min_value=1, max_value=32)
    pop_threshold_for_queue: int = key("popThresholdForQueue", 96, min_value=1, max_value=65_535)

    def __post_init__(self) -> None:
        super(PushConsumerConfig, self).__post_init__()
        if self.pull_threshold_for_topic == 0:
            raise ConfigError("pullThresholdForTopic", 0, "1 and more, or -1 for no bound")
        if self.pull_threshold_size_for_topic == 0:
            raise ConfigError("pullThresholdSizeForTopic", 0, "1 and more, or -1 for no bound")


@dataclass(frozen=True, slots=True)
class LitePullConsumerConfig(ConsumerConfig):
    """A lite-pull consumer's settings."""

    pull_batch_size: int = key("pullBatchSize", 512, min_value=1, max_value=1024)
    pull_threshold_for_all: int = key("pullThresholdForAll", 10_000, min_value=0, max_value=LONG_MAX)
    consume_max_span: int = key("consumeMaxSpan", 2000, min_value=1, max_value=65_535)
    poll_timeout_ms: int = key("pollTimeoutMillis", 5000, min_value=0, max_value=LONG_MAX)
    auto_commit: bool = key("autoCommit", True)
    auto_commit_interval_ms: int = key("autoCommitIntervalMillis", 5000, min_value=1000)
    broker_suspend_max_time_ms: int = key("brokerSuspendMaxTimeMillis", 20_000, min_value=0, max_value=LONG_MAX)
    consumer_timeout_ms_when_suspend: int = key(
        "consumerTimeoutMillisWhenSuspend", 30_000, min_value=0, max_value=LONG_MAX
    )
    topic_metadata_check_interval_ms: int = key(
        "topicMetadataCheckIntervalMillis", 30_000, min_value=1, max_value=LONG_MAX
    )
    pull_time_delay_ms_when_exception: int = key(
        "pullTimeDelayMillsWhenException", 1000, min_value=0, max_value=LONG_MAX
    )

    def __post_init__(self) -> None:
        super(LitePullConsumerConfig, self).__post_init__()
        if self.consumer_timeout_ms_when_suspend < self.broker_suspend_max_time_ms:
            raise ConfigError(
                "consumerTimeoutMillisWhenSuspend",
                self.consumer_timeout_ms_when_suspend,
                f"at least brokerSuspendMaxTimeMillis, {self.broker_suspend_max_time_ms}",
            )


@dataclass(frozen=True, slots=True)
class SimpleConsumerConfig(GroupConfig):
    """A simple consumer's settings.

    ``await_duration_ms`` is how long a receive waits for messages, ``invisible_duration_ms`` how long a received
    message is hidden from the group before it is delivered again. A message that was delivered more than
    ``max_reconsume_times`` times again goes to the dead letters; -1 means never. With ``consume_orderly`` the messages
    of a queue are received one batch at a time.
    """

    await_duration_ms: int = key("awaitDuration", 5_000, min_value=0, max_value=LONG_MAX)
    invisible_duration_ms: int = key("invisibleDuration", 60_000, min_value=1, max_value=MAX_INVISIBLE_MS)
    max_reconsume_times: int = key("maxReconsumeTimes", 16, min_value=-1)
    consume_orderly: bool = key("consumeMessageOrderly", False)

    def __post_init__(self) -> None:
        super(SimpleConsumerConfig, self).__post_init__()
        if self.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise ConfigError("consumeFromWhere", self.consume_from_where.value, "the first or the last offset: POP")


class GroupSettings(ClientSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.GroupConfig`."""

    consumer_group: str
    consume_from_where: ConsumeFromWhere | str
    poll_name_server_interval_ms: int
    decode_decompress_body: bool
    trace: bool | str
    hooks: Sequence[ConsumeMessageHook]


class ConsumerSettings(GroupSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.ConsumerConfig`."""

    instance_name: str
    message_model: MessageModel | str
    consume_timestamp: str
    allocate_message_queue_strategy: AllocateMessageQueueStrategy
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    persist_consumer_offset_interval_ms: int
    local_offset_store_dir: str | Path


class PushConsumerSettings(ConsumerSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.PushConsumerConfig`."""

    consume_thread_max: int
    consume_concurrently_max_span: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval_ms: int
    consume_message_batch_max_size: int
    pull_batch_size: int
    pull_batch_size_in_bytes: int
    post_subscription_when_pull: bool
    max_reconsume_times: int
    suspend_current_queue_time_ms: int
    consume_timeout_minutes: int
    await_termination_ms_when_shutdown: int
    pull_time_delay_ms_when_exception: int
    client_rebalance: bool
    pop_invisible_time_ms: int
    pop_batch_nums: int
    pop_threshold_for_queue: int


class LitePullConsumerSettings(ConsumerSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.LitePullConsumerConfig`."""

    pull_batch_size: int
    pull_threshold_for_all: int
    consume_max_span: int
    poll_timeout_ms: int
    auto_commit: bool
    auto_commit_interval_ms: int
    broker_suspend_max_time_ms: int
    consumer_timeout_ms_when_suspend: int
    topic_metadata_check_interval_ms: int
    pull_time_delay_ms_when_exception: int


class SimpleConsumerSettings(GroupSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.SimpleConsumerConfig`."""

    await_duration_ms: int
    invisible_duration_ms: int
    max_reconsume_times: int
    consume_orderly: bool
