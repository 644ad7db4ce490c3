"""The base of the administrative methods: it chooses the servers and sends the requests.

Source: DefaultMQAdminExtImpl, MQClientAPIImpl, CommandUtil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from gantrymq.client.arguments import checks_arguments, text
from gantrymq.client.connection.blocking_client import BlockingClient
from gantrymq.client.namespace import RETRY_PREFIX, without_namespace, wrap_namespace
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import Call, accepted, body_of
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import Clock, SystemClock
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError, NoRouteError
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.route import MASTER_ID, ClusterInfo, TopicRouteData
from gantrymq.remoting.body import Body, decode_body
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader

log = get_logger("gantrymq.client")
T = TypeVar("T")
BodyT = TypeVar("BodyT", bound=Body)


def order(header: CommandHeader | int, body: bytes = b"") -> Call[None]:
    """A request that is either accepted or refused, without an answer."""
    return Call(lambda: _request(header, body), accepted)


def question(header: CommandHeader | int, body: type[BodyT]) -> Call[BodyT]:
    """A request whose answer is a body."""
    return Call(lambda: _request(header, b""), lambda response, address: decode_body(body, body_of(response, address)))


def _request(header: CommandHeader | int, body: bytes) -> RemotingCommand:
    return RemotingCommand(header, body=body) if isinstance(header, int) else RemotingCommand.request(header, body)


@checks_arguments(topic=text)  # any name, because stores have topics with names that no client would create
class AdminBase:
    """Sends requests to brokers and name servers.

    Topics, groups and queues are given and returned without the namespace, if one is set. Lists have the names within
    the namespace and the system names. Names in other parts of a body are unchanged.

    Every method raises RemotingError if no server answers, MQBrokerError if one refuses, and MQClientError if the
    topic, group, broker or cluster does not exist.

    ``when_missing`` is called with the name (or the address) and the error of each server that does not answer while
    others do; the result then has the answers of the others. Without it (None) the first such error is raised, except
    by searches for messages, which log it.

    Without ``decompresses`` the searches for messages return bodies as they are stored.

    Thread rule: one thread at a time.
    """

    def __init__(self, config: ClientConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self.when_missing: Callable[[str, GantrymqError], None] | None = None
        self.decompresses = True
        self._clock = clock or SystemClock()
        self._client = BlockingClient(config, self._clock)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def cluster_info(self) -> ClusterInfo:
        """All brokers by name, and their names by cluster (examineBrokerClusterInfo)."""
        return self._client.ask_name_server(calls.cluster_info())

    def topic_route(self, topic: str) -> TopicRouteData:
        """The route of a topic (examineTopicRouteInfo)."""
        return self._route_of(self._full(topic))

    def _full(self, name: str) -> str:
        return wrap_namespace(self.config.namespace, name)

    def _full_queue(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._full(queue.topic), queue.broker_name, queue.queue_id)

    def _shown(self, full_names: Iterable[str]) -> list[str]:
        """Names of topics or groups without the namespace, sorted. Names of other namespaces are left out."""
        within = {name for name in full_names if self._full(name) == name}
        return sorted(without_namespace(self.config.namespace, name) for name in within)

    def _shown_queues(self, table: Mapping[MessageQueue, T]) -> dict[MessageQueue, T]:
        """A table by queue, with the namespace removed from the topics, sorted by queue."""
        namespace = self.config.namespace
        shown = {
            MessageQueue(without_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id): known
            for queue, known in table.items()
        }
        return dict(sorted(shown.items()))

    def _route_of(self, full_topic: str) -> TopicRouteData:
        route = self._client.ask_name_server(calls.topic_route(full_topic))
        if route is None:
            raise NoRouteError(f"no route of topic {full_topic}: no broker has it")
        return route

    def _brokers_of(self, full_topic: str) -> dict[str, str]:
        """Addresses by broker name: the master, else a slave."""
        return TopicRoute.of(full_topic, self._route_of(full_topic)).brokers

    def _brokers_of_group(self, group: str) -> dict[str, str]:
        """The brokers at which a group has consumed: those that have its retry topic."""
        return self._brokers_of(f"{RETRY_PREFIX}{self._full(group)}")

    def _address_of(self, queue: MessageQueue) -> str:
        return TopicRoute.of(queue.topic, self._route_of(queue.topic)).address(queue)

    def _masters(self, broker: str | None, cluster: str | None) -> list[str]:
        """The given address, or the masters of a cluster, or of all clusters."""
        if broker is not None and cluster is not None:
            raise MQClientError(f"broker={broker!r} and cluster={cluster!r}: give one of them, or neither for all")
        if broker is not None:
            return [broker]
        info = self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise MQClientError(f"there is no cluster {cluster}; known: {known}")
        names = info.broker_addr_table.keys() if cluster is None else info.cluster_addr_table[cluster]
        data = [info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table]
        masters = [broker_data.broker_addrs[MASTER_ID] for broker_data in data if MASTER_ID in broker_data.broker_addrs]
        if not masters:
            raise MQClientError("no master broker is registered")
        return masters

    def _name_servers(self) -> list[str]:
        return self.config.name_server_list

    def _call_all(self, addresses: list[str], call: Call[T]) -> list[T]:
        """Send a request to each address in turn. See :meth:`_each` for failures."""
        return list(self._each({address: address for address in addresses}, call).values())

    def _each(self, servers: Mapping[str, str], call: Call[T]) -> dict[str, T]:
        """The answer of each server (address by name), by name. The first failure raises without ``when_missing``."""
        answers, failed = dict[str, T](), dict[str, GantrymqError]()
        for name, address in servers.items():
            try:
                answers[name] = self._client.call(address, call)
            except GantrymqError as error:
                if self.when_missing is None:
                    raise
                failed[name] = error
        self._report(failed, has_answers=bool(answers))
        return answers

    def _answers(self, brokers: dict[str, str], call: Call[T], *, passed_over: ResponseCode) -> dict[str, T]:
        """The answer of each broker, by name. A broker that refuses with code ``passed_over`` has no answer.

        The error of one broker does not hide the answers of the others: it is reported, and raised only if no broker
        answers, or, without ``when_missing``, if none has a result: the broker that failed may have it.
        """
        answers, failed = dict[str, T](), dict[str, GantrymqError]()
        for name, address in brokers.items():
            try:
                answers[name] = self._client.call(address, call)
            except GantrymqError as error:
                if not isinstance(error, MQBrokerError) or error.response_code != passed_over:
                    failed[name] = error
        # "None here" is an answer too, but without ``when_missing`` a caller would take it for one of all brokers.
        has_answers = bool(answers) or (self.when_missing is not None and len(failed) < len(brokers))
        self._report(failed, has_answers=has_answers)
        return answers

    def _report(self, failed: Mapping[str, GantrymqError], *, has_answers: bool) -> None:
        """Report servers that failed. Raises the first failure if no server answered."""
        for name, failure in failed.items():
            if not has_answers:
                raise failure
            if self.when_missing is not None:
                self.when_missing(name, failure)
            else:
                log.warning("a broker is missing in the answer", broker=name, reason=str(failure))
