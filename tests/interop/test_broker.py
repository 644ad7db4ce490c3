"""The real producer and consumer at our broker, through the real name server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gantrymq.broker.server import BrokerServer
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.settings import MessageStoreConfig

from .java import JavaError
from .java_cluster import JavaCluster
from .our_broker import OurBroker

STORE = MessageStoreConfig(mapped_file_size_commit_log=1 << 24, max_hash_slot_num=1000, max_index_num=4000)


async def aside(call: Any, *arguments: Any, **options: Any) -> Any:
    """Let the real client work in a process of its own while our event loop runs."""
    return await asyncio.to_thread(call, *arguments, **options)


@pytest.mark.parametrize("binary", [False, True], ids=["json", "rocketmq"])
def test_real_consumer_gets_each_message_of_real_producer(tmp_path: Path, binary: bool) -> None:
    async def run(cluster: JavaCluster) -> None:
        broker = BrokerConfig(listen_port=0, namesrv_addr=cluster.namesrv, wait_time_in_send_queue_ms=60_000)
        server = BrokerServer(tmp_path / "store", LiveConfig(broker, STORE))
        await server.start()
        try:
            single = [{"topic": "T", "body": f"one {i}", "tags": "a", "keys": f"k{i}"} for i in range(20)]
            batch = [{"topic": "T", "body": f"of a batch {i}", "properties": {"n": str(i)}} for i in range(5)]
            large = {"topic": "T", "body": "x" * 20_000}
            sent = await aside(cluster.send, [*single, batch, large], binary=binary)
            assert [line["status"] for line in sent] == ["SEND_OK"] * 22
            got = await aside(cluster.pull, "T", 26, binary=binary)
        finally:
            await server.shutdown()
        assert sorted(len(line["bodySha256"]) for line in got) == [64] * 26
        by_key = {line["properties"].get("KEYS"): line for line in got}
        assert {f"k{i}" for i in range(20)} <= set(by_key)
        assert by_key["k3"]["properties"]["TAGS"] == "a"
        assert by_key["k3"]["properties"]["CLUSTER"] == "DefaultCluster"
        assert by_key["k3"]["uniqKey"] == by_key["k3"]["properties"]["UNIQ_KEY"]

    with JavaCluster(None, broker=False) as cluster:
        asyncio.run(run(cluster))


ACL = """
accounts:
  - accessKey: ordersKey
    secretKey: ordersSecret
    topicPerms: [orders=PUB]
"""


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True], ids=["json", "rocketmq"])
def test_signature_of_real_hook_is_accepted_for_permitted_accounts(tmp_path: Path, binary: bool) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACL)
    settings = {"aclEnable": True, "aclPlainFile": str(file)}
    allowed = {"access_key": "ordersKey", "secret_key": "ordersSecret", "binary": binary}
    with JavaCluster(None, broker=False) as cluster, OurBroker(tmp_path / "s", settings, namesrv=cluster.namesrv):
        sent = cluster.send([{"topic": "orders", "body": "grüße", "keys": "k1"}], **allowed)
        assert [line["status"] for line in sent] == ["SEND_OK"]
        with pytest.raises(JavaError, match="No default permission for other"):
            cluster.send([{"topic": "other", "body": "x"}], **allowed)
        with pytest.raises(JavaError, match="Check signature failed for accessKey=ordersKey"):
            cluster.send([{"topic": "orders", "body": "x"}], **(allowed | {"secret_key": "wrongSecret"}))
        with pytest.raises(JavaError, match="No accessKey is configured"):
            cluster.send([{"topic": "orders", "body": "x"}], binary=binary)
