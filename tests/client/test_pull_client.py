"""Reading without a group, at our own broker; at the real one: tests/interop."""

import os
import socket
import time
from collections.abc import Iterable, Iterator
from itertools import zip_longest

import pytest

from gantrymq import AdminClient, EmbeddedBroker, Message, Producer, PullClient
from gantrymq.client.connection.blocking_client import BlockingConnection
from gantrymq.client.pull.segments import PulledRecords
from gantrymq.client.requests.records import decode_records
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import SystemClock
from gantrymq.errors import MQClientError, RemotingConnectError, RemotingError
from gantrymq.model.message_queue import MessageQueue

COUNT = 3000  # of each queue; every tenth has the tag a


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def queues(broker: EmbeddedBroker) -> list[MessageQueue]:
    """Two queues that are full."""
    broker.create_topic("Read", 2)
    with Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer:
        made = producer.queues("Read")
        for queue in made:
            for begin in range(0, COUNT, 100):
                numbers = range(begin, begin + 100)
                producer.send_batch(
                    [Message("Read", b"%d" % one, tags="b" if one % 10 else "a") for one in numbers], queue
                )
    with PullClient(ClientConfig(broker.namesrv)) as client:
        while any(client.max_offset(queue) < COUNT for queue in made):  # they are being dispatched
            time.sleep(0.001)
    return made


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[PullClient]:
    """Nothing here needs a second attempt."""
    with PullClient(ClientConfig(broker.namesrv), attempts=1) as made:
        yield made


def offsets(pieces: Iterable[PulledRecords]) -> list[int]:
    return [message.queue_offset for pulled in pieces for message in decode_records(pulled.records)]


@pytest.mark.parametrize(("begin", "end"), [(0, COUNT), (5, 1001)])
def test_filtered_pull_returns_each_message_once_up_to_end(
    client: PullClient, queues: list[MessageQueue], begin: int, end: int
) -> None:
    found = offsets(client.read(queues[0], begin, end, expression="a"))
    assert found == [offset for offset in range(begin, end) if offset % 10 == 0]


def test_interleaved_reads_of_one_client_return_all_messages(client: PullClient, queues: list[MessageQueue]) -> None:
    """A queue that ends before the range does, a question between two steps, and one that is left in the midst."""
    reads = [client.read(queue, 0, COUNT + 1000) for queue in queues]
    next(client.read(queues[0], 0, COUNT))
    found: list[list[int]] = [[], []]
    for pieces in zip_longest(*reads):
        for offsets_of_one, pulled in zip(found, pieces, strict=True):
            offsets_of_one += offsets([pulled] if pulled else [])
        assert client.max_offset(queues[0]) == COUNT
    assert found == [list(range(COUNT))] * 2


def test_connection_is_used_again(
    client: PullClient, queues: list[MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *given: (made.append(given), connect(*given))[1])
    for _ in range(3):
        for queue in queues:
            assert offsets(client.read(queue, 0, client.max_offset(queue))) == list(range(COUNT))
    assert len(made) == 2  # the name server's, the broker's


@pytest.mark.parametrize("tls", [{}, {"tls.enable": "true"}], ids=["plain", "TLS"])
def test_connection_closed_by_server_is_not_reused(tls: dict[str, str]) -> None:
    """Nothing here asks a second time: neither the name server nor the broker."""
    with EmbeddedBroker() as broker, AdminClient(broker.namesrv, tls=tls) as admin:
        broker.create_topic("Idle", 1)
        assert len(admin.topic_stats("Idle")) == 1
        broker.restart()
        assert len(admin.topic_stats("Idle")) == 1


def test_read_of_closed_client_raises_clear_error(client: PullClient, queues: list[MessageQueue]) -> None:
    reading = client.read(queues[0], 0, COUNT, under_way=2)
    next(reading)
    client.close()
    with pytest.raises(RemotingConnectError):
        list(reading)


def test_forked_process_opens_its_own_sockets(
    broker: EmbeddedBroker, queues: list[MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    with AdminClient(broker.namesrv) as admin, PullClient(ClientConfig(broker.namesrv)) as client:
        topics, reading = admin.topics(), client.read(queues[0], 0, COUNT, under_way=2)
        next(reading)
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            with pytest.raises(MQClientError, match="the client was made before a fork"):
                admin.topics()
            with pytest.raises(MQClientError, match="the connection was made before a fork"):
                list(reading)
        assert admin.topics() == topics
        assert client.max_offset(queues[0]) == COUNT


def test_request_on_closed_connection_raises_named_error(broker: EmbeddedBroker) -> None:
    connection = BlockingConnection(broker.address, ClientConfig(broker.namesrv), SystemClock())
    connection.close()
    with pytest.raises(RemotingConnectError, match=broker.address):
        connection.receive(1000)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_malformed_host_raises_clear_error(host: str) -> None:
    with PullClient(ClientConfig(f"{host}:9876")) as client, pytest.raises(RemotingError, match=f"{host}:9876"):
        client.topics()
