"""Namespaces, routes and settings, as RocketMQ's client has them."""

import asyncio
import socket
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from gantrymq.client.connection.async_client import AsyncClient
from gantrymq.client.namespace import without_namespace, wrap_namespace
from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.producer.compression import CompressionType, compress
from gantrymq.client.producer.publish_routes import PublishRoutes
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.records import decode_records
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import ManualClock
from gantrymq.errors import (
    ConfigError,
    MQBrokerError,
    MQClientError,
    RemotingCommandError,
    RemotingConnectError,
    RemotingTooMuchRequestError,
)
from gantrymq.format.names import offset_name
from gantrymq.format.packed_body import decompress
from gantrymq.model import flags
from gantrymq.model.message import Message
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from gantrymq.store.message_store import MessageStore


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("Topic", "NS%Topic"),
        ("NS%Topic", "NS%Topic"),
        ("%RETRY%group", "%RETRY%NS%group"),
        ("%DLQ%group", "%DLQ%NS%group"),
        ("TBW102", "TBW102"),
        ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_namespace_is_added_and_removed(name: str, wrapped: str) -> None:
    assert wrap_namespace("NS", name) == wrapped
    assert wrap_namespace("", name) == name
    assert without_namespace("NS", wrapped) == name.replace("NS%", "")
    assert without_namespace("", wrapped) == wrapped


@pytest.mark.parametrize("name", ["NS%TBW102", "NS%CID_RMQ_SYS_q", "NS%rmq_sys_t", "NS%NS%x", "%DLQ%NS%NS%x", "NS%"])
def test_ambiguous_name_is_shown_with_its_namespace(name: str) -> None:
    assert without_namespace("NS", name) == name == wrap_namespace("NS", name)


def route(**more: object) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=[
            QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=2, perm=6),
            QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=4),
            QueueData(broker_name="c", read_queue_nums=1, write_queue_nums=1, perm=6),
        ],
        broker_datas=[
            BrokerData(broker_name="a", broker_addrs={0: "a0:1", 1: "a1:1"}),
            BrokerData(broker_name="b", broker_addrs={0: "b0:1"}),
            BrokerData(broker_name="c", broker_addrs={2: "c2:1", 1: "c1:1"}),
        ],
        **more,  # type: ignore[arg-type]
    )


def test_route_gives_readable_and_writable_queues() -> None:
    made = TopicRoute.of("T", route())
    assert list(map(str, made.subscribe)) == ["T@a:0", "T@a:1", "T@b:0", "T@c:0"]
    assert list(map(str, made.publish)) == ["T@b:0", "T@b:1"]  # a may not be written, c has no master
    assert made.address(MessageQueue("T", "a", 0)) == "a0:1"
    assert made.address(MessageQueue("T", "c", 0)) == "c1:1"
    with pytest.raises(MQClientError, match="no broker x"):
        made.address(MessageQueue("T", "x", 0))


class NameServer:
    """Answers with what it has next: a route, none, or an error."""

    def __init__(self, *answers: TopicRouteData | Exception | None) -> None:
        self.answers = list(answers)

    async def ask_name_server(self, call: object) -> TopicRouteData | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    "answers",
    [
        [RemotingConnectError("a:1", "nobody")],
        [MQBrokerError("a:1", 1, "SYSTEM_ERROR", "busy")],
        [None, None],  # it was started again, and no broker has registered yet
        [TopicRouteData()],
    ],
)
def test_known_route_stays_until_lookup_succeeds(answers: list[TopicRouteData | Exception | None]) -> None:
    async def scenario() -> None:
        better = route()
        better.broker_datas[1].broker_addrs[0] = "b0:2"
        client = cast(AsyncClient, NameServer(route(), *answers, better))
        routes = PublishRoutes(client, ProducerConfig("a:1", producer_group="g"), ManualClock())
        known = await routes.find("T")
        routes.forget("T")
        routes.forget("unknown")
        assert "b0:1" in routes.masters()
        assert await routes.find("T") is known
        routes.forget("T")
        assert (await routes.find("T")).masters["b"] == "b0:2"

    asyncio.run(scenario())


def test_frozen_name_server_delays_no_lookup() -> None:
    class Frozen(NameServer):
        asked = 0

        async def ask_name_server(self, call: object) -> TopicRouteData | None:
            self.asked += 1
            if not self.answers:
                await asyncio.Event().wait()
            return await super().ask_name_server(call)

    async def scenario() -> None:
        server, clock = Frozen(route(), route()), ManualClock()
        routes = PublishRoutes(cast(AsyncClient, server), ProducerConfig("a:1", producer_group="g"), clock)
        known = [await routes.find(topic) for topic in ("T", "U")]
        clock.advance(60_000)
        for _ in range(3):
            found = asyncio.gather(*(routes.find(topic) for topic in ("T", "U")))
            assert await asyncio.wait_for(found, 60) == known
        assert server.asked == 4  # once more for each, and it is being waited for
        await asyncio.wait_for(routes.close(), 60)

    asyncio.run(scenario())


def test_queues_of_topic_deleted_meanwhile_raise() -> None:
    """The route that would make it again is for sending alone."""

    async def scenario() -> None:
        server, clock = NameServer(route(), None, route(), None), ManualClock()
        routes = PublishRoutes(cast(AsyncClient, server), ProducerConfig("a:1", producer_group="g"), clock)
        assert (await routes.find_existing("T")).publish
        clock.advance(60_000)
        with pytest.raises(MQClientError, match="No route info of this topic: T: no name server knows it"):
            await routes.find_existing("T")
        assert (await routes.find("T")).publish

    asyncio.run(scenario())


class Hung(NameServer):
    """Answers, or fails, once it is let."""

    def __init__(self, *answers: TopicRouteData | Exception | None) -> None:
        super().__init__(*answers)
        self.asked, self.let = 0, asyncio.Event()

    async def ask_name_server(self, call: object) -> TopicRouteData | None:
        self.asked += 1
        await self.let.wait()
        return await super().ask_name_server(call)


def test_concurrent_first_sends_share_one_route_lookup() -> None:
    async def scenario() -> None:
        server = Hung(RemotingConnectError("a:1", "nobody"), route())
        routes = PublishRoutes(cast(AsyncClient, server), ProducerConfig("a:1", producer_group="g"), ManualClock())
        for failed in (True, False):
            server.let.clear()
            many = [asyncio.ensure_future(routes.find("T")) for _ in range(10)]
            await asyncio.sleep(0)
            many[0].cancel()
            server.let.set()
            first, *others = await asyncio.gather(*many, return_exceptions=True)
            assert isinstance(first, asyncio.CancelledError)
            assert [isinstance(one, RemotingConnectError) for one in others] == [failed] * 9
        assert server.asked == 2
        await routes.close()

    asyncio.run(scenario())


def test_first_route_lookup_ends_at_send_timeout() -> None:
    async def scenario(address: str) -> None:
        config = ProducerConfig(address, producer_group="g", send_msg_timeout_ms=100)
        async with AsyncProducer(config) as producer, asyncio.timeout(60):
            message, queue = Message("T", b"x"), MessageQueue("T", "b", 0)
            for send in (producer.send, partial(producer.send, queue=queue), producer.send_oneway):
                with pytest.raises(RemotingTooMuchRequestError):
                    await send(message)

    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts, and never answers
        asyncio.run(scenario(f"127.0.0.1:{mute.getsockname()[1]}"))


def test_first_route_lookup_raises_when_producer_closes() -> None:
    async def scenario() -> None:
        server = Hung()
        routes = PublishRoutes(cast(AsyncClient, server), ProducerConfig("a:1", producer_group="g"), ManualClock())
        waiting = asyncio.ensure_future(routes.find("T"))
        await asyncio.sleep(0)
        await routes.close()
        with pytest.raises(MQClientError, match="closed"):
            await asyncio.wait_for(waiting, 60)

    asyncio.run(scenario())


def test_topic_without_route_raises_clear_error() -> None:
    for answers in ([None, None], [TopicRouteData()]):
        client = cast(AsyncClient, NameServer(*answers))
        routes = PublishRoutes(client, ProducerConfig("a:1", producer_group="g"), ManualClock())
        with pytest.raises(MQClientError, match="No route info of this topic: T"):
            asyncio.run(routes.find("T"))


def test_queues_of_ordered_topic_come_from_its_configuration() -> None:
    assert list(map(str, TopicRoute.of("T", route(order_topic_conf="c:2;a:1")).publish)) == ["T@c:0", "T@c:1", "T@a:0"]
    with pytest.raises(MQClientError, match="orderTopicConf"):
        TopicRoute.of("T", route(order_topic_conf="c"))
    with pytest.raises(MQClientError, match="orderTopicConf"):
        TopicRoute.of("T", route(order_topic_conf=f"c:{'9' * 5000}"))


@pytest.mark.parametrize(
    "wrong",
    [
        TopicRouteData(queue_datas=[QueueData(broker_name="a", read_queue_nums=3_000_000, perm=6)]),
        TopicRouteData(
            queue_datas=[QueueData(broker_name=one, write_queue_nums=40_000, perm=6) for one in map(str, range(30))]
        ),
        route(order_topic_conf=";".join(f"{broker}:40000" for broker in range(30))),
        route(order_topic_conf="a:70000"),
    ],
)
def test_route_with_too_many_queues_is_refused(wrong: TopicRouteData) -> None:
    with pytest.raises(MQClientError, match="queues, more than are accepted"):
        TopicRoute.of("T", wrong)


def test_route_with_many_brokers_and_queues_is_accepted() -> None:
    """A broker has 1024 of BenchmarkTest unless told."""
    datas = [QueueData(broker_name=str(one), read_queue_nums=1024, perm=6) for one in range(100)]
    assert len(TopicRoute.of("BenchmarkTest", TopicRouteData(queue_datas=datas)).subscribe) == 102_400


def test_invalid_client_settings_are_refused() -> None:
    assert ClientConfig("a:1; b:2").name_server_list == ["a:1", "b:2"]
    for wrong in (
        " ; ",
        "localhost",
        "a:1;b",
        "a:1 b:2",
        "http://a",
        "http://a:1/path",
        "a:70000",
        ":1",
        "a:0",
        "::1:9876",
        "[::1]:0",
        "[::1:9876",
        "a]:1",
        "[]:1",
    ):
        with pytest.raises(ConfigError, match=r"namesrvAddr=.* is not allowed: host:port"):
            ClientConfig(wrong)
    with pytest.raises(ConfigError, match="accessKey"):
        ClientConfig("a:1", access_key="x")
    assert "hush" not in repr(ClientConfig("a:1", access_key="x", secret_key="hush"))


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compressed_body_round_trips_and_damaged_one_raises(kind: CompressionType) -> None:
    body = b"gantrymq " * 1000
    packed = compress(body, kind, 5)
    assert len(packed) < len(body) / 10
    assert decompress(packed, kind.value) == body
    with pytest.raises(ValueError, match="cannot be decompressed"):
        decompress(packed[:-8], kind.value)


def test_unknown_compression_raises_clear_error() -> None:
    with pytest.raises(ValueError, match="type 4 is not known"):
        decompress(b"", 0x400)


def test_body_with_wrong_compression_flag_is_returned_as_stored(tmp_path: Path) -> None:
    """RocketMQ's client drops it without a word, and with it everything behind it in the same pull."""
    bodies = [b"one", compress(b"two" * 2000, CompressionType.LZ4, 5), b"not zlib at all", b"four"]
    sys_flags = [0, flags.COMPRESSED | flags.COMPRESSION_LZ4, flags.COMPRESSED, 0]
    with MessageStore.open(tmp_path / "store") as store:
        for body, sys_flag in zip(bodies, sys_flags, strict=True):
            store.put(Message("T", body, sys_flag=sys_flag))
        end = store.max_phy_offset
    records = (tmp_path / "store" / "commitlog" / offset_name(0)).read_bytes()[:end]
    pulled = list(decode_records(records))
    assert [message.body for message in pulled] == [b"one", b"two" * 2000, b"not zlib at all", b"four"]
    assert [message.sys_flag & flags.COMPRESSED for message in pulled] == [0, 0, flags.COMPRESSED, 0]
    limited = list(decode_records(records, max_decompressed_body_size=5_999))
    assert [message.body for message in limited] == bodies
    assert len(list(decode_records(records, max_decompressed_body_size=6_000))[1].body) == 6_000


def test_malformed_record_bytes_raise() -> None:
    with pytest.raises(RemotingCommandError, match="zeros"):
        list(decode_records(bytes(100)))
