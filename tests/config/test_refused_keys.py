"""Which keys no server starts with: the table, how values are compared, and the files of RocketMQ's distribution."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gantrymq.config.auth_settings import CLASSES, CREDENTIALS
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.grpc_settings import WITHOUT_EFFECT as OF_PROXY
from gantrymq.config.guards import Level
from gantrymq.config.keys import fields_by_key
from gantrymq.config.known_keys import AUTH_KEYS, AUTH_KEYS_OF_PROXY, OF_NAMESRV, WITHOUT_EFFECT
from gantrymq.config.properties import parse_json, parse_properties, read_settings
from gantrymq.config.refused_keys import REFUSALS, ServerKind, Work, key_reasons, refused_keys
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import NotHonouredError

BROKER, NAMESRV, PROXY = ServerKind.BROKER, ServerKind.NAMESRV, ServerKind.PROXY
COMPATIBILITY = Path(__file__).parents[1] / "compatibility"
DISTRIBUTION = COMPATIBILITY / "distribution"
NAMES = json.loads((COMPATIBILITY / "rocketmq-5.5.0.json").read_text())
SYNC = {"brokerRole": "SYNC_MASTER"}
# One configuration for each row: the entries, and the names that accept them.
REFUSED: list[tuple[ServerKind, dict[str, str], str]] = [
    (BROKER, {"authenticationEnabled": "true", "aclEnable": "true"}, "authenticationEnabled"),
    (BROKER, {"authorizationEnabled": "true"}, "authorizationEnabled"),
    *((BROKER, {name: "com.example.Provider"}, name) for name in CLASSES),
    (BROKER, {"initAuthenticationUser": '{"username":"root"}'}, "initAuthenticationUser"),
    (BROKER, {"innerClientAuthenticationCredentials": "root:s3cret"}, "innerClientAuthenticationCredentials"),
    (BROKER, {"useTLS": "true"}, "useTLS"),
    (BROKER, {"brokerId": "1"}, "brokerId"),
    (BROKER, {**SYNC, "allAckInSyncStateSet": "true"}, "allAckInSyncStateSet"),
    (BROKER, {"enableControllerMode": "true", "brokerId": "-1"}, "enableControllerMode,brokerId"),
    (BROKER, {"enableDLegerCommitLog": "true"}, "enableDLegerCommitLog"),
    (BROKER, {"messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore"}, "messageStorePlugIn"),
    (BROKER, {"storeType": "defaultRocksDB"}, "storeType"),
    (BROKER, {"rocksdbCQDoubleWriteEnable": "true"}, "rocksdbCQDoubleWriteEnable"),
    (BROKER, {"useSeparateStorePathForRocksdbCQ": "true"}, "useSeparateStorePathForRocksdbCQ"),
    (BROKER, {"combineCQUseRocksdbForLmq": "true"}, "combineCQUseRocksdbForLmq"),
    (BROKER, {"combineCQPreferCQType": "defaultRocksDB"}, "combineCQPreferCQType"),
    (BROKER, {"combineAssignOffsetCQType": "defaultRocksDB"}, "combineAssignOffsetCQType"),
    (BROKER, {"combineCQLoadingCQTypes": "defaultRocksDB"}, "combineCQLoadingCQTypes"),
    (BROKER, {"indexRocksDBEnable": "true"}, "indexRocksDBEnable"),
    (BROKER, {"configManagerVersion": "v2"}, "configManagerVersion"),
    (BROKER, {"useSingleRocksDBForAllConfigs": "true"}, "useSingleRocksDBForAllConfigs"),
    (BROKER, {"popConsumerKVServiceEnable": "true"}, "popConsumerKVServiceEnable"),
    (BROKER, {"popConsumerKVServiceInit": "true"}, "popConsumerKVServiceInit"),
    (BROKER, {"transRocksDBEnable": "true"}, "transRocksDBEnable"),
    (BROKER, {"timerRocksDBEnable": "true"}, "timerRocksDBEnable"),
    (BROKER, {"enableLmq": "true"}, "enableLmq"),
    (BROKER, {"enableMultiDispatch": "true"}, "enableMultiDispatch"),
    (BROKER, {"fetchNamesrvAddrByAddressServer": "true"}, "fetchNamesrvAddrByAddressServer"),
    (NAMESRV, {"enableControllerInNamesrv": "true"}, "enableControllerInNamesrv"),
    (NAMESRV, {"clusterTest": "true"}, "clusterTest"),
    (PROXY, {"authenticationEnabled": "true", "aclEnable": "true"}, "authenticationEnabled"),
    *((PROXY, {name: "com.example.Other"}, name) for name in CLASSES),
    (PROXY, {"innerClientAuthenticationCredentials": "{}"}, "innerClientAuthenticationCredentials"),
    (PROXY, {"authorizationEnabled": "true"}, "authorizationEnabled"),
    (PROXY, {"proxyMode": "LOCAL"}, "proxyMode"),
    (PROXY, {"tlsTestModeEnable": "false"}, "tlsTestModeEnable"),
]


@pytest.mark.parametrize(("kind", "entries", "names"), REFUSED)
def test_refused_key_gives_one_line_with_key_value_consequence_and_remedy(
    kind: ServerKind, entries: dict[str, str], names: str
) -> None:
    reasons = [reason for reason in key_reasons(entries, kind) if reason.level is Level.REFUSED]
    assert reasons
    for reason in reasons:
        shown = "******" if reason.name in CREDENTIALS else entries[reason.name]
        assert reason.line.startswith(f"{reason.name}={shown} cannot be honoured: ")
        assert reason.remedy
        assert "\n" not in reason.line
        is_about_users = reason.name in AUTH_KEYS  # half of it would be open
        assert reason.is_accepted(frozenset(names.split(","))) != is_about_users
        assert not reason.is_accepted(frozenset({"brokerName"}))


def test_every_refused_key_has_test_case() -> None:
    cases = {kind: {name for of, _, names in REFUSED if of is kind for name in names.split(",")} for kind in ServerKind}
    cases[BROKER].add("brokerRole")  # of work that appends, tested below
    assert {kind: set(rows) for kind, rows in REFUSALS.items()} == cases


@pytest.mark.parametrize(
    "entries",
    [
        {"storeType": "DEFAULTROCKSDB "}, {"authorizationEnabled": " TRUE"}, {"configManagerVersion": "v2 "},
        {"brokerId": " 3"}, {"combineCQLoadingCQTypes": " ;defaultRocksDB"},
        {"brokerRole": "SYNC_MASTER ", "allAckInSyncStateSet": " true "},
    ],
)  # fmt: skip
def test_value_with_other_case_or_blanks_is_refused(entries: dict[str, str]) -> None:
    assert len(refused_keys(entries, BROKER)) == 1


@pytest.mark.parametrize(
    "entries",
    [
        {"authenticationEnabled": "true", "authorizationEnabled": " TRUE", "authenticationProvider": " "},
        {name: classes[-1] for name, classes in CLASSES.items()},
        {"authenticationEnabled": "true", "initAuthenticationUser": ' {"username":"root","password":"p=w","x":1} '},
        {"storeType": "default", "authenticationEnabled": "false", "authorizationEnabled": "FALSE", "brokerId": "0"},
        {"configManagerVersion": "v1", "messageStorePlugIn": " ", "combineCQLoadingCQTypes": "default;defaultRocksDB"},
        {"authenticationEnabled": "yes", "enableLmq": "1", "storeType": "rocks"},  # Java: false, false, default
        {"brokerRole": "slave"},  # Java ignores it, and starts a master
        {**SYNC, "inSyncReplicas": "2", "minInSyncReplicas": "2"},
        {"inSyncReplicas": "2", "minInSyncReplicas": "2", "allAckInSyncStateSet": "true"},  # no wait
        {**SYNC, "inSyncReplicas": "1", "totalReplicas": "2"},
        {**SYNC, "inSyncReplicas": "two"},  # Java keeps its default
        {"useTLS": "true", "tls.enable": "true"},
        {"fetchNamesrvAddrByAddressServer": "true", "namesrvAddr": "127.0.0.1:9876"},
    ],
)  # fmt: skip
def test_value_without_effect_in_java_is_not_refused(entries: dict[str, str]) -> None:
    assert refused_keys(entries, BROKER) == []


def test_defaults_of_rocketmq_written_explicitly_give_no_reason() -> None:
    defaults = {name: row.default for name, row in WITHOUT_EFFECT.items() if row.default is not None}
    assert key_reasons(defaults, BROKER) == []
    assert key_reasons({name: str(row.default) for name, row in OF_NAMESRV.items()}, NAMESRV) == []
    proxy = {name: row.default for name, row in OF_PROXY.items() if row.default not in (None, "…")}
    auth = {name: row.default for name, row in AUTH_KEYS_OF_PROXY.items() if row.default is not None}
    assert key_reasons(proxy | auth, PROXY) == []


def test_key_effective_only_in_rocketmq_is_refused_or_causes_warning() -> None:
    """So that a key that is added to a table without a decision is noticed."""
    acting = {name: row.default for name, row in WITHOUT_EFFECT.items() if row.default is not None}
    assert set(AUTH_KEYS) == set(NAMES["keys"]["AuthConfig"]) - {"authConfigPath", "clusterName", "configName"}
    for name, default in acting.items():
        other = "true" if default == "false" else "false" if default == "true" else f"{default}1"
        assert [reason.name for reason in key_reasons({name: other}, BROKER)] == [name]
    of_broker = fields_by_key(BrokerConfig).keys() | fields_by_key(MessageStoreConfig).keys()
    assert set(REFUSALS[BROKER]) <= acting.keys() | of_broker


def test_proxy_key_honoured_by_broker_causes_no_warning() -> None:
    of_broker = fields_by_key(BrokerConfig).keys() | fields_by_key(MessageStoreConfig).keys()
    shared = {name: "other" for name in OF_PROXY if name in of_broker}
    assert shared
    assert key_reasons(shared, BROKER) == []
    assert len(key_reasons(shared, PROXY)) == len(shared)


def _entries(file: Path) -> dict[str, str]:
    text = file.read_text()
    return parse_json(text) if text.startswith("{") else parse_properties(text)


def _kind(file: Path) -> ServerKind:
    return PROXY if "proxy" in file.name else NAMESRV if "namesrv" in file.name else BROKER


@pytest.mark.parametrize("file", sorted((DISTRIBUTION / "accepted").iterdir()), ids=lambda file: file.name)
def test_healthy_file_of_distribution_is_not_refused(file: Path) -> None:
    assert refused_keys(_entries(file), _kind(file)) == []


@pytest.mark.parametrize("file", sorted((DISTRIBUTION / "refused").iterdir()), ids=lambda file: file.name)
def test_file_of_replicated_cluster_is_refused(file: Path) -> None:
    assert refused_keys(_entries(file), _kind(file))


def test_master_of_distribution_with_slaves_has_no_key_without_effect() -> None:
    assert key_reasons(_entries(DISTRIBUTION / "accepted" / "2m-2s-sync-broker-a.properties"), BROKER) == []


def test_store_is_always_readable_and_writable_unless_of_other_form() -> None:
    of_access, of_form = {"authenticationEnabled": "true"}, {"storeType": "defaultRocksDB"}
    of_slave = {"brokerRole": "SLAVE"}
    assert refused_keys(of_access | of_slave, BROKER, Work.WRITE) == []
    assert [one.name for one in refused_keys(of_form, BROKER, Work.WRITE)] == ["storeType"]
    assert [one.name for one in refused_keys(of_access | of_slave, BROKER, Work.APPEND)] == ["brokerRole"]
    assert refused_keys(of_slave | {"brokerId": "1"}, BROKER, Work.SERVE) == []
    with pytest.raises(NotHonouredError, match="acceptWithoutEffect=storeType"):
        read_settings(of_form).require_honoured(Work.WRITE)
    (accepted,) = read_settings(of_form | {"acceptWithoutEffect": " storeType ,x"}).require_honoured(Work.WRITE)
    assert accepted.name == "storeType"


def test_passwords_are_in_no_reason() -> None:
    secret = {"initAuthenticationUser": '{"password":"s3cret"}', "innerClientAuthenticationCredentials": "s3cret"}
    assert not any("s3cret" in reason.line for reason in key_reasons(secret, BROKER))


def test_refused_change_of_running_store_changes_nothing() -> None:
    live = LiveConfig()
    live.update({"brokerRole": "SYNC_MASTER"})
    live.require_honoured()
    before = live.to_properties()
    for entries in ({"allAckInSyncStateSet": "true"}, {"configManagerVersion": "v2", "fileReservedTime": "1"}):
        with pytest.raises(NotHonouredError):
            live.update(entries, running=True)
    assert live.to_properties() == before


def test_change_of_running_store_beside_accepted_key_takes_effect() -> None:
    live = LiveConfig()
    accepted = "allAckInSyncStateSet,clusterTest,allAckInSyncState"
    live.update({**SYNC, "allAckInSyncStateSet": "true", "acceptWithoutEffect": accepted})
    live.require_honoured()
    live.update({"fileReservedTime": "1"}, running=True)
    assert live.store.file_reserved_time_hours == 1
    assert [reason.name for reason in live.accepted] == ["allAckInSyncStateSet"]
    assert live.unused_acceptances() == ["allAckInSyncState"]  # a misspelled one
