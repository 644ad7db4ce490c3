"""Which brokers there are, and when each was last heard of.

Source: RouteInfoManager (brokerAddrTable, clusterAddrTable, brokerLiveTable, filterServerTable).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gantrymq.remoting.bodies.route import BrokerData
from gantrymq.remoting.bodies.topic import DataVersion


class BrokerAddrInfo(NamedTuple):
    """One broker process: its cluster and address."""

    cluster_name: str
    broker_addr: str


@dataclass(slots=True)
class BrokerLiveInfo:
    """What is known of a broker that lives. ``channel`` is the connection it registered by last."""

    last_update_timestamp_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    channel: object
    ha_server_addr: str

    def expired(self, now_ms: int) -> bool:
        """Whether it was silent for longer than it promised."""
        return self.last_update_timestamp_ms + self.heartbeat_timeout_ms < now_ms


class BrokerTable:
    """Brokers by name, their names by cluster, and the living by address."""

    def __init__(self) -> None:
        self.by_name: dict[str, BrokerData] = {}
        self.live: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        self.filter_servers: dict[BrokerAddrInfo, list[str]] = {}
        self._clusters: dict[str, dict[str, None]] = {}  # names in the order they came

    def clusters(self) -> dict[str, list[str]]:
        """The broker names of each cluster."""
        return {cluster: list(names) for cluster, names in self._clusters.items()}

    def names(self, cluster: str) -> list[str]:
        """The broker names of a cluster; none where nobody knows it."""
        return list(self._clusters.get(cluster, ()))

    def add(self, cluster: str, name: str) -> BrokerData:
        """The broker of that name, made where it is new."""
        self._clusters.setdefault(cluster, {})[name] = None
        return self.by_name.setdefault(name, BrokerData(cluster=cluster, broker_name=name))

    def remove(self, cluster: str, name: str) -> None:
        """Forget a name, and its cluster where nobody else is in it."""
        self.by_name.pop(name, None)
        names = self._clusters.get(cluster, {})
        names.pop(name, None)
        if not names:
            self._clusters.pop(cluster, None)

    def version(self, who: BrokerAddrInfo) -> DataVersion | None:
        """The data version a broker registered with."""
        live = self.live.get(who)
        return live.data_version if live is not None else None

    def heard(self, who: BrokerAddrInfo, now_ms: int) -> None:
        """A broker said something; one that nobody knows stays unknown."""
        if who in self.live:
            self.live[who].last_update_timestamp_ms = now_ms

    def find(self, wanted: Iterable[BrokerAddrInfo]) -> dict[BrokerAddrInfo, tuple[str, int]]:
        """The name and id under which each address is registered, by one pass; unknown addresses are not in it."""
        asked, found = set(wanted), dict[BrokerAddrInfo, tuple[str, int]]()
        for data in self.by_name.values():
            for broker_id, address in data.broker_addrs.items():
                who = BrokerAddrInfo(data.cluster, address)
                if who in asked:
                    found.setdefault(who, (data.broker_name, broker_id))
        return found
