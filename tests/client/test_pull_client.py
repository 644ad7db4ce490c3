"""Reading without a group, at our own broker; at the real one: tests/interop."""

from collections.abc import Iterable, Iterator

import pytest

from gantrymq import EmbeddedBroker, Message, Producer, PullClient
from gantrymq.client.records import decode_records
from gantrymq.client.segments import PulledRecords
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import RemotingError
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
    return made


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[PullClient]:
    with PullClient(ClientConfig(broker.namesrv)) as made:
        yield made


def offsets(pieces: Iterable[PulledRecords]) -> list[int]:
    return [message.queue_offset for pulled in pieces for message in decode_records(pulled.records)]


@pytest.mark.parametrize(("begin", "end"), [(0, COUNT), (5, 1001)])
def test_by_a_filter_each_message_comes_once_and_none_beyond_the_end(
    client: PullClient, queues: list[MessageQueue], begin: int, end: int
) -> None:
    found = offsets(client.read(queues[0], begin, end, expression="a"))
    assert found == [offset for offset in range(begin, end) if offset % 10 == 0]


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_can_be_no_name_is_said_so(host: str) -> None:
    with PullClient(ClientConfig(f"{host}:9876")) as client, pytest.raises(RemotingError, match=f"{host}:9876"):
        client.topics()
