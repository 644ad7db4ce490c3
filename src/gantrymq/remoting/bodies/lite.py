"""Bodies about lite topics."""

from msgspec import field

from gantrymq.remoting.bodies.group import OffsetWrapper
from gantrymq.remoting.bodies.topic import TopicOffset
from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long


class BrokerLiteInfo(Body, kw_only=True):
    """The answer to GET_BROKER_LITE_INFO: the light queues of a broker."""

    store_type: str | None = None
    max_lmq_num: Int = 0
    current_lmq_num: Int = 0
    lite_subscription_count: Int = 0
    order_info_count: Int = 0
    cq_table_size: Int = 0
    offset_table_size: Int = 0
    event_map_size: Int = 0
    topic_meta: dict[str, Int] = field(default_factory=dict)
    group_meta: dict[str, list[str]] = field(default_factory=dict)


class ParentTopicInfo(Body, kw_only=True):
    """The answer to GET_PARENT_TOPIC_INFO: a topic that has lite topics. ``ttl`` is in minutes."""

    topic: str | None = None
    ttl: Int = 0
    groups: list[str] = field(default_factory=list)
    lmq_num: Int = 0
    lite_topic_count: Int = 0


class ClientGroup(Body, kw_only=True):
    """A subscriber of a lite topic."""

    client_id: str | None = None
    group: str | None = None


class LiteTopicInfo(Body, kw_only=True):
    """The answer to GET_LITE_TOPIC_INFO."""

    parent_topic: str | None = None
    lite_topic: str | None = None
    subscriber: list[ClientGroup] = field(default_factory=list)
    topic_offset: TopicOffset = field(default_factory=TopicOffset)
    sharding_to_broker: bool = False


class LiteClientInfo(Body, kw_only=True):
    """The answer to GET_LITE_CLIENT_INFO."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    last_access_time: Long = 0
    last_consume_time: Long = 0
    lite_topic_count: Int = 0
    lite_topic_set: list[str] = field(default_factory=list)


class LiteLagInfo(Body, kw_only=True):
    """How far a group is behind in a lite topic."""

    lite_topic: str | None = None
    lag_count: Long = 0
    earliest_unconsumed_timestamp: Long = -1


class LiteGroupInfo(Body, kw_only=True):
    """The answer to GET_LITE_GROUP_INFO."""

    group: str | None = None
    parent_topic: str | None = None
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: Long = -1
    total_lag_count: Long = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: list[LiteLagInfo] = field(name="lagCountTopK", default_factory=list)
    lag_timestamp_top_k: list[LiteLagInfo] = field(name="lagTimestampTopK", default_factory=list)
