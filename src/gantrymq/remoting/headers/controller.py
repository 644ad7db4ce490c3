"""What brokers and tools ask a controller."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader, Int, Long


class AlterSyncStateSetRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_ALTER_SYNC_STATE_SET."""

    code: ClassVar[int] = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET

    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_epoch: Int | None = None
    invoke_time: Long = 0


class AlterSyncStateSetResponseHeader(CommandHeader, kw_only=True):
    """The answer to CONTROLLER_ALTER_SYNC_STATE_SET."""

    new_sync_state_set_epoch: Int = 0


class ApplyBrokerIdRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_APPLY_BROKER_ID."""

    code: ClassVar[int] = RequestCode.CONTROLLER_APPLY_BROKER_ID

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Long | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponseHeader(CommandHeader, kw_only=True):
    """The answer to CONTROLLER_APPLY_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None


class CleanControllerBrokerDataRequestHeader(CommandHeader, kw_only=True):
    """CLEAN_BROKER_DATA."""

    code: ClassVar[int] = RequestCode.CLEAN_BROKER_DATA

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long = 0


class ElectMasterRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_ELECT_MASTER."""

    code: ClassVar[int] = RequestCode.CONTROLLER_ELECT_MASTER

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Long = -1
    designate_elect: bool = False
    invoke_time: Long = 0


class ElectMasterResponseHeader(CommandHeader, kw_only=True):
    """The answer to CONTROLLER_ELECT_MASTER."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class GetMetaDataResponseHeader(CommandHeader, kw_only=True):
    """An answer."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class GetNextBrokerIdRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_GET_NEXT_BROKER_ID."""

    code: ClassVar[int] = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID

    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResponseHeader(CommandHeader, kw_only=True):
    """The answer to CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Long | None = None


class GetReplicaInfoRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_GET_REPLICA_INFO."""

    code: ClassVar[int] = RequestCode.CONTROLLER_GET_REPLICA_INFO

    broker_name: str | None = None


class GetReplicaInfoResponseHeader(CommandHeader, kw_only=True):
    """The answer to CONTROLLER_GET_REPLICA_INFO."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class RegisterBrokerToControllerRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_REGISTER_BROKER."""

    code: ClassVar[int] = RequestCode.CONTROLLER_REGISTER_BROKER

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Long | None = None
    broker_address: str | None = None
    invoke_time: Long = 0


class RegisterBrokerToControllerResponseHeader(CommandHeader, kw_only=True):
    """The answer to CONTROLLER_REGISTER_BROKER."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
