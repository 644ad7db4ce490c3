"""A send that is refused creates no topic."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from broker_cases import BrokerCase, StartBroker

from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

pytestmark = pytest.mark.asyncio

ILLEGAL, INVALID = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER
Ask = Callable[[BrokerCase], Awaitable[RemotingCommand]]


def send(topic: str = "New", body: bytes = b"x", **fields: Any) -> Ask:
    return lambda broker: broker.send(topic, body, **fields)


def batch(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">iiiii", 22 + len(one), 0, 0, 0, len(one)) + one + b"\0\0" for one in bodies)


REFUSED: dict[str, tuple[Ask, int]] = {
    "empty body": (send(body=b""), ILLEGAL),
    "large body": (send(body=b"x" * 1_025), ILLEGAL),
    "large properties": (send(properties={"a": "b" * 33_000}), ILLEGAL),
    "queue": (send(queue_id=4), INVALID),
    "topic": (send("New topic"), INVALID),
    "no template": (send(default_topic="Missing"), ResponseCode.TOPIC_NOT_EXIST),
    "empty batch": (send(body=b"", batch=True), ILLEGAL),
    "large batch": (send(body=batch(b"x" * 1_020, b"x" * 1_020), batch=True), ResponseCode.SYSTEM_ERROR),
    "damaged batch": (send(body=b"\0\0\0\7x", batch=True), ResponseCode.SYSTEM_ERROR),
    "timer": (send(properties={"TIMER_DELAY_SEC": "999999999"}), ILLEGAL),
    "wrong timer": (send(properties={"TIMER_DELAY_MS": "x"}), ILLEGAL),
    "transaction with delay": (send(properties={"TRAN_MSG": "true", "DELAY": "3"}, sys_flag=4), ILLEGAL),
    "empty half": (send(body=b"", properties={"TRAN_MSG": "true", "PGROUP": "P"}, sys_flag=4), ILLEGAL),
    "retry of no group": (send("%RETRY%New"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    "empty retry": (send("%RETRY%G", b""), ILLEGAL),
    "empty dead letter": (send("%RETRY%G", b"", reconsume_times=99), ILLEGAL),
    "missing message sent back": (
        lambda broker: broker.ask(ConsumerSendMsgBackRequestHeader(offset=1 << 40, group="G", delay_level=0)),
        ResponseCode.SYSTEM_ERROR,
    ),
    "reply without a requesting client": (
        lambda broker: broker.send("New", code=RequestCode.SEND_REPLY_MESSAGE_V2),
        ResponseCode.SYSTEM_ERROR,
    ),
    "empty reply": (
        lambda broker: broker.send("New", b"", code=RequestCode.SEND_REPLY_MESSAGE_V2),
        ResponseCode.SYSTEM_ERROR,
    ),
}


async def test_refused_send_creates_no_topic(start_broker: StartBroker) -> None:
    broker = await start_broker(
        max_message_size_bytes=1_024, auto_create_subscription_group=False, store_reply_message_enable=False
    )
    server = broker.server
    server.tables.groups.update([SubscriptionGroupConfig(group_name="G")])
    before = set(server.tables.topics.table)
    for name, (ask, code) in REFUSED.items():
        answer = await ask(broker)
        assert answer.code == code, (name, answer.code, answer.remark)
        assert set(server.tables.topics.table) == before, name
    config = server.config
    config.broker = replace(config.broker, reject_transaction_message=True)
    half = {"TRAN_MSG": "true", "PGROUP": "P"}
    assert (await broker.send("New", properties=half, sys_flag=4)).code == ResponseCode.NO_PERMISSION
    config.broker = replace(config.broker, max_topics=len(before))
    assert (await broker.send("New")).code == ResponseCode.SYSTEM_ERROR
    assert set(server.tables.topics.table) == before
    config.broker = replace(config.broker, max_topics=50_000)
    assert (await broker.send("New")).code == ResponseCode.SUCCESS
    assert (await broker.send("%RETRY%G", reconsume_times=99)).code == ResponseCode.SUCCESS
    assert set(server.tables.topics.table) - before == {"New", "%RETRY%G", "%DLQ%G"}
