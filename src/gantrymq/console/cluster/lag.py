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
class ClusterGroupLag:
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
        return sorted(topic for topic in self.topics if not topic.startswith(RETRY_PREFIX))


def group_lags(session: ClusterSession, brokers: list[Broker]) -> dict[str, ClusterGroupLag]:
    """The progress of each group that has consumed, by name. A broker that does not answer is left out."""
    lags: dict[str, ClusterGroupLag] = {}
    answers = session.each(brokers, lambda broker: session.admin.broker_consume_stats(broker.address))
    for _, stats in answers:
        _add(lags, stats, session.config.namespace)
    return lags


def progress_of(session: ClusterSession, brokers: list[Broker], group: str) -> dict[MessageQueue, OffsetWrapper]:
    """The progress of one group by queue, also of one without a retry topic, whose brokers no route names."""
    full = wrap_namespace(session.config.namespace, group)
    table: dict[MessageQueue, OffsetWrapper] = {}
    for _, stats in session.each(brokers, lambda broker: session.admin.broker_consume_stats(broker.address)):
        for queue, wrapper in _queues(groups[full] for groups in stats.consume_stats_list if full in groups):
            topic = without_namespace(session.config.namespace, queue.topic)
            table[MessageQueue(topic, queue.broker_name, queue.queue_id)] = wrapper
    return dict(sorted(table.items()))


def _add(lags: dict[str, ClusterGroupLag], stats_list: ConsumeStatsList, namespace: str) -> None:
    for groups in stats_list.consume_stats_list:
        for group, stats in groups.items():
            if wrap_namespace(namespace, group) != group:
                continue  # of another namespace
            name = without_namespace(namespace, group)
            lag = lags.setdefault(name, ClusterGroupLag(name))
            for queue, wrapper in _queues([stats]):
                lag.behind += max(wrapper.broker_offset - wrapper.consumer_offset, 0)
                lag.queues += 1
                lag.consumed_ms = max(lag.consumed_ms, wrapper.last_timestamp)
                lag.topics |= {without_namespace(namespace, queue.topic)}


def _queues(lists: Iterable[list[ConsumeStats]]) -> Iterator[tuple[MessageQueue, OffsetWrapper]]:
    """The queues of a group's tables, one table for each topic."""
    for tables in lists:
        for table in tables:
            yield from by_queue(table.offset_table).items()
