"""Bodies about clients: heartbeats, connections, the state of a consumer."""

from typing import Any

from msgspec import field

from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long

_ENUMS = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}


class SubscriptionData(Body, kw_only=True):
    """A group's subscription to a topic. ``code_set`` has the hashes of ``tags_set``."""

    class_filter_mode: bool = False
    topic: str
    sub_string: str | None = None
    tags_set: list[str] = field(default_factory=list)
    code_set: list[Int] = field(default_factory=list)
    sub_version: Long = 0
    expression_type: str | None = "TAG"


class ProducerData(Body, kw_only=True):
    """A group of producers."""

    group_name: str


class ConsumerData(Body, kw_only=True):
    """A group of consumers and its subscriptions."""

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body, kw_only=True):
    """The body of HEART_BEAT."""

    client_id: str = field(name="clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: Int = 0
    without_sub: bool = False

    @classmethod
    def named(cls, value: Any) -> Any:
        """Replace enum numbers by names: the C++ client sends a consumer's enums as numbers."""
        groups = value.get("consumerDataSet", []) if isinstance(value, dict) else []
        for group in groups if isinstance(groups, list) else []:
            for key, names in _ENUMS.items() if isinstance(group, dict) else ():
                number = group.get(key)
                if type(number) is int and 0 <= number < len(names):
                    group[key] = names[number]
        return value


class CheckClientRequestBody(Body, kw_only=True):
    """The body of CHECK_CLIENT_CONFIG."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class GetConsumerListByGroupResponseBody(Body, kw_only=True):
    """The answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = field(default_factory=list)


class LockBatchRequestBody(Body, kw_only=True):
    """The body of LOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = field(default_factory=list)


class LockBatchResponseBody(Body, kw_only=True):
    """The answer to LOCK_BATCH_MQ: the queues that the client has locked."""

    lock_ok_mq_set: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class UnlockBatchRequestBody(LockBatchRequestBody, kw_only=True):
    """The body of UNLOCK_BATCH_MQ."""


class ClientConnection(Body, kw_only=True):
    """A client's connection to a broker."""

    client_id: str | None = None
    client_addr: str | None = None
    language: str | None = None
    version: Int = 0


class ProducerConnection(Body, kw_only=True):
    """The answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[ClientConnection] = field(default_factory=list)


class ConsumerConnection(Body, kw_only=True):
    """The answer to GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[ClientConnection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerInfo(Body, kw_only=True):
    """A producer that is connected to a broker."""

    client_id: str | None = None
    remote_ip: str | None = field(name="remoteIP", default=None)
    language: str | None = None
    version: Int = 0
    last_update_timestamp: Long = 0


class ProducerTableInfo(Body, kw_only=True):
    """The answer to GET_ALL_PRODUCER_INFO, by group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class ProcessQueueInfo(Body, kw_only=True):
    """The state of a queue in a consumer."""

    commit_offset: Long = 0
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: Int = 0
    cached_msg_size_in_mib: Int = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Long = 0
    transaction_msg_max_offset: Long = 0
    transaction_msg_count: Int = 0
    locked: bool = False
    try_unlock_times: Long = 0
    last_lock_timestamp: Long = 0
    droped: bool = False
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


class PopProcessQueueInfo(Body, kw_only=True):
    """The state of a queue in a POP consumer."""

    wait_ack_count: Int = 0
    droped: bool = False
    last_pop_timestamp: Long = 0


class ConsumeStatus(Body, kw_only=True):
    """A consumer's rates for one topic."""

    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: Long = 0


class ConsumerRunningInfo(Body, kw_only=True):
    """The state of a consumer (GET_CONSUMER_RUNNING_INFO). Its tables are by queue."""

    has_queue_keys = True

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[str, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[str, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


class ConsumeMessageDirectlyResult(Body, kw_only=True):
    """The result of CONSUME_MESSAGE_DIRECTLY."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: Long = 0


class MessageQueueAssignment(Body, kw_only=True):
    """A queue that the broker assigns to a client."""

    message_queue: MessageQueue | None = None
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentRequestBody(Body, kw_only=True):
    """The body of QUERY_ASSIGNMENT."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: str | None = None


class QueryAssignmentResponseBody(Body, kw_only=True):
    """The answer to QUERY_ASSIGNMENT. None means that the assignment is unknown; the client then keeps its queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body, kw_only=True):
    """The body of SET_MESSAGE_REQUEST_MODE."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: Int = 0


class MessageRequestModes(Body, kw_only=True):
    """The content of messageRequestMode.json, by topic and group. GET_ALL_MESSAGE_REQUEST_MODE returns it."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(default_factory=dict)
