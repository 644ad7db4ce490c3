"""Timer messages of our producers at our own broker, whose clock is moved; at the real one: tests/interop."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gantrymq import (
    AsyncProducer,
    EmbeddedBroker,
    Message,
    MessageStore,
    MQBrokerError,
    MQClientError,
    Producer,
    PutMessageStatus,
)
from gantrymq.client.producer.outgoing import prepare, prepare_batch
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.format.properties import decode_properties
from gantrymq.format.recall_handle import RecallHandle, encode_recall_handle

CONFIG = ProducerConfig("127.0.0.1:9876")
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"recallMessageEnable": True}) as made:
        yield made


def properties_of(message: Message) -> dict[str, str]:
    return decode_properties(prepare(message, "ID", CONFIG).properties.encode())


AT = datetime(2030, 1, 1, tzinfo=UTC)
AT_MS = 1_893_456_000_000


@pytest.mark.parametrize(
    ("deliver_at", "wanted_ms"),
    [
        (AT_MS, AT_MS),
        (AT, AT_MS),
        (AT.astimezone(timezone(timedelta(hours=5))), AT_MS),
        (AT.astimezone().replace(tzinfo=None), AT_MS),  # local time
        (AT + timedelta(microseconds=1), AT_MS + 1),  # not early
        (datetime(1969, 1, 1, tzinfo=UTC), 0),
    ],
)
def test_delivery_time_accepts_datetime_or_milliseconds(deliver_at: Any, wanted_ms: int) -> None:
    properties = properties_of(Message("T", b"x", deliver_at=deliver_at))
    assert properties["TIMER_DELIVER_MS"] == str(wanted_ms)


def test_delay_in_milliseconds_becomes_timer_property() -> None:
    properties = properties_of(Message("T", b"x", delay_ms=1500))
    assert (properties["TIMER_DELAY_MS"], "TIMER_DELIVER_MS" in properties) == ("1500", False)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"delay_ms": -1}, "delay_ms=-1 is not allowed"),
        ({"delay_ms": 1.5}, "delay_ms=1.5 is not allowed"),
        ({"deliver_at": "noon"}, "deliver_at='noon' is not allowed: a datetime, or"),
        ({"deliver_at": -1}, "deliver_at=-1 is not allowed"),
        ({"delay_ms": 1, "deliver_at": 1}, "one of delay_level, delay_ms and deliver_at"),
        ({"delay_ms": 1, "delay_level": 1}, "one of delay_level, delay_ms and deliver_at"),
    ],
)
def test_invalid_delivery_time_is_refused(fields: dict[str, Any], wrong: str) -> None:
    with pytest.raises(MQClientError, match=wrong):
        prepare(Message("T", b"x", **fields), "ID", CONFIG)


@pytest.mark.parametrize("timer", [{"delay_ms": 1}, {"deliver_at": 1}, {"properties": {"TIMER_DELAY_SEC": "1"}}])
def test_batch_with_timer_message_is_refused(timer: dict[str, Any]) -> None:
    """RocketMQ's client sends it, and the broker delivers it at once."""
    with pytest.raises(MQClientError, match="TimeDelayLevel is not supported for batching"):
        prepare_batch([Message("T", b"x", **timer)], lambda: "ID", CONFIG)


def test_store_without_broker_refuses_timer_message(tmp_path: Path) -> None:
    late = Message("T", b"x", delay_ms=1)
    with MessageStore.open(tmp_path / "store") as store:
        assert store.put(late).status is PutMessageStatus.MESSAGE_ILLEGAL
        assert store.put_batch([Message("T", b"x")] * 300 + [late]).rejected == {300: PutMessageStatus.MESSAGE_ILLEGAL}


def test_timer_messages_are_delivered_when_due_unless_recalled(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv) as producer:
        now_ms = broker.clock.now_ms()
        sent = [
            producer.send(Message("Later", b"delay", delay_ms=HOUR_MS)),
            producer.send(Message("Later", b"at", deliver_at=now_ms + HOUR_MS)),
            producer.send(Message("Later", b"gone", delay_ms=HOUR_MS)),
        ]
        assert all(one.recall_handle for one in sent)
        assert producer.send(Message("Later", b"now")).recall_handle is None
        assert producer.recall("Later", sent[2].recall_handle or "") == sent[2].msg_id
    assert broker.bodies("Later") == [b"now"]
    broker.clock.advance(HOUR_MS + 60_000)  # it waits until the timers have read the recall
    assert {one.body for one in broker.wait_for_messages("Later", 3)} == {b"now", b"delay", b"at"}


@pytest.mark.asyncio
async def test_async_recall_within_namespace_prevents_delivery(broker: EmbeddedBroker) -> None:
    async with AsyncProducer(broker.namesrv, namespace="ns") as producer:
        sent = await producer.send(Message("Inside", b"gone", delay_ms=HOUR_MS))
        assert await producer.recall("Inside", sent.recall_handle or "") == sent.msg_id
        await producer.send(Message("Other", b"now"))
        with pytest.raises(MQBrokerError, match="topic not match"):
            await producer.recall("Other", sent.recall_handle or "")


@pytest.mark.parametrize(
    ("topic", "handle", "wrong"),
    [
        ("Later", "", "recall: recall_handle='' is not allowed"),
        ("Later", "forged", "recall handle is invalid"),
        ("%RETRY%g", "djE=", "no message of a retry topic can be recalled"),
        ("Later", encode_recall_handle(RecallHandle("Later", "elsewhere", "1", "K")), "elsewhere. not exist"),
    ],
)
def test_impossible_recall_is_refused(broker: EmbeddedBroker, topic: str, handle: str, wrong: str) -> None:
    with Producer(broker.namesrv) as producer:
        producer.send(Message("Later", b"now"))
        with pytest.raises(MQClientError, match=wrong):
            producer.recall(topic, handle)
