"""The name server over sockets: registrations in every form, brokers that vanish, files that cannot be written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from namesrv_cases import ADDRESS, NamesrvCase, registration, topics

from gantrymq.clock import ManualClock
from gantrymq.config.properties import parse_properties
from gantrymq.errors import RemotingError, StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.namesrv.settings import OWN_KEYS, NamesrvConfig, without_effect
from gantrymq.remoting.bodies.route import ClusterInfo, TopicRouteData
from gantrymq.remoting.bodies.topic import DataVersion, KVTable, TopicList
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.headers.broker import NotifyMinBrokerIdChangeRequestHeader
from gantrymq.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from gantrymq.remoting.transport.client import RemotingClient
from memory_file_system import MemoryFileSystem

pytestmark = pytest.mark.asyncio
WHO = {"broker_name": "broker-a", "broker_addr": ADDRESS, "cluster_name": "C", "broker_id": 0}
OLD = 300  # a client's version before RocketMQ wrote standard JSON


async def gone(namesrv: NamesrvCase, topic: str = "T") -> None:
    """Wait until nobody has a topic any more."""
    while (await namesrv.route(topic)).code != ResponseCode.TOPIC_NOT_EXIST:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("compressed", [False, True])
async def test_plain_and_compressed_registrations_are_accepted(namesrv: NamesrvCase, compressed: bool) -> None:
    answer = await namesrv.register(registration(), topics("T", "A"), compressed=compressed)
    assert answer.code == ResponseCode.SUCCESS
    route = decode_body(TopicRouteData, (await namesrv.route("T")).body)
    assert (route.queue_datas[0].broker_name, route.queue_datas[0].perm) == ("broker-a", 6)


async def test_registration_of_broker_before_3_0_11_has_only_topics(namesrv: NamesrvCase) -> None:
    answer = await namesrv.ask(registration(), topics("T", "A"), version=36)
    assert answer.code == ResponseCode.SUCCESS
    assert (await namesrv.route("A")).code == ResponseCode.SUCCESS


async def test_registration_without_body_has_no_topics(namesrv: NamesrvCase) -> None:
    assert (await namesrv.ask(registration())).code == ResponseCode.SUCCESS
    info = decode_body(ClusterInfo, (await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: ADDRESS}


async def test_registration_with_wrong_crc_is_refused(namesrv: NamesrvCase) -> None:
    answer = await namesrv.ask(registration(body_crc32=1), b"{}")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    answer = await namesrv.ask(registration(compressed=True), b"no zlib")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    answer = await namesrv.register(registration(), topics("T"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")


async def test_numeric_json_keys_are_quoted_for_strict_clients(namesrv: NamesrvCase) -> None:
    await namesrv.register(registration(), topics("T", "A"))
    assert b'{"0":' in (await namesrv.route("T")).body
    assert b"{0:" in (await namesrv.route("T", version=OLD)).body
    assert b'{"0":' in (await namesrv.route("T", version=OLD, ext_fields={"acceptStandardJsonOnly": "true"})).body


async def test_missing_route_has_error_text_of_rocketmq(namesrv: NamesrvCase) -> None:
    answer = await namesrv.route("nowhere")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert answer.remark.startswith("No topic route info in name server for the topic: nowhere\nSee ")


async def test_client_of_zone_gets_brokers_of_zone(namesrv: NamesrvCase) -> None:
    await namesrv.register(registration(), topics("T", "A"), ext_fields={"__ZONE_NAME": "east"})
    for mode, zone, brokers in [("true", "west", 0), ("true", "East", 1), ("false", "west", 1), ("true", " ", 1)]:
        answer = await namesrv.route("T", ext_fields={"__ZONE_MODE": mode, "__ZONE_NAME": zone})
        assert len(decode_body(TopicRouteData, answer.body).broker_datas) == brokers


# Brokers that go


async def test_unregistration_is_answered_once_done(namesrv: NamesrvCase) -> None:
    await namesrv.register(registration(), topics("T", "A"))
    assert (await namesrv.ask(UnRegisterBrokerRequestHeader(**WHO))).code == ResponseCode.SUCCESS
    assert (await namesrv.route("T")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_broken_connection_unregisters_all_its_brokers(namesrv: NamesrvCase) -> None:
    broker = RemotingClient()
    await namesrv.register(registration(), topics("T", "A"), client=broker)
    await namesrv.register(registration("10.0.0.2:10911", name="broker-b"), topics("T", "A"), client=broker)
    (await broker.channel(namesrv.server.address)).abort()
    await gone(namesrv)
    assert (await namesrv.route("A")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_silent_broker_is_unregistered_after_two_minutes(namesrv: NamesrvCase, clock: ManualClock) -> None:
    broker = RemotingClient()
    await namesrv.register(registration(), topics("T", "A"), client=broker)
    channel = await broker.channel(namesrv.server.address)
    clock.advance(120_000)
    await namesrv.ask(BrokerHeartbeatRequestHeader(**WHO), client=broker)
    clock.advance(120_000)
    namesrv.server.scan_not_active_broker()
    assert (await namesrv.route("T")).code == ResponseCode.SUCCESS
    clock.advance(1)
    namesrv.server.scan_not_active_broker()
    assert (await namesrv.route("T")).code == ResponseCode.TOPIC_NOT_EXIST
    while not channel.is_closed:
        await asyncio.sleep(0.001)
    await broker.close()


async def test_request_for_version_counts_as_heartbeat(namesrv: NamesrvCase, clock: ManualClock) -> None:
    header, version = QueryDataVersionRequestHeader(**WHO), topics("T", "A").data_version
    answer = await namesrv.ask(header, version)
    assert (answer.read(QueryDataVersionResponseHeader).changed, answer.body) == (True, b"")
    await namesrv.register(registration(), topics("T", "A"))
    clock.advance(120_000)
    answer = await namesrv.ask(header, version)
    assert not answer.read(QueryDataVersionResponseHeader).changed
    assert decode_body(DataVersion, answer.body) == version
    assert (await namesrv.ask(header, DataVersion(counter=9))).read(QueryDataVersionResponseHeader).changed
    clock.advance(120_000)
    namesrv.server.scan_not_active_broker()
    assert (await namesrv.route("T")).code == ResponseCode.SUCCESS


async def test_lost_master_is_sent_to_slave(tmp_path: Path) -> None:
    told: asyncio.Queue[NotifyMinBrokerIdChangeRequestHeader] = asyncio.Queue()
    slave = NamesrvCase(tmp_path / "slave")  # any server will do to hear it
    await slave.start()
    slave.server._dispatcher.register(
        lambda _, request: told.put_nowait(request.read(NotifyMinBrokerIdChangeRequestHeader)),
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
    )
    namesrv = NamesrvCase(tmp_path / "namesrv", notify_min_broker_id_changed=True)
    await namesrv.start()
    await namesrv.register(registration(enable_acting_master=True), topics("T", "A"))
    await namesrv.register(registration(slave.server.address, 1, enable_acting_master=True), topics("T", "A"))
    await namesrv.ask(UnRegisterBrokerRequestHeader(**WHO))
    header = await asyncio.wait_for(told.get(), 60)
    assert (header.min_broker_id, header.min_broker_addr) == (1, slave.server.address)
    assert header.offline_broker_addr == ADDRESS
    await namesrv.stop()
    await slave.stop()


# Keys and values


async def test_kv_values_survive_restart(namesrv: NamesrvCase, tmp_path: Path) -> None:
    put, get = PutKVConfigRequestHeader, GetKVConfigRequestHeader
    assert (await namesrv.ask(get(namespace="n", key="k"))).code == ResponseCode.QUERY_NOT_FOUND
    assert (await namesrv.ask(GetKVListByNamespaceRequestHeader(namespace="n"))).code == ResponseCode.QUERY_NOT_FOUND
    await asyncio.gather(*(namesrv.ask(put(namespace="n", key=f"k{i}", value=f"ü{i}")) for i in range(20)))
    await namesrv.ask(DeleteKVConfigRequestHeader(namespace="n", key="k7"))
    table = {f"k{i}": f"ü{i}" for i in range(20) if i != 7}
    assert json.loads((tmp_path / "namesrv/kvConfig.json").read_text())["configTable"] == {"n": table}
    again = NamesrvCase(tmp_path / "namesrv")
    await again.start()
    answer = await again.ask(GetKVListByNamespaceRequestHeader(namespace="n"))
    assert decode_body(KVTable, answer.body).table == table
    assert (await again.ask(get(namespace="n", key="k3"))).read(GetKVConfigResponseHeader).value == "ü3"
    assert (await again.ask(get(namespace="n", key="k7"))).code == ResponseCode.QUERY_NOT_FOUND
    await again.stop()


async def test_order_config_is_in_answers_to_brokers_and_clients(tmp_path: Path) -> None:
    namesrv = NamesrvCase(tmp_path, order_message_enable=True)
    await namesrv.start()
    await namesrv.ask(PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4"))
    answer = await namesrv.register(registration(), topics("T", "A"))
    assert decode_body(KVTable, answer.body).table == {"T": "broker-a:4"}
    assert decode_body(TopicRouteData, (await namesrv.route("T")).body).order_topic_conf == "broker-a:4"
    assert decode_body(TopicRouteData, (await namesrv.route("A")).body).order_topic_conf is None
    await namesrv.stop()


async def test_unwritable_value_is_refused_and_old_value_kept() -> None:
    fs = MemoryFileSystem()
    namesrv = NamesrvCase(Path("/n"), fs=fs)
    await namesrv.start()
    put, get = PutKVConfigRequestHeader, GetKVConfigRequestHeader(namespace="n", key="k")
    await namesrv.ask(put(namespace="n", key="k", value="old"))
    fs.capacity_bytes = 16 * 4096
    answer = await namesrv.ask(put(namespace="n", key="k", value="x" * 100_000))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no room on the disk" in str(answer.remark)
    assert (await namesrv.ask(get)).read(GetKVConfigResponseHeader).value == "old"
    await namesrv.stop()


async def test_foreign_file_at_path_of_settings_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("not ours")
    server = NamesrvServer(NamesrvConfig(listen_port=0), home=tmp_path)
    with pytest.raises(StoreError, match=r"is no kvConfig\.json"):
        await server.start()
    await server.shutdown()
    assert (tmp_path / "kvConfig.json").read_text() == "not ours"


# Settings


async def test_failed_scan_for_silent_brokers_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, failures = asyncio.Semaphore(0), []

    def look() -> None:
        looks.release()
        raise RuntimeError("a bad turn")

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
    namesrv = NamesrvCase(tmp_path, scan_not_active_broker_interval_ms=1)
    monkeypatch.setattr(namesrv.server, "scan_not_active_broker", look)
    await namesrv.start()
    for _ in range(3):
        await asyncio.wait_for(looks.acquire(), 60)
    assert str(failures[0]) == "a bad turn"
    await namesrv.stop()


async def test_interval_too_large_for_timer_is_refused(namesrv: NamesrvCase) -> None:
    update = RequestCode.UPDATE_NAMESRV_CONFIG
    answer = await namesrv.ask(update, b"scanNotActiveBrokerInterval=1" + b"0" * 30)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "at most 9223372036854775807" in str(answer.remark)
    assert (await namesrv.ask(update, b"scanNotActiveBrokerInterval=9223372036854775807")).code == 0
    namesrv.server._scan()  # the next one in 292 million years


async def test_settings_change_at_runtime_and_survive_restart(namesrv: NamesrvCase, tmp_path: Path) -> None:
    update, show = RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG
    assert (await namesrv.ask(update, b"enableTopicList=false\nserverWorkerThreads=3\nnobody=1\n")).code == 0
    text = (await namesrv.ask(show)).body.decode()
    assert "\nenableTopicList=false\n" in text
    assert "\nserverWorkerThreads=3\n" in text
    assert "nobody" not in text
    assert text.splitlines() == sorted(text.splitlines())
    assert (tmp_path / "namesrv/namesrv.properties").read_text() == text
    answer = await namesrv.ask(RequestCode.GET_UNIT_TOPIC_LIST)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")
    assert (await namesrv.ask(update, b"")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("before", ["", "tls.server.mode=enforcing\n"])
async def test_config_update_does_not_change_tls_keys(namesrv: NamesrvCase, tmp_path: Path, before: str) -> None:
    file = tmp_path / "namesrv/namesrv.properties"
    file.parent.mkdir()
    file.write_text(before)
    body = b"tls.server.mode=disabled\ntls.server.keyPath=/theirs\nenableTopicList=false\n"
    assert (await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body)).code == 0
    kept = parse_properties(file.read_text())
    assert {key: text for key, text in kept.items() if "tls" in key} == parse_properties(before)
    assert kept["enableTopicList"] == "false"


async def test_multi_line_value_is_read_back_from_new_file(namesrv: NamesrvCase, tmp_path: Path) -> None:
    body = b"productEnvName=C:\\\\new\\nkvConfigPath=theirs.json\n"
    assert (await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body)).code == 0
    kept = parse_properties((tmp_path / "namesrv/namesrv.properties").read_text())
    assert kept["productEnvName"] == "C:\\new\nkvConfigPath=theirs.json"
    assert kept["kvConfigPath"] == str(tmp_path / "namesrv/kvConfig.json")


async def test_file_of_settings_keeps_its_comments(namesrv: NamesrvCase, tmp_path: Path) -> None:
    file = tmp_path / "namesrv/namesrv.properties"
    file.parent.mkdir()
    file.write_text("# why it is off\nenableTopicList = false\nours=1\n")
    assert (
        await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"enableTopicList=true\nwaitSecondsForService=1\nx=2\n")
    ).code == 0
    assert file.read_text() == "# why it is off\nenableTopicList=true\nours=1\nwaitSecondsForService=1\n"


async def test_settings_file_keeps_mode_and_symbolic_link(tmp_path: Path) -> None:
    file, link = tmp_path / "etc/namesrv.conf", tmp_path / "namesrv.conf"
    file.parent.mkdir()
    file.write_text("tls.server.keyPassword=hunter2\n")
    file.chmod(0o600)
    link.symlink_to(file)
    namesrv = NamesrvCase(tmp_path / "namesrv", config_store_path=str(link))
    await namesrv.start()
    for value in ("false", "true"):
        assert (await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, f"enableTopicList={value}".encode())).code == 0
    await namesrv.stop()
    assert link.readlink() == file
    assert file.read_text() == "tls.server.keyPassword=hunter2\nenableTopicList=true\n"
    assert {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {
        "namesrv.conf": 0o600,
        "namesrv.conf.bak": 0o600,
    }


async def test_displayed_port_is_listening_port(namesrv: NamesrvCase) -> None:
    text = (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert f"\nlistenPort={namesrv.server.port}\n" in text


async def test_name_server_in_broker_process_shows_no_broker_key() -> None:
    entries = {"mappedFileSizeCommitLog": "1", "brokerName": "a", "serverWorkerThreads": "3", "maxTopics": "7"}
    assert without_effect(entries | {"x": "y"}) == {"serverWorkerThreads": "3", "x": "y"}


async def test_own_keys_are_shown_only_after_change(namesrv: NamesrvCase, tmp_path: Path) -> None:
    update, show = RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG
    assert not OWN_KEYS & parse_properties((await namesrv.ask(show)).body.decode()).keys()
    assert (await namesrv.ask(update, b"maxTopics=7\n")).code == 0
    assert parse_properties((await namesrv.ask(show)).body.decode())["maxTopics"] == "7"
    assert parse_properties((tmp_path / "namesrv/namesrv.properties").read_text())["maxTopics"] == "7"
    assert (await namesrv.ask(update, b"maxTopics=100000\n")).code == 0
    assert "maxTopics" not in (await namesrv.ask(show)).body.decode()
    assert parse_properties((tmp_path / "namesrv/namesrv.properties").read_text())["maxTopics"] == "100000"


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"])
async def test_update_of_blacklisted_setting_is_refused_whole(namesrv: NamesrvCase, key: str) -> None:
    answer = await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, f"enableTopicList=false\n{key}=x\n".encode())
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    assert b"enableTopicList=true" in (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body


@pytest.mark.parametrize(
    "entry",
    [
        *("listenPort=many", "listenPort=1", "bindAddress=0.0.0.0", "serverChannelMaxIdleTimeSeconds=1"),
        *("waitSecondsForService=-1", "productEnvName=" + "x" * 40_000),
    ],
)
async def test_bad_value_or_start_only_key_changes_nothing(namesrv: NamesrvCase, tmp_path: Path, entry: str) -> None:
    answer = await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, f"enableTopicList=false\n{entry}\n".encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert entry.partition("=")[0] in str(answer.remark)
    assert b"enableTopicList=true" in (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body
    assert not (tmp_path / "namesrv").exists()


async def test_displayed_settings_are_accepted_as_update(namesrv: NamesrvCase) -> None:
    shown = (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    listed = ("configBlackList", "configStorePath", "kvConfigPath")
    same = "".join(line for line in shown.splitlines(keepends=True) if not line.startswith(listed))
    assert (await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, same.encode())).code == ResponseCode.SUCCESS
    assert (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode() == shown


async def test_new_name_server_refuses_routes_until_wait_ends(tmp_path: Path, clock: ManualClock) -> None:
    namesrv = NamesrvCase(tmp_path, clock=clock, need_wait_for_service=True)
    await namesrv.start()
    await namesrv.register(registration(), topics("T", "A"))
    clock.advance(44_999)
    assert (await namesrv.route("T")).remark == "name server not ready"
    clock.advance(1)
    assert (await namesrv.route("T")).code == ResponseCode.SUCCESS
    await namesrv.stop()


async def test_used_port_raises_one_clear_error(namesrv: NamesrvCase, tmp_path: Path) -> None:
    other = NamesrvServer(NamesrvConfig(listen_port=namesrv.server.port), home=tmp_path / "other")
    with pytest.raises(RemotingError, match="cannot listen on"):
        await other.start()


async def test_topic_list_requests_return_topics(namesrv: NamesrvCase) -> None:
    await namesrv.register(registration(), topics("T", "A"))
    for code, names in [
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ["T", "A"]),
        (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, ["C", "broker-a"]),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, []),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, []),
    ]:
        assert decode_body(TopicList, (await namesrv.ask(code)).body).topic_list == names


async def test_files_are_written_to_configured_paths(tmp_path: Path) -> None:
    config = NamesrvConfig(listen_port=0, kv_config_path=str(tmp_path / "k.json"))
    server = NamesrvServer(config, home=tmp_path / "home", fs=RealFileSystem())
    await server.start()
    await server.kv.put("n", "k", "v")
    await server.shutdown()
    await server.shutdown()
    assert (tmp_path / "k.json").exists()
    assert not (tmp_path / "home").exists()


async def test_restoring_unwiped_permission_makes_no_topic_writable(namesrv: NamesrvCase) -> None:
    """Java gives all topics of the broker the permission to read and write, those that are read-only too."""
    await namesrv.register(registration(), topics("T", "A", perm=4))
    for change in (WipeWritePermOfBrokerRequestHeader, AddWritePermOfBrokerRequestHeader) * 2:
        for _ in range(2):  # as a tool that asks again does
            assert (await namesrv.ask(change(broker_name="broker-a"))).code == ResponseCode.SUCCESS
            assert decode_body(TopicRouteData, (await namesrv.route("T")).body).queue_datas[0].perm == 4


async def test_wiped_write_permission_survives_restart_of_name_server(tmp_path: Path) -> None:
    async def perm(namesrv: NamesrvCase) -> int:
        await namesrv.register(registration(), topics("T", "A"))
        return decode_body(TopicRouteData, (await namesrv.route("T")).body).queue_datas[0].perm

    wipe, add = WipeWritePermOfBrokerRequestHeader, AddWritePermOfBrokerRequestHeader
    for change, wanted in ((wipe, 4), (None, 4), (add, 6), (None, 6)):
        namesrv = NamesrvCase(tmp_path)
        await namesrv.start()
        before = await perm(namesrv)
        if change is not None:
            assert (await namesrv.ask(change(broker_name="broker-a"))).code == ResponseCode.SUCCESS
        else:
            assert before == wanted
        assert await perm(namesrv) == wanted
        await namesrv.stop()
