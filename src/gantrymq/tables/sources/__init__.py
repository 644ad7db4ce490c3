"""Where the messages of a landing come from: the logs of stores, or the queues of a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gantrymq.client.settings import ClientConfig, ClientSettings
from gantrymq.errors import ConfigError

if TYPE_CHECKING:  # Spark's executors read slices of queues, and need no store that can be opened
    from gantrymq.tables.selection import TopicChoice
    from gantrymq.tables.sources.steps import MessageSource

_CLUSTER = "namesrv://"


class TableSources:
    """Opens the sources of the tables of one landing: the stores, or the cluster, that ``sources`` name.

    What is listed of queues and topics for one table serves all tables until the next pass. ``settings`` are those of
    the client of a cluster. Thread rule: one thread.
    """

    def __init__(self, sources: Sequence[str], settings: ClientSettings | None = None) -> None:
        """Nothing is listed before its first use. Raises ConfigError if a cluster is one of several sources."""
        clusters = [name for name in sources if name.startswith(_CLUSTER)]
        if clusters and len(sources) > 1:
            raise ConfigError("SOURCE", ", ".join(sources), "one cluster, or stores")
        self._open: Callable[[TopicChoice], MessageSource]
        self._forget: Callable[[], None]
        if clusters:
            from gantrymq.tables.sources.cluster import ClusterMessages, ClusterTopics

            config, topics = ClientConfig.of(name_servers_of(clusters[0]) or "", settings or {}), ClusterTopics()
            self._open, self._forget = partial(ClusterMessages, config, topics=topics), topics.forget
        else:
            from gantrymq.tables.sources.store_plan import StoreSurveys
            from gantrymq.tables.sources.stores import StoreMessages

            surveys = StoreSurveys()
            self._open, self._forget = partial(StoreMessages, sources, surveys=surveys), surveys.forget

    def begin_pass(self) -> None:
        """Forget the lists of queues and topics. Without this call a later pass does not see new messages."""
        self._forget()

    def open(self, choice: TopicChoice) -> MessageSource:
        """The source of a table."""
        return self._open(choice)


def name_servers_of(source: str) -> str | None:
    """The name servers of ``namesrv://HOST:PORT``; None for another source."""
    return source.removeprefix(_CLUSTER).rstrip("/") if source.startswith(_CLUSTER) else None
