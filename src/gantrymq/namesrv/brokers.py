"""The table of registered brokers, with the time of each one's last heartbeat.

Source: RouteInfoManager (brokerAddrTable, clusterAddrTable, brokerLiveTable, filterServerTable).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gantrymq.remoting.bodies.route import BrokerData
from gantrymq.remoting.bodies.topic import DataVersion


class BrokerAddrInfo(NamedTuple):
    """The key of one broker process: its cluster and address."""

    cluster_name: str
    broker_addr: str


@dataclass(slots=True)
class BrokerLiveInfo:
    """The state of a live broker. ``channel`` is the connection of its last registration."""

    last_update_timestamp_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    channel: object
    ha_server_addr: str

    def expired(self, now_ms: int) -> bool:
        """Whether the last heartbeat is older than the timeout that the broker announced."""
        return self.last_update_timestamp_ms + self.heartbeat_timeout_ms < now_ms


class BrokerTable:
    """Brokers by name, their names by cluster, and live brokers by address."""

    def __init__(self) -> None:
        self.by_name: dict[str, BrokerData] = {}
        self.live: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        self.filter_servers: dict[BrokerAddrInfo, list[str]] = {}
        self._clusters: dict[str, dict[str, None]] = {}  # broker names in the order of registration

    def clusters(self) -> dict[str, list[str]]:
        """The broker names of each cluster."""
        return {cluster: list(names) for cluster, names in self._clusters.items()}

    def names(self, cluster: str) -> list[str]:
        """The broker names of a cluster; empty for an unknown cluster."""
        return list(self._clusters.get(cluster, ()))

    def add(self, cluster: str, name: str) -> BrokerData:
        """The broker of that name, created if it is new."""
        self._clusters.setdefault(cluster, {})[name] = None
        return self.by_name.setdefault(name, BrokerData(cluster=cluster, broker_name=name))

    def remove(self, cluster: str, name: str) -> None:
        """Remove a name, and its cluster if that has no other broker."""
        self.by_name.pop(name, None)
        names = self._clusters.get(cluster, {})
        names.pop(name, None)
        if not names:
            self._clusters.pop(cluster, None)

    def version(self, broker_key: BrokerAddrInfo) -> DataVersion | None:
        """The data version of a broker's last registration; None for an unknown broker."""
        live = self.live.get(broker_key)
        return live.data_version if live is not None else None

    def record_heartbeat(self, broker_key: BrokerAddrInfo, now_ms: int) -> None:
        """Record a heartbeat. One of an unknown broker is ignored."""
        if broker_key in self.live:
            self.live[broker_key].last_update_timestamp_ms = now_ms

    def find(self, wanted: Iterable[BrokerAddrInfo]) -> dict[BrokerAddrInfo, tuple[str, int]]:
        """The name and id of each registered address, in one pass. Unknown addresses are left out."""
        wanted_keys, identities = set(wanted), dict[BrokerAddrInfo, tuple[str, int]]()
        for data in self.by_name.values():
            for broker_id, address in data.broker_addrs.items():
                broker_key = BrokerAddrInfo(data.cluster, address)
                if broker_key in wanted_keys:
                    identities.setdefault(broker_key, (data.broker_name, broker_id))
        return identities
