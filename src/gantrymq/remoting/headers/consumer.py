"""Headers about clients, consumer groups and their queues."""

from typing import ClassVar

from msgspec import field

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, RpcHeader, TopicHeader


class ConsumeMessageDirectlyResultRequestHeader(TopicHeader, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY."""

    code: ClassVar[int] = RequestCode.CONSUME_MESSAGE_DIRECTLY

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class DeleteSubscriptionGroupRequestHeader(RpcHeader, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP."""

    code: ClassVar[int] = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group_name: str
    clean_offset: bool = False


class GetAllProducerInfoRequestHeader(CommandHeader):
    """GET_ALL_PRODUCER_INFO."""

    code: ClassVar[int] = RequestCode.GET_ALL_PRODUCER_INFO


class GetAllSubscriptionGroupRequestHeader(CommandHeader, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    code: ClassVar[int] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


class GetAllSubscriptionGroupResponseHeader(CommandHeader, kw_only=True):
    """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    code: ClassVar[int] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    total_group_num: Int


class GetConsumeStatsInBrokerHeader(CommandHeader, kw_only=True):
    """GET_BROKER_CONSUME_STATS."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CONSUME_STATS

    is_order: bool = False


class GetConsumeStatsRequestHeader(TopicHeader, kw_only=True):
    """GET_CONSUME_STATS."""

    code: ClassVar[int] = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumerConnectionListRequestHeader(RpcHeader, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str


class GetConsumerListByGroupRequestHeader(RpcHeader, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str


class GetConsumerRunningInfoRequestHeader(RpcHeader, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_RUNNING_INFO

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class GetConsumerStatusRequestHeader(TopicHeader, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS

    topic: str
    group: str
    client_addr: str | None = None


class GetProducerConnectionListRequestHeader(RpcHeader, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    code: ClassVar[int] = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


class GetSubscriptionGroupConfigRequestHeader(RpcHeader, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    code: ClassVar[int] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


class HeartbeatRequestHeader(RpcHeader):
    """HEART_BEAT."""

    code: ClassVar[int] = RequestCode.HEART_BEAT


class LockBatchMqRequestHeader(RpcHeader):
    """LOCK_BATCH_MQ."""

    code: ClassVar[int] = RequestCode.LOCK_BATCH_MQ


class NotifyConsumerIdsChangedRequestHeader(RpcHeader, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED."""

    code: ClassVar[int] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str


class QueryConsumeTimeSpanRequestHeader(TopicHeader, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicHeader, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    code: ClassVar[int] = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str | None = None


class QueryTopicConsumeByWhoRequestHeader(TopicHeader, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO."""

    code: ClassVar[int] = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcHeader, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER."""

    code: ClassVar[int] = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


class UnlockBatchMqRequestHeader(RpcHeader):
    """UNLOCK_BATCH_MQ."""

    code: ClassVar[int] = RequestCode.UNLOCK_BATCH_MQ


class UnregisterClientRequestHeader(RpcHeader, kw_only=True):
    """UNREGISTER_CLIENT."""

    code: ClassVar[int] = RequestCode.UNREGISTER_CLIENT

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class UpdateGroupForbiddenRequestHeader(TopicHeader, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN."""

    code: ClassVar[int] = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

    group: str
    topic: str
    readable: bool | None = None
