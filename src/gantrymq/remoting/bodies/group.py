"""Consumer groups: their configuration, offsets and statistics. Tables by queue: see :mod:`gantrymq.remoting.body`."""

from msgspec import field

from gantrymq.model.delays import DELAYS_S
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.bodies.topic import DataVersion
from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long


class GroupList(Body, kw_only=True):
    """Names of groups."""

    group_list: list[str] = field(default_factory=list)


class ExponentialRetryPolicy(Body, kw_only=True):
    """Exponential retry delays, in milliseconds."""

    initial: Long = 5000
    max: Long = 7_200_000
    multiplier: Long = 2


class CustomizedRetryPolicy(Body, kw_only=True):
    """A list of retry delays, in milliseconds."""

    next: list[Long] = field(default_factory=lambda: [seconds * 1000 for seconds in DELAYS_S])


class GroupRetryPolicy(Body, kw_only=True):
    """The retry delays of a group."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body, kw_only=True):
    """One subscription in a group's configuration."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Long = 0


class SubscriptionGroupConfig(Body, kw_only=True):
    """A consumer group's configuration."""

    group_name: str | None = None
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = 0
    consume_timeout_minute: Int = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


class SubscriptionGroupWrapper(Body, kw_only=True):
    """All groups of a broker (GET_ALL_SUBSCRIPTIONGROUP_CONFIG, subscriptionGroup.json)."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class SubscriptionGroupList(Body, kw_only=True):
    """The groups of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class DeleteSubscriptionGroupListRequestBody(Body, kw_only=True):
    """The groups of DELETE_SUBSCRIPTION_GROUP_LIST, and whether their offsets are removed too."""

    group_name_list: list[str | None] = field(default_factory=list)
    clean_offset: bool = False


class GroupForbidden(Body, kw_only=True):
    """Whether a group may read a topic."""

    topic: str | None = None
    group: str | None = None
    readable: bool | None = None


class ConsumerOffsetSerializeWrapper(Body, kw_only=True):
    """Offsets by ``topic@group`` and queue number (GET_ALL_CONSUMER_OFFSET, consumerOffset.json)."""

    offset_table: dict[str, dict[Int, Long]] = field(default_factory=dict)
    data_version: DataVersion | None = None


class OffsetWrapper(Body, kw_only=True):
    """The maximum offset of a queue and a group's committed offset."""

    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_timestamp: Long = 0


class ConsumeStats(Body, kw_only=True):
    """The answer to GET_CONSUME_STATS."""

    has_queue_keys = True

    offset_table: dict[str, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


class ConsumeStatsList(Body, kw_only=True):
    """The answer to GET_BROKER_CONSUME_STATS, by group."""

    has_queue_keys = True

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: Long = 0
    total_inflight_diff: Long = 0


class ResetOffsetBody(Body, kw_only=True):
    """The new offset of each queue."""

    has_queue_keys = True

    offset_table: dict[str, Long] = field(default_factory=dict)


class MessageQueueForC(Body, kw_only=True):
    """A queue and its offset, for C++ clients."""

    topic: str | None = None
    broker_name: str | None = None
    queue_id: Int = 0
    offset: Long = 0


class ResetOffsetBodyForC(Body, kw_only=True):
    """ResetOffsetBody for C++ clients, whose JSON has no objects as keys."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


class GetConsumerStatusBody(Body, kw_only=True):
    """A consumer's offsets by queue, and those of all consumers by client id."""

    has_queue_keys = True

    message_queue_table: dict[str, Long] = field(default_factory=dict)
    consumer_table: dict[str, dict[str, Long]] = field(default_factory=dict)


class QueueTimeSpan(Body, kw_only=True):
    """The first and last store time in a queue, a group's position and its delay, in milliseconds."""

    message_queue: MessageQueue | None = None
    min_time_stamp: Long = 0
    max_time_stamp: Long = 0
    consume_time_stamp: Long = 0
    delay_time: Long = 0


class QueryConsumeTimeSpanBody(Body, kw_only=True):
    """The answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class QueryCorrectionOffsetBody(Body, kw_only=True):
    """The answer to QUERY_CORRECTION_OFFSET, by queue number."""

    correction_offsets: dict[Int, Long] = field(default_factory=dict)


class QuerySubscriptionResponseBody(Body, kw_only=True):
    """The answer to QUERY_SUBSCRIPTION_BY_CONSUMER."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None
