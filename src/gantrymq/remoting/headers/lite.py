"""Lite topics."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, Long, RpcHeader


class GetLiteClientInfoRequestHeader(CommandHeader, kw_only=True):
    """GET_LITE_CLIENT_INFO."""

    code: ClassVar[int] = RequestCode.GET_LITE_CLIENT_INFO

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int = 1000


class GetLiteGroupInfoRequestHeader(CommandHeader, kw_only=True):
    """GET_LITE_GROUP_INFO."""

    code: ClassVar[int] = RequestCode.GET_LITE_GROUP_INFO

    group: str
    lite_topic: str | None = None
    top_k: Int = 0


class GetLiteTopicInfoRequestHeader(CommandHeader, kw_only=True):
    """GET_LITE_TOPIC_INFO."""

    code: ClassVar[int] = RequestCode.GET_LITE_TOPIC_INFO

    parent_topic: str | None = None
    lite_topic: str | None = None


class GetParentTopicInfoRequestHeader(CommandHeader, kw_only=True):
    """GET_PARENT_TOPIC_INFO."""

    code: ClassVar[int] = RequestCode.GET_PARENT_TOPIC_INFO

    topic: str


class LiteSubscriptionCtlRequestHeader(RpcHeader):
    """LITE_SUBSCRIPTION_CTL."""

    code: ClassVar[int] = RequestCode.LITE_SUBSCRIPTION_CTL


class NotifyUnsubscribeLiteRequestHeader(RpcHeader, kw_only=True):
    """NOTIFY_UNSUBSCRIBE_LITE."""

    code: ClassVar[int] = RequestCode.NOTIFY_UNSUBSCRIBE_LITE

    lite_topic: str
    consumer_group: str
    client_id: str


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


class PopLiteMessageResponseHeader(CommandHeader, kw_only=True):
    """An answer."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class TriggerLiteDispatchRequestHeader(CommandHeader, kw_only=True):
    """TRIGGER_LITE_DISPATCH."""

    code: ClassVar[int] = RequestCode.TRIGGER_LITE_DISPATCH

    group: str
    client_id: str | None = None
