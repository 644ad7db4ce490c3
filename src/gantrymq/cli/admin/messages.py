"""Single messages: ``message by-id|by-key|by-unique-key|by-offset|print|track|units``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.session import Broker, Session, admin_command, require
from gantrymq.cli.options import Begin, End, queue_number, whole_number

if TYPE_CHECKING:
    from gantrymq.client.admin.admin_client import AdminClient
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
            found = _as_stored(session).view_message(topic, msg_id)
        except NoRouteError:
            raise
        except MQClientError as error:
            session.finding(str(error))
        else:
            show_message(session, found, _tracks(session, found) if tracks else None)


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

    found = _as_stored(session).query_message_by_unique_key(
        topic, msg_id, begin_ms=begin, end_ms=FOREVER_MS if end is None else end
    )
    for message in found:
        show_message(session, message, _tracks(session, message) if tracks else None)
    if not found:
        session.finding(f"no message of {topic} has the id {msg_id}; --begin TIME searches more than three days")


@admin_command
def by_key(
    session: Session,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One of its keys.", show_default=False)],
    begin: Begin = None,
    end: End = None,
    most: Max = 64,
    key_type: Annotated[str, typer.Option("--key-type", metavar="(K | T)", help="T: KEY is a tag.")] = "K",
    last_key: Annotated[
        str | None, typer.Option("--last-key", metavar="INDEXKEY", help="After this one, for an index in RocksDB.")
    ] = None,
) -> None:
    """List the messages that have a key, oldest first. The exit code is 1 if there is none.

    Examples of use:

        gantrymq admin message by-key orders 4711
        gantrymq admin message by-key orders 4711 --begin 2026-11-24 --max 5 --json
    """
    from gantrymq.client.admin.messages import FOREVER_MS

    require(key_type in ("K", "T"), f"{key_type!r} is not K or T")
    admin = _as_stored(session)
    found = (admin.query_message if key_type == "K" else admin.query_message_by_tag)(
        topic, key, max_num=most, begin_ms=begin or 0, end_ms=FOREVER_MS if end is None else end, last_key=last_key
    )
    if session.is_json:
        session.rows(
            ({**json_fields(session, one), "indexKey": _index_key(one, topic, key_type, key)} for one in found), {}
        )
    else:
        list_messages(session, iter(found))
    if not found:
        session.finding(f"no message of {topic} has the {'key' if key_type == 'K' else 'tag'} {key}")


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
    one = _queue(session, topic, queue, broker)
    found = _as_stored(session).message_at(one, offset)
    if found is None:
        stats = session.admin.topic_stats(topic).get(one)
        limits = f"; the queue has {stats.min_offset} to {stats.max_offset}" if stats else ""
        session.finding(f"no message is at offset {offset} of queue {queue} of {topic}{limits}")
    else:
        show_message(session, found, _tracks(session, found) if tracks else None)


def _as_stored(session: Session) -> AdminClient:
    """The client, with bodies as they are stored: bodyLength, bodySha256 and crcOk are about these."""
    session.admin.decompresses = False
    return session.admin


def _queue(session: Session, topic: str, number: int, broker: str | None) -> MessageQueue:
    from gantrymq.client.requests.routes import TopicRoute
    from gantrymq.errors import MQClientError

    names = None if broker is None else {one.name for one in session.brokers(broker)}
    queues = TopicRoute.of(topic, session.admin.topic_route(topic)).subscribe
    found = [one for one in queues if one.queue_id == number and (names is None or one.broker_name in names)]
    require(len(found) < 2, f"{len(found)} brokers have queue {number} of {topic}; say which with --broker")
    if not found:
        raise MQClientError(
            f"{topic} has no readable queue {number}{f' at {broker}' if broker else ''}; "
            f"`gantrymq admin topic status {topic}` shows its queues"
        )
    return found[0]


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
    most: Max = 100,
    count_tags: Annotated[bool, typer.Option("--count-tags", help="How many messages each tag has.")] = False,
    broker: Broker = None,
) -> None:
    """List the messages of a topic, queue by queue, without a consumer group.

    Examples of use:

        gantrymq admin message print orders
        gantrymq admin message print orders -q 0 --from 4711 --max 10 --json
        gantrymq admin message print orders --begin 2026-11-24 --tag 'paid || sent'
    """
    names = None if broker is None else {one.name for one in session.brokers(broker)}
    found = read_messages(
        session, topic, queue=queue, begin_ms=begin, end_ms=end, start=start, tag=tag, most=most, brokers=names
    )
    none = f"{topic} has no such message"
    if not count_tags:
        list_messages(session, found, none=none)
        return
    counts = Counter(message.tags or None for message in found)
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
    most: int | None = None,
    brokers: set[str] | None = None,
) -> Iterator[ReceivedMessage]:
    """The messages of a topic, queue by queue, at most ``most`` in all, with bodies as stored.

    A broker that does not answer is named.

    ``begin_ms`` and ``end_ms`` are store times, [begin, end). Raises MQClientError if no queue may be read.
    """
    from gantrymq.client.pull.pull_client import PullClient
    from gantrymq.client.requests.calls import PullResult, PullStatus
    from gantrymq.client.requests.received import received
    from gantrymq.client.requests.records import decode_records
    from gantrymq.client.requests.subscription import subscription
    from gantrymq.errors import MQClientError, RemotingError

    with PullClient(session.config, attempts=1) as client:
        queues = client.queues(topic)
        if not queues:
            raise MQClientError(f"{topic} may not be read; `gantrymq admin topic perm '{topic}' RW` allows it")
        tags = frozenset(subscription(topic, tag, "TAG", 0).tags_set)
        count = 0
        for one in sorted(queues):
            if (queue is not None and one.queue_id != queue) or (
                brokers is not None and one.broker_name not in brokers
            ):
                continue
            try:
                first = client.min_offset(one) if begin_ms is None else client.search_offset(one, begin_ms)
                last = client.max_offset(one) if end_ms is None else client.search_offset(one, end_ms)
                first = first if start is None else max(first, start)
                bounds = PullResult(PullStatus.FOUND, 0, first, last, 0, b"")
                for pulled in client.read(one, first, last, expression=tag, under_way=1):
                    for stored in decode_records(pulled.records, decompressed=False):
                        if tags and stored.tags not in tags:
                            continue
                        if most is not None and count >= most:
                            return
                        count += 1
                        yield received(stored, one, bounds)
            except RemotingError as error:
                session.missing(one.broker_name, error)


def list_messages(session: Session, messages: Iterator[ReceivedMessage], *, none: str = "") -> None:
    """Print messages: as JSON with their bodies, or a line of a table each."""
    columns = {
        "msgId": "id", "brokerName": "broker", "queueId": ">queue", "queueOffset": ">offset",
        "storeTimestamp": "stored", "tags": "tags", "keys": "keys", "shown": "body",
    }  # fmt: skip
    if session.is_json:
        session.rows((json_fields(session, one) for one in messages), {}, none=none)
    else:
        session.rows((_in_a_line(session, one) for one in messages), columns, none=none)


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
    "group": "group", "state": "state", "queueOffset": ">offset", "consumerOffset": ">committed",
    "consumed": "consumed",
}  # fmt: skip


def _tracks(session: Session, message: ReceivedMessage) -> list[dict[str, object]]:
    """The state of a message in each group of its topic."""
    host = str(message.store_host)
    names = {one.name for one in session.brokers() if one.address == host}
    return [_track(session, message, group, names) for group in session.admin.topic_consumers(message.topic)]


def _track(session: Session, message: ReceivedMessage, group: str, names: set[str]) -> dict[str, object]:
    from gantrymq.cli.admin.clients import connected
    from gantrymq.errors import GantrymqError, MQClientError

    committed = None
    try:
        stats = session.admin.consume_stats(group, message.topic)
        places = [queue for queue in stats if queue.queue_id == message.queue_id and queue.broker_name in names]
        committed = max((stats[queue].consumer_offset for queue in places), default=None)
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
        "topic": message.topic, "msgId": message.msg_id, "group": group, "state": state,
        "queueOffset": message.queue_offset, "consumerOffset": committed, "consumed": consumed,
    }  # fmt: skip


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
    one = _queue(session, topic, queue, broker)
    [target] = session.masters(one.broker_name)[:1]
    found = session.admin.consume_queue(target.address, topic, queue, offset, count, group)
    subscription = found.subscription_data.sub_string if found.subscription_data else None
    rows = [
        {
            "topic": topic, "brokerName": one.broker_name, "queueId": queue, "queueOffset": offset + number,
            "phyOffset": unit.physic_offset, "size": unit.physic_size, "tagsCode": unit.tags_code,
            "extendData": unit.extend_data_json, "bitMap": unit.bit_map,
            **({"passesFilter": unit.eval, "subscription": subscription, "filterData": found.filter_data}
               if group is not None else {}),
            "problem": unit.msg, "minOffset": found.min_queue_index, "maxOffset": found.max_queue_index,
        }
        for number, unit in enumerate(found.queue_data or ())
    ]  # fmt: skip
    columns = {
        "queueOffset": ">offset", "phyOffset": ">log offset", "size": ">size", "tagsCode": ">tags code",
        **({"passesFilter": "passes"} if group is not None else {}), "problem": "problem",
    }  # fmt: skip
    none = f"queue {queue} of {topic} has {found.min_queue_index} to {found.max_queue_index}"
    session.rows(rows, columns, none=none)
