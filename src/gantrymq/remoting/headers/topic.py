"""Headers about topics."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, TopicHeader


class CreateTopicRequestHeader(TopicHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC."""

    code: ClassVar[int] = RequestCode.UPDATE_AND_CREATE_TOPIC

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(TopicHeader, kw_only=True):
    """DELETE_TOPIC_IN_BROKER."""

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


class GetAllTopicConfigRequestHeader(CommandHeader, kw_only=True):
    """GET_ALL_TOPIC_CONFIG."""

    code: ClassVar[int] = RequestCode.GET_ALL_TOPIC_CONFIG

    topic_seq: Int | None = None
    data_version: str | None = None
    max_topic_num: Int | None = None


class GetAllTopicConfigResponseHeader(CommandHeader, kw_only=True):
    """The answer to GET_ALL_TOPIC_CONFIG."""

    code: ClassVar[int] = RequestCode.GET_ALL_TOPIC_CONFIG

    total_topic_num: Int | None = None


class GetTopicConfigRequestHeader(TopicHeader, kw_only=True):
    """GET_TOPIC_CONFIG."""

    code: ClassVar[int] = RequestCode.GET_TOPIC_CONFIG

    topic: str


class GetTopicStatsInfoRequestHeader(TopicHeader, kw_only=True):
    """GET_TOPIC_STATS_INFO."""

    code: ClassVar[int] = RequestCode.GET_TOPIC_STATS_INFO

    topic: str


class GetTopicsByClusterRequestHeader(CommandHeader, kw_only=True):
    """GET_TOPICS_BY_CLUSTER."""

    code: ClassVar[int] = RequestCode.GET_TOPICS_BY_CLUSTER

    cluster: str
