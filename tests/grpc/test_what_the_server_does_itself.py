"""What the server does without a call: it renews messages, gives them back, and asks clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.errors import RemotingError
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import ClientType, Code
from gantrymq.grpc.server import _every
from gantrymq.remoting.bodies.client import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from gantrymq.remoting.transport.client import RemotingClient
from grpc_client import GrpcClient, message, receive_request


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[GrpcClient]:
    with GrpcClient(broker.grpc) as connected:
        yield connected


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"t-{uuid4().hex[:12]}"
    broker.create_topic(name)
    return name


def on_the_loop(broker: EmbeddedBroker, call: Any) -> None:
    """Run a function of the server on its event loop, as its timer does."""

    async def run() -> None:
        call()

    broker._running().run(run())


def test_invisible_time_of_message_in_work_is_renewed(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    client.be_consumer("renewed", topic, kind=ClientType.PUSH_CONSUMER)
    client.send(message(topic, b"slow"))
    (received,) = client.receive("renewed", topic, auto_renew=True)[2]
    broker.clock.advance(2 * 3_600_000)  # the first handle has expired, the newest one has not
    acked = client.ack("renewed", topic, received)
    assert acked.status.code == Code.OK
    assert acked.entries[0].receipt_handle == received.system_properties.receipt_handle


def test_invisible_time_is_not_renewed_after_three_hours(
    broker: EmbeddedBroker, client: GrpcClient, topic: str
) -> None:
    client.be_consumer("too-slow", topic, kind=ClientType.PUSH_CONSUMER)
    client.send(message(topic, b"endless"))
    (received,) = client.receive("too-slow", topic, auto_renew=True)[2]
    broker.clock.advance(5 * 3_600_000)
    assert client.ack("too-slow", topic, received).status.code == Code.INVALID_RECEIPT_HANDLE
    (again,) = client.receive("too-slow", topic)[2]
    assert (again.body, again.system_properties.delivery_attempt) == (b"endless", 2)


def test_failed_renewal_does_not_stop_advance_of_clock(
    broker: EmbeddedBroker, client: GrpcClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.be_consumer("stuck", topic, kind=ClientType.PUSH_CONSUMER)
    client.send(message(topic))
    (received,) = client.receive("stuck", topic, auto_renew=True)[2]

    async def fails(*_: Any, **__: Any) -> None:
        raise RemotingError("the broker is away")

    renewals = broker._life.pair._front._renewals
    monkeypatch.setattr(renewals._popped, "hide", fails)
    monkeypatch.setattr(renewals, "_config", replace(renewals._config, max_renew_retries=1 << 30))
    before_ms = broker.clock.now_ms()
    broker.clock.advance(120_000)
    assert broker.clock.now_ms() >= before_ms + 120_000
    monkeypatch.undo()
    assert client.ack("stuck", topic, received).status.code == Code.INVALID_RECEIPT_HANDLE


@pytest.mark.slow
def test_messages_of_unregistered_client_become_visible(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    client.be_consumer("left", topic, kind=ClientType.PUSH_CONSUMER)
    client.send(message(topic, b"unfinished"))
    assert len(client.receive("left", topic, auto_renew=True)[2]) == 1
    request = messages.NotifyClientTerminationRequest()
    request.group.name = "left"
    assert client.call("NotifyClientTermination", request).status.code == Code.OK
    broker._running().run(broker._life.pair._front._renewals.drain())
    broker.clock.advance(2_000)
    with GrpcClient(broker.grpc) as other:
        other.be_consumer("left", topic)
        (again,) = other.receive("left", topic)[2]
        assert (again.body, again.system_properties.delivery_attempt) == (b"unfinished", 2)


def test_messages_for_departed_client_become_visible(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    client.be_consumer("left-early", topic, kind=ClientType.PUSH_CONSUMER)
    renewals = broker._life.pair._front._renewals
    waiting = client.begin_receive(receive_request("left-early", topic))
    while not broker._life.pair.broker.pop_waiting.pops:
        time.sleep(0.01)
    request = messages.NotifyClientTerminationRequest()
    request.group.name = "left-early"
    assert client.call("NotifyClientTermination", request).status.code == Code.OK
    client.send(message(topic, b"too late"))
    answers = [one.status for one in waiting if one.HasField("status")]
    text = f"The client [{client.client_id}] is disconnected."
    assert [(one.code, one.message) for one in answers] == [(Code.MESSAGE_NOT_FOUND, text)]
    assert "left-early" not in {key.group for kept in renewals._messages.values() for key in kept}


def test_failed_periodic_task_ends_no_other() -> None:
    def fails() -> None:
        raise ValueError("broken")

    async def look_after() -> None:
        renewed = asyncio.Event()
        task = asyncio.ensure_future(_every(0.001, fails, renewed.set))
        async with asyncio.timeout(10):
            await renewed.wait()
            renewed.clear()
            await renewed.wait()  # in the next round, too
        task.cancel()

    asyncio.run(look_after())


def test_client_with_expired_membership_leaves_group(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    client.be_consumer("expired", topic)
    consumers = broker._life.pair.broker.sessions.consumers
    on_the_loop(broker, lambda: consumers.expire(1 << 60, 120_000, 1 << 60))
    assert consumers.group("expired") is None
    heartbeat = messages.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER)
    heartbeat.group.name = "expired"
    assert client.call("Heartbeat", heartbeat).status.code == Code.OK
    assert consumers.group("expired") is not None
    request = messages.NotifyClientTerminationRequest()
    request.group.name = "expired"
    assert client.call("NotifyClientTermination", request).status.code == Code.OK
    assert consumers.group("expired") is None


def test_silent_client_is_removed(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    client.be_producer(topic)
    server = broker._life.pair._front
    known = server._clients.find(client.client_id)
    assert broker._life.pair.broker.sessions.producers.groups[topic]
    known.heard_ms -= 121_000
    on_the_loop(broker, server._clients.expire)
    assert server._clients.find(client.client_id) is None
    assert topic not in broker._life.pair.broker.sessions.producers.groups
    with pytest.raises(StopIteration):
        client.next_command()  # its stream has ended


def test_verify_and_thread_requests_of_broker_reach_client(
    broker: EmbeddedBroker, client: GrpcClient, topic: str
) -> None:
    client.be_consumer("asked", topic)
    client.send(message(topic, b"verify me"))
    (stored,) = broker.wait_for_messages(topic, 1)
    loop = LoopThread("admin")
    remote = loop.run(_made())
    try:

        def ask(header: Any) -> Future[RemotingCommand]:
            return loop.submit(remote.invoke(broker.address, RemotingCommand.request(header), 60_000))

        verified = ask(
            ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="asked", client_id=client.client_id, msg_id=stored.msg_id, topic=topic
            )
        )
        command = client.next_command().verify_message_command
        assert command.message.body == b"verify me"
        answer = messages.TelemetryCommand(verify_message_result={"nonce": command.nonce})
        answer.status.code = Code.FAILED_TO_CONSUME_MESSAGE
        client.tell(answer)
        result = decode_body(ConsumeMessageDirectlyResult, verified.result(60).body)
        assert (result.consume_result, result.remark) == ("CR_LATER", "from gRPC client")

        threads = ask(
            GetConsumerRunningInfoRequestHeader(consumer_group="asked", client_id=client.client_id, jstack_enable=True)
        )
        nonce = client.next_command().print_thread_stack_trace_command.nonce
        dump = messages.TelemetryCommand(thread_stack_trace={"nonce": nonce, "thread_stack_trace": "main"})
        dump.status.code = Code.OK
        client.tell(dump)
        info = decode_body(ConsumerRunningInfo, threads.result(60).body)
        assert (info.jstack, [one.topic for one in info.subscription_set]) == ("main", [topic])
    finally:
        loop.close(remote.close())


async def _made() -> RemotingClient:
    return RemotingClient()
