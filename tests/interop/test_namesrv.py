"""Our name server beside the real one: the real broker registers at both, and both are asked the same.

What they may answer differently is written where it is left out.
"""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gantrymq.broker.server import BrokerServer
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.remoting.bodies.registration import encode_compressed
from gantrymq.remoting.bodies.route import QueueData, TopicRouteData
from gantrymq.remoting.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.broker import GetBrokerMemberGroupRequestHeader
from gantrymq.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    BrokerHeartbeatRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from gantrymq.remoting.headers.topic import GetTopicsByClusterRequestHeader
from gantrymq.remoting.transport.client import RemotingClient

from .client_cases import play, recorded
from .fixed_ports import fixed_port
from .java import Line, run_java
from .java_cluster import JavaCluster

STEPS = 150
PATIENCE_SECONDS = 20
CLUSTERS, NAMES, PORTS = ["C1", "C2"], ["b1", "b2"], [1, 2, 3]
TOPICS = ["T1", "T2", "T3", "%RETRY%ü"]
OLD = 300
FORGOTTEN = "not set any response code"  # what RocketMQ says of GET_BROKER_MEMBER_GROUP, beside SUCCESS


@dataclass
class Both:
    """The addresses of our name server and of the real one, and one client that asks them."""

    ours: str
    theirs: str
    loop: LoopThread
    client: RemotingClient
    cluster: JavaCluster

    def ask(self, make: Callable[[], RemotingCommand]) -> tuple[Any, Any]:
        """What each says to the same request, in one shape."""
        answers = [self.loop.run(self.client.invoke(one, make(), 5_000)) for one in (self.ours, self.theirs)]
        return shape(answers[0]), shape(answers[1])

    def same(self, header: CommandHeader | int, body: bytes = b"", **of: Any) -> Any:
        """What both say alike; RocketMQ lets brokers go in its own time, so it may take a moment."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            ours, theirs = self.ask(lambda: request(header, body, **of))
            if ours == theirs:
                return ours
            assert time.monotonic() < deadline, f"{header}\nours   {ours}\ntheirs {theirs}"
            time.sleep(0.02)


def request(header: CommandHeader | int, body: bytes, **of: Any) -> RemotingCommand:
    made = RemotingCommand.request(header, body)
    for name, value in of.items():
        setattr(made, name, value)
    return made


def shape(answer: RemotingCommand) -> dict[str, Any]:
    """An answer as it can be compared: JSON parsed, lists that are sets in Java sorted; are numbers quoted as keys?"""
    text = answer.body.decode()
    body = (
        _ordered(json.loads(text.replace("{0:", '{"0":').replace(",1:", ',"1":').replace("{1:", '{"1":')))
        if text
        else None
    )
    return {
        "code": answer.code,
        "remark": None if answer.remark == FORGOTTEN else answer.remark,
        "fields": answer.ext_fields,
        "bare keys": "{0:" in text or "{1:" in text,
        "body": body,
    }


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((_ordered(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


@pytest.fixture(scope="module")
def both(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Our name server, and the real one in one process with a broker that registers at both."""
    home, loop = tmp_path_factory.mktemp("namesrv"), LoopThread("name server")
    server = NamesrvServer(NamesrvConfig(listen_port=0), home=home)
    loop.run(server.start())
    client = RemotingClient()

    async def end() -> None:
        await client.close()
        await server.shutdown()

    port = fixed_port()
    theirs = f"127.0.0.1:{port}"
    cluster = JavaCluster(home / "store", {"namesrvAddr": f"{server.address};{theirs}"}, namesrv_port=port)
    try:
        with cluster:
            yield Both(server.address, theirs, loop, client, cluster)
    finally:
        loop.close(end())


# One after the other: the first ask for what the broker registered, the last change it.


def test_name_servers_answer_alike_about_real_broker(both: Both) -> None:
    route = both.same(GetRouteInfoRequestHeader(topic="TBW102"))
    assert route["body"]["brokerDatas"][0]["brokerAddrs"] == {"0": both.cluster.broker}
    assert both.same(GetRouteInfoRequestHeader(topic="TBW102"), version=OLD)["bare keys"]
    assert not both.same(GetRouteInfoRequestHeader(topic="TBW102", accept_standard_json_only=True), version=OLD)[
        "bare keys"
    ]
    assert both.same(GetRouteInfoRequestHeader(topic="nowhere"))["code"] == 17
    assert both.same(RequestCode.GET_BROKER_CLUSTER_INFO)["bare keys"]
    assert both.same(GetBrokerMemberGroupRequestHeader(cluster_name="DefaultCluster", broker_name="broker-a"))[
        "bare keys"
    ]
    both.same(GetBrokerMemberGroupRequestHeader(cluster_name="x", broker_name="nobody"))
    both.same(GetTopicsByClusterRequestHeader(cluster="DefaultCluster"))
    both.same(GetKVConfigRequestHeader(namespace="n", key="k"))
    for code in (
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        both.same(code)
    assert "not supported" in both.same(RequestCode.PULL_MESSAGE)["remark"]


def test_real_client_finds_real_broker_through_our_name_server(both: Both) -> None:
    cases = [name for name in sorted(recorded()) if name.startswith(("route-", "publish-queues"))]
    lines = play(both.ours, cases)
    for name in cases:
        assert lines[name]["ok"], lines[name]["error"]
        assert lines[name]["facts"] == recorded()[name]


def test_mqadmin_finds_the_same_at_both(both: Both) -> None:
    # Two topics to delete that the broker does not have, or it would say them again in between.
    queues = [QueueData(broker_name="broker-a", read_queue_nums=2, write_queue_nums=2, perm=6)]
    for topic in ("Gone1", "Gone2"):
        both.same(RegisterTopicRequestHeader(topic=topic), TopicRouteData(queue_datas=queues).encode())
    ours, theirs = (
        {line["ask"]: line["answer"] for line in run_java("namesrv-admin", None, namesrv=one)}
        for one in (both.ours, both.theirs)
    )
    assert sorted(ours) == sorted(theirs)
    for ask, answer in theirs.items():
        assert _ordered(ours[ask]) == _ordered(answer), ask
    assert ours["put"] == 'wert=ü; "1"'
    assert ours["wipe"] == [5]


# Brokers that only exist in registrations, at both


def registered(rng: random.Random) -> tuple[RegisterBrokerRequestHeader, bytes]:
    """A registration of one of a few brokers, in one of its two forms; two topics at least (see COMPATIBILITY.md)."""
    chosen = rng.sample(TOPICS, rng.randint(2, len(TOPICS)))
    table = {
        name: TopicConfig(topic_name=name, perm=rng.choice([2, 4, 6]), topic_sys_flag=rng.randint(0, 3))
        for name in chosen
    }
    said = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=table, data_version=DataVersion(counter=rng.randint(1, 3), timestamp=rng.randint(1, 2))
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=said, filter_server_list=rng.choice([[], ["10.9.9.9:1"]]))
    compressed = rng.random() < 0.5
    raw = encode_compressed(body) if compressed else body.encode()
    name, broker_id = rng.choice(NAMES), rng.randint(0, 1)
    header = RegisterBrokerRequestHeader(
        **identity(rng, name, broker_id),
        ha_server_addr=f"10.0.0.9:{broker_id}",
        heartbeat_timeout_millis=rng.choice([None, 600_000]),
        enable_acting_master=rng.choice([None, True, True]),
        compressed=compressed,
        body_crc32=rng.choice([0, zlib.crc32(raw) & 0x7FFFFFFF]),
    )
    return header, raw


def identity(rng: random.Random, name: str, broker_id: int) -> dict[str, Any]:
    # A name is in one cluster, an address under one name: what RocketMQ makes of anything else hangs on its hashing.
    cluster, address = CLUSTERS[NAMES.index(name)], f"10.0.0.{NAMES.index(name)}:{rng.choice(PORTS)}"
    return {"broker_name": name, "broker_addr": address, "cluster_name": cluster, "broker_id": broker_id}


def step(both: Both, rng: random.Random) -> None:
    """One thing that happens to both."""
    name = rng.choice(NAMES)
    who = identity(rng, name, rng.randint(0, 1))
    kind = rng.random()
    if kind < 0.45:
        both.same(*registered(rng))
    elif kind < 0.6:
        both.same(UnRegisterBrokerRequestHeader(**who))
    elif kind < 0.7:
        both.same(QueryDataVersionRequestHeader(**who), DataVersion(counter=rng.randint(1, 3), timestamp=1).encode())
    elif kind < 0.75:
        both.same(BrokerHeartbeatRequestHeader(**who))
    elif kind < 0.93:
        queues = [QueueData(broker_name=rng.choice(NAMES), read_queue_nums=2, write_queue_nums=2, perm=6)]
        both.same(RegisterTopicRequestHeader(topic=rng.choice(TOPICS)), TopicRouteData(queue_datas=queues).encode())
    else:
        cluster = rng.choice([None, *CLUSTERS])
        both.same(DeleteTopicFromNamesrvRequestHeader(topic=rng.choice(TOPICS), cluster_name=cluster))


def compare(both: Both, rng: random.Random) -> None:
    """What both know of the brokers that the steps are about (the real one says its topics again and again)."""
    for topic in TOPICS:
        both.same(GetRouteInfoRequestHeader(topic=topic), version=rng.choice([OLD, 513]))
    both.same(RequestCode.GET_BROKER_CLUSTER_INFO)
    both.same(GetTopicsByClusterRequestHeader(cluster=rng.choice(CLUSTERS)))
    name = rng.choice(NAMES)
    both.same(GetBrokerMemberGroupRequestHeader(cluster_name="C", broker_name=name))


@pytest.mark.parametrize("acting_master", ["false", "true"])
def test_random_broker_requests_leave_both_name_servers_equal(
    both: Both, rng: random.Random, acting_master: str
) -> None:
    both.same(RequestCode.UPDATE_NAMESRV_CONFIG, f"supportActingMaster={acting_master}\n".encode())
    for _ in range(STEPS):
        step(both, rng)
        compare(both, rng)


def test_wiped_permission_survives_registration_of_other_topics(both: Both) -> None:
    """The real name server forgets it then, and gives permissions that a topic never had when it is taken back."""
    who = {"broker_name": "wiped", "broker_addr": "10.0.0.7:1", "cluster_name": "W", "broker_id": 0}

    def register(version: int) -> None:
        table = {name: TopicConfig(topic_name=name, perm=perm) for name, perm in (("Wiped", 6), ("ReadOnly", 4))}
        said = TopicConfigAndMappingSerializeWrapper(
            topic_config_table=table, data_version=DataVersion(counter=version, timestamp=1)
        )
        header = RegisterBrokerRequestHeader(ha_server_addr="10.0.0.7:2", **who)
        both.same(header, RegisterBrokerBody(topic_config_serialize_wrapper=said).encode())

    def perms(topic: str) -> list[int]:
        route = request(GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True), b"")
        answers = [both.loop.run(both.client.invoke(one, route, 5_000)) for one in (both.ours, both.theirs)]
        return [json.loads(answer.body)["queueDatas"][0]["perm"] for answer in answers]

    register(1)
    both.same(WipeWritePermOfBrokerRequestHeader(broker_name="wiped"))
    register(1)
    assert perms("Wiped") == [4, 4]
    register(2)
    assert perms("Wiped") == [4, 6]
    both.same(WipeWritePermOfBrokerRequestHeader(broker_name="wiped"))
    both.same(AddWritePermOfBrokerRequestHeader(broker_name="wiped"))
    assert (perms("Wiped"), perms("ReadOnly")) == ([6, 6], [4, 6])
    both.same(UnRegisterBrokerRequestHeader(**who))


def test_our_broker_registers_at_both(both: Both, tmp_path: Path) -> None:
    namesrv_addr = f"{both.ours};{both.theirs}"
    broker = BrokerConfig(broker_name="broker-p", broker_cluster_name="P", listen_port=0, namesrv_addr=namesrv_addr)
    store = MessageStoreConfig(mapped_file_size_commit_log=1 << 24, max_hash_slot_num=1000, max_index_num=4000)
    server = BrokerServer(tmp_path / "store", LiveConfig(broker, store))
    both.loop.run(server.start())
    try:
        route = both.same(GetRouteInfoRequestHeader(topic="broker-p"))
        assert route["body"]["brokerDatas"][0]["brokerAddrs"] == {"0": server.address}
        sent: list[Line] = []
        for namesrv in (both.ours, both.theirs):
            both.cluster.namesrv = namesrv
            sent += both.cluster.send([{"topic": f"OnP{len(sent)}", "body": "hello"}])
        assert [line["status"] for line in sent] == ["SEND_OK"] * 2
    finally:
        both.cluster.namesrv = both.theirs
        both.loop.run(server.shutdown())
    assert both.same(GetRouteInfoRequestHeader(topic="broker-p"))["code"] == 17


def test_killed_real_broker_is_unregistered_at_once(both: Both) -> None:
    """The last one, for the other name server dies with it: its connection breaks, and nobody waits two minutes."""
    route = GetRouteInfoRequestHeader(topic="TBW102")
    both.loop.run(both.client.invoke(both.ours, request(route, b""), 5_000))
    both.cluster.kill()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while both.loop.run(both.client.invoke(both.ours, request(route, b""), 5_000)).code != 17:
        assert time.monotonic() < deadline
        time.sleep(0.02)
