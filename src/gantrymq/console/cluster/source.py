"""The connection of the pages to a cluster: clients that are lent to one request at a time.

A request that needs all brokers gets the answers of those that answer. The others are named on its page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

from gantrymq.client.admin.admin_client import AdminClient
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.settings import ClientConfig
from gantrymq.console.failures import failure_text
from gantrymq.console.page_request import PageRequest
from gantrymq.errors import GantrymqError, MQClientError, RemotingError
from gantrymq.remoting.bodies.route import MASTER_ID

T = TypeVar("T")

_MAX_IDLE = 4


class Broker(NamedTuple):
    """A broker of the cluster. ``broker_id`` 0 is a master."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it accepts changes."""
        return self.broker_id == MASTER_ID

    @property
    def role(self) -> str:
        """``master``, or ``slave`` with its number."""
        return "master" if self.is_master else f"slave {self.broker_id}"


class _Admin(AdminClient):
    def skip(self, unanswered: dict[str, RemotingError]) -> None:
        self._client.unanswered = unanswered


class _Pull(PullClient):
    def skip(self, unanswered: dict[str, RemotingError]) -> None:
        self._client.unanswered = unanswered


class ClusterSession:
    """The clients of one request. ``missing`` collects (server, error text) of the servers that do not answer.

    A request asks a server that does not answer once: a page of many questions takes one timeout then.

    Thread rule: the request's thread.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.missing: list[tuple[str, str]] = []
        self.unanswered: dict[str, RemotingError] = {}
        self.admin = _Admin(config)
        self.admin.skip(self.unanswered)
        self.admin.when_missing = self.note_missing
        self.pull = _Pull(config, attempts=1, pull_timeout_ms=config.request_timeout_ms)
        self.pull.skip(self.unanswered)
        self._brokers: list[Broker] | None = None

    def begin(self, missing: list[tuple[str, str]]) -> None:
        """Begin another request, which collects what is missing in ``missing``."""
        self.missing, self._brokers = missing, None
        self.unanswered.clear()

    def close(self) -> None:
        """Close all connections."""
        self.admin.close()
        self.pull.close()

    def producer_config(self) -> ProducerConfig:
        """The settings of a producer with the same connection."""
        values: dict[str, Any] = {field.name: getattr(self.config, field.name) for field in fields(ClientConfig)}
        return ProducerConfig(**values)

    def note_missing(self, name: str, error: GantrymqError) -> None:
        """Name a server without an answer on the page, once."""
        if all(name != other for other, _ in self.missing):
            self.missing.append((name, failure_text(error).removeprefix(f"{name}: ")))

    def brokers(self) -> list[Broker]:
        """All brokers that are registered, by cluster, name and number."""
        if self._brokers is None:
            info = self.admin.cluster_info()
            self._brokers = [
                Broker(data.cluster or cluster, data.broker_name, number, address)
                for cluster, names in sorted(info.cluster_addr_table.items())
                for name in sorted(names)
                for data in [info.broker_addr_table.get(name)]
                if data is not None
                for number, address in sorted(data.broker_addrs.items())
            ]
        return self._brokers

    def server_names(self) -> set[str]:
        """The names of brokers and clusters. Each has a topic of its name."""
        return {name for broker in self.brokers() for name in (broker.name, broker.cluster)}

    def masters(self) -> list[Broker]:
        """The brokers that accept changes."""
        return [broker for broker in self.brokers() if broker.is_master]

    def broker(self, name: str, number: int = MASTER_ID) -> Broker:
        """One broker. Raises MQClientError if it is not registered."""
        for broker in self.brokers():
            if (broker.name, broker.broker_id) == (name, number):
                return broker
        raise MQClientError(f"There is no broker {name} with the number {number}.")

    def each(
        self, brokers: Iterable[Broker], call: Callable[[Broker], T], *, is_needed: bool = True
    ) -> list[tuple[Broker, T]]:
        """The result of ``call`` for each broker that answers.

        Raises the first error if no broker does, unless the page has something to show without them.
        """
        answers, failures = list[tuple[Broker, T]](), list[GantrymqError]()
        for broker in brokers:
            try:
                answers.append((broker, call(broker)))
            except GantrymqError as error:
                failures.append(error)
                self.note_missing(f"{broker.name} ({broker.address})", error)
        if failures and not answers and is_needed:
            raise failures[0]
        return answers

    def optional(self, name: str, call: Callable[[], T]) -> T | None:
        """The result of ``call``. If it fails, ``name`` is named on the page, and the result is None."""
        try:
            return call()
        except GantrymqError as error:
            self.note_missing(name, error)
            return None


class ClusterSource:
    """Lends sessions to requests. Thread rule: any thread."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._idle: list[ClusterSession] = []
        self._is_closed = False

    @contextmanager
    def session(self, request: PageRequest) -> Iterator[ClusterSession]:
        """A session for a page, which shows what is missing."""
        with self.lent(request.missing) as session:
            yield session

    @contextmanager
    def lent(self, missing: list[tuple[str, str]]) -> Iterator[ClusterSession]:
        """A session that collects in ``missing`` what does not answer."""
        with self._lock:
            session = self._idle.pop() if self._idle else None
        session = session or ClusterSession(self.config)
        session.begin(missing)
        try:
            yield session
        finally:
            with self._lock:
                is_kept = not self._is_closed and len(self._idle) < _MAX_IDLE
                if is_kept:
                    self._idle.append(session)
            if not is_kept:
                session.close()

    def close(self) -> None:
        """Close all connections that are not lent."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()
