"""Headers of sends, send-backs, replies, recalls and transactions."""

from typing import ClassVar

from msgspec import field

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, Long, RpcHeader, TopicHeader


class ConsumerSendMsgBackRequestHeader(RpcHeader, kw_only=True):
    """CONSUMER_SEND_MSG_BACK."""

    code: ClassVar[int] = RequestCode.CONSUMER_SEND_MSG_BACK

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class EndTransactionRequestHeader(RpcHeader, kw_only=True):
    """END_TRANSACTION."""

    code: ClassVar[int] = RequestCode.END_TRANSACTION

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


class RecallMessageRequestHeader(TopicHeader, kw_only=True):
    """RECALL_MESSAGE."""

    code: ClassVar[int] = RequestCode.RECALL_MESSAGE

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(CommandHeader, kw_only=True):
    """The answer to RECALL_MESSAGE: the unique key of the message that is recalled."""

    msg_id: str


class ReplyMessageRequestHeader(TopicHeader, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT."""

    code: ClassVar[int] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long = 0


class SendMessageRequestHeader(TopicHeader, kw_only=True):
    """SEND_MESSAGE."""

    code: ClassVar[int] = RequestCode.SEND_MESSAGE

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int | None = None


class SendMessageRequestHeaderV2(TopicHeader, kw_only=True):
    """SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: the fields of SEND_MESSAGE under names of one letter."""

    code: ClassVar[int] = RequestCode.SEND_MESSAGE_V2

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int = field(name="d")
    queue_id: Int = field(name="e")
    sys_flag: Int = field(name="f")
    born_timestamp: Long = field(name="g")
    flag: Int = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int | None = field(name="j", default=None)
    unit_mode: bool | None = field(name="k", default=None)
    max_reconsume_times: Int | None = field(name="l", default=None)
    batch: bool | None = field(name="m", default=None)
    broker_name: str | None = field(name="n", default=None)


class SendMessageResponseHeader(CommandHeader, kw_only=True):
    """The answer to SEND_MESSAGE_V2."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class CheckTransactionStateRequestHeader(RpcHeader, kw_only=True):
    """CHECK_TRANSACTION_STATE, from a broker to a producer."""

    code: ClassVar[int] = RequestCode.CHECK_TRANSACTION_STATE

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(CommandHeader, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE."""

    code: ClassVar[int] = RequestCode.RESUME_CHECK_HALF_MESSAGE

    topic: str | None = None
    msg_id: str | None = None
