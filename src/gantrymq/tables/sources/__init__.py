"""Where the messages of a landing come from: the logs of stores, or the queues of a live cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gantrymq.client.settings import ClientConfig, ClientSettings
from gantrymq.errors import ConfigError

if TYPE_CHECKING:  # Spark's executors read slices of queues, and need no store that can be opened
    from gantrymq.tables.selection import TopicChoice
    from gantrymq.tables.sources.steps import MessageSource

_CLUSTER = "namesrv://"


def open_source(sources: Sequence[str], choice: TopicChoice, settings: ClientSettings | None = None) -> MessageSource:
    """The stores, or the cluster, that ``sources`` name. Nothing is opened before its first use.

    ``settings`` are those of the client of a cluster.

    Raises ConfigError if they name both.
    """
    clusters = [name for name in sources if name.startswith(_CLUSTER)]
    if clusters and len(sources) > 1:
        raise ConfigError("SOURCE", ", ".join(sources), "one cluster, or stores")
    if clusters:
        from gantrymq.tables.sources.cluster import ClusterMessages

        config = ClientConfig.of(name_servers_of(clusters[0]) or "", settings or {})
        return ClusterMessages(config, choice)
    from gantrymq.tables.sources.stores import StoreMessages

    return StoreMessages(sources, choice)


def name_servers_of(source: str) -> str | None:
    """The name servers of ``namesrv://HOST:PORT``; None for another source."""
    return source.removeprefix(_CLUSTER).rstrip("/") if source.startswith(_CLUSTER) else None
