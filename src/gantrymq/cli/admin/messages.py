"""Single messages: ``message by-id|by-key|by-unique-key|by-offset|print|track|units``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.session import Broker, Session, admin_command, require
from gantrymq.cli.options import Begin, End, queue_number, whole_number

if TYPE_CHECKING:
    from gantrymq.client.admin.admin_client import AdminClient
    from gantrymq.client.pull.pull_client import PullClient
    from gantrymq.client.requests.received import ReceivedMessage
    from gantrymq.model.message_queue import MessageQueue

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
MessageId = Annotated[str, typer.Argument(metavar="ID", help="The message's id.", show_default=False)]
Queue = Annotated[int, typer.Argument(metavar="QUEUE", parser=queue_number, help="Queue id.", show_default=False)]
Offset = Annotated[
    int, typer.Argument(metavar="OFFSET", parser=whole_number(0), help="Queue offset.", show_default=False)
]
Max = Annotated[int, typer.Option("--max", metavar="N", parser=whole_number(1), help="The maximum number of messages.")]

Tracks = Annotated[bool, typer.Option("--tracks", help="With the groups that have consumed it.")]

_CUT_AT = 60
_HOUR_MS = 3_600_000


@admin_command
def by_id(
    session: Session,
    topic: Topic,
    msg_ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of messages.", show_default=False)],
    tracks: Tracks = False,
) -> None:
    """Show messages by the broker's id or by the producer's, with their bodies.

    The exit code is 1 if there is no such message.

    Examples of use:

        gantrymq admin message by-id orders 7F00000100002A9F0000000000000000
    """
    from gantrymq.errors import MQClientError, NoRouteError

    for msg_id in msg_ids:
        try:
            message = _as_stored(session).view_message(topic, msg_id)
        except NoRouteError:
            raise
        except MQClientError as error:
            session.finding(str(error))
        else:
            show_message(session, message, _tracks(session, message) if tracks else None)


@admin_command
def by_unique_key(
    session: Session, topic: Topic, msg_id: MessageId, begin: Begin = None, end: End = None, tracks: Tracks = False
) -> None:
    """Show the messages that were stored with a producer's id (UNIQ_KEY), with their bodies.

    Without --begin the last three days are searched. The exit code is 1 if
    there is no such message.

    Examples of use:

        gantrymq admin message by-unique-key orders 7F00000100002A9F0000000000000000
    """
    from gantrymq.client.admin.messages import FOREVER_MS

    messages = _as_stored(session).query_message_by_unique_key(
        topic, msg_id, begin_ms=begin, end_ms=FOREVER_MS if end is None else end
    )
    for message in messages:
        show_message(session, message, _tracks(session, message) if tracks else None)
    if not messages:
        when = in_this_time(begin, end)
        hint = "; --begin TIME searches more than three days" if begin is None else ""
        session.finding(f"no message of {topic}{when} has the id {msg_id}{hint}")


@admin_command
def by_key(
    session: Session,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One of its keys.", show_default=False)],
    begin: Begin = None,
    end: End = None,
    max_messages: Max = 64,
    key_type: Annotated[str, typer.Option("--key-type", metavar="(K | T)", help="T: KEY is a tag.")] = "K",
    last_key: Annotated[
        str | None, typer.Option("--last-key", metavar="INDEXKEY", help="After this one, for an index in RocksDB.")
    ] = None,
) -> None:
    """List the newest messages that have a key, of all brokers, oldest first.

    The exit code is 1 if there is none.

    Examples of use:

        gantrymq admin message by-key orders 4711
        gantrymq admin message by-key orders 4711 --begin 2026-11-24 --max 5 --json
    """
    from gantrymq.client.admin.messages import FOREVER_MS

    require(key_type in ("K", "T"), f"{key_type!r} is not K or T")
    admin = _as_stored(session)
    messages = (admin.query_message if key_type == "K" else admin.query_message_by_tag)(
        topic,
        key,
        max_num=max_messages,
        begin_ms=begin or 0,
        end_ms=FOREVER_MS if end is None else end,
        last_key=last_key,
    )
    if session.is_json:
        session.rows(
            (
                {**json_fields(session, message), "indexKey": _index_key(message, topic, key_type, key)}
                for message in messages
            ),
            {},
        )
    else:
        list_messages(session, iter(messages))
    if not messages:
        when = in_this_time(begin, end)
        session.finding(f"no message of {topic}{when} has the {'key' if key_type == 'K' else 'tag'} {key}")


def in_this_time(begin: int | None, end: int | None) -> str:
    """The words that tell "none in this time" from "none": empty without --begin and --end."""
    return "" if begin is None and end is None else " stored in this time"


def _index_key(message: ReceivedMessage, topic: str, key_type: str, key: str) -> str:
    """The key of a message in an index in RocksDB, as mqadmin prints it. ``--last-key`` takes it."""
    hour_ms = message.store_timestamp_ms // _HOUR_MS * _HOUR_MS
    return f"{hour_ms}@{topic}@{key_type}@{key}@{message.msg_id}@{message.phy_offset}"


@admin_command
def by_offset(
    session: Session, topic: Topic, queue: Queue, offset: Offset, broker: Broker = None, tracks: Tracks = False
) -> None:
    """Show the message at an offset of a queue. The exit code is 1 if there is none.

    If several brokers have the topic, name one with --broker.

    Examples of use:

        gantrymq admin message by-offset orders 0 4711
        gantrymq admin message by-offset orders 0 4711 -b broker-a --json
    """
    message_queue = _queue(session, topic, queue, broker)
    message = _as_stored(session).message_at(message_queue, offset)
    if message is None:
        stats = session.admin.topic_stats(topic).get(message_queue)
        limits = f"; the queue has {stats.min_offset} to {stats.max_offset}" if stats else ""
        session.finding(f"no message is at offset {offset} of queue {queue} of {topic}{limits}")
    else:
        show_message(session, message, _tracks(session, message) if tracks else None)


def _as_stored(session: Session) -> AdminClient:
    """The client, with bodies as they are stored: bodyLength, bodySha256 and crcOk are about these."""
    session.admin.decompresses = False
    return session.admin


def _queue(session: Session, topic: str, number: int, broker: str | None) -> MessageQueue:
    from gantrymq.client.requests.routes import TopicRoute
    from gantrymq.errors import MQClientError

    names = None if broker is None else {named_broker.name for named_broker in session.brokers(broker)}
    queues = TopicRoute.of(topic, session.admin.topic_route(topic)).subscribe
    matching = [queue for queue in queues if queue.queue_id == number and (names is None or queue.broker_name in names)]
    require(len(matching) < 2, f"{len(matching)} brokers have queue {number} of {topic}; say which with --broker")
    if not matching:
        raise MQClientError(
            f"{topic} has no readable queue {number}{f' at {broker}' if broker else ''}; "
            f"`gantrymq admin topic status {topic}` shows its queues"
        )
    return matching[0]


@admin_command
def print_messages(
    session: Session,
    topic: Topic,
    queue: Annotated[
        int | None, typer.Option("-q", "--queue", metavar="Q", parser=queue_number, help="Only queues of this number.")
    ] = None,
    begin: Begin = None,
    end: End = None,
    start: Annotated[
        int | None, typer.Option("--from", metavar="N", parser=whole_number(0), help="From this queue offset on.")
    ] = None,
    tag: Annotated[str, typer.Option("--tag", metavar="EXPRESSION", help="A tag, or A || B.")] = "*",
    max_messages: Max = 100,
    count_tags: Annotated[bool, typer.Option("--count-tags", help="How many messages each tag has.")] = False,
    broker: Broker = None,
) -> None:
    """List the messages of a topic, queue by queue, without a consumer group.

    Examples of use:

        gantrymq admin message print orders
        gantrymq admin message print orders -q 0 --from 4711 --max 10 --json
        gantrymq admin message print orders --begin 2026-11-24 --tag 'paid || sent'
    """
    names = None if broker is None else {named_broker.name for named_broker in session.brokers(broker)}
    messages = read_messages(
        session,
        topic,
        queue=queue,
        begin_ms=begin,
        end_ms=end,
        start=start,
        tag=tag,
        max_messages=max_messages,
        brokers=names,
    )
    none = f"{topic} has no such message{in_this_time(begin, end)}"
    if not count_tags:
        list_messages(session, messages, none=none)
        return
    counts = Counter(message.tags or None for message in messages)
    rows = [{"topic": topic, "tags": tags, "count": count} for tags, count in counts.most_common()]
    session.rows(rows, {"tags": "tag", "count": ">messages"}, none=none)


def read_messages(
    session: Session,
    topic: str,
    *,
    queue: int | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    start: int | None = None,
    tag: str = "*",
    max_messages: int | None = None,
    brokers: set[str] | None = None,
) -> Iterator[ReceivedMessage]:
    """The messages of a topic, queue by queue, at most ``max_messages`` in all, with bodies as stored.

    A broker that does not answer is named.

    ``begin_ms`` and ``end_ms`` are store times, [begin, end). Raises MQClientError if no queue may be read.
    """
    from gantrymq.client.pull.pull_client import PullClient
    from gantrymq.client.requests.calls import PullResult, PullStatus
    from gantrymq.client.requests.received import received
    from gantrymq.client.requests.records import decode_records
    from gantrymq.client.requests.subscription import subscription
    from gantrymq.errors import RemotingError

    with PullClient(session.config, attempts=1) as client:
        queues = readable_queues(client, topic)
        tags = frozenset(subscription(topic, tag, "TAG", 0).tags_set)
        count = 0
        for message_queue in sorted(queues):
            if (queue is not None and message_queue.queue_id != queue) or (
                brokers is not None and message_queue.broker_name not in brokers
            ):
                continue
            try:
                first, last = offsets_in_time(client, message_queue, begin_ms, end_ms)
                first = first if start is None else max(first, start)
                bounds = PullResult(PullStatus.FOUND, 0, first, last, 0, b"")
                for pulled in client.read(message_queue, first, last, expression=tag, under_way=1):
                    for stored in decode_records(pulled.records, decompressed=False):
                        if tags and stored.tags not in tags:
                            continue
                        if max_messages is not None and count >= max_messages:
                            return
                        count += 1
                        yield received(stored, message_queue, bounds)
            except RemotingError as error:
                session.missing(message_queue.broker_name, error)


def newest_messages(
    session: Session, topic: str, max_messages: int, begin_ms: int | None, end_ms: int | None
) -> tuple[list[ReceivedMessage], int]:
    """The newest ``max_messages`` messages of all queues and brokers, oldest first, and how many there are in all.

    Otherwise as :func:`read_messages`. Every queue offset counts as a message.
    """
    from gantrymq.client.pull.pull_client import PullClient
    from gantrymq.client.requests.calls import PullResult, PullStatus
    from gantrymq.client.requests.received import received
    from gantrymq.client.requests.records import decode_records
    from gantrymq.errors import RemotingError

    messages: list[ReceivedMessage] = []
    total = 0
    with PullClient(session.config, attempts=1) as client:
        for queue in readable_queues(client, topic):
            try:
                first, last = offsets_in_time(client, queue, begin_ms, end_ms)
                begin = max(first, last - max_messages)
                bounds = PullResult(PullStatus.FOUND, 0, begin, last, 0, b"")
                for pulled in client.read(queue, begin, last, under_way=1):
                    stored = decode_records(pulled.records, decompressed=False)
                    messages += [received(record, queue, bounds) for record in stored]
                total += max(last - first, 0)
            except RemotingError as error:
                session.missing(queue.broker_name, error)
    messages.sort(
        key=lambda message: (message.store_timestamp_ms, message.broker_name, message.queue_id, message.queue_offset)
    )
    return messages[max(len(messages) - max_messages, 0) :], total


def readable_queues(client: PullClient, topic: str) -> tuple[MessageQueue, ...]:
    """The queues of a topic. Raises MQClientError if none may be read."""
    from gantrymq.cli.advice import unreadable

    queues = client.queues(topic)
    if not queues:
        raise unreadable(topic)
    return queues


def offsets_in_time(
    client: PullClient, queue: MessageQueue, begin_ms: int | None, end_ms: int | None
) -> tuple[int, int]:
    """The offsets [first, last) of a queue whose messages were stored in [begin_ms, end_ms)."""
    first = client.min_offset(queue) if begin_ms is None else client.search_offset(queue, begin_ms)
    last = client.max_offset(queue) if end_ms is None else client.search_offset(queue, end_ms)
    return first, last


def list_messages(
    session: Session,
    messages: Iterator[ReceivedMessage],
    *,
    none: str = "",
    origin: Callable[[ReceivedMessage], str | None] | None = None,
) -> None:
    """Print messages: as JSON with their bodies, or a line of a table each. ``origin`` gives the topic they had."""
    columns = {
        "msgId": "id",
        "brokerName": "broker",
        "queueId": ">queue",
        "queueOffset": ">offset",
        "storeTimestamp": "stored",
        "tags": "tags",
        "keys": "keys",
        "shown": "body",
    }
    if session.is_json:

        def fields(message: ReceivedMessage) -> dict[str, object]:
            return json_fields(session, message) | ({} if origin is None else {"originTopic": origin(message)})

        session.rows(map(fields, messages), {}, none=none)
    elif origin is None:
        session.rows((_in_a_line(session, message) for message in messages), columns, none=none)
    else:
        first, *others = columns.items()
        rows = ({**_in_a_line(session, message), "originTopic": origin(message)} for message in messages)
        session.rows(rows, dict([first, ("originTopic", "of topic"), *others]), none=none)


def json_fields(session: Session, message: ReceivedMessage) -> dict[str, object]:
    """A message as JSON, in the shape of ``consume --json``. Its body is as stored."""
    from gantrymq.format.message_json import message_fields

    return message_fields(message, _plain_body(session, message), message.broker_name)


def _plain_body(session: Session, message: ReceivedMessage) -> bytes:
    """The body decompressed; as it is stored, with a warning, if that fails."""
    from gantrymq.client.requests.records import or_as_stored

    return or_as_stored(message, session.config.max_decompressed_body_size).body


def _in_a_line(session: Session, message: ReceivedMessage) -> dict[str, object]:
    from gantrymq.format.body_text import body_text

    body = _plain_body(session, message)
    text = body_text(body[: 4 * _CUT_AT])
    shown = body[:_CUT_AT].hex(" ") if text is None else text
    cut = shown if len(shown) <= _CUT_AT else f"{shown[: _CUT_AT - 1]}…"
    return {
        "msgId": message.msg_id,
        "brokerName": message.broker_name or None,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": message.store_timestamp_ms,
        "tags": message.tags or None,
        "keys": " ".join(message.keys) or None,
        "shown": cut,
    }


def show_message(
    session: Session, message: ReceivedMessage, tracks: Sequence[Mapping[str, object]] | None = None
) -> None:
    """Print one message, whose body is as stored, with the rows of ``tracks``."""
    if session.is_json:
        session.rows([json_fields(session, message) | ({} if tracks is None else {"tracks": tracks})], {})
        return
    from gantrymq.cli.body_lines import body_lines
    from gantrymq.cli.terminal import print_line, print_pairs
    from gantrymq.model.texts import time_text

    body = _plain_body(session, message)
    stored = "" if len(body) == len(message.body) else f" ({len(message.body)} as stored)"
    pairs = [
        ("message id", message.msg_id),
        ("broker's id", message.offset_msg_id),
        ("log", f"offset {message.phy_offset}, {message.size_bytes} bytes"),
        ("stored", f"{time_text(message.store_timestamp_ms)} at {message.store_host}"),
        ("born", f"{time_text(message.born_timestamp_ms)} at {message.born_host}"),
        *sorted(message.properties.items()),
        *([("reconsumed", f"{message.reconsume_times} times")] if message.reconsume_times else []),
        ("flags", f"flag {message.flag}, sysFlag {message.sys_flag}"),
        ("body", f"{len(body)} bytes{stored}"),
    ]
    broker = f"{message.broker_name}, " if message.broker_name else ""
    print_pairs(f"{message.topic}, {broker}queue {message.queue_id}, offset {message.queue_offset}", pairs)
    print()
    for line in body_lines(body):
        print_line(line)
    if tracks is not None:
        print()
        session.rows(tracks, _TRACK_COLUMNS, none=f"no group has consumed {message.topic}")


@admin_command
def track(session: Session, topic: Topic, msg_id: MessageId) -> None:
    """Show for each group of a topic whether it has consumed a message.

    The state is RocketMQ's: CONSUMED, CONSUMED_BUT_FILTERED, NOT_CONSUME_YET,
    CONSUME_BROADCASTING, PULL (the client itself decides what it pulls) or
    NOT_ONLINE. With the last two, look at the committed offset.

    Examples of use:

        gantrymq admin message track orders 7F00000100002A9F0000000000000000
    """
    rows = _tracks(session, session.admin.view_message(topic, msg_id))
    session.rows(rows, _TRACK_COLUMNS, none=f"no group has consumed {topic}")


_TRACK_COLUMNS = {
    "group": "group",
    "state": "state",
    "queueOffset": ">offset",
    "consumerOffset": ">committed",
    "consumed": "consumed",
}


def _tracks(session: Session, message: ReceivedMessage) -> list[dict[str, object]]:
    """The state of a message in each group of its topic."""
    return [_track(session, message, group) for group in session.admin.topic_consumers(message.topic)]


def _track(session: Session, message: ReceivedMessage, group: str) -> dict[str, object]:
    from gantrymq.cli.admin.clients import connected
    from gantrymq.errors import GantrymqError, MQClientError
    from gantrymq.model.message_queue import MessageQueue

    committed = None
    try:
        stats = session.admin.consume_stats(group, message.topic)
        wrapper = stats.get(MessageQueue(message.topic, message.broker_name, message.queue_id))
        committed = None if wrapper is None else wrapper.consumer_offset
    except GantrymqError as error:
        session.missing(group, error)
    consumed = None if committed is None else committed > message.queue_offset
    try:
        members = connected(session, group)
    except MQClientError:
        members = None  # a group that has offsets alone, as after `group clone`
    state = "NOT_ONLINE"
    if members is not None:
        wanted = members.subscription_table.get(message.topic)
        tags = set(wanted.tags_set) if wanted else set()
        if members.consume_type != "CONSUME_PASSIVELY":
            state = "PULL"
        elif members.message_model == "BROADCASTING":
            state = "CONSUME_BROADCASTING"
        elif not consumed:
            state = "NOT_CONSUME_YET"
        else:
            state = "CONSUMED" if not tags or message.tags in tags else "CONSUMED_BUT_FILTERED"
    return {
        "topic": message.topic,
        "msgId": message.msg_id,
        "group": group,
        "state": state,
        "queueOffset": message.queue_offset,
        "consumerOffset": committed,
        "consumed": consumed,
    }


@admin_command
def units(
    session: Session,
    topic: Topic,
    queue: Queue,
    offset: Offset,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, max=10_000, help="The number of units.")] = 10,
    group: Annotated[str | None, typer.Option("-g", "--group", metavar="GROUP", help="With its filter.")] = None,
    broker: Broker = None,
) -> None:
    """Show the units of a consume queue: where each message lies in the log, and its tags code.

    Examples of use:

        gantrymq admin message units orders 0 4711 --count 3
    """
    message_queue = _queue(session, topic, queue, broker)
    [target] = session.masters(message_queue.broker_name)[:1]
    answer = session.admin.consume_queue(target.address, topic, queue, offset, count, group)
    subscription = answer.subscription_data.sub_string if answer.subscription_data else None
    rows = [
        {
            "topic": topic,
            "brokerName": message_queue.broker_name,
            "queueId": queue,
            "queueOffset": offset + number,
            "phyOffset": unit.physic_offset,
            "size": unit.physic_size,
            "tagsCode": unit.tags_code,
            "extendData": unit.extend_data_json,
            "bitMap": unit.bit_map,
            **(
                {"passesFilter": unit.eval, "subscription": subscription, "filterData": answer.filter_data}
                if group is not None
                else {}
            ),
            "problem": unit.msg,
            "minOffset": answer.min_queue_index,
            "maxOffset": answer.max_queue_index,
        }
        for number, unit in enumerate(answer.queue_data or ())
    ]
    columns = {
        "queueOffset": ">offset",
        "phyOffset": ">log offset",
        "size": ">size",
        "tagsCode": ">tags code",
        **({"passesFilter": "passes"} if group is not None else {}),
        "problem": "problem",
    }
    none = f"queue {queue} of {topic} has {answer.min_queue_index} to {answer.max_queue_index}"
    session.rows(rows, columns, none=none)
