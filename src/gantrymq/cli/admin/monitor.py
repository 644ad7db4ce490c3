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
        "group": "group", "topic": "topic", "undone": ">behind", "undoneSingleQueue": ">most in a queue",
        "delayMs": ">ms late", "problems": "problems",
    }  # fmt: skip
    session.rows(_rows(session), columns, none="no group has members")


def _rows(session: Session) -> Iterator[dict[str, object]]:
    from gantrymq.broker.names import RETRY_PREFIX
    from gantrymq.cli.admin.clients import connected
    from gantrymq.errors import GantrymqError

    groups = [one.removeprefix(RETRY_PREFIX) for one in session.admin.topics() if one.startswith(RETRY_PREFIX)]
    for group in groups:
        try:
            members = connected(session, group)
            table = session.admin.consume_stats(group) if members else {}
        except GantrymqError as error:
            session.missing(group, error)
            continue
        if members is None:
            continue
        problems = _problems(session, group, [one.client_id or "" for one in members.connection_set])
        for topic in sorted({queue.topic for queue in table}):
            queues = {queue: one for queue, one in table.items() if queue.topic == topic}
            yield {"group": group, "topic": topic, **_undone(session, topic, queues), "problems": problems}


def _undone(session: Session, topic: str, queues: dict[MessageQueue, OffsetWrapper]) -> dict[str, object]:
    """The messages that are not consumed, and the age of the last consumed one against the newest of its queue."""
    from gantrymq.errors import GantrymqError

    try:
        newest = {queue: one.last_update_timestamp for queue, one in session.admin.topic_stats(topic).items()}
    except GantrymqError as error:
        session.missing(topic, error)
        newest = {}
    behind = [max(0, one.broker_offset - one.consumer_offset) for one in queues.values()]
    late = [
        newest[queue] - one.last_timestamp
        for queue, one in queues.items()
        if one.last_timestamp > 0 and newest.get(queue, 0) > 0
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
    found = [f"{client}: {text}" for client, info in infos.items() for text in problems_of(info, now_ms)]
    return found if has_one_subscription(infos, now_ms) else ["different subscriptions", *found]
