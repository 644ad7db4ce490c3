"""Our pulls from the real broker: routes, offsets, times, filters, compression, and brokers that come and go."""

import hashlib
import random
import time
from pathlib import Path

import numpy as np
import pytest

from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.requests.calls import Call, PullStatus
from gantrymq.client.requests.records import decode_records
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import MQBrokerError, MQClientError, RemotingConnectError
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.model import flags
from gantrymq.model.message import StoredMessage
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.group import ConsumerOffsetSerializeWrapper
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, SerializeType
from gantrymq.remoting.command import RemotingCommand

from .java import Line
from .java_cluster import JavaCluster


def everything(client: PullClient, topic: str) -> list[StoredMessage]:
    """All messages of a topic, by queue and offset."""
    return [
        message
        for queue in client.queues(topic)
        for pulled in client.read(queue, client.min_offset(queue), client.max_offset(queue))
        for message in decode_records(pulled.records)
    ]


def line(message: StoredMessage) -> Line:
    """A message as the real consumer's line has it."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "phyOffset": message.phy_offset,
        "size": message.size_bytes,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": str(message.store_host),
        "bodyCRC": message.body_crc,
        "bodyLength": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
    }


def the_same(ours: list[StoredMessage], theirs: list[Line]) -> None:
    assert [line(message) for message in ours] == [{key: one[key] for key in line(ours[0])} for one in theirs]
    for message, one in zip(ours, theirs, strict=True):
        # The consumer adds properties of its own: MIN_OFFSET, MAX_OFFSET, CONSUME_START_TIME.
        assert message.properties.items() <= one["properties"].items()


@pytest.mark.parametrize(
    ("form", "compression"),
    [(SerializeType.JSON, "ZLIB"), (SerializeType.ROCKETMQ, "LZ4"), (SerializeType.JSON, "ZSTD")],
)
def test_our_pull_returns_messages_of_java_as_java_does(
    cluster: JavaCluster, rng: random.Random, form: SerializeType, compression: str
) -> None:
    topic = f"PulledByUs-{form.name}-{compression}"
    messages: list[Line | list[Line]] = [
        {"topic": topic, "body": "主题" * rng.choice([1, 30, 2000]), "tags": f"tag{number % 3}", "keys": f"k{number} a",
         "properties": {"number": str(number), "ключ": "値"}}
        for number in range(100)
    ]  # fmt: skip
    messages.append([{"topic": topic, "body": f"batched {number}"} for number in range(20)])
    binary = form is SerializeType.ROCKETMQ
    sent = cluster.send(messages, binary=binary, compression=compression)
    assert {one["status"] for one in sent} == {"SEND_OK"}
    with PullClient(ClientConfig(cluster.namesrv, serialize_type=form)) as client:
        ours = everything(client, topic)
    the_same(ours, cluster.pull(topic, 120, binary=binary))
    assert len(ours) == 120
    assert any(message.sys_flag & flags.COMPRESSION_MASK for message in ours)


def test_pulled_records_equal_those_read_by_kernels(cluster: JavaCluster) -> None:
    cluster.send([[{"topic": "Kernels", "body": f"{number}"} for number in range(300)] for _ in range(4)])
    with PullClient(ClientConfig(cluster.namesrv)) as client:
        for queue in client.queues("Kernels"):
            end = client.max_offset(queue)
            records = b"".join(pulled.records for pulled in client.read(queue, 0, end))
            columns = new_columns(2000)
            count, _, used = scan(read_only(records), 0, len(records), len(records), codes.CHECK_BODY, columns)
            assert (count, used) == (end, len(records))
            assert np.array_equal(columns[codes.QUEUE_OFFSET, :count], np.arange(end))


def test_offsets_and_pull_statuses_equal_those_of_java(cluster: JavaCluster) -> None:
    topic = "Offsets"
    cluster.send([{"topic": topic, "body": str(number), "queueId": 0, "tags": "odd" if number % 2 else "even"}
                  for number in range(50)])  # fmt: skip
    with PullClient(ClientConfig(cluster.namesrv)) as client:
        queue = client.queues(topic)[0]
        assert (queue.broker_name, queue.queue_id) == ("broker-a", 0)
        assert (client.min_offset(queue), client.max_offset(queue)) == (0, 50)
        messages = [one for pulled in client.read(queue, 0, 50) for one in decode_records(pulled.records)]
        for message in messages[::7]:
            first = next(one for one in messages if one.store_timestamp_ms >= message.store_timestamp_ms)
            assert client.search_offset(queue, message.store_timestamp_ms) == first.queue_offset
        assert client.search_offset(queue, messages[-1].store_timestamp_ms + 10_000) == 50
        found = client.pull(queue, 0)
        assert (found.status, found.min_offset, found.max_offset) == (PullStatus.FOUND, 0, 50)
        assert client.pull(queue, 50).status is PullStatus.NO_NEW_MSG
        beyond = client.pull(queue, 60)
        assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 50)
        assert client.pull(queue, 0, expression="none").status is PullStatus.NO_MATCHED_MSG
        odd = [one for pulled in client.read(queue, 0, 50, expression="odd") for one in decode_records(pulled.records)]
        assert [one.queue_offset for one in odd] == list(range(1, 50, 2))
        empty = next(one for one in client.queues(topic) if one.queue_id == 1)
        assert list(client.read(empty, 0, 10)) == []


def test_missing_topic_raises_at_real_broker(cluster: JavaCluster) -> None:
    cluster.send([{"topic": "Listed", "body": "x"}])
    with PullClient(ClientConfig(cluster.namesrv)) as client:
        assert {"Listed", "TBW102"} <= set(client.topics())
        assert client.cluster().broker_addr_table["broker-a"].broker_addrs == {0: cluster.broker}
        with pytest.raises(MQClientError, match="no route of topic Nowhere"):
            client.queues("Nowhere")
        client._routes["Gone"] = client.route("Listed")
        with pytest.raises(MQBrokerError, match="TOPIC_NOT_EXIST"):
            client.pull(MessageQueue("Gone", "broker-a", 0), 0)


def test_unreachable_name_server_is_skipped(cluster: JavaCluster) -> None:
    cluster.send([{"topic": "Failover", "body": "x"}])
    with PullClient(ClientConfig(f"127.0.0.1:1;{cluster.namesrv}")) as client:
        assert client.queues("Failover")
    with PullClient(ClientConfig("127.0.0.1:1;127.0.0.1:2")) as client, pytest.raises(RemotingConnectError) as caught:
        client.queues("Failover")
    assert "127.0.0.1:1" in str(caught.value)
    assert "127.0.0.1:2" in str(caught.value)


def test_pulling_disturbs_no_group(cluster: JavaCluster) -> None:
    """Nothing is committed. That TOOLS_CONSUMER pulled is noted by the broker, in a table apart."""
    cluster.send([{"topic": "Undisturbed", "body": "x"}])
    with PullClient(ClientConfig(cluster.namesrv)) as client:
        before = client._client.call(cluster.broker, offsets())
        assert len(everything(client, "Undisturbed")) == 1
        assert client._client.call(cluster.broker, offsets()) == before


def offsets() -> Call[dict[str, dict[int, int]]]:
    """What all groups have committed, by ``topic@group`` and queue."""
    return Call(
        lambda: RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET),
        lambda response, _: decode_body(ConsumerOffsetSerializeWrapper, response.body).offset_table,
    )


def delete_expired_files() -> Call[int]:
    return Call(lambda: RemotingCommand(RequestCode.DELETE_EXPIRED_COMMITLOG), lambda response, _: response.code)


@pytest.mark.slow
def test_pull_continues_after_broker_was_killed_and_restarted(tmp_path: Path) -> None:
    settings = {"autoCreateSubscriptionGroup": False, "flushDiskType": "SYNC_FLUSH"}
    with JavaCluster(tmp_path / "store", settings) as own:
        own.send([[{"topic": "Killed", "body": f"{number}"} for number in range(200)] for _ in range(4)])
        with PullClient(ClientConfig(own.namesrv, connect_timeout_ms=500)) as client:
            before = everything(client, "Killed")
            assert len(before) == 800
            queue = next(one for one in client.queues("Killed") if client.max_offset(one) > 100)
            reading = client.read(queue, 0, client.max_offset(queue), under_way=1)
            first = next(reading)
            own.kill()
            with pytest.raises(RemotingConnectError):
                client.max_offset(queue)
            own.start()
            rest = [one for pulled in reading for one in decode_records(pulled.records)]
            assert [one.queue_offset for one in rest] == list(range(first.end_offset, client.max_offset(queue)))
            assert everything(client, "Killed") == before


@pytest.mark.slow
def test_pull_below_min_offset_reports_new_start(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": 65536, "fileReservedTime": 0, "deleteWhen": "25"}
    with JavaCluster(tmp_path / "store", settings) as own:
        own.send([{"topic": "Short", "body": "x" * 1000, "queueId": 0} for _ in range(300)])
        with PullClient(ClientConfig(own.namesrv)) as client:
            queue = client.queues("Short")[0]
            client._client.call(own.broker, delete_expired_files())
            deadline = time.monotonic() + 150  # the broker looks for the first time a minute after it began
            while client.min_offset(queue) == 0 and time.monotonic() < deadline:
                time.sleep(0.2)
            low = client.min_offset(queue)
            assert low > 0
            pieces = list(client.read(queue, 0, 300))
            lost = [number for one in pieces if one.lost for number in range(one.begin_offset, one.end_offset)]
            there = [one.queue_offset for pulled in pieces for one in decode_records(pulled.records)]
            assert lost == list(range(low))
            assert there == list(range(low, 300))
