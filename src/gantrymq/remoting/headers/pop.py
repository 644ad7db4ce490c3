"""Headers of POP consumption."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, Long, RpcHeader, TopicHeader


class AckMessageRequestHeader(TopicHeader, kw_only=True):
    """ACK_MESSAGE."""

    code: ClassVar[int] = RequestCode.ACK_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    lite_topic: str | None = None


class ChangeInvisibleTimeRequestHeader(TopicHeader, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME."""

    code: ClassVar[int] = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    lite_topic: str | None = None
    suspend: bool = False


class ChangeInvisibleTimeResponseHeader(CommandHeader, kw_only=True):
    """The answer to CHANGE_MESSAGE_INVISIBLETIME: the parts of the new receipt handle."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0


class NotificationRequestHeader(TopicHeader, kw_only=True):
    """NOTIFICATION."""

    code: ClassVar[int] = RequestCode.NOTIFICATION

    consumer_group: str
    topic: str
    queue_id: Int = 0
    poll_time: Long = 0
    born_time: Long = 0
    order: bool = False
    attempt_id: str | None = None
    # Since 5.5.1, for lite topics: there are none here.
    is_lite_consumer: bool = False
    client_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(CommandHeader, kw_only=True):
    """The answer to NOTIFICATION."""

    has_msg: bool = False
    polling_full: bool = False


class PeekMessageRequestHeader(TopicHeader, kw_only=True):
    """PEEK_MESSAGE."""

    code: ClassVar[int] = RequestCode.PEEK_MESSAGE

    topic: str
    queue_id: Int = 0
    max_msg_nums: Int = 0
    consumer_group: str


class PollingInfoRequestHeader(TopicHeader, kw_only=True):
    """POLLING_INFO."""

    code: ClassVar[int] = RequestCode.POLLING_INFO

    consumer_group: str
    topic: str
    queue_id: Int = 0


class PollingInfoResponseHeader(CommandHeader, kw_only=True):
    """The answer to POLLING_INFO: how many pops wait."""

    polling_num: Int = 0


class PopMessageRequestHeader(TopicHeader, kw_only=True):
    """POP_MESSAGE."""

    code: ClassVar[int] = RequestCode.POP_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int = 0
    max_msg_nums: Int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    init_mode: Int = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(CommandHeader, kw_only=True):
    """The answer to POP_MESSAGE, and to PEEK_MESSAGE, which has no offset infos."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0
    rest_num: Long = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PopLiteMessageRequestHeader(RpcHeader, kw_only=True):
    """POP_LITE_MESSAGE."""

    code: ClassVar[int] = RequestCode.POP_LITE_MESSAGE

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    attempt_id: str | None = None
