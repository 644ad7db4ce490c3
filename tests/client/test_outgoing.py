"""What a producer does to a message before it leaves, without any broker."""

import itertools
import os
import re
import zlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from gantrymq.client.producer.compression import CompressionType
from gantrymq.client.producer.fault import MQFaultStrategy
from gantrymq.client.producer.outgoing import prepare, prepare_batch
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.unique_id import UniqueIdGenerator
from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError, MQClientError
from gantrymq.format.packed_body import decompress
from gantrymq.format.properties import decode_properties
from gantrymq.model.message import Message
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.message_batch import decode_batch

CONFIG = ProducerConfig("127.0.0.1:9876", producer_group="group")
QUEUE = MessageQueue("T", "broker-a", 3)


def ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: str(next(numbers))


IDS = ids()


def test_message_becomes_send_request() -> None:
    message = Message("T", b"body", tags="a", keys=("k1", "k2"), properties={"x": "ü"}, delay_level=3, flag=7)
    outgoing = prepare(message, "ID", CONFIG)
    command = outgoing.request(CONFIG, QUEUE, 1000)
    header = command.read(SendMessageRequestHeaderV2)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    assert (header.topic, header.queue_id, header.flag, header.born_timestamp) == ("T", 3, 7, 1000)
    assert (header.producer_group, header.default_topic, header.broker_name) == ("group", "TBW102", "broker-a")
    assert decode_properties(str(header.properties).encode()) == {
        "x": "ü", "TAGS": "a", "KEYS": "k1 k2", "DELAY": "3", "WAIT": "true", "UNIQ_KEY": "ID",
    }  # fmt: skip
    assert message.properties == {"x": "ü"}, "the caller's message is left as it was"
    assert outgoing.ids == "ID"


def test_keys_given_as_text_are_one_key() -> None:
    message = Message("T", b"body", keys="4711")  # type: ignore[arg-type]
    for refused in (lambda: prepare(message, "ID", CONFIG), lambda: prepare_batch([message], IDS, CONFIG)):
        with pytest.raises(MQClientError, match="keys='4711'"):
            refused()


@pytest.mark.parametrize("body", ["text", None, 5, ["b"]])
def test_non_bytes_body_is_refused_with_clear_error(body: Any) -> None:
    message, reason = Message("T", body), f"the message body is of type {type(body).__name__}, not bytes"
    for refused in (lambda: prepare(message, "ID", CONFIG), lambda: prepare_batch([message], IDS, CONFIG)):
        with pytest.raises(MQClientError, match=reason):
            refused()
    assert prepare(Message("T", memoryview(b"x")), "ID", CONFIG).body == b"x"


@pytest.mark.parametrize("kind", list(CompressionType))
def test_large_bodies_are_compressed(kind: CompressionType) -> None:
    config = ProducerConfig("a:1", compression_type=kind)
    small, large = prepare(Message("T", b"x" * 4095), "1", config), prepare(Message("T", b"x" * 4096), "2", config)
    assert (small.sys_flag, small.body) == (0, b"x" * 4095)
    assert large.sys_flag == 1 | kind.value
    assert decompress(large.body, large.sys_flag) == b"x" * 4096


@pytest.mark.parametrize("kind", list(CompressionType))
def test_incompressible_body_is_sent_unchanged(kind: CompressionType) -> None:
    """Of just maxMessageSize, zlib would make it too large for the broker."""
    config = ProducerConfig("a:1", compression_type=kind)
    for size in (4096, 4 << 20):
        body = os.urandom(size)
        outgoing = prepare(Message("T", body), "ID", config)
        assert (outgoing.sys_flag, outgoing.body == body) == (0, True)


def test_compressed_body_is_not_compressed_twice() -> None:
    """Readers decompress once."""
    body = zlib.compress(bytes(10_000_000))
    outgoing = prepare(Message("T", body, sys_flag=1), "ID", CONFIG)
    assert len(body) > 4096
    assert (outgoing.sys_flag, outgoing.body) == (1, body)
    assert decompress(outgoing.body, outgoing.sys_flag) == bytes(10_000_000)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_body_is_copied_from_any_buffer(kind: Any) -> None:
    given = bytearray(b"before")
    message = Message("T", given if kind is bytearray else kind(given))
    outgoing, batch = prepare(message, "ID", CONFIG), prepare_batch([message], IDS, CONFIG)
    given[:] = b"behind"
    assert outgoing.body == b"before"
    assert [one.body for one in decode_batch(batch.body)] == [b"before"]


def test_namespace_is_prefixed_to_topic() -> None:
    config = ProducerConfig("a:1", namespace="NS", producer_group="group")
    outgoing = prepare(Message("T", b"x"), "ID", config)
    header = outgoing.request(config, QUEUE, 0).read(SendMessageRequestHeaderV2)
    assert (header.topic, header.producer_group) == ("NS%T", "NS%group")
    assert "INSTANCE_ID\x01NS" in outgoing.properties


def test_batch_becomes_one_send_request() -> None:
    messages = [Message("T", b"one", tags="a"), Message("T", b"two", flag=2)]
    outgoing = prepare_batch(messages, ids(), CONFIG)
    assert outgoing.ids == "1,2"
    assert outgoing.request(CONFIG, QUEUE, 0).code == RequestCode.SEND_BATCH_MESSAGE
    assert [(one.flag, one.body) for one in decode_batch(outgoing.body)] == [(0, b"one"), (2, b"two")]
    assert decode_properties(decode_batch(outgoing.body)[0].properties)["UNIQ_KEY"] == "1"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(" ", b"x"), "The specified topic is blank"),
        (Message("a b", b"x"), "contains illegal characters"),
        (Message("a" * 128, b"x"), "longer than topic max length 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "is forbidden"),
        (Message("T", b""), "the message body length is zero"),
        (Message("T", bytes(4 * 1024 * 1024 + 1)), "over max value, MAX: 4194304"),
        (Message("T", b"x", properties={"a": "b\x02"}), "holds a separator"),
        (Message("T", b"x", properties={"a": "b" * 40000}), "32767 are allowed"),
    ],
)
def test_invalid_message_is_refused_with_rocketmqs_text(message: Message, reason: str) -> None:
    with pytest.raises(MQClientError, match=re.escape(reason)):
        prepare(message, "ID", CONFIG)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "empty"),
        ([Message("T", b"x"), Message("U", b"x")], "should be the same"),
        ([Message("T", b"x", delay_level=1)], "TimeDelayLevel is not supported"),
        ([Message("T", b"x"), Message("T", b"x", wait_store_msg_ok=False)], "waitStoreMsgOK"),
        ([Message("%RETRY%g", b"x")], "Retry Group"),
        ([Message("T", bytes(3 << 20)), Message("T", bytes(3 << 20))], "over max value"),
    ],
)
def test_invalid_batch_is_refused(messages: list[Message], reason: str) -> None:
    with pytest.raises(MQClientError, match=reason):
        prepare_batch(messages, ids(), CONFIG)


@pytest.mark.parametrize("settings", [{"producer_group": ""}, {"producer_group": "a b"}, {"compression_level": 10}])
def test_invalid_producer_setting_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig("a:1", **settings)


def test_unique_ids_have_32_hex_digits_and_common_prefix() -> None:
    clock = ManualClock(int(datetime(2026, 12, 31, 23, 59, 59).timestamp() * 1000))
    ids = UniqueIdGenerator(clock)
    first, second = ids.new(), ids.new()
    assert re.fullmatch("[0-9A-F]{32}", first)
    assert first[:20] == second[:20]
    assert int(first[20:28], 16) == (31 * 86400 - 1) * 1000
    assert int(second[28:], 16) == int(first[28:], 16) + 1
    clock.advance(2000)
    assert int(ids.new()[20:28], 16) == 1000, "a new month begins at 0"


def test_ids_differ_for_full_turn_of_counter() -> None:
    ids = UniqueIdGenerator(ManualClock())
    assert len({ids.new() for _ in range(1 << 16)}) == 1 << 16


QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in range(2)]


def test_sends_rotate_queues_and_retry_uses_another_broker() -> None:
    strategy = MQFaultStrategy()
    assert {strategy.select(QUEUES, None, 0) for _ in range(6)} == set(QUEUES)
    assert all(strategy.select(QUEUES, "a", 0).broker_name != "a" for _ in range(20))
    assert strategy.select(QUEUES[:2], "a", 0).broker_name == "a", "where there is no other"


def test_slow_broker_is_avoided_for_a_time() -> None:
    strategy = MQFaultStrategy(latency_fault_enable=True)
    strategy.update("a", 600, 0)  # over 550 ms: two seconds
    strategy.update("b", 10, 0, isolate=True)  # did not answer: ten seconds
    strategy.update("c", 60, 0)  # over 50 ms: nothing
    assert {strategy.select(QUEUES, None, 1999).broker_name for _ in range(20)} == {"c"}
    assert {strategy.select(QUEUES, None, 2000).broker_name for _ in range(20)} == {"a", "c"}
    assert {strategy.select(QUEUES, None, 10_000).broker_name for _ in range(20)} == {"a", "b", "c"}
    assert strategy.select(QUEUES[:4], "a", 0).broker_name == "b", "better a slow one than the one that failed"
