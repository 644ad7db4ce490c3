"""Sends and acknowledgements of one iteration of the event loop reach a broker of the same process as runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from gantrymq.broker.pop.ack_runs import AckRun, FindAckRun
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.grpc.brokers.local import LocalBrokers
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code, GrpcMessageType, TransactionResolution
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.bodies.route import BrokerData
from gantrymq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.connection import split_run
from gantrymq.remoting.headers.pop import AckMessageRequestHeader
from grpc_client import GrpcClient, message

CALLER = Caller("c", LanguageCode.JAVA, "5.1.2", "127.0.0.1:1")
SIGNED = Caller("c", LanguageCode.JAVA, "5.1.2", "127.0.0.1:1", SessionCredentials("key", "secret"))
OTHER = Caller("d", LanguageCode.JAVA, "5.1.2", "127.0.0.1:2")


class Broker:
    """Records what it is given, and answers each request with its queue offset as the remark."""

    def __init__(self) -> None:
        self.given: list[tuple[str, list[Any]]] = []

    def requests(self, channel: Any, requests: list[RemotingCommand]) -> None:
        self.given.append((channel.address, [len(one) if isinstance(one, AckRun) else one.code for one in requests]))
        for one in requests:
            for request in split_run(one) if isinstance(one, AckRun) else [one]:
                channel.respond(request, request.response(ResponseCode.SUCCESS, request.fields().get("offset", "")))


def ack(offset: int) -> RemotingCommand:
    header = AckMessageRequestHeader(
        consumer_group="g", topic="t", queue_id=0, extra_info=f"{offset} 1 2 3 0 b 0 {offset}", offset=offset, bname="b"
    )
    return RemotingCommand.request(header)


def asked(*requests: tuple[Caller, RemotingCommand]) -> tuple[list[tuple[str, list[Any]]], list[str | None]]:
    """What the broker is given for requests of one iteration, and the remarks of the answers."""

    async def ask() -> list[str | None]:
        find, nothing = FindAckRun(), cast(Callable[..., Any], lambda *_: None)
        brokers = LocalBrokers(
            cast(Any, broker),
            BrokerData(cluster="cluster", broker_name="b", broker_addrs={0: "127.0.0.1:3"}),
            find_runs={code: [find] for code in find.after},
            find_topic=nothing,
            find_group=nothing,
            max_body_bytes=lambda: 0,
            topic_refusal=nothing,
            accesses_refusal=nothing,
        )
        begun = [brokers.begin(caller, "b", command, 1_000).response for caller, command in requests]
        return [response.remark for response in await asyncio.gather(*begun)]

    broker = Broker()
    remarks = asyncio.run(ask())
    return broker.given, remarks


def test_acks_of_one_iteration_are_run_and_each_gets_its_answer() -> None:
    given, remarks = asked(*((CALLER, ack(offset)) for offset in range(4)))
    assert given == [(CALLER.address, [RequestCode.ACK_MESSAGE, 3])]  # a run begins with the second
    assert remarks == ["0", "1", "2", "3"]


def test_requests_of_other_clients_are_handed_over_apart() -> None:
    given, remarks = asked((CALLER, ack(0)), (OTHER, ack(1)), (CALLER, ack(2)))
    assert sorted(address for address, _ in given) == [CALLER.address, OTHER.address]
    assert remarks == ["0", "1", "2"]


def test_other_request_overtakes_none_of_its_client() -> None:
    pull = RemotingCommand(RequestCode.HEART_BEAT)
    given, _ = asked((CALLER, ack(0)), (CALLER, pull), (CALLER, ack(1)))
    codes = [RequestCode.ACK_MESSAGE, RequestCode.HEART_BEAT, RequestCode.ACK_MESSAGE]
    assert given == [(CALLER.address, [code]) for code in codes]


def test_signed_requests_stay_apart() -> None:
    given, _ = asked((SIGNED, ack(0)), (SIGNED, ack(1)))
    assert given == [(SIGNED.address, [RequestCode.ACK_MESSAGE])] * 2


def test_request_that_cannot_be_encoded_leaves_others_their_answers() -> None:
    too_long = ack(1)
    too_long.header = cast(Any, None)
    too_long.ext_fields["offset"] = "x" * (1 << 25)  # longer than the header of a frame
    given, remarks = asked((CALLER, ack(0)), (CALLER, too_long))
    assert given == [(CALLER.address, [RequestCode.ACK_MESSAGE] * 2)]
    assert remarks[0] == "0"


def test_concurrent_calls_get_their_own_results(broker: EmbeddedBroker) -> None:
    """Sends as one run, then acknowledgements of which one is forged."""
    with GrpcClient(broker.grpc) as client, ThreadPoolExecutor(16) as threads:
        broker.create_topic("joined-topic", queues=1)
        client.be_consumer("joined", "joined-topic")
        client.receive("joined", "joined-topic", polling_ms=1)
        sent = list(threads.map(lambda n: client.send(message("joined-topic", b"%d" % n)), range(16)))
        assert sorted(answer.entries[0].offset for answer in sent) == list(range(16))
        received: list[Any] = []
        while len(received) < 16:
            received += client.receive("joined", "joined-topic")[2]
        by_id = {one.system_properties.message_id: one.body for one in received}
        assert [by_id[answer.entries[0].message_id] for answer in sent] == [b"%d" % n for n in range(16)]
        forged = received[7].system_properties.receipt_handle.split(" ")
        forged[7] = "4711"
        received[7].system_properties.receipt_handle = " ".join(forged)
        answers = list(threads.map(lambda one: client.ack("joined", "joined-topic", one), received))
    codes = [answer.status.code for answer in answers]
    assert codes == [Code.OK] * 7 + [Code.INTERNAL_SERVER_ERROR] + [Code.OK] * 8


def test_concurrent_transactions_are_decided_each_by_its_own(broker: EmbeddedBroker) -> None:
    """Half messages of one iteration are a run of the broker; their decisions come one by one."""
    topic, group = "joined-transactions", "joined-2"
    with GrpcClient(broker.grpc) as client, ThreadPoolExecutor(16) as threads:
        broker.create_topic(topic, queues=1, message_type="TRANSACTION")
        client.be_consumer(group, topic)
        client.receive(group, topic, polling_ms=1)

        def transact(number: int) -> Any:
            half = message(topic, b"%d" % number, GrpcMessageType.TRANSACTION, recovery_s=10)
            resolution = TransactionResolution.ROLLBACK if number % 4 == 3 else TransactionResolution.COMMIT
            return client.end_transaction(topic, client.send(half).entries[0], resolution)

        answers = list(threads.map(transact, range(32)))
        received: list[Any] = []
        while len(received) < 24:
            received += client.receive(group, topic)[2]
    assert [answer.status.code for answer in answers] == [Code.OK] * 32
    assert sorted(int(one.body) for one in received) == [number for number in range(32) if number % 4 != 3]
