"""Reading topics without being a consumer: routes, offsets and pulls, no group is joined and no offset committed.

with PullClient("127.0.0.1:9876") as client:
    for queue in client.queues("TopicTest"):
        for pulled in client.read(queue, client.min_offset(queue), client.max_offset(queue)):
            ...  # pulled.records: stored records, one after the other

Thread rule: one thread at a time; each thread, and each Spark executor, makes a client of its own.

Source: DefaultMQPullConsumer, PullAPIWrapper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeVar, Unpack

from gantrymq.client import calls
from gantrymq.client.arguments import checks_arguments, number, text
from gantrymq.client.blocking import BlockingClient
from gantrymq.client.calls import SUBSCRIBE_ALL, TOOLS_CONSUMER_GROUP, Call, PullResult
from gantrymq.client.keywords import ClientSettings
from gantrymq.client.namespace import without_namespace, wrap_namespace
from gantrymq.client.routes import TopicRoute
from gantrymq.client.segments import PulledRecords, Segment, SegmentedRange
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import Clock
from gantrymq.errors import ConfigError, NoRouteError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.route import ClusterInfo

PULL_TIMEOUT_MS = 10_000
UNDER_WAY = 32  # pulls of one queue at the same time
ATTEMPTS = 4  # of one question, each with a new connection and a new route
RETRY_PAUSE_MS = 200  # before the second attempt, twice as long before each further one
LONGEST_PAUSE_MS = 5_000
_AWAY = (RemotingError, NoRouteError)  # who names a queue has seen its broker, which may be started again just now

T = TypeVar("T")


@checks_arguments(topic=text)  # of any name: stores have topics that no client would make
class PullClient:
    """Reads topics of a cluster. Topics are given and named without the namespace, if there is one.

    ``config`` is where the name servers are, with fields of ClientConfig as ``settings``, or such an object.

    Every method raises RemotingError where no broker answers after so many ``attempts`` (four take a second and a half,
    ten half a minute), NoRouteError where there is no such topic or broker, asked as often for a queue and once for a
    topic, MQBrokerError where one refuses.
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
        """Every topic of the cluster, those of the system among them; with a namespace those within it alone."""
        names = self._client.ask_name_server(calls.topic_list())
        namespace = self._config.namespace
        if namespace:
            names = [name for name in names if wrap_namespace(namespace, name) == name]
        return sorted(without_namespace(namespace, name) for name in names)

    def cluster(self) -> ClusterInfo:
        """The brokers and their clusters."""
        return self._client.ask_name_server(calls.cluster_info())

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """Where a topic is; asked for once unless ``fresh``."""
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
        """The queues that can be read, by broker and number."""
        return self.route(topic, fresh=fresh).subscribe

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that is still there."""
        return self._ask(queue, calls.min_offset)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self._ask(queue, calls.max_offset)

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time; past the last message, the maximum."""
        return self._ask(queue, lambda full: calls.search_offset(full, timestamp_ms))

    def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, expression: str = SUBSCRIBE_ALL
    ) -> PullResult:
        """One pull; it comes back at once, with what there is."""
        return self._ask(queue, lambda full: self._pull(full, offset, max_messages, expression))

    def read(
        self, queue: MessageQueue, begin: int, end: int, *, expression: str = SUBSCRIBE_ALL, under_way: int = UNDER_WAY
    ) -> Iterator[PulledRecords]:
        """The messages of a queue from offset ``begin`` to before ``end``, in order, with several pulls under way.

        What the broker no longer has comes as a range that is ``lost``. Where the queue ends before ``end``, so does
        this. Of a topic without a route its broker is asked all the same, so that it says whether it is gone.
        ``expression`` (``A || B``) lets the broker choose by the hash of the tags; look at the tags once more. Between
        two steps the client may be asked other things, other reads among them.
        """
        wanted = SegmentedRange(begin, end, under_way)
        failures = 0
        while not wanted.is_done:
            came = False
            try:
                for pulled in self._pipeline(queue, wanted, expression):
                    came = True
                    yield pulled
            except _AWAY:
                failures = 1 if came else failures + 1
                if failures >= self._attempts:
                    raise
                self._pause(queue, failures)

    def _pipeline(self, queue: MessageQueue, wanted: SegmentedRange, expression: str) -> Iterator[PulledRecords]:
        full = self._full(queue)
        waiting: dict[int, Segment] = {}
        # For itself alone: between two steps of this reading, others of the same client may ask.
        with self._client.connection(self._address(queue)) as connection:

            def ask(segment: Segment) -> None:
                call = self._pull(full, segment.at, segment.end - segment.at, expression)
                waiting[connection.send(call.request())] = segment

            for segment in wanted.pending():
                ask(segment)
            while not wanted.is_done:
                for segment in wanted.more():
                    ask(segment)
                response = connection.receive(self._pull_timeout_ms)
                segment = waiting.pop(response.opaque)
                if wanted.came(segment, calls.read_pull(response, connection.address)):
                    ask(segment)
                yield from wanted.taken()

    def _pull(self, full: MessageQueue, offset: int, max_messages: int, expression: str) -> Call[PullResult]:
        return calls.pull(full, offset, max_messages, group=self._group, expression=expression)

    def _ask(self, queue: MessageQueue, call: Callable[[MessageQueue], Call[T]]) -> T:
        question = call(self._full(queue))
        for failures in range(1, self._attempts):
            try:
                return self._client.call(self.route(queue.topic).address(queue), question, self._pull_timeout_ms)
            except _AWAY:
                self._pause(queue, failures)
        return self._client.call(self.route(queue.topic).address(queue), question, self._pull_timeout_ms)

    def _address(self, queue: MessageQueue) -> str:
        """Where a queue can be read; without a route to it the broker of that name, which knows whether it is gone."""
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
        """Drop the connection to a queue's broker, and the route: the broker may have moved. Then wait a little."""
        route = self._routes.pop(queue.topic, None)
        if route is not None and queue.broker_name in route.brokers:
            self._client.drop(route.brokers[queue.broker_name])
        time.sleep(pause_ms(failures) / 1000)


def pause_ms(failures: int) -> int:
    """How long to wait after so many attempts in vain."""
    return min(RETRY_PAUSE_MS << (failures - 1), LONGEST_PAUSE_MS)
