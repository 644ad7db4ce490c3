"""How far the groups of a cluster are behind, from one request to each broker.

Source: GET_BROKER_CONSUME_STATS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gantrymq.client.namespace import RETRY_PREFIX, without_namespace, wrap_namespace
from gantrymq.console.cluster.source import Broker, ClusterSession
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.group import ConsumeStats, ConsumeStatsList, OffsetWrapper
from gantrymq.remoting.body import by_queue


@dataclass
class GroupLag:
    """The progress of a group over all its topics and brokers, in messages.

    ``consumed_ms`` is the store time of the message that was consumed last in the queue that is furthest ahead.
    """

    group: str
    behind: int = 0
    queues: int = 0
    consumed_ms: int = 0
    topics: frozenset[str] = frozenset()

    @property
    def own_topics(self) -> list[str]:
        """The topics without that of the group's retries."""
        return sorted(one for one in self.topics if not one.startswith(RETRY_PREFIX))


def group_lags(session: ClusterSession, brokers: list[Broker]) -> dict[str, GroupLag]:
    """The progress of each group that has consumed, by name. A broker that does not answer is left out."""
    lags: dict[str, GroupLag] = {}
    answers = session.each(brokers, lambda one: session.admin.broker_consume_stats(one.address))
    for _, found in answers:
        _add(lags, found, session.config.namespace)
    return lags


def progress_of(session: ClusterSession, brokers: list[Broker], group: str) -> dict[MessageQueue, OffsetWrapper]:
    """The progress of one group by queue, also of one without a retry topic, whose brokers no route names."""
    full = wrap_namespace(session.config.namespace, group)
    table: dict[MessageQueue, OffsetWrapper] = {}
    for _, found in session.each(brokers, lambda one: session.admin.broker_consume_stats(one.address)):
        for queue, one in _queues(groups[full] for groups in found.consume_stats_list if full in groups):
            topic = without_namespace(session.config.namespace, queue.topic)
            table[MessageQueue(topic, queue.broker_name, queue.queue_id)] = one
    return dict(sorted(table.items()))


def _add(lags: dict[str, GroupLag], found: ConsumeStatsList, namespace: str) -> None:
    for groups in found.consume_stats_list:
        for group, stats in groups.items():
            if wrap_namespace(namespace, group) != group:
                continue  # of another namespace
            name = without_namespace(namespace, group)
            lag = lags.setdefault(name, GroupLag(name))
            for queue, one in _queues([stats]):
                lag.behind += max(one.broker_offset - one.consumer_offset, 0)
                lag.queues += 1
                lag.consumed_ms = max(lag.consumed_ms, one.last_timestamp)
                lag.topics |= {without_namespace(namespace, queue.topic)}


def _queues(lists: Iterable[list[ConsumeStats]]) -> Iterator[tuple[MessageQueue, OffsetWrapper]]:
    """The queues of a group's tables, one table for each topic."""
    for tables in lists:
        for table in tables:
            yield from by_queue(table.offset_table).items()
