"""``monitor``: how far every group is behind, and what is wrong with its consumers.

Source: MonitorService, DefaultMonitorListener.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantrymq.cli.admin.session import Session, watched

if TYPE_CHECKING:
    from gantrymq.model.message_queue import MessageQueue
    from gantrymq.remoting.bodies.group import OffsetWrapper


@watched
def monitor(session: Session) -> None:
    """Show how far each group that has members is behind, topic by topic, and the problems of its consumers.

    With --watch 60 it is mqadmin's startMonitoring.

    Examples of use:

        gantrymq admin monitor
        gantrymq admin monitor --watch 60 --json
    """
    columns = {
        "group": "group",
        "topic": "topic",
        "undone": ">behind",
        "undoneSingleQueue": ">most in a queue",
        "delayMs": ">ms late",
        "problems": "problems",
    }
    session.rows(_rows(session), columns, none="no group has members")


def _rows(session: Session) -> Iterator[dict[str, object]]:
    from gantrymq.cli.admin.clients import connected
    from gantrymq.cli.admin.groups import groups_with_retries
    from gantrymq.errors import GantrymqError

    for group in groups_with_retries(session):
        try:
            members = connected(session, group)
            table = session.admin.consume_stats(group) if members else {}
        except GantrymqError as error:
            session.missing(group, error)
            continue
        if members is None:
            continue
        problems = _problems(session, group, [connection.client_id or "" for connection in members.connection_set])
        for topic in sorted({queue.topic for queue in table}):
            queues = {queue: wrapper for queue, wrapper in table.items() if queue.topic == topic}
            yield {"group": group, "topic": topic, **_undone(session, topic, queues), "problems": problems}


def _undone(session: Session, topic: str, queues: dict[MessageQueue, OffsetWrapper]) -> dict[str, object]:
    """The messages that are not consumed, and the age of the last consumed one against the newest of its queue."""
    from gantrymq.errors import GantrymqError

    try:
        newest = {
            queue: topic_offset.last_update_timestamp
            for queue, topic_offset in session.admin.topic_stats(topic).items()
        }
    except GantrymqError as error:
        session.missing(topic, error)
        newest = {}
    behind = [max(0, wrapper.broker_offset - wrapper.consumer_offset) for wrapper in queues.values()]
    late = [
        newest[queue] - wrapper.last_timestamp
        for queue, wrapper in queues.items()
        if wrapper.last_timestamp > 0 and newest.get(queue, 0) > 0
    ]
    return {"undone": sum(behind), "undoneSingleQueue": max(behind), "delayMs": max([0, *late])}


def _problems(session: Session, group: str, clients: list[str]) -> list[str]:
    from gantrymq.cli.admin.diagnosis import has_one_subscription, problems_of
    from gantrymq.clock import SystemClock
    from gantrymq.errors import GantrymqError

    infos, now_ms = {}, SystemClock().now_ms()
    for client in clients:
        try:
            infos[client] = session.admin.consumer_running_info(group, client)
        except GantrymqError as error:
            session.missing(client, error)
    problems = [f"{client}: {text}" for client, info in infos.items() for text in problems_of(info, now_ms)]
    return problems if has_one_subscription(infos, now_ms) else ["different subscriptions", *problems]
