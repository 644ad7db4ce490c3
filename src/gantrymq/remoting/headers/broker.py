"""Headers about the broker: configuration, replication, statistics."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, Long


class GetBrokerConfigResponseHeader(CommandHeader, kw_only=True):
    """The answer to GET_BROKER_CONFIG."""

    version: str


class GetBrokerMemberGroupRequestHeader(CommandHeader, kw_only=True):
    """GET_BROKER_MEMBER_GROUP."""

    code: ClassVar[int] = RequestCode.GET_BROKER_MEMBER_GROUP

    cluster_name: str
    broker_name: str


class ExchangeHAInfoRequestHeader(CommandHeader, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO, to a master without fields."""

    code: ClassVar[int] = RequestCode.EXCHANGE_BROKER_HA_INFO

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(CommandHeader, kw_only=True):
    """The answer to EXCHANGE_BROKER_HA_INFO; a slave's has no fields."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class NotifyMinBrokerIdChangeRequestHeader(CommandHeader, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE."""

    code: ClassVar[int] = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class NotifyBrokerRoleChangedRequestHeader(CommandHeader, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED: which broker of a group is its master now."""

    code: ClassVar[int] = RequestCode.NOTIFY_BROKER_ROLE_CHANGED

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None


class ResetMasterFlushOffsetHeader(CommandHeader, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET."""

    code: ClassVar[int] = RequestCode.RESET_MASTER_FLUSH_OFFSET

    master_flush_offset: Long


class CheckRocksdbCqWriteProgressRequestHeader(CommandHeader, kw_only=True):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS."""

    code: ClassVar[int] = RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS

    topic: str
    check_store_time: Long = 0


class ExportRocksDBConfigToJsonRequestHeader(CommandHeader, kw_only=True):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON. ``config_type``: topics, subscriptionGroups, consumerOffsets, joined by ``;``."""

    code: ClassVar[int] = RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON

    config_type: str


class ViewBrokerStatsDataRequestHeader(CommandHeader, kw_only=True):
    """VIEW_BROKER_STATS_DATA."""

    code: ClassVar[int] = RequestCode.VIEW_BROKER_STATS_DATA

    stats_name: str
    stats_key: str
