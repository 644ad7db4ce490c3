"""What happens to messages of each kind, from a send to an acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import Code, GrpcMessageType, TransactionResolution
from grpc_client import GrpcClient, message

HOUR_MS = 3_600_000


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[GrpcClient]:
    with GrpcClient(broker.grpc) as connected:
        yield connected


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """A new topic; the parameter is its message type."""
    name = f"t-{uuid4().hex[:12]}"
    broker.create_topic(name, message_type=getattr(request, "param", None))
    return name


def of_type(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("topic", [kind], indirect=True)


def bodies(received: tuple[int, str, list[Any]]) -> list[bytes]:
    return [one.body for one in received[2]]


def all_bodies(client: GrpcClient, group: str, topic: str, count: int, **filters: Any) -> list[bytes]:
    """The bodies of ``count`` messages in the order of their sends: the broker may not have dispatched all yet."""
    found: list[Any] = []
    while len(found) < count:
        found += client.receive(group, topic, **filters)[2]
    return [one.body for one in sorted(found, key=lambda one: one.body)]


def test_message_arrives_as_it_was_sent(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    sent = message(topic, b"paid", tag="card", keys=["a", "b"])
    sent.user_properties["colour"] = "red"
    result = client.send(sent)
    assert (result.status.code, result.entries[0].offset) == (Code.OK, 0)
    client.be_consumer("kinds", topic)
    code, text, (received,) = client.receive("kinds", topic)
    system = received.system_properties
    assert (code, text, received.body) == (Code.OK, "OK", b"paid")
    assert (system.tag, list(system.keys), dict(received.user_properties)) == ("card", ["a", "b"], {"colour": "red"})
    assert (system.message_id, system.delivery_attempt) == (sent.system_properties.message_id, 1)
    assert system.message_type == GrpcMessageType.NORMAL
    acked = client.ack("kinds", topic, received)
    assert (acked.status.code, [entry.status.code for entry in acked.entries]) == (Code.OK, [Code.OK])
    broker.clock.advance(40_000)
    assert client.ack("kinds", topic, received).status.code == Code.INVALID_RECEIPT_HANDLE


def test_several_messages_are_acknowledged_by_one_call(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    client.be_consumer("several", topic)
    bodies_sent = [f"{number:02}".encode() for number in range(20)]
    for body in bodies_sent:
        client.send(message(topic, body))
    received: list[Any] = []
    while len(received) < len(bodies_sent):
        received += client.receive("several", topic)[2]
    forged = messages.Message()
    forged.system_properties.receipt_handle = "0 1 2"
    acked = client.ack("several", topic, *received[:10], forged, *received[10:])
    codes = [entry.status.code for entry in acked.entries]
    assert acked.status.code == Code.MULTIPLE_RESULTS
    assert codes == [*[Code.OK] * 10, Code.INVALID_RECEIPT_HANDLE, *[Code.OK] * 10]
    broker.clock.advance(HOUR_MS)  # a message without an acknowledgement would come again, before the new one
    client.send(message(topic, b"last"))
    assert bodies(client.receive("several", topic)) == [b"last"]


@of_type("FIFO")
def test_message_group_is_consumed_in_order(broker: EmbeddedBroker, client: GrpcClient, topic: str) -> None:
    group = f"g-{topic}"
    broker.create_group(group, order=True)
    offsets = [
        client.send(message(topic, body, GrpcMessageType.FIFO, message_group="eu")).entries[0].offset
        for body in (b"1", b"2", b"3")
    ]
    assert offsets == [0, 1, 2]  # all in one queue
    assert client.be_consumer(group, topic).subscription.fifo
    first = client.receive(group, topic, batch=1)
    with GrpcClient(broker.grpc) as other:
        other.be_consumer(group, topic)
        waiting = other.begin_receive(_receive(group, topic))
        client.ack(group, topic, *first[2])  # frees the queue for the one that waits
        found = [one.message.body for one in waiting if one.HasField("message")]
    assert (bodies(first), found[0]) == ([b"1"], b"2")


def _receive(group: str, topic: str) -> Any:
    request = messages.ReceiveMessageRequest(batch_size=8)
    request.group.name, request.message_queue.topic.name = group, topic
    messages.set_ms(request.invisible_duration, 30_000)
    messages.set_ms(request.long_polling_timeout, 5_000)
    return request


def test_type_of_topic_is_enforced(client: GrpcClient, topic: str) -> None:
    refused = client.send(message(topic, b"1", GrpcMessageType.FIFO, message_group="eu"))
    assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    expected = "TopicMessageType validate failed, the expected type is NORMAL, but actual type is FIFO"
    assert refused.status.message == expected


@of_type("DELAY")
def test_delayed_message_is_delivered_when_due_unless_recalled(
    broker: EmbeddedBroker, client: GrpcClient, topic: str
) -> None:
    due_ms = broker.clock.now_ms() + HOUR_MS
    client.send(message(topic, b"in an hour", GrpcMessageType.DELAY, deliver_ms=due_ms))
    recalled = client.send(message(topic, b"never", GrpcMessageType.DELAY, deliver_ms=due_ms)).entries[0]
    request = messages.RecallMessageRequest(recall_handle=recalled.recall_handle)
    request.topic.name = topic
    answer = client.call("RecallMessage", request)
    assert (answer.status.code, answer.message_id) == (Code.OK, recalled.message_id)
    client.be_consumer("kinds", topic)
    broker.clock.advance(HOUR_MS + 1_000)
    assert bodies(client.receive("kinds", topic)) == [b"in an hour"]
    too_late = message(topic, b"x", GrpcMessageType.DELAY, deliver_ms=broker.clock.now_ms() + 25 * HOUR_MS)
    assert client.send(too_late).status.code == Code.ILLEGAL_DELIVERY_TIME


@of_type("TRANSACTION")
def test_transactions_are_committed_rolled_back_and_checked(
    broker: EmbeddedBroker, client: GrpcClient, topic: str
) -> None:
    client.be_producer(topic)
    paid, cancelled, orphan = (
        client.send(message(topic, body, GrpcMessageType.TRANSACTION, recovery_s=10)).entries[0]
        for body in (b"paid", b"cancelled", b"orphan")
    )
    assert client.end_transaction(topic, paid, TransactionResolution.COMMIT).status.code == Code.OK
    assert client.end_transaction(topic, cancelled, TransactionResolution.ROLLBACK).status.code == Code.OK
    again = client.end_transaction(topic, paid, TransactionResolution.COMMIT).status
    assert (again.code, again.message) == (Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
    broker.clock.advance(60_000)
    check = client.next_command().recover_orphaned_transaction_command
    assert (check.transaction_id, check.message.body) == (orphan.transaction_id, b"orphan")
    with GrpcClient(broker.grpc) as consumer:
        consumer.be_consumer("kinds", topic)
        assert bodies(consumer.receive("kinds", topic)) == [b"paid"]
        assert client.end_transaction(topic, orphan, TransactionResolution.COMMIT, checked=True).status.code == Code.OK
        assert bodies(consumer.receive("kinds", topic)) == [b"orphan"]


@of_type("PRIORITY")
def test_priority_selects_queue(client: GrpcClient, topic: str) -> None:
    client.send(message(topic, b"urgent", GrpcMessageType.PRIORITY, priority=3))
    client.be_consumer("kinds", topic)
    (received,) = client.receive("kinds", topic)[2]
    assert (received.system_properties.priority, received.system_properties.queue_id) == (3, 3)


def test_messages_are_filtered_by_tag_and_by_sql(client: GrpcClient, topic: str) -> None:
    client.be_consumer("by-tag", topic)
    for body, tag, price in ((b"1", "a", "5"), (b"2", "b", "10"), (b"3", "c", "20")):
        sent = message(topic, body, tag=tag)
        sent.user_properties["price"] = price
        client.send(sent)
    assert all_bodies(client, "by-tag", topic, 2, expression="a || c") == [b"1", b"3"]
    assert bodies(client.receive("by-sql", topic, expression="price >= 10 AND TAGS <> 'c'", sql=True)) == [b"2"]
    assert client.receive("by-sql", topic, expression="", sql=True)[0] == Code.ILLEGAL_FILTER_EXPRESSION


def test_unacknowledged_message_is_redelivered_then_dead_letter(
    broker: EmbeddedBroker, client: GrpcClient, topic: str
) -> None:
    group = f"g-{topic}"
    broker.create_group(group, max_retries=1)
    client.be_consumer(group, topic)
    client.send(message(topic, b"poison"))
    attempts = []
    for _ in range(2):
        (received,) = client.receive(group, topic, invisible_ms=10_000)[2]
        attempts.append(received.system_properties.delivery_attempt)
        broker.clock.advance(11_000)
    assert attempts == [1, 2]
    code, text, found = client.receive(group, topic, invisible_ms=10_000)
    assert (code, text, found) == (Code.MESSAGE_NOT_FOUND, "no match message", [])
    assert [one.body for one in broker.wait_for_messages(f"%DLQ%{group}", 1)] == [b"poison"]


@pytest.mark.slow
def test_invisible_time_changes_and_message_is_forwarded_to_dead_letters(
    broker: EmbeddedBroker, client: GrpcClient, topic: str
) -> None:
    group = f"g-{topic}"
    client.be_consumer(group, topic)
    client.send(message(topic, b"1"))
    (received,) = client.receive(group, topic, invisible_ms=600_000)[2]
    request = messages.ChangeInvisibleDurationRequest(
        receipt_handle=received.system_properties.receipt_handle, message_id=received.system_properties.message_id
    )
    request.group.name, request.topic.name = group, topic
    messages.set_ms(request.invisible_duration, 10_000)
    changed = client.call("ChangeInvisibleDuration", request)
    assert changed.status.code == Code.OK
    assert changed.receipt_handle != request.receipt_handle
    broker.clock.advance(11_000)
    (again,) = client.receive(group, topic)[2]
    assert again.system_properties.delivery_attempt == 2
    forward = messages.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=again.system_properties.receipt_handle, message_id=again.system_properties.message_id
    )
    forward.group.name, forward.topic.name = group, topic
    assert client.call("ForwardMessageToDeadLetterQueue", forward).status.code == Code.OK
    assert [one.body for one in broker.wait_for_messages(f"%DLQ%{group}", 1)] == [b"1"]


def test_dead_letter_with_expired_receipt_handle_is_stored_once(
    broker: EmbeddedBroker, client: GrpcClient, topic: str
) -> None:
    group = f"g-{topic}"
    client.be_consumer(group, topic)
    client.send(message(topic, b"slow"))
    (received,) = client.receive(group, topic, invisible_ms=10_000)[2]
    broker.clock.advance(11_000)
    forward = messages.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=received.system_properties.receipt_handle, message_id=received.system_properties.message_id
    )
    forward.group.name, forward.topic.name = group, topic
    # An error would make the client send it again, although it is stored.
    assert client.call("ForwardMessageToDeadLetterQueue", forward).status.code == Code.OK
    assert [one.body for one in broker.wait_for_messages(f"%DLQ%{group}", 1)] == [b"slow"]


@of_type("DELAY")
def test_batch_of_delayed_messages_is_refused(client: GrpcClient, broker: EmbeddedBroker, topic: str) -> None:
    due_ms = broker.clock.now_ms() + HOUR_MS
    refused = client.send(*(message(topic, b"x", GrpcMessageType.DELAY, deliver_ms=due_ms) for _ in range(2)))
    expected = Code.BAD_REQUEST, "Delayed messages are not supported for batching"
    assert (refused.status.code, refused.status.message) == expected


def test_batch_is_stored_contiguously(client: GrpcClient, topic: str) -> None:
    client.be_consumer("kinds", topic)
    result = client.send(*(message(topic, bytes([65 + i])) for i in range(3)))
    assert (result.status.code, len(result.entries)) == (Code.OK, 1)
    assert all_bodies(client, "kinds", topic, 3) == [b"A", b"B", b"C"]


def test_namespace_in_request_is_ignored(client: GrpcClient, topic: str) -> None:
    """RocketMQ's proxy does not read it either; it repeats it in a route."""
    sent = message(topic, b"plain")
    sent.topic.resource_namespace = "NS"
    assert client.send(sent).status.code == Code.OK
    route = messages.QueryRouteRequest()
    route.topic.name, route.topic.resource_namespace = topic, "NS"
    answered = client.call("QueryRoute", route).message_queues[0].topic
    assert (answered.resource_namespace, answered.name) == ("NS", topic)
    client.be_consumer("kinds", topic)
    (received,) = client.receive("kinds", topic)[2]
    assert (received.body, received.topic.resource_namespace, received.topic.name) == (b"plain", "", topic)
    other = message(topic)
    assert client.send(sent, other).status.code == Code.MESSAGE_CORRUPTED  # the topics are not equal


def test_namespace_in_topic_is_removed_at_delivery(broker: EmbeddedBroker) -> None:
    name, group = uuid4().hex[:12], f"NS%{uuid4().hex[:12]}"
    topic = f"NS%{name}"
    broker.create_topic(topic)
    broker.create_group(group, max_retries=0)
    with GrpcClient(broker.grpc) as client:
        client.be_consumer(group, topic)
        client.send(message(topic, b"unwanted"))
        (received,) = client.receive(group, topic)[2]
        assert (received.topic.resource_namespace, received.topic.name) == ("NS", name)
        request = messages.ForwardMessageToDeadLetterQueueRequest(
            receipt_handle=received.system_properties.receipt_handle
        )
        request.group.name, request.topic.name = group, topic
        assert client.call("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
        assert [one.body for one in broker.wait_for_messages(f"%DLQ%{group}", 1)] == [b"unwanted"]
        (letter,) = client.receive("letters", f"%DLQ%{group}")[2]
        assert (letter.body, letter.topic.resource_namespace) == (b"unwanted", "NS")
        assert letter.topic.name == f"%DLQ%{group.removeprefix('NS%')}"
