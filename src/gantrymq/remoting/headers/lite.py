"""Headers about lite topics."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int


class GetParentTopicInfoRequestHeader(CommandHeader, kw_only=True):
    """GET_PARENT_TOPIC_INFO."""

    code: ClassVar[int] = RequestCode.GET_PARENT_TOPIC_INFO

    topic: str


class GetLiteTopicInfoRequestHeader(CommandHeader, kw_only=True):
    """GET_LITE_TOPIC_INFO."""

    code: ClassVar[int] = RequestCode.GET_LITE_TOPIC_INFO

    parent_topic: str | None = None
    lite_topic: str | None = None


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


class TriggerLiteDispatchRequestHeader(CommandHeader, kw_only=True):
    """TRIGGER_LITE_DISPATCH."""

    code: ClassVar[int] = RequestCode.TRIGGER_LITE_DISPATCH

    group: str
    client_id: str | None = None
