"""PEEK_MESSAGE: what the next pop would find, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import (
    PeekMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)

pytestmark = pytest.mark.asyncio


async def peek(case: BrokerCase, **more: Any) -> RemotingCommand:
    fields = {"consumer_group": "G", "topic": "T", "queue_id": -1, "max_msg_nums": 32}
    return await case.ask(PeekMessageRequestHeader(**{**fields, **more}))


def found(answer: RemotingCommand) -> tuple[list[bytes], int]:
    """The bodies, and how many messages there are from where the group's next pop begins."""
    header = answer.read(PopMessageResponseHeader)
    assert (header.pop_time, header.invisible_time, header.revive_qid) == (0, 0, 0)
    assert (header.start_offset_info, header.msg_offset_info) == (None, None)
    assert (answer.code == ResponseCode.SUCCESS) == bool(answer.body)
    return sorted(message.body for message in messages_of(answer.body)), header.rest_num


async def test_peek_returns_messages_of_pop_and_keeps_them_visible(broker: BrokerCase) -> None:
    for number in range(6):
        await broker.send("T", b"%d" % number, queue_id=number % 4)
    await broker.send("%RETRY%G_T", b"again", queue_id=0)
    for queue_id, count in ((0, 2), (1, 2), (2, 1), (3, 1)):
        await broker.dispatched(count, queue_id=queue_id)
    await broker.dispatched(1, "%RETRY%G_T")
    everything = [b"0", b"1", b"2", b"3", b"4", b"5", b"again"]
    for _ in range(2):
        assert found(await peek(broker)) == (everything, 7)
    bodies, rest = found(await peek(broker, queue_id=1, max_msg_nums=1))
    assert (len(bodies), rest in (2, 3)) == (1, True)  # the one may be that of the retry topic
    assert broker.server.tables.offsets.query("G", "T", 0) == -1
    popped = await broker.ask(
        PopMessageRequestHeader(
            consumer_group="G", topic="T", queue_id=1, max_msg_nums=32, invisible_time=60_000, init_mode=0
        )
    )
    assert sorted(message.body for message in messages_of(popped.body)) == [b"1", b"5", b"again"]
    assert found(await peek(broker)) == ([b"0", b"2", b"3", b"4"], 4)
    assert found(await peek(broker, queue_id=1)) == ([], 0)
    assert (await peek(broker, queue_id=1)).code == ResponseCode.PULL_NOT_FOUND


async def test_peek_is_refused_like_pop(broker: BrokerCase) -> None:
    await broker.send("T")
    assert (await peek(broker, topic="nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await peek(broker, queue_id=8)).code == ResponseCode.INVALID_PARAMETER
    assert found(await peek(broker, max_msg_nums=0))[0] == found(await peek(broker, max_msg_nums=-1))[0] == []
    broker.server.config.update({"brokerPermission": "2"}, running=True)
    refused = await peek(broker)
    assert (refused.code, refused.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] peeking message is forbidden",
    )


async def test_peek_answer_is_limited_in_bytes(start_broker: StartBroker) -> None:
    case = await start_broker(max_transfer_bytes_in_memory=2000)
    for number in range(8):
        await case.send("T", b"x" * 500, queue_id=number % 4)
    for queue_id in range(4):
        await case.dispatched(2, queue_id=queue_id)
    answer = await peek(case)
    assert 1 <= len(messages_of(answer.body)) < 8
    assert answer.read(PopMessageResponseHeader).rest_num == 8
