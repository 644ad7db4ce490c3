"""Headers of requests to a name server."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, Long, TopicHeader


class AddWritePermOfBrokerRequestHeader(CommandHeader, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER."""

    code: ClassVar[int] = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker_name: str


class AddWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    """The answer to ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int


class BrokerHeartbeatRequestHeader(CommandHeader, kw_only=True):
    """BROKER_HEARTBEAT."""

    code: ClassVar[int] = RequestCode.BROKER_HEARTBEAT

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


class DeleteKVConfigRequestHeader(CommandHeader, kw_only=True):
    """DELETE_KV_CONFIG."""

    code: ClassVar[int] = RequestCode.DELETE_KV_CONFIG

    namespace: str
    key: str


class DeleteTopicFromNamesrvRequestHeader(TopicHeader, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV."""

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None


class GetKVConfigRequestHeader(CommandHeader, kw_only=True):
    """GET_KV_CONFIG."""

    code: ClassVar[int] = RequestCode.GET_KV_CONFIG

    namespace: str
    key: str


class GetKVConfigResponseHeader(CommandHeader, kw_only=True):
    """The answer to GET_KV_CONFIG."""

    value: str | None = None


class GetKVListByNamespaceRequestHeader(CommandHeader, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE."""

    code: ClassVar[int] = RequestCode.GET_KVLIST_BY_NAMESPACE

    namespace: str


class GetRouteInfoRequestHeader(TopicHeader, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC."""

    code: ClassVar[int] = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    accept_standard_json_only: bool | None = None


class PutKVConfigRequestHeader(CommandHeader, kw_only=True):
    """PUT_KV_CONFIG."""

    code: ClassVar[int] = RequestCode.PUT_KV_CONFIG

    namespace: str
    key: str
    value: str


class QueryDataVersionRequestHeader(CommandHeader, kw_only=True):
    """QUERY_DATA_VERSION."""

    code: ClassVar[int] = RequestCode.QUERY_DATA_VERSION

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(CommandHeader, kw_only=True):
    """The answer to QUERY_DATA_VERSION."""

    changed: bool


class RegisterBrokerRequestHeader(CommandHeader, kw_only=True):
    """REGISTER_BROKER."""

    code: ClassVar[int] = RequestCode.REGISTER_BROKER

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


class RegisterBrokerResponseHeader(CommandHeader, kw_only=True):
    """The answer to REGISTER_BROKER."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class RegisterTopicRequestHeader(TopicHeader, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV."""

    code: ClassVar[int] = RequestCode.REGISTER_TOPIC_IN_NAMESRV

    topic: str


class UnRegisterBrokerRequestHeader(CommandHeader, kw_only=True):
    """UNREGISTER_BROKER."""

    code: ClassVar[int] = RequestCode.UNREGISTER_BROKER

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class WipeWritePermOfBrokerRequestHeader(CommandHeader, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER."""

    code: ClassVar[int] = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    """The answer to WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int
