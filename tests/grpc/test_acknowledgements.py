"""Acknowledgements of several messages: which requests a broker gets, and the status of each message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from gantrymq.clock import ManualClock
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.grpc.brokers.interface import Brokers
from gantrymq.grpc.brokers.popped import PoppedMessages
from gantrymq.grpc.calls import gathering
from gantrymq.grpc.calls.acks import SettleMessages
from gantrymq.grpc.clients.registry import Clients
from gantrymq.grpc.clients.renewal import Renewals
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.handles import Handle, read_handle
from gantrymq.model.receipt_handle import NORMAL, ORDER_REVIVE_QUEUE, RETRY_V2, ReceiptHandle
from gantrymq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand

NOW_MS = 1_000_000
CALLER = Caller("c", LanguageCode.PYTHON, "5.1.2", "127.0.0.1:1")
Answer = Callable[[str, RemotingCommand], ResponseCode]


class AskedBrokers:
    """Brokers that record each request as (broker, command) and answer with a code."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, RemotingCommand]] = []
        self._answer = answer

    def begin(self, caller: Caller, broker_name: str, command: RemotingCommand, timeout_ms: int) -> Any:
        self.asked.append((broker_name, command))
        exchange = type("Exchange", (), {})()
        exchange.response = asyncio.get_running_loop().create_future()
        exchange.response.set_result(RemotingCommand(self._answer(broker_name, command)))
        return exchange


def handle(broker: str, queue_id: int, offset: int, *, mark: str = NORMAL, revive: int = 0, start: int = 100) -> str:
    return f"{ReceiptHandle(start, NOW_MS, 60_000, revive, mark, broker, queue_id, offset)} 4711"


def acked(handles: Iterable[str], answer: Answer = lambda broker, command: ResponseCode.SUCCESS) -> tuple[Any, Any]:
    """The answer to an acknowledgement of handles, and the requests to brokers."""
    brokers, clock = AskedBrokers(answer), ManualClock(NOW_MS)

    async def ack() -> Any:
        asked, config = cast(Brokers, brokers), GrpcConfig()
        popped = PoppedMessages(asked, clock)
        renewals = Renewals(config, asked, popped, clock)
        clients = Clients(config, asked, clock, cast(Any, None))
        request = messages.AckMessageRequest()
        request.group.name, request.topic.name = "g", "t"
        for number, text in enumerate(handles):
            request.entries.add(message_id=str(number), receipt_handle=text)
        return await SettleMessages(config, clients, popped, renewals).ack(CALLER, request)

    return asyncio.run(ack()), brokers.asked


def codes(answer: Any) -> list[int]:
    return [entry.status.code for entry in answer.entries]


def test_acknowledgements_for_broker_share_request() -> None:
    answer, asked = acked(
        [
            handle("a", 0, 100),
            handle("b", 0, 100),
            handle("a", 0, 107),
            handle("a", 3, 101, mark=RETRY_V2),
            handle("b", 0, 102),
        ]
    )
    assert (answer.status.code, codes(answer)) == (Code.OK, [Code.OK] * 5)
    assert [entry.message_id for entry in answer.entries] == ["0", "1", "2", "3", "4"]
    assert [(broker, command.code) for broker, command in asked] == [
        ("a", RequestCode.BATCH_ACK_MESSAGE),
        ("b", RequestCode.BATCH_ACK_MESSAGE),
    ]
    body = decode_body(BatchAckMessageRequestBody, asked[0][1].body)
    assert body.broker_name == "a"
    assert [(one.queue_id, one.retry, one.start_offset, one.bits(100)) for one in body.acks] == [
        (0, NORMAL, 100, [0, 7]),
        (3, RETRY_V2, 100, [1]),
    ]
    first: BatchAck = body.acks[0]
    assert (first.consumer_group, first.topic, first.pop_time, first.invisible_time) == ("g", "t", NOW_MS, 60_000)


def test_single_and_fifo_acks_are_separate_requests() -> None:
    _, asked = acked([handle("a", 0, 100)])
    assert [command.code for _, command in asked] == [RequestCode.ACK_MESSAGE]
    _, asked = acked([handle("a", 0, offset, revive=ORDER_REVIVE_QUEUE) for offset in (100, 101)])
    assert [command.code for _, command in asked] == [RequestCode.ACK_MESSAGE] * 2
    _, asked = acked([handle("a", 0, offset, start=100) for offset in (99, 1 << 40)])  # forged: no such pop
    assert [command.code for _, command in asked] == [RequestCode.ACK_MESSAGE] * 2


def test_refused_request_for_several_is_repeated_for_each_message() -> None:
    def answer(broker: str, command: RemotingCommand) -> ResponseCode:
        fields = command.fields()
        is_wrong = command.code == RequestCode.BATCH_ACK_MESSAGE or fields.get("offset") == "101"
        return ResponseCode.MESSAGE_ILLEGAL if is_wrong else ResponseCode.SUCCESS

    answered, asked = acked([handle("a", 0, 100), handle("a", 0, 101)], answer)
    assert codes(answered) == [Code.OK, Code.INTERNAL_SERVER_ERROR]
    assert answered.status.code == Code.MULTIPLE_RESULTS
    assert [command.code for _, command in asked] == [
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.ACK_MESSAGE,
    ]


def test_expired_message_does_not_affect_acks_of_others() -> None:
    expired = str(ReceiptHandle(0, NOW_MS - 9, 9, 0, NORMAL, "a", 0, 0))
    answer, asked = acked([expired, handle("a", 0, 100), "nonsense", handle("a", 0, 101)])
    wrong = Code.INVALID_RECEIPT_HANDLE
    assert codes(answer) == [wrong, Code.OK, wrong, Code.OK]
    assert [command.code for _, command in asked] == [RequestCode.BATCH_ACK_MESSAGE]


def test_cancelled_waiting_call_keeps_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER_S", 3_600)
    old, new = (read_handle(handle("a", 0, 100, start=start)) for start in (90, 100))

    async def newest() -> tuple[Handle, int]:
        asked = AskedBrokers(lambda broker, command: ResponseCode.SUCCESS)
        brokers, clock, config = cast(Brokers, asked), ManualClock(NOW_MS), GrpcConfig()
        popped, clients = PoppedMessages(brokers, clock), Clients(config, brokers, clock, cast(Any, None))
        renewals = Renewals(config, brokers, popped, clock)
        settles, client = SettleMessages(config, clients, popped, renewals), clients.of(CALLER)
        renewals.add(client, "g", "1", "t", new, 0)
        request = messages.AckMessageRequest()
        request.group.name, request.topic.name = "g", "t"
        entry = request.entries.add(message_id="0", receipt_handle=handle("a", 0, 101))
        await settles.ack(CALLER, request)
        entry.message_id, entry.receipt_handle = "1", str(old)
        waiting = asyncio.ensure_future(settles.ack(CALLER, request))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        return renewals.take(client, "g", "1", old), len(asked.asked)

    assert asyncio.run(newest()) == (new, 1)
