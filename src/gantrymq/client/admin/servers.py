"""Settings and statistics of brokers and name servers.

Source: DefaultMQAdminExtImpl, MQClientAPIImpl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gantrymq.client.admin.base import AdminBase, order, question
from gantrymq.client.arguments import checks_arguments
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import Call, body_of, success
from gantrymq.config.auth_settings import CREDENTIALS
from gantrymq.config.keys import MASK
from gantrymq.config.properties import parse_properties
from gantrymq.errors import MQBrokerError, MQClientError
from gantrymq.model.fastjson import loads
from gantrymq.model.java import decode_utf8, encode_utf8
from gantrymq.remoting.bodies.broker import (
    BrokerStatsData,
    CheckRocksdbCqWriteResult,
    EpochEntryCache,
    HARuntimeInfo,
)
from gantrymq.remoting.bodies.route import ClusterInfo
from gantrymq.remoting.bodies.topic import KVTable
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.broker import (
    CheckRocksdbCqWriteProgressRequestHeader,
    ExportRocksDBConfigToJsonRequestHeader,
    ResetMasterFlushOffsetHeader,
    ViewBrokerStatsDataRequestHeader,
)
from gantrymq.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

_COLD_GET, _COLD_SET = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
_EXCHANGE_HA = RequestCode.EXCHANGE_BROKER_HA_INFO
_READ_AHEAD_MODE = "READ_AHEAD_MODE"
_TIMER_ENGINE = "E_T"
_FORCE = "force"  # not RocketMQ's


@checks_arguments()
class ServerAdmin(AdminBase):
    """Settings and statistics of servers."""

    def broker_runtime_info(self, broker: str) -> dict[str, str]:
        """The statistics that a broker reports (fetchBrokerRuntimeStats)."""
        table = self._client.call(broker, question(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
        return dict(sorted(table.items()))

    def broker_stats(self, broker: str, stats_name: str, stats_key: str) -> BrokerStatsData:
        """A counter of a broker: of the last minute, hour and day (viewBrokerStatsData).

        ``TOPIC_PUT_NUMS`` has topics as keys, ``GROUP_GET_NUMS`` has ``topic@group``. MQBrokerError is raised for a
        key without traffic.
        """
        header = ViewBrokerStatsDataRequestHeader(stats_name=stats_name, stats_key=stats_key)
        return self._client.call(broker, question(header, BrokerStatsData))

    def ha_status(self, broker: str) -> HARuntimeInfo:
        """The replication of a broker, as it sees it (getBrokerHAStatus)."""
        return self._client.call(broker, question(RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo))

    def registered_brokers(self) -> dict[str, ClusterInfo]:
        """The brokers that each name server knows, by its address. See ``when_missing`` for one without an answer."""
        return self._each({address: address for address in self._name_servers()}, calls.cluster_info())

    def promote(self, slave: str, *, broker_id: int, force: bool = False) -> None:
        """Make a slave of gantrymq at this address its group's master, without the checks of the command.

        It refuses while its copy has a master, unless ``force``. It answers before it starts again. In RocketMQ a
        controller sends this (notifyBrokerRoleChanged).
        """
        fields = {"masterAddress": slave, "masterBrokerId": str(broker_id), _FORCE: str(force).lower()}
        self._client.call(slave, _with_fields(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields))

    def ha_address(self, broker: str) -> str:
        """The address at which a master's slaves get its log, host:port (exchangeBrokerHaInfo)."""
        return self._client.call(broker, Call(lambda: RemotingCommand(_EXCHANGE_HA), _ha_address))

    def reset_master_flush_offset(self, broker: str, offset: int) -> None:
        """Tell a slave up to which offset of the log its master has flushed (resetMasterFlushOffset)."""
        self._client.call(broker, order(ResetMasterFlushOffsetHeader(master_flush_offset=offset)))

    def broker_epochs(self, broker: str) -> EpochEntryCache:
        """The epochs of a broker's log (getBrokerEpochCache). Only a broker with a controller has them."""
        return self._client.call(broker, question(RequestCode.GET_BROKER_EPOCH_CACHE, EpochEntryCache))

    def cold_data_flow(self, broker: str) -> dict[str, Any] | None:
        """The limits for reads of cold data and what each group has read, or None (getColdDataFlowCtrInfo)."""
        return self._client.call(broker, Call(lambda: RemotingCommand(_COLD_GET), _json_object))

    def set_cold_data_threshold(self, broker: str, group: str, threshold_bytes: int) -> None:
        """Limit the cold data that a group reads (updateColdDataFlowCtrGroupConfig)."""
        self._client.call(broker, order(_COLD_SET, _text({self._full(group): str(threshold_bytes)})))

    def remove_cold_data_threshold(self, broker: str, group: str) -> None:
        """Remove the limit of a group (removeColdDataFlowCtrGroupConfig)."""
        self._client.call(broker, order(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, encode_utf8(self._full(group))))

    def set_read_ahead(self, broker: str, *, is_random: bool) -> str:
        """Tell the kernel how the commit log is read (setCommitLogReadAheadMode). Returns the broker's remark."""
        fields = {_READ_AHEAD_MODE: "1" if is_random else "0"}
        call = _with_fields(RequestCode.SET_COMMITLOG_READ_MODE, fields)
        return self._client.call(broker, call)

    def switch_timer_engine(self, broker: str, engine: str) -> None:
        """Store timers in RocksDB (``R``) or in the files of the wheel (``F``) from now on (switchTimerEngine)."""
        self._client.call(broker, _with_fields(RequestCode.SWITCH_TIMER_ENGINE, {_TIMER_ENGINE: engine}))

    def export_pop_records(self, broker: str) -> None:
        """Make a broker move its POP records from RocksDB back into files (exportPopRecord)."""
        self._client.call(broker, order(RequestCode.POP_ROLLBACK))

    def check_rocksdb_queues(self, broker: str, topic: str = "", since_ms: int = 0) -> CheckRocksdbCqWriteResult:
        """Make a broker compare its queues in RocksDB with its files (checkRocksdbCqWriteProgress)."""
        header = CheckRocksdbCqWriteProgressRequestHeader(topic=topic, check_store_time=since_ms)
        return self._client.call(broker, question(header, CheckRocksdbCqWriteResult))

    def export_rocksdb_config(self, broker: str, kinds: Iterable[str]) -> None:
        """Make a broker write tables of RocksDB into its JSON files (exportRocksDBConfigToJson).

        ``kinds``: topics, subscriptionGroups, consumerOffsets.
        """
        self._client.call(broker, order(ExportRocksDBConfigToJsonRequestHeader(config_type=";".join(kinds))))

    def broker_config(self, broker: str) -> dict[str, str]:
        """A broker's settings (getBrokerConfig). Passwords, which RocketMQ's brokers send, are masked."""
        settings = self._client.call(broker, _properties(RequestCode.GET_BROKER_CONFIG))
        return {key: MASK if key in CREDENTIALS and value else value for key, value in settings.items()}

    def update_broker_config(
        self, settings: Mapping[str, str], *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Change settings of running brokers (updateBrokerConfig)."""
        call = order(RequestCode.UPDATE_BROKER_CONFIG, _text(settings))
        self._call_all(self._masters(broker, cluster), call)

    def name_server_config(self) -> dict[str, dict[str, str]]:
        """The settings of each name server (getNameServerConfig)."""
        call = _properties(RequestCode.GET_NAMESRV_CONFIG)
        return self._each({address: address for address in self._name_servers()}, call)

    def update_name_server_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of all running name servers (updateNameServerConfig)."""
        self._call_all(self._name_servers(), order(RequestCode.UPDATE_NAMESRV_CONFIG, _text(settings)))

    def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Stop producers from choosing a broker (wipeWritePermOfBroker). Returns the changed topics by name server."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        call = Call(
            lambda: RemotingCommand.request(header),
            lambda response, address: (
                success(response, address).read(WipeWritePermOfBrokerResponseHeader).wipe_topic_count
            ),
        )
        return {address: self._client.call(address, call) for address in self._name_servers()}

    def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Let producers choose a broker again (addWritePermOfBroker).

        Returns the number of changed topics by name server.
        """
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        call = Call(
            lambda: RemotingCommand.request(header),
            lambda response, address: (
                success(response, address).read(AddWritePermOfBrokerResponseHeader).add_topic_count
            ),
        )
        return {address: self._client.call(address, call) for address in self._name_servers()}

    def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Store a value at all name servers (createAndUpdateKvConfig)."""
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        self._call_all(self._name_servers(), order(header))

    def kv_config(self, namespace: str, key: str) -> str | None:
        """A value stored at the name servers; None if there is none (getKVConfig)."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        call = Call(
            lambda: RemotingCommand.request(header),
            lambda response, address: success(response, address).read(GetKVConfigResponseHeader).value,
        )
        try:
            return self._client.ask_name_server(call)
        except MQBrokerError as error:
            if error.response_code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    def kv_configs(self, namespace: str) -> dict[str, str]:
        """All values of a namespace (getKVListByNamespace)."""
        call = question(GetKVListByNamespaceRequestHeader(namespace=namespace), KVTable)
        try:
            return self._client.ask_name_server(call).table
        except MQBrokerError as error:
            if error.response_code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise

    def delete_kv_config(self, namespace: str, key: str) -> None:
        """Delete a value at all name servers (deleteKvConfig)."""
        self._call_all(self._name_servers(), order(DeleteKVConfigRequestHeader(namespace=namespace, key=key)))

    def delete_expired_commit_log(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Make brokers delete expired files of the commit log now (deleteExpiredCommitLog)."""
        self._call_all(self._masters(broker, cluster), order(RequestCode.DELETE_EXPIRED_COMMITLOG))

    def clean_expired_consume_queue(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Make brokers delete consume queues of deleted topics (cleanExpiredConsumerQueue)."""
        self._call_all(self._masters(broker, cluster), order(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))

    def clean_unused_topic(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Make brokers delete queues of topics that have no configuration (cleanUnusedTopic)."""
        self._call_all(self._masters(broker, cluster), order(RequestCode.CLEAN_UNUSED_TOPIC))


def _ha_address(response: RemotingCommand, address: str) -> str:
    ha_address = success(response, address).ext_fields.get("masterHaAddress", "")
    if not ha_address:
        raise MQClientError(f"the broker at {address} is no master, or has no HA port")
    return ha_address


def _json_object(response: RemotingCommand, address: str) -> dict[str, Any] | None:
    raw = body_of(response, address)
    value = loads(decode_utf8(raw)) if raw else None
    return value if isinstance(value, dict) else None


def _with_fields(code: RequestCode, fields: Mapping[str, str]) -> Call[str]:
    """A request with fields that have no header. The answer is the remark of the broker."""

    def request() -> RemotingCommand:
        command = RemotingCommand(code)
        command.ext_fields.update(fields)
        return command

    return Call(request, lambda response, address: success(response, address).remark or "")


def _properties(code: RequestCode) -> Call[dict[str, str]]:
    return Call(
        lambda: RemotingCommand(code),
        lambda response, address: parse_properties(decode_utf8(body_of(response, address))),
    )


def _text(settings: Mapping[str, str]) -> bytes:
    for key, value in settings.items():
        if not key or any(letter in f"{key}{value}" for letter in "\r\n"):
            raise MQClientError(f"{key}={value!r} is not a setting")
    return encode_utf8("".join(f"{key}={value}\n" for key, value in settings.items()))
