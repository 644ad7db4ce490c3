"""One AckMessage with several entries, at each server: the SDKs send one entry a call, other clients may send more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
import pytest

from gantrymq.grpc.protocol.codes import Code
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from grpc_client import GrpcClient, message

from .conftest import KINDS, server_of
from .scene import INVISIBLE_MS, SECONDS, eventually
from .servers import OurProxy, OurServer, await_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC, GROUP = "batch", "acking"
EXPIRED = "0 1000 60000 0 0 broker-a 0 0 0"


@dataclass
class Receiver:
    """A simple consumer without an SDK. ``messages`` are those in its hands, by their bodies."""

    client: GrpcClient
    messages: dict[bytes, Any] = field(default_factory=dict)

    def receive(self) -> list[tuple[bytes, int]]:
        """The bodies and attempts of one receive."""
        try:
            found = self.client.receive(GROUP, TOPIC, invisible_ms=INVISIBLE_MS)[2]
        except grpc.RpcError:
            return []  # a proxy that has no route yet
        self.messages |= {one.body: one for one in found}
        return [(one.body, one.system_properties.delivery_attempt) for one in found]

    def gather(self, count: int) -> list[tuple[bytes, int]]:
        got: list[tuple[bytes, int]] = []
        deadline = time.monotonic() + SECONDS
        while len(got) < count:
            assert time.monotonic() < deadline, f"only {got}"
            got += self.receive()
        return sorted(got)

    def ack(self, *bodies: bytes, forged: tuple[str, ...] = ()) -> tuple[int, list[int]]:
        """The status of one acknowledgement and of its entries; the forged handles are the last ones."""
        others = []
        for handle in forged:
            others.append(message(TOPIC))
            others[-1].system_properties.receipt_handle = handle
        answer = self.client.ack(GROUP, TOPIC, *(self.messages[body] for body in bodies), *others)
        return answer.status.code, [entry.status.code for entry in answer.entries]


@pytest.fixture(params=[*KINDS, "our-proxy-and-broker"])
def receiver(
    request: pytest.FixtureRequest, java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Receiver]:
    """A consumer with eight messages before it, 0 to 7."""
    kind = request.param
    if kind == "our-proxy-and-broker":
        server: Any = OurProxy(tmp_path_factory.mktemp(kind), OurServer(tmp_path_factory.mktemp("broker")))
    else:
        server = server_of(kind, tmp_path_factory)
    with server, await_broker(server.namesrv) as admin, GrpcClient(server.endpoints) as client:
        admin.create_topic(TOPIC, read_queue_nums=2, write_queue_nums=2)
        admin.create_subscription_group(GROUP, SubscriptionGroupConfig())
        for number in range(8):
            sent = message(TOPIC, b"%d" % number)
            eventually(partial(client.send, sent), lambda answer: answer.status.code == Code.OK)
        client.be_consumer(GROUP, TOPIC)
        yield Receiver(client)


def test_each_message_of_acknowledgement_has_its_own_answer(receiver: Receiver) -> None:
    """What was acknowledged is not delivered again, and the rest is, whatever else the request had."""
    assert receiver.gather(8) == [(b"%d" % number, 1) for number in range(8)]
    assert receiver.ack(b"0", b"1", b"2") == (Code.OK, [Code.OK] * 3)
    assert receiver.ack(b"3", b"4", forged=(EXPIRED,)) == (
        Code.MULTIPLE_RESULTS,
        [Code.OK, Code.OK, Code.INVALID_RECEIPT_HANDLE],
    )
    assert receiver.ack(b"5", b"5") == (Code.OK, [Code.OK, Code.OK])

    assert receiver.gather(2) == [(b"6", 2), (b"7", 2)]
    assert receiver.ack(b"6", b"7") == (Code.OK, [Code.OK, Code.OK])
    deadline = time.monotonic() + 2 * INVISIBLE_MS / 1000
    while time.monotonic() < deadline:
        assert receiver.receive() == []
