"""Tests of a program that sends messages, with the fixtures that gantrymq brings for pytest.

    pip install pytest
    python -m pytest examples/test_shop.py

No server has to be started: `rocketmq` is a broker in this process, empty for each test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gantrymq import EmbeddedBroker, Message, Producer


class Shop:
    """The program under test."""

    def __init__(self, namesrv: str) -> None:
        self._producer = Producer(namesrv, producer_group="shop")
        self._producer.start()

    def order(self, number: str) -> None:
        self._producer.send(Message("orders", b'{"cents": 4700}', keys=(number,)))

    def remind_later(self, number: str) -> None:
        self._producer.send(Message("reminders", number.encode(), delay_ms=3_600_000))

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def shop(rocketmq: EmbeddedBroker) -> Iterator[Shop]:
    shop = Shop(rocketmq.namesrv)
    yield shop
    shop.close()


def test_an_order_is_announced(rocketmq: EmbeddedBroker, shop: Shop) -> None:
    shop.order("4711")
    [message] = rocketmq.wait_for_messages("orders", 1)
    assert message.keys == ["4711"]


def test_an_order_survives_a_crash_of_the_broker(rocketmq: EmbeddedBroker, shop: Shop) -> None:
    shop.order("4711")
    rocketmq.kill()
    rocketmq.restart()
    rocketmq.wait_for_messages("orders", 1)


def test_a_reminder_comes_after_an_hour(rocketmq: EmbeddedBroker, shop: Shop) -> None:
    shop.remind_later("4711")
    assert rocketmq.messages("reminders") == []
    rocketmq.clock.advance(3_600_000)
    rocketmq.wait_for_messages("reminders", 1)
