"""How much a producer has under way at once, and what becomes of what waits."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.producer.send_window import BlockingSendWindow, SendWindow
from gantrymq.errors import MQClientError

BODY = os.urandom(100_000)  # zlib takes milliseconds to find that it shrinks nothing
BURST = 200
# A time limit that a burst as a whole does not keep, but each of its messages from when it leaves.
SMALL: dict[str, Any] = {"back_pressure_for_async_send_size": 1_000_000}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def test_burst_of_large_messages_is_throttled_and_arrives(broker: EmbeddedBroker) -> None:
    most = 0
    with Producer(broker.namesrv, **SMALL) as producer:
        sent = []
        for _ in range(BURST):
            sent.append(producer.send_async(Message("Burst", BODY)))
            most = max(most, sum(not one.done() for one in sent))
        producer.flush()
        assert all(one.done() for one in sent)
    assert {one.result().status.name for one in sent} == {"SEND_OK"}
    assert most <= 11


def test_burst_of_coroutines_is_throttled_and_arrives(broker: EmbeddedBroker) -> None:
    async def scenario() -> set[str]:
        async with AsyncProducer(broker.namesrv, **SMALL) as producer:
            sends = [asyncio.ensure_future(producer.send(Message("Burst", BODY))) for _ in range(BURST)]
            await asyncio.sleep(0)
            await producer.flush()
            return {(await one).status.name for one in sends}

    assert asyncio.run(scenario()) == {"SEND_OK"}


def test_cancel_of_stored_send_returns_false(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer:
        sent = producer.send_async(Message("Cancelled", b"stored"))
        while not sent.running() and not sent.done():
            time.sleep(0.001)
        assert not sent.cancel()
        assert sent.result().status.name == "SEND_OK"
        assert not sent.cancel()
    assert broker.bodies("Cancelled") == [b"stored"]


def test_send_cancelled_before_departure_is_not_stored(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer:
        producer.send(Message("NotStored", b"first"))
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            go_on.wait(60)

        producer._loop._loop.call_soon_threadsafe(hold)
        assert held.wait(60)
        sent = producer.send_async(Message("NotStored", b"second"))
        assert sent.cancel()
        go_on.set()
        producer.flush()
        assert sent.cancelled()
    assert broker.bodies("NotStored") == [b"first"]


def test_invalid_message_raises_at_call(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv) as producer, pytest.raises(MQClientError, match="the message body length is zero"):
        producer.send_async(Message("T", b""))


def test_flush_timeout_names_number_of_pending_messages() -> None:
    window = BlockingSendWindow(10, 1000)
    window.enter(10, wait=True)
    assert window.drain(0.01) == 1
    window.leave(10)
    assert window.drain(None) == 0


def test_message_larger_than_window_is_sent_alone() -> None:
    async def scenario() -> list[str]:
        window, told = SendWindow(10, 100), list[str]()

        async def send(name: str, size_bytes: int) -> None:
            await window.enter(size_bytes)
            told.append(name)
            await asyncio.sleep(0)
            told.append(name)
            window.leave(size_bytes)

        await asyncio.gather(send("small", 60), send("large", 500), send("other", 60))
        assert window.under_way == 0
        return told

    assert asyncio.run(scenario()) == ["small", "small", "large", "large", "other", "other"]


def test_cancelled_wait_for_window_takes_no_room() -> None:
    async def scenario() -> None:
        window = SendWindow(1, 100)
        await window.enter(1)
        waiting = asyncio.ensure_future(window.enter(1))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert window.under_way == 1
        window.leave(1)
        assert await window.drain(1)
        await window.enter(1)
        assert window.under_way == 1

    asyncio.run(scenario())


def test_send_window_bounds_are_back_pressure_settings() -> None:
    with pytest.raises(Exception, match="backPressureForAsyncSendSize=0 is not allowed: at least 1"):
        Producer("127.0.0.1:1", back_pressure_for_async_send_size=0)
