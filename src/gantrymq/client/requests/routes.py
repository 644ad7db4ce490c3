"""The parts of a topic's route: queues to send to, queues to read, addresses of the brokers.

Source: MQClientInstance.topicRouteData2TopicPublishInfo and topicRouteData2TopicSubscribeInfo.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantrymq.errors import MQClientError, NoRouteError
from gantrymq.model.limits import MAX_QUEUES
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.route import MASTER_ID, TopicRouteData

_COUNT_DIGITS = 5
_MAX_QUEUES_OF_ROUTE = 1 << 20


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's route: ``publish`` has the queues to send to, ``subscribe`` those to read, in RocketMQ's order.

    By broker name: ``masters`` has the master's address, ``brokers`` the address to read from, ``addresses`` the
    addresses by broker id. ``clusters`` has the names of the brokers' clusters.
    """

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    masters: dict[str, str]
    brokers: dict[str, str]
    addresses: dict[str, dict[int, str]]
    clusters: frozenset[str] = frozenset()

    @classmethod
    def of(cls, topic: str, route: TopicRouteData) -> TopicRoute:
        """Make the route from the name server's answer. Raises MQClientError for an implausible number of queues."""
        masters = {
            broker_data.broker_name: broker_data.broker_addrs[MASTER_ID]
            for broker_data in route.broker_datas
            if MASTER_ID in broker_data.broker_addrs
        }
        brokers = {
            broker_data.broker_name: broker_data.address
            for broker_data in route.broker_datas
            if broker_data.address is not None
        }
        queues = sorted(route.queue_datas, key=lambda queue_data: queue_data.broker_name)
        _check_counts(topic, [max(queue.read_queue_nums, queue.write_queue_nums, 0) for queue in queues])
        subscribe = [
            MessageQueue(topic, queue.broker_name, number)
            for queue in queues
            if queue.is_readable
            for number in range(queue.read_queue_nums)
        ]
        publish = (
            _ordered(topic, route.order_topic_conf)
            if route.order_topic_conf
            else [
                MessageQueue(topic, queue.broker_name, number)
                for queue in queues
                if queue.is_writable and queue.broker_name in masters
                for number in range(queue.write_queue_nums)
            ]
        )
        addresses = {broker_data.broker_name: dict(broker_data.broker_addrs) for broker_data in route.broker_datas}
        clusters = frozenset(broker_data.cluster for broker_data in route.broker_datas if broker_data.cluster)
        return cls(topic, tuple(publish), tuple(subscribe), masters, brokers, addresses, clusters)

    def address_of(self, queue: MessageQueue, broker_id: int) -> str:
        """The address at which to read a queue: the broker with this id, else as :meth:`address`.

        Raises NoRouteError.
        """
        return self.addresses.get(queue.broker_name, {}).get(broker_id) or self.address(queue)

    def address(self, queue: MessageQueue) -> str:
        """The address at which to read a queue: its master, else a slave.

        Raises NoRouteError if the route has neither.
        """
        address = self.brokers.get(queue.broker_name)
        if address is None:
            raise NoRouteError(f"{queue}: the route of the topic has no broker {queue.broker_name}")
        return address


def _check_counts(topic: str, counts: list[int]) -> None:
    """Raises MQClientError for a number of queues that is implausible for one broker or for the whole route.

    Each broker may have the most queues that a topic can have, but not a hundred brokers at once.
    """
    if max(counts, default=0) > MAX_QUEUES or sum(counts) > _MAX_QUEUES_OF_ROUTE:
        raise MQClientError(f"topic {topic}: its route has {sum(counts)} queues, more than are accepted")


def _ordered(topic: str, conf: str) -> list[MessageQueue]:
    counts = list[tuple[str, int]]()
    for part in conf.split(";"):
        broker, _, count = part.partition(":")
        if not count.isdecimal() or len(count) > _COUNT_DIGITS:
            raise MQClientError(f"topic {topic}: orderTopicConf {conf!r} is not broker:queues;broker:queues")
        counts.append((broker, int(count)))
    _check_counts(topic, [count for _, count in counts])
    return [MessageQueue(topic, broker, number) for broker, count in counts for number in range(count)]
