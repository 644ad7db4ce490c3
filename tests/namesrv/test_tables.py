"""The name server's tables and settings, one noun at a time."""

from pathlib import Path
from typing import Any

import pytest

from gantrymq.errors import ConfigError
from gantrymq.namesrv.brokers import BrokerAddrInfo, BrokerLiveInfo, BrokerTable
from gantrymq.namesrv.routes import Registration, RouteInfoManager
from gantrymq.namesrv.settings import WITHOUT_EFFECT, NamesrvConfig, acts, read_namesrv_config
from gantrymq.namesrv.topics import FLAG_UNIT, FLAG_UNIT_SUB, TopicTable
from gantrymq.remoting.bodies.route import BrokerData, QueueData, TopicQueueMappingInfo
from gantrymq.remoting.bodies.topic import DataVersion, TopicConfigAndMappingSerializeWrapper
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader

MASTER = BrokerAddrInfo("DefaultCluster", "127.0.0.1:10911")


def table(*topics: tuple[str, str, int]) -> TopicTable:
    """A table of (topic, broker name, sysFlag)."""
    made = TopicTable()
    for topic, broker, flags in topics:
        made.put(topic, [QueueData(broker_name=broker, perm=6, topic_sys_flag=flags)])
    return made


def test_topic_is_removed_with_its_last_broker() -> None:
    topics = table(("a", "b1", 0), ("a", "b2", 0), ("c", "b1", 0))
    topics.drop_brokers({"b1"})
    assert topics.topics() == ["a"]
    assert list(topics.queues("a")) == ["b2"]
    topics.delete_at("a", ["b2", "unknown"])
    assert topics.topics() == []


def test_wipe_removes_write_permission() -> None:
    topics = table(("a", "b1", 0), ("c", "b1", 0), ("a", "b2", 0))
    assert topics.wipe_write_perm("b1") == 2
    assert {name: data.perm for name, data in topics.queues("a").items()} == {"b1": 4, "b2": 6}
    assert topics.queues("c")["b1"].perm == 4
    assert topics.wipe_write_perm("nobody") == 0


def test_unit_topics_are_recognised_by_flags() -> None:
    topics = table(("none", "b", 0), ("unit", "b", 1), ("sub", "b", 2), ("both", "b", 3))
    assert topics.with_flags(FLAG_UNIT) == ["unit", "both"]
    assert topics.with_flags(FLAG_UNIT_SUB) == ["sub", "both"]
    assert topics.with_flags(FLAG_UNIT_SUB, unwanted=FLAG_UNIT) == ["sub"]


def test_topic_queue_mapping_outlives_broker_and_queues() -> None:
    topics = table(("static", "b1", 0))
    topics.put_mappings({"static": TopicQueueMappingInfo(topic="static", bname="b1")})
    topics.drop_brokers({"b1"})
    assert list(topics.mappings("static") or ()) == ["b1"]
    topics.delete("static")
    assert list(topics.mappings("static") or ()) == ["b1"]
    assert topics.topics() == []


def test_broker_silent_beyond_its_heartbeat_timeout_expires() -> None:
    live = BrokerLiveInfo(1_000, 120_000, DataVersion(), object(), "")
    assert not live.expired(121_000)
    assert live.expired(121_001)


def test_brokers_are_found_by_name_cluster_and_address() -> None:
    brokers = BrokerTable()
    brokers.add(MASTER.cluster_name, "broker-a").broker_addrs[0] = MASTER.broker_addr
    other = BrokerAddrInfo("other", MASTER.broker_addr)
    assert brokers.find([MASTER, other]) == {MASTER: ("broker-a", 0)}
    assert brokers.clusters() == {"DefaultCluster": ["broker-a"]}
    brokers.record_heartbeat(MASTER, 5)
    assert brokers.version(MASTER) is None
    brokers.remove(MASTER.cluster_name, "broker-a")
    assert (brokers.clusters(), brokers.by_name, brokers.names("DefaultCluster")) == ({}, {}, [])


def test_many_brokers_are_found_by_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that registered 2,000 brokers and broke took a pass for each: 0.2 s in one turn of the loop."""
    manager = RouteInfoManager(lambda: 0, NamesrvConfig)
    for number in range(50):
        header = RegisterBrokerRequestHeader(
            broker_name=f"b{number}", broker_addr=f"b{number}:1", cluster_name="C", ha_server_addr="", broker_id=0
        )
        manager.register(Registration(header, TopicConfigAndMappingSerializeWrapper(), "channel"))
    passes = []

    class Counted(dict[str, BrokerData]):
        def values(self) -> Any:
            passes.append(1)
            return super().values()

    monkeypatch.setattr(manager._brokers, "by_name", Counted(manager._brokers.by_name))
    leaving = manager.leaving(manager.of_channel("channel"))
    assert [(one.broker_name, one.broker_id) for one in leaving] == [(f"b{number}", 0) for number in range(50)]
    assert len(passes) == 1
    manager.unregister(leaving)
    assert manager.cluster_info().broker_addr_table == {}


def test_settings_are_read_under_rocketmqs_keys() -> None:
    config = read_namesrv_config({"listenPort": "0", "supportActingMaster": "true", "serverWorkerThreads": "2"})
    assert (config.listen_port, config.support_acting_master, config.bind_address) == (0, True, "127.0.0.1")
    assert config.with_home(Path("/home/namesrv")).kv_config_path == "/home/namesrv/kvConfig.json"
    with pytest.raises(ConfigError, match="listenPort"):
        read_namesrv_config({"listenPort": "70000"})


def test_keys_with_and_without_effect_are_disjoint() -> None:
    assert not [name for name in WITHOUT_EFFECT if acts(name)]
    assert acts("tls.server.mode")
