"""Reads topics without a consumer group: routes, offsets and pulls. No offset is committed.

with PullClient("127.0.0.1:9876") as client:
    for queue in client.queues("TopicTest"):
        for pulled in client.read(queue, client.min_offset(queue), client.max_offset(queue)):
            ...  # pulled.records: stored records, one after the other

Thread rule: one thread at a time. Each thread, and each Spark executor, makes a client of its own.

Source: DefaultMQPullConsumer, PullAPIWrapper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeVar, Unpack

from gantrymq.client.arguments import checks_arguments, number, text
from gantrymq.client.connection.blocking_client import BlockingClient
from gantrymq.client.namespace import without_namespace, wrap_namespace
from gantrymq.client.pull.segments import PulledRecords, Segment, SegmentedRange
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import SUBSCRIBE_ALL, TOOLS_CONSUMER_GROUP, Call, PullResult
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.client.requests.subscription import TAG
from gantrymq.client.settings import ClientConfig, ClientSettings
from gantrymq.clock import Clock
from gantrymq.errors import ConfigError, NoRouteError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.route import ClusterInfo

PULL_TIMEOUT_MS = 10_000
UNDER_WAY = 32  # pulls of one queue at the same time
ATTEMPTS = 4  # of one request, each with a new connection and a new route
RETRY_PAUSE_MS = 200  # before the second attempt, twice as long before each further one
MAX_PAUSE_MS = 5_000
_RETRIED = (RemotingError, NoRouteError)  # errors to retry: the queue's broker existed, so it may be restarting

T = TypeVar("T")


@checks_arguments(topic=text)  # any name, because stores have topics with names that no client would create
class PullClient:
    """Reads topics of a cluster. Topics are given and returned without the namespace, if one is set.

    ``config`` is the list of name servers, with fields of ClientConfig as ``settings``, or a ClientConfig.

    Every method raises RemotingError if no broker answers after ``attempts`` attempts (4 take 1.5 s, 10 take 30 s),
    NoRouteError if the topic or broker does not exist, and MQBrokerError if a broker refuses. NoRouteError is retried
    for a request about a queue, but not for one about a topic.
    """

    def __init__(
        self,
        config: ClientConfig | str,
        *,
        group: str = TOOLS_CONSUMER_GROUP,
        pull_timeout_ms: int = PULL_TIMEOUT_MS,
        attempts: int = ATTEMPTS,
        clock: Clock | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        self._config = config = ClientConfig.of(config, settings)
        for key, given in (("attempts", attempts), ("pull_timeout_ms", pull_timeout_ms)):
            try:
                number(1)(given)
            except ValueError as error:
                raise ConfigError(key, given, str(error)) from None
        self._attempts = attempts
        self._group = wrap_namespace(config.namespace, group) if group != TOOLS_CONSUMER_GROUP else group
        self._pull_timeout_ms = pull_timeout_ms
        self._client = BlockingClient(config, clock)
        self._routes: dict[str, TopicRoute] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def topics(self) -> list[str]:
        """Every topic of the cluster, system topics included. With a namespace only its topics."""
        names = self._client.ask_name_server(calls.topic_list())
        namespace = self._config.namespace
        if namespace:
            names = [name for name in names if wrap_namespace(namespace, name) == name]
        return sorted(without_namespace(namespace, name) for name in names)

    def cluster(self) -> ClusterInfo:
        """The brokers, and their names by cluster."""
        return self._client.ask_name_server(calls.cluster_info())

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """The route of a topic. It is cached unless ``fresh``."""
        route = None if fresh else self._routes.get(topic)
        if route is None:
            full = wrap_namespace(self._config.namespace, topic)
            data = self._client.ask_name_server(calls.topic_route(full))
            if data is None:
                self._routes.pop(topic, None)
                raise NoRouteError(f"no route of topic {full}: no broker has it")
            route = self._routes[topic] = TopicRoute.of(topic, data)
        return route

    def queues(self, topic: str, *, fresh: bool = True) -> tuple[MessageQueue, ...]:
        """The readable queues, ordered by broker and number."""
        return self.route(topic, fresh=fresh).subscribe

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that still exists."""
        return self._ask(queue, calls.min_offset)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message to be stored."""
        return self._ask(queue, calls.max_offset)

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after ``timestamp_ms``. If all are older, the maximum offset."""
        return self._ask(queue, lambda full: calls.search_offset(full, timestamp_ms))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        *,
        expression: str = SUBSCRIBE_ALL,
        expression_type: str = TAG,
    ) -> PullResult:
        """One pull. It returns at once with the messages that exist and match the expression.

        ``expression`` is ``*``, ``TagA || TagB``, or with ``SQL92`` a condition.
        """
        return self._ask(
            queue,
            lambda full: self._pull(full, offset, max_messages, expression, expression_type),
        )

    def read(
        self,
        queue: MessageQueue,
        begin: int,
        end: int,
        *,
        expression: str = SUBSCRIBE_ALL,
        expression_type: str = TAG,
        under_way: int = UNDER_WAY,
    ) -> Iterator[PulledRecords]:
        """Read the messages of a queue from offset ``begin`` to before ``end``, in order, with several pulls under way.

        A range that the broker has deleted is returned with ``lost`` set. The iterator ends where the queue ends, if
        that is before ``end``. For a topic without a route the queue's broker is asked, so that it reports whether the
        topic was deleted. ``expression`` (``A || B``) lets the broker filter by the hash of the tag: compare the tags
        themselves too. With ``SQL92`` it is a condition. The client may be used for other requests and reads between
        two steps of the iterator.
        """
        wanted = SegmentedRange(begin, end, under_way)
        failures = 0
        while not wanted.is_done:
            came = False
            try:
                for pulled in self._pipeline(queue, wanted, expression, expression_type):
                    came = True
                    yield pulled
            except _RETRIED:
                failures = 1 if came else failures + 1
                if failures >= self._attempts:
                    raise
                self._pause(queue, failures)

    def _pipeline(
        self, queue: MessageQueue, wanted: SegmentedRange, expression: str, expression_type: str
    ) -> Iterator[PulledRecords]:
        full = self._full(queue)
        waiting: dict[int, Segment] = {}
        # The connection is not shared: between two steps of this reading, the same client may send other requests.
        with self._client.connection(self._address(queue)) as connection:

            def ask(segment: Segment) -> None:
                call = self._pull(
                    full, segment.next_offset, segment.end - segment.next_offset, expression, expression_type
                )
                waiting[connection.send(call.request())] = segment

            for segment in wanted.incomplete():
                ask(segment)
            while not wanted.is_done:
                for segment in wanted.next_segments():
                    ask(segment)
                response = connection.receive(self._pull_timeout_ms)
                segment = waiting.pop(response.opaque)
                if wanted.add(segment, calls.read_pull(response, connection.address)):
                    ask(segment)
                yield from wanted.take_complete()

    def _pull(
        self, full: MessageQueue, offset: int, max_messages: int, expression: str, expression_type: str
    ) -> Call[PullResult]:
        return calls.pull(
            full, offset, max_messages, group=self._group, expression=expression, expression_type=expression_type
        )

    def _ask(self, queue: MessageQueue, call: Callable[[MessageQueue], Call[T]]) -> T:
        question = call(self._full(queue))
        for failures in range(1, self._attempts):
            try:
                return self._client.call(self.route(queue.topic).address(queue), question, self._pull_timeout_ms)
            except _RETRIED:
                self._pause(queue, failures)
        return self._client.call(self.route(queue.topic).address(queue), question, self._pull_timeout_ms)

    def _address(self, queue: MessageQueue) -> str:
        """The address of a queue's broker.

        If the topic has no route, it is the broker of that name, which knows whether the topic was deleted.
        """
        try:
            return self.route(queue.topic).address(queue)
        except NoRouteError:
            broker = self.cluster().broker_addr_table.get(queue.broker_name)
            if broker is None or broker.address is None:
                raise
            return broker.address

    def _full(self, queue: MessageQueue) -> MessageQueue:
        topic = wrap_namespace(self._config.namespace, queue.topic)
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def _pause(self, queue: MessageQueue, failures: int) -> None:
        """Close the connections to a queue's broker, forget the route (the broker may have moved), then wait."""
        route = self._routes.pop(queue.topic, None)
        if route is not None and queue.broker_name in route.brokers:
            self._client.drop(route.brokers[queue.broker_name])
        time.sleep(pause_ms(failures) / 1000)


def pause_ms(failures: int) -> int:
    """The pause after a number of failed attempts, in milliseconds."""
    return min(RETRY_PAUSE_MS << (failures - 1), MAX_PAUSE_MS)
