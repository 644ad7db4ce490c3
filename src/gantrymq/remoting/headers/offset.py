"""Headers about offsets of queues and consumer groups."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, Long, RpcHeader, TopicHeader


class CloneGroupOffsetRequestHeader(RpcHeader, kw_only=True):
    """CLONE_GROUP_OFFSET."""

    code: ClassVar[int] = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class GetEarliestMsgStoretimeRequestHeader(TopicHeader, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME."""

    code: ClassVar[int] = RequestCode.GET_EARLIEST_MSG_STORETIME

    topic: str
    queue_id: Int


class GetEarliestMsgStoretimeResponseHeader(CommandHeader, kw_only=True):
    """The answer to GET_EARLIEST_MSG_STORETIME."""

    timestamp: Long


class GetMaxOffsetRequestHeader(TopicHeader, kw_only=True):
    """GET_MAX_OFFSET."""

    code: ClassVar[int] = RequestCode.GET_MAX_OFFSET

    topic: str
    queue_id: Int
    committed: bool = True


class GetMaxOffsetResponseHeader(CommandHeader, kw_only=True):
    """The answer to GET_MAX_OFFSET."""

    offset: Long


class GetMinOffsetRequestHeader(TopicHeader, kw_only=True):
    """GET_MIN_OFFSET."""

    code: ClassVar[int] = RequestCode.GET_MIN_OFFSET

    topic: str
    queue_id: Int


class GetMinOffsetResponseHeader(CommandHeader, kw_only=True):
    """The answer to GET_MIN_OFFSET."""

    offset: Long


class QueryConsumerOffsetRequestHeader(TopicHeader, kw_only=True):
    """QUERY_CONSUMER_OFFSET."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(CommandHeader, kw_only=True):
    """The answer to QUERY_CONSUMER_OFFSET."""

    offset: Long


class QueryCorrectionOffsetHeader(TopicHeader, kw_only=True):
    """QUERY_CORRECTION_OFFSET."""

    code: ClassVar[int] = RequestCode.QUERY_CORRECTION_OFFSET

    filter_groups: str | None = None
    compare_group: str
    topic: str


class ResetOffsetRequestHeader(TopicHeader, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

    group: str
    topic: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long = 0
    is_force: bool = False


class SearchOffsetRequestHeader(TopicHeader, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP."""

    code: ClassVar[int] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    topic: str
    lite_topic: str | None = None
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None


class SearchOffsetResponseHeader(CommandHeader, kw_only=True):
    """The answer to SEARCH_OFFSET_BY_TIMESTAMP."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(TopicHeader, kw_only=True):
    """UPDATE_CONSUMER_OFFSET."""

    code: ClassVar[int] = RequestCode.UPDATE_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
