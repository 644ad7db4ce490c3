"""What our producer sends through the real broker, the real consumer gets; retries, ACL, brokers that go away."""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gantrymq import AdminClient, ConsumeFromWhere, LitePullConsumer, Message, Producer, PullClient, PushConsumer
from gantrymq.client.connection.blocking_client import BlockingClient
from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.producer.compression import CompressionType
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.records import decode_records
from gantrymq.client.requests.send_result import SendStatus
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import MQBrokerError, MQClientError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ProducerConnection
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import SerializeType
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import GetProducerConnectionListRequestHeader

from .java_cluster import JavaCluster

T = TypeVar("T")
FROM_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.mark.parametrize(
    ("form", "kind"),
    [(SerializeType.JSON, CompressionType.ZLIB), (SerializeType.ROCKETMQ, CompressionType.LZ4),
     (SerializeType.JSON, CompressionType.ZSTD)],
)  # fmt: skip
def test_java_gets_what_we_send(cluster: JavaCluster, form: SerializeType, kind: CompressionType) -> None:
    topic = f"SentByUs-{form.name}-{kind.name}"
    sent = [
        Message(
            topic, b"\x00\xff" * (1 if number % 2 else 5000), tags=f"tag{number % 3}", keys=(f"k{number}", "all"),
            properties={"номер": str(number)}, flag=number,
        )
        for number in range(40)
    ]  # fmt: skip
    batched = [Message(topic, f"batched {number}".encode(), tags="batch") for number in range(10)]
    with Producer(cluster.namesrv, serialize_type=form, compression_type=kind) as producer:
        results = [producer.send(message) for message in sent[:20]]
        results += [one.result() for one in [producer.send_async(message) for message in sent[20:]]]
        batch = producer.send_batch(batched)
    assert {one.status for one in [*results, batch]} == {SendStatus.SEND_OK}
    unique_ids = {result.msg_id for result in results} | set(batch.msg_id.split(","))
    got: dict[str, Any] = {}
    deadline = time.monotonic() + 60
    while not unique_ids <= got.keys():  # the broker dispatches behind its answers, and a send may be repeated
        assert time.monotonic() < deadline
        got = {one["uniqKey"]: one for one in cluster.pull(topic, len(got) + 50, binary=form is SerializeType.ROCKETMQ)}
    for message, result in zip(sent, results, strict=True):
        one = got[result.msg_id]
        assert one["bodySha256"] == hashlib.sha256(message.body).hexdigest()
        assert (one["queueId"], one["queueOffset"]) == (result.queue.queue_id, result.queue_offset)
        assert one["flag"] == message.flag
        assert {"TAGS": message.tags, "KEYS": " ".join(message.keys), **message.properties}.items() <= one[
            "properties"
        ].items()
        assert result.offset_msg_id.endswith(f"{one['phyOffset']:016X}")
    for message, unique_id in zip(batched, batch.msg_id.split(","), strict=True):
        assert got[unique_id]["bodySha256"] == hashlib.sha256(message.body).hexdigest()
    assert len(got) == 50


def test_messages_of_automatic_batches_have_their_places_at_the_real_broker(cluster: JavaCluster) -> None:
    sent = [Message("AutoBatched", b"%d" % number, tags=f"t{number % 3}") for number in range(200)]
    with Producer(cluster.namesrv, auto_batch=True) as producer:
        producer.send(Message("AutoBatched", b"first"))
        futures = [producer.send_async(message) for message in sent]
        results = {future.result().msg_id: future.result() for future in futures}
    got: dict[str, Any] = {}
    deadline = time.monotonic() + 60
    while not results.keys() <= got.keys():  # the broker dispatches behind its answers
        assert time.monotonic() < deadline
        got = {pulled["uniqKey"]: pulled for pulled in cluster.pull("AutoBatched", len(got) + 250)}
    assert len(got) == len(results) + 1 == 201
    for message, (msg_id, result) in zip(sent, results.items(), strict=True):
        pulled = got[msg_id]
        assert pulled["bodySha256"] == hashlib.sha256(message.body).hexdigest()
        assert (pulled["queueId"], pulled["queueOffset"]) == (result.queue.queue_id, result.queue_offset)
        assert pulled["properties"]["TAGS"] == message.tags
        assert result.offset_msg_id.endswith(f"{pulled['phyOffset']:016X}")


def test_sends_to_queue_by_selector_and_one_way_arrive(cluster: JavaCluster) -> None:
    with Producer(cluster.namesrv) as producer, PullClient(ClientConfig(cluster.namesrv)) as client:
        first = producer.send(Message("Chosen", b"x"))
        assert first.queue.queue_id in range(4)
        queues = eventually(lambda: client.queues("Chosen"))
        assert producer.send(Message("Chosen", b"x"), queues[2]).queue == queues[2]
        last = producer.send(Message("Chosen", b"x"), max)
        assert last.queue == queues[-1]
        producer.send_oneway(Message("Chosen", b"one way"), queues[1])
        [message] = eventually(lambda: bodies_after(client, queues[1], b"one way"))
        assert message == b"one way"


def eventually(ask: Callable[[], T]) -> T:
    """What is asked for, once it is there and not empty; a route takes a moment to reach the name server."""
    for _ in range(300):
        try:
            if answer := ask():
                return answer
        except MQClientError:
            pass
        time.sleep(0.1)
    raise AssertionError("it did not come")


def bodies_after(client: PullClient, queue: MessageQueue, body: bytes) -> list[bytes]:
    pulled = client.read(queue, 0, client.max_offset(queue))
    return [one.body for piece in pulled for one in decode_records(piece.records) if one.body == body]


def test_concurrent_sends_arrive_once(cluster: JavaCluster) -> None:
    async def scenario() -> set[int]:
        async with AsyncProducer(ProducerConfig(cluster.namesrv, send_msg_timeout_ms=20_000)) as producer:
            results = await asyncio.gather(*(producer.send(Message("Many", b"%d" % one)) for one in range(2000)))
            assert len({one.msg_id for one in results}) == 2000
            return {one.queue.queue_id for one in results}

    assert asyncio.run(scenario()) == {0, 1, 2, 3}


def test_refusal_by_broker_raises(cluster: JavaCluster) -> None:
    with Producer(cluster.namesrv, max_message_size=8 << 20, compress_msg_body_over_howmuch=16 << 20) as producer:
        with pytest.raises(MQBrokerError, match="MESSAGE_ILLEGAL"):
            producer.send(Message("Refused", bytes(6 << 20)))
        queue = MessageQueue("Refused", "broker-x", 0)
        with pytest.raises(MQClientError, match="broker-x"):
            producer.send(Message("Refused", b"x"), queue)


def test_broker_lists_producers_until_unregistered(cluster: JavaCluster) -> None:
    def connections() -> int:
        header = GetProducerConnectionListRequestHeader(producer_group="known-group")
        with BlockingClient(ClientConfig(cluster.namesrv)) as client, client.connection(cluster.broker) as connection:
            connection.send(RemotingCommand.request(header))
            body = connection.receive(5000).body
        return len(decode_body(ProducerConnection, body).connection_set) if body else 0

    with Producer(cluster.namesrv, producer_group="known-group") as producer:
        producer.send(Message("Known", b"x"))
        assert eventually(connections) == 1
    assert connections() == 0


def test_missing_name_server_or_route_raises(cluster: JavaCluster) -> None:
    with Producer("127.0.0.1:1") as producer, pytest.raises(Exception, match="no name server answers"):
        producer.send(Message("T", b"x"))
    with (
        Producer(cluster.namesrv, create_topic_key="NoSuchTopic") as producer,
        pytest.raises(MQClientError, match="No route info of this topic: Unmade"),
    ):
        producer.send(Message("Unmade", b"x"))


@pytest.mark.slow
def test_second_broker_receives_sends_after_failure_of_first(cluster: JavaCluster, tmp_path: Path) -> None:
    """Of two brokers one is killed: every send ends with an acknowledgement, and all of them are there."""
    settings = {"flushDiskType": "ASYNC_FLUSH"}
    with (
        JavaCluster(tmp_path / "a", settings | {"brokerName": "one"}) as first,
        JavaCluster(tmp_path / "b", settings | {"brokerName": "two"}, namesrv=first.namesrv) as second,
        PullClient(ClientConfig(first.namesrv)) as client,
        Producer(first.namesrv, send_msg_timeout_ms=20_000, send_latency_fault_enable=True) as producer,
    ):
        eventually(lambda: set(client.route("TBW102", fresh=True).masters) == {"one", "two"})
        brokers = {producer.send(Message("Two", b"x")).queue.broker_name for _ in range(20)}
        assert brokers == {"one", "two"}
        second.kill()
        results = [producer.send(Message("Two", b"x")) for _ in range(20)]
        assert {one.queue.broker_name for one in results} == {"one"}


def test_signed_requests_are_accepted_by_real_broker(tmp_path: Path) -> None:
    auth = {
        "authenticationEnabled": "true",
        "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": (
            "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "initAuthenticationUser": '{"username":"rocketmq","password":"12345678"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"rocketmq","secretKey":"12345678"}',
    }
    with JavaCluster(tmp_path / "store", auth=auth) as own:
        keys = {"access_key": "rocketmq", "secret_key": "12345678"}
        with Producer(own.namesrv, **keys) as producer, PullClient(ClientConfig(own.namesrv, **keys)) as client:
            sent = producer.send(Message("Signed", b"x"))
            batch = producer.send_batch([Message("Signed", b"y")])
            for one in (sent, batch):  # the real broker acknowledges before it dispatches
                assert eventually(lambda one=one: client.max_offset(one.queue) > one.queue_offset)
            assert client.pull(batch.queue, batch.queue_offset).records
        got: list[bytes] = []
        with (
            AdminClient(own.namesrv, **keys) as admin,
            PushConsumer(own.namesrv, consumer_group="signed-push", consume_from_where=FROM_FIRST, **keys) as consumer,
            LitePullConsumer(own.namesrv, consumer_group="signed-lite", consume_from_where=FROM_FIRST, **keys) as lite,
        ):
            assert admin.topic_stats("Signed")
            consumer.subscribe("Signed")
            consumer.listen(lambda messages, context: got.extend(message.body for message in messages))
            consumer.start()
            assert eventually(lambda: sorted(got) == [b"x", b"y"])
            lite.subscribe("Signed")
            polled: list[bytes] = []
            assert eventually(lambda: polled.extend(one.body for one in lite.poll()) or len(polled) >= 2)
            assert sorted(polled) == [b"x", b"y"]
        for wrong in ({}, keys | {"secret_key": "wrong"}):
            with Producer(own.namesrv, **wrong) as producer, pytest.raises(MQBrokerError):
                producer.send(Message("Signed", b"x"), sent.queue)


def test_real_broker_accepts_body_of_maximum_size(cluster: JavaCluster) -> None:
    """Compressed, four mebibytes of random would be too many."""
    body = os.urandom(4 << 20)
    with Producer(f"http://{cluster.namesrv}", send_msg_timeout_ms=20_000) as producer:
        sent = [producer.send_async(Message("JustAllowed", body)) for _ in range(8)]
        producer.flush()
        assert {one.result().status for one in sent} == {SendStatus.SEND_OK}
