"""Namespaces, routes and settings, as RocketMQ's client has them."""

import pytest

from gantrymq.client.compression import CompressionType, compress, decompress
from gantrymq.client.namespace import without_namespace, wrap_namespace
from gantrymq.client.records import decode_records
from gantrymq.client.routes import TopicRoute
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import ConfigError, MQClientError, RemotingCommandError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData


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
def test_namespaces(name: str, wrapped: str) -> None:
    assert wrap_namespace("NS", name) == wrapped
    assert wrap_namespace("", name) == name
    assert without_namespace("NS", wrapped) == name.replace("NS%", "")
    assert without_namespace("", wrapped) == wrapped


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


def test_queues_to_read_and_to_send_to() -> None:
    made = TopicRoute.of("T", route())
    assert list(map(str, made.subscribe)) == ["T@a:0", "T@a:1", "T@b:0", "T@c:0"]
    assert list(map(str, made.publish)) == ["T@b:0", "T@b:1"]  # a may not be written, c has no master
    assert made.address(MessageQueue("T", "a", 0)) == "a0:1"
    assert made.address(MessageQueue("T", "c", 0)) == "c1:1"
    with pytest.raises(MQClientError, match="no broker x"):
        made.address(MessageQueue("T", "x", 0))


def test_an_ordered_topic_s_queues_stand_in_its_configuration() -> None:
    assert list(map(str, TopicRoute.of("T", route(order_topic_conf="c:2;a:1")).publish)) == ["T@c:0", "T@c:1", "T@a:0"]
    with pytest.raises(MQClientError, match="orderTopicConf"):
        TopicRoute.of("T", route(order_topic_conf="c"))


def test_settings_are_checked() -> None:
    assert ClientConfig("a:1; b:2").name_server_list == ["a:1", "b:2"]
    with pytest.raises(ConfigError, match="namesrvAddr"):
        ClientConfig(" ; ")
    with pytest.raises(ConfigError, match="accessKey"):
        ClientConfig("a:1", access_key="x")
    assert "hush" not in repr(ClientConfig("a:1", access_key="x", secret_key="hush"))


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compression(kind: CompressionType) -> None:
    body = b"gantrymq " * 1000
    packed = compress(body, kind, 5)
    assert len(packed) < len(body) / 10
    assert decompress(packed, kind.value) == body
    with pytest.raises(ValueError, match="cannot be decompressed"):
        decompress(packed[:-8], kind.value)


def test_an_unknown_compression_is_said_so() -> None:
    with pytest.raises(ValueError, match="type 4 is not known"):
        decompress(b"", 0x400)


def test_what_is_no_record_is_said_so() -> None:
    with pytest.raises(RemotingCommandError, match="zeros"):
        list(decode_records(bytes(100)))
