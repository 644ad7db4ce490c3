"""The views of a query: the topics of stores and clusters, and landed tables, by the names that SQL uses.

A topic that several sources have is one view. A view is made when a query names it.

Thread rule: one thread; scans of the views run in DuckDB's.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow.dataset as ds

from gantrymq.config.properties import parse_properties
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, StoreError
from gantrymq.store.reader import StoreReader
from gantrymq.tables.query.landed import is_table, open_table, table_name
from gantrymq.tables.query.store_queue import QueriedStore, StoreGroup
from gantrymq.tables.query.topic_scan import OpenQueues, QueueGroup, SkippedMessages, TopicView

if TYPE_CHECKING:  # the client takes a fifth of a second to import
    from gantrymq.client.settings import ClientConfig

CLUSTER = "namesrv://"
_BROKER_CONF, _BROKER_NAME, _USUAL_NAME = "broker.conf", "brokerName", "store"

OpenReader = Callable[[Path], StoreReader]
OpenClient = Callable[[str], "ClientConfig"]


def expanded(source: str) -> list[str]:
    """The sources that a text names: a cluster, a path, or what a glob matches. Raises ConfigError if that is none."""
    if source.startswith(CLUSTER) or Path(source).exists() or not glob.has_magic(source):
        return [source]
    if paths := sorted(glob.glob(source)):
        return paths
    raise ConfigError("SOURCE", source, "a directory, a glob that matches one, or namesrv://host:port")


class Views:
    """The views of ``sources``. Use it as a context manager.

    ``open_reader`` opens a store, ``client_of`` has the client settings for a list of name servers. ``skipped`` counts
    what the queries so far could not read, and ``problems`` are those of the stores.
    """

    def __init__(self, sources: Sequence[str], open_reader: OpenReader, client_of: OpenClient) -> None:
        self.skipped = SkippedMessages()
        self._resources = ExitStack()
        self._readers: list[StoreReader] = []
        self._topics: dict[str, list[OpenQueues]] = {}
        self._tables: dict[str, Path] = {}
        self._max_body_bytes = MessageStoreConfig().max_decompressed_body_size_bytes
        try:
            for source in (path for text in sources for path in expanded(text)):
                if source.startswith(CLUSTER):
                    self._add_cluster(client_of(source.removeprefix(CLUSTER)))
                elif "://" in source:
                    raise ConfigError("SOURCE", source, "a store or table in a directory, or namesrv://HOST:PORT")
                elif is_table(Path(source)):
                    self._add_table(Path(source))
                else:
                    self._add_store(Path(source), open_reader)
            self._require_brokers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the stores."""
        self._resources.close()

    def __enter__(self) -> Self:
        """Return the views."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stores."""
        self.close()

    @property
    def names(self) -> list[str]:
        """The names of the views, sorted."""
        return sorted({*self._topics, *self._tables})

    @property
    def problems(self) -> list[StoreError]:
        """The problems of all stores."""
        return [problem for reader in self._readers for problem in reader.problems]

    @property
    def notes(self) -> list[StoreError]:
        """The notes of all stores."""
        return [note for reader in self._readers for note in reader.notes]

    def view(self, name: str, keys: frozenset[str] | None) -> ds.Dataset:
        """The view of a name. ``keys``: only messages with one of them are needed (None: all)."""
        if name in self._tables:
            return open_table(self._tables[name])
        return TopicView(name, self._topics[name], self.skipped, keys, self._max_body_bytes)

    def takes_keys(self, name: str) -> bool:
        """Whether the view of a name may leave out messages by their keys."""
        return name not in self._tables

    def _add_table(self, path: Path) -> None:
        name = table_name(path.absolute())
        if name in self._tables or name in self._topics:
            raise ConfigError("SOURCE", str(path), f"a table with a name of its own: there is another {name}")
        self._tables[name] = path

    def _add_store(self, path: Path, open_reader: OpenReader) -> None:
        reader = self._resources.enter_context(open_reader(path))
        self._readers.append(reader)
        self._max_body_bytes = reader.config.max_decompressed_body_size_bytes
        store = QueriedStore.of(reader, broker_name(path))
        for topic in sorted({queue.topic for queue in reader.consume_queues}):
            self._add_topic(topic, partial(self._store_queues, store, topic))

    def _add_cluster(self, config: ClientConfig) -> None:
        from gantrymq.client.pull.pull_client import PullClient

        with PullClient(config) as client:
            topics = client.topics()
        for topic in topics:
            self._add_topic(topic, partial(self._cluster_queues, config, topic))

    def _add_topic(self, topic: str, open_queues: OpenQueues) -> None:
        if topic in self._tables:
            raise ConfigError("SOURCE", str(self._tables[topic]), f"a table with another name than topic {topic}")
        self._topics.setdefault(topic, []).append(open_queues)

    @contextmanager
    def _store_queues(self, store: QueriedStore, topic: str) -> Iterator[list[QueueGroup]]:
        yield [StoreGroup(store, topic, self.skipped)]

    @contextmanager
    def _cluster_queues(self, config: ClientConfig, topic: str) -> Iterator[list[QueueGroup]]:
        from gantrymq.client.pull.pull_client import PullClient
        from gantrymq.tables.query.cluster_queue import ClusterGroup, ClusterQueue

        with PullClient(config) as client:
            by_broker: dict[str, list[ClusterQueue]] = {}
            for queue in client.queues(topic):
                by_broker.setdefault(queue.broker_name, []).append(ClusterQueue(client, queue, self.skipped))
            yield [ClusterGroup(broker, queues) for broker, queues in by_broker.items()]

    def _require_brokers(self) -> None:
        """Two stores of one broker name would be told apart by nothing."""
        names = [broker_name(reader.paths.root) for reader in self._readers]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError("SOURCE", name, "the name of one store only: give brokerName in a broker.conf beside")


def broker_name(store: Path) -> str:
    """The name of a store's broker: brokerName of a broker.conf in the store or above it, else its directory's."""
    store = store.absolute()
    for directory in (store, store.parent):
        try:
            conf = (directory / _BROKER_CONF).read_bytes()
        except OSError:
            continue
        if name := parse_properties(conf.decode("utf-8", "replace")).get(_BROKER_NAME):
            return name
    return (store.parent.name if store.name == _USUAL_NAME else "") or store.name or str(store)
