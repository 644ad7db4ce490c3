"""Headers of pulls, queries and views of messages."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, Long, TopicHeader


class PullMessageRequestHeader(TopicHeader, kw_only=True):
    """PULL_MESSAGE."""

    code: ClassVar[int] = RequestCode.PULL_MESSAGE

    consumer_group: str
    topic: str
    lite_topic: str | None = None
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None


class PullMessageResponseHeader(CommandHeader, kw_only=True):
    """The answer to PULL_MESSAGE."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


class QueryConsumeQueueRequestHeader(TopicHeader, kw_only=True):
    """QUERY_CONSUME_QUEUE."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUME_QUEUE

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None


class QueryMessageRequestHeader(TopicHeader, kw_only=True):
    """QUERY_MESSAGE."""

    code: ClassVar[int] = RequestCode.QUERY_MESSAGE

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponseHeader(CommandHeader, kw_only=True):
    """The answer to QUERY_MESSAGE."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequestHeader(CommandHeader, kw_only=True):
    """VIEW_MESSAGE_BY_ID."""

    code: ClassVar[int] = RequestCode.VIEW_MESSAGE_BY_ID

    topic: str | None = None
    offset: Long
