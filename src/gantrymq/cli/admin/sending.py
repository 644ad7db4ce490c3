"""Messages that the command itself sends or delivers: ``message send|resend|deliver|probe``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.messages import MessageId, Topic
from gantrymq.cli.admin.session import Broker, Cluster, Session, admin_command, require
from gantrymq.cli.options import queue_number

if TYPE_CHECKING:
    from gantrymq.client.producer.producer import Producer
    from gantrymq.model.message_queue import MessageQueue


@admin_command
def send(
    session: Session,
    topic: Topic,
    body: Annotated[str, typer.Argument(metavar="BODY", help="The body, as text.", show_default=False)],
    key: Annotated[list[str] | None, typer.Option("-k", "--key", metavar="KEY", help="A key; may be repeated.")] = None,
    tag: Annotated[str, typer.Option("--tag", metavar="TAG", help="Its tag.", show_default=False)] = "",
    queue: Annotated[
        int | None, typer.Option("-q", "--queue", metavar="Q", parser=queue_number, help="To this queue.")
    ] = None,
    broker: Broker = None,
) -> None:
    """Send one message, and show where it was stored.

    Examples of use:

        gantrymq admin message send orders hello
        gantrymq admin message send orders '{"id": 1}' -k 4711 --tag paid -b broker-a -q 0
    """
    from gantrymq.client.producer.producer import Producer
    from gantrymq.model.message import Message

    require(queue is None or broker is not None, "--queue needs --broker")
    names = None if broker is None else {named_broker.name for named_broker in session.brokers(broker)}

    def chosen(queues: Sequence[MessageQueue]) -> MessageQueue:
        matching = [
            message_queue
            for message_queue in queues
            if (names is None or message_queue.broker_name in names) and queue in (None, message_queue.queue_id)
        ]
        require(matching, f"{topic} has no such queue to write to")
        return matching[0]

    with Producer(session.producer_config()) as producer:
        result = producer.send(Message(topic, body.encode(), tags=tag, keys=key or ()), chosen if names else None)
    row = {
        "topic": topic,
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
        "status": result.status.name,
        "msgId": result.msg_id,
        "offsetMsgId": result.offset_msg_id,
    }
    columns = {"brokerName": "broker", "queueId": ">queue", "queueOffset": ">offset", "status": "status", "msgId": "id"}
    session.rows([row], columns)


@admin_command
def resend(
    session: Session,
    topic: Topic,
    msg_ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of messages.", show_default=False)],
) -> None:
    """Send messages of a topic again: every group of the topic consumes them once more.

    The copies have new ids. Letters of a DLQ are sent again by `dlq resend`.

    Examples of use:

        gantrymq admin message resend orders 7F00000100002A9F0000000000000000
    """
    from gantrymq.broker.names import DLQ_PREFIX
    from gantrymq.client.admin.dead_letters import copy_to_send
    from gantrymq.client.producer.producer import Producer

    group = topic.removeprefix(DLQ_PREFIX)
    require(group == topic, f"{topic} has dead letters: `gantrymq admin dlq resend {group} --id ID` sends them again")
    copies = {msg_id: copy_to_send(session.admin.view_message(topic, msg_id), topic) for msg_id in msg_ids}
    rows = []
    with Producer(session.producer_config()) as producer:
        for msg_id, message in copies.items():
            result = producer.send(message)
            rows.append(
                {
                    "msgId": msg_id,
                    "topic": topic,
                    "brokerName": result.queue.broker_name,
                    "queueId": result.queue.queue_id,
                    "queueOffset": result.queue_offset,
                    "status": result.status.name,
                    "newMsgId": result.msg_id,
                }
            )
    columns = {
        "msgId": "message",
        "brokerName": "broker",
        "queueId": ">queue",
        "queueOffset": ">offset",
        "status": "status",
        "newMsgId": "sent as",
    }
    session.rows(rows, columns)


@admin_command
def deliver(
    session: Session,
    topic: Topic,
    msg_id: MessageId,
    group: Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="The group.", show_default=False)],
    client: Annotated[
        str | None, typer.Option("--client", metavar="ID", help="One consumer.", show_default="the first")
    ] = None,
) -> None:
    """Make a connected consumer of a group consume one message now, and show what it answers.

    Examples of use:

        gantrymq admin message deliver orders 7F00000100002A9F0000000000000000 -g invoices
    """
    from msgspec import to_builtins

    message = session.admin.view_message(topic, msg_id)
    if client is None:
        members = session.admin.consumer_connection(group).connection_set
        client = min(member.client_id or "" for member in members)
    [target] = session.masters(message.broker_name)[:1]
    result = session.admin.consume_message_directly(group, client, topic, message.offset_msg_id, target.address)
    fields = {"group": group, "clientId": client, "msgId": message.msg_id, **to_builtins(result)}
    session.pairs(f"{msg_id} at {client}", fields, shown=to_builtins(result))


@admin_command
def probe(
    session: Session,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", show_default=False)] = None,
    amount: Annotated[int, typer.Option("--amount", metavar="N", min=1, max=100_000, help="Messages a broker.")] = 10,
    size: Annotated[int, typer.Option("--size", metavar="BYTES", min=1, max=4_000_000, help="Size of a body.")] = 128,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Measure how long sends take: to each broker's own topic, or to a TOPIC.

    The messages stay: without TOPIC they go to the topic that has the broker's
    name, which RocketMQ keeps for that.

    Examples of use:

        gantrymq admin message probe --amount 100
        gantrymq admin message probe orders --size 1024
    """
    from gantrymq.client.producer.producer import Producer

    with Producer(session.producer_config()) as producer:
        if topic is not None:
            rows = [_timed(session, producer, topic, amount, size)]
        else:
            answers = session.each(
                session.masters(broker, cluster), lambda target: _timed(session, producer, target.name, amount, size)
            )
            rows = [{**target.fields(), **answer} for target, answer in answers]
    columns = {
        "topic": "topic",
        "amount": ">messages",
        "failed": ">failed",
        "meanMs": ">mean ms",
        "medianMs": ">median ms",
        "maxMs": ">max ms",
    }
    session.rows(rows, columns)


def _timed(session: Session, producer: Producer, topic: str, amount: int, size: int) -> dict[str, object]:
    """How long each of ``amount`` sends takes, after a first one that connects. Raises if the first one fails."""
    from gantrymq.clock import SystemClock
    from gantrymq.errors import GantrymqError
    from gantrymq.model.message import Message

    clock, message = SystemClock(), Message(topic, b"a" * size)
    producer.send(message)
    sends: list[dict[str, object]] = []
    took = list[float]()
    for _ in range(amount):
        begin, result, failure = clock.monotonic_s(), None, None
        try:
            result = producer.send(message)
        except GantrymqError as error:
            failure = str(error)
        took.append((clock.monotonic_s() - begin) * 1000)
        sends.append(
            {
                "brokerName": result.queue.broker_name if result else None,
                "queueId": result.queue.queue_id if result else None,
                "status": result.status.name if result else None,
                "error": failure,
                "ms": took[-1],
            }
        )
    failed = sum(send["error"] is not None for send in sends)
    if failed:
        session.finding(f"{failed} of {amount} messages to {topic} were not acknowledged")
    ordered = sorted(took)
    return {
        "topic": topic,
        "amount": amount,
        "failed": failed,
        "bodyLength": size,
        "meanMs": sum(ordered) / amount,
        "medianMs": ordered[amount // 2],
        "maxMs": ordered[-1],
        "sends": sends,
    }
