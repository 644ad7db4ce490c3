"""The name server's tables in memory: brokers register their topics, expire and leave; clients ask for routes.

Nothing is written to disk: a name server that starts knows no broker until the brokers register again, which they do
every 30 s.

Thread rule: the event loop's thread.

Source: RouteInfoManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gantrymq.errors import RemotingCommandError
from gantrymq.logs import get_logger
from gantrymq.namesrv.brokers import BrokerAddrInfo, BrokerLiveInfo, BrokerTable
from gantrymq.namesrv.route_data import pick_up
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.namesrv.topics import FLAG_UNIT, FLAG_UNIT_SUB, TopicTable, check_count, check_names
from gantrymq.remoting.bodies.route import (
    MASTER_ID,
    PERM_WRITE,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from gantrymq.remoting.bodies.topic import DataVersion, TopicConfigAndMappingSerializeWrapper, TopicList
from gantrymq.remoting.headers.broker import NotifyMinBrokerIdChangeRequestHeader
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader

BROKER_CHANNEL_EXPIRED_TIME_MS = 120_000
MAX_FILTER_SERVERS = 64

log = get_logger("gantrymq.namesrv")


class MinBrokerIdNotice(NamedTuple):
    """A one-way message to brokers that another address now has the lowest id of their name."""

    addresses: tuple[str, ...]
    header: NotifyMinBrokerIdChangeRequestHeader


@dataclass(slots=True)
class Registration:
    """A broker's registration and its connection. ``filter_servers`` None means that it has no such field."""

    header: RegisterBrokerRequestHeader
    topics: TopicConfigAndMappingSerializeWrapper
    channel: object
    filter_servers: list[str] | None = None
    zone_name: str | None = None
    _queues: dict[str, QueueData] | None = None

    def queues(self) -> dict[str, QueueData]:
        """The broker's queues by topic. Computed once, and in another thread for a long registration."""
        if self._queues is None:
            header = self.header
            is_read_only = header.broker_id != MASTER_ID and bool(header.enable_acting_master)
            left_out = PERM_WRITE if is_read_only else 0
            self._queues = {
                config.topic_name or "": QueueData(
                    broker_name=header.broker_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm & ~left_out,
                    topic_sys_flag=config.topic_sys_flag,
                )
                for config in self.topics.topic_config_table.values()
            }
        return self._queues

    @property
    def broker_key(self) -> BrokerAddrInfo:
        """The key of the broker: cluster and address."""
        return BrokerAddrInfo(self.header.cluster_name, self.header.broker_addr)


class RegisterBrokerResult(NamedTuple):
    """The answer to a registration: a slave's master, if it is known, and the brokers to notify of a new lowest id."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    notices: tuple[MinBrokerIdNotice, ...] = ()


class Leaving(NamedTuple):
    """A broker that leaves. With ``live`` it is removed only if that is still its current state.

    So a broker whose old connection broke stays if it has registered on a new one meanwhile.
    """

    broker_key: BrokerAddrInfo
    broker_name: str
    broker_id: int
    live: BrokerLiveInfo | None = None


class RouteInfoManager:
    """The tables of brokers and topics. ``wiped`` has the names of brokers without write permission.

    A wipe hides a broker's write permission and does not change what the broker registered. It lasts until it is
    undone, whatever the broker registers meanwhile. ``now_ms`` returns a monotonic time, ``config`` the current
    settings.
    """

    def __init__(self, now_ms: Callable[[], int], config: Callable[[], NamesrvConfig]) -> None:
        self._now_ms, self._config = now_ms, config
        self._brokers = BrokerTable()
        self._topics = TopicTable()
        self.wiped: set[str] = set()

    # Brokers register

    def register(self, registration: Registration) -> RegisterBrokerResult | None:
        """Register a broker, or renew its registration.

        Returns None if an unknown broker registers exactly one topic: RocketMQ sends changes that way, without the
        other topics. A broker with the id of another and an older state version is not registered either, but gets a
        normal answer, as in RocketMQ. A rejected broker has no entry in the tables afterwards.

        Raises RemotingCommandError at the limits of a name server (maxTopics, maxBrokers).
        """
        header, broker_key = registration.header, registration.broker_key
        self._check_room(registration)
        known = self._brokers.by_name.get(header.broker_name)
        addresses = known.broker_addrs if known is not None else {}
        if self._is_outdated(registration, addresses.get(header.broker_id)):
            self._forget_address(header.broker_name, broker_key)
            return RegisterBrokerResult()
        is_first = header.broker_id not in addresses
        if is_first and len(registration.topics.topic_config_table) == 1:
            log.warning(
                "a broker that is not registered sent only one topic", broker=header.broker_name, address=broker_key
            )
            return None
        lowest = min(addresses, default=MASTER_ID)
        data = self._put_broker(registration)
        if header.broker_id == MASTER_ID or self._is_prime_slave(header, data):
            self._take_topics(registration, data, is_first=is_first)
        self._put_live(registration)
        notices: tuple[MinBrokerIdNotice, ...] = ()
        if header.broker_id < lowest and self._config().notify_min_broker_id_changed:
            notices = _notices(data, None, header.ha_server_addr or None)
        return self._result(header, data, notices)

    def _check_room(self, registration: Registration) -> None:
        """Raises RemotingCommandError for names that are too long, and at the limits of the tables."""
        header, config, topics = registration.header, self._config(), registration.topics
        servers = registration.filter_servers or ()
        check_names((header.cluster_name, header.broker_name, header.broker_addr, header.ha_server_addr, *servers))
        check_names((registration.zone_name or "",))
        if len(servers) > MAX_FILTER_SERVERS:
            raise RemotingCommandError(f"a broker may have {MAX_FILTER_SERVERS} filter servers")
        if registration.broker_key not in self._brokers.live and len(self._brokers.live) >= config.max_brokers:
            raise RemotingCommandError(
                f"{config.max_brokers} brokers are registered, which is the maximum (maxBrokers)"
            )
        self._check_new_topics(topics.topic_config_table.keys(), (header.broker_name,))
        self._topics.check_mappings(topics.topic_queue_mapping_info_map)

    def _check_new_topics(self, names: Collection[str], brokers: Collection[str]) -> None:
        self._topics.check_entries(names, brokers, self._config().max_topics_of_brokers)
        max_topics = self._config().max_topics
        if len(self._topics) + len(names) > max_topics:
            check_count(len(self._topics) + sum(not self._topics.queues(name) for name in names), max_topics)

    def _is_outdated(self, registration: Registration, holder: str | None) -> bool:
        """Whether another broker has the id, and a newer state version."""
        if holder is None or holder == registration.header.broker_addr:
            return False
        version = self._brokers.version(BrokerAddrInfo(registration.header.cluster_name, holder))
        outdated = version is not None and version.state_version > registration.topics.data_version.state_version
        if outdated:
            log.warning(
                "a broker is refused: another has its id",
                broker=registration.header.broker_name,
                address=registration.broker_key,
            )
        return outdated

    def _forget_address(self, broker_name: str, broker_key: BrokerAddrInfo) -> None:
        self._brokers.live.pop(broker_key, None)
        data = self._brokers.by_name.get(broker_name)
        if data is not None:
            data.broker_addrs = {
                number: address for number, address in data.broker_addrs.items() if address != broker_key.broker_addr
            }

    def _put_broker(self, registration: Registration) -> BrokerData:
        """Store a broker's address under its id, and under no other id."""
        header = registration.header
        data = self._brokers.add(header.cluster_name, header.broker_name)
        data.enable_acting_master = bool(header.enable_acting_master)
        data.zone_name = registration.zone_name
        others = {number: addr for number, addr in data.broker_addrs.items() if addr != header.broker_addr}
        data.broker_addrs = dict(sorted({**others, header.broker_id: header.broker_addr}.items()))
        return data

    @staticmethod
    def _is_prime_slave(header: RegisterBrokerRequestHeader, data: BrokerData) -> bool:
        """Whether this slave may act as master. A broker without the field is older than that feature."""
        return header.enable_acting_master is not None and header.broker_id == min(data.broker_addrs)

    def _take_topics(self, registration: Registration, data: BrokerData, *, is_first: bool) -> None:
        name, topics = data.broker_name, registration.topics
        is_changed = is_first or self._brokers.version(registration.broker_key) != topics.data_version
        mappings = topics.topic_queue_mapping_info_map
        if self._config().delete_topic_with_broker_registration and not mappings:
            for topic in set(self._topics.of_brokers({name})) - topics.topic_config_table.keys():
                self._topics.delete_at(topic, [name])
        self._topics.put_broker(name, registration.queues(), replace=is_changed)
        if is_changed:
            self._topics.put_mappings(mappings)

    def _put_live(self, registration: Registration) -> None:
        header, broker_key = registration.header, registration.broker_key
        if broker_key not in self._brokers.live:
            log.info("a broker registered", broker=header.broker_name, id=header.broker_id, address=header.broker_addr)
        timeout_ms = header.heartbeat_timeout_millis
        self._brokers.live[broker_key] = BrokerLiveInfo(
            last_update_timestamp_ms=self._now_ms(),
            heartbeat_timeout_ms=BROKER_CHANNEL_EXPIRED_TIME_MS if timeout_ms is None else timeout_ms,
            data_version=registration.topics.data_version,
            channel=registration.channel,
            ha_server_addr=header.ha_server_addr,
        )
        if registration.filter_servers:
            self._brokers.filter_servers[broker_key] = registration.filter_servers
        elif registration.filter_servers is not None:
            self._brokers.filter_servers.pop(broker_key, None)

    def _result(
        self, header: RegisterBrokerRequestHeader, data: BrokerData, notices: tuple[MinBrokerIdNotice, ...]
    ) -> RegisterBrokerResult:
        master = data.broker_addrs.get(MASTER_ID)
        if header.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResult(notices=notices)
        live = self._brokers.live.get(BrokerAddrInfo(header.cluster_name, master))
        if live is None:
            return RegisterBrokerResult(notices=notices)
        # A master without an HA server registers an empty address, which a Java slave fails to parse. Without the field
        # the slave waits for a master.
        return RegisterBrokerResult(live.ha_server_addr or None, master, notices)

    def record_heartbeat(self, broker_key: BrokerAddrInfo) -> None:
        """Record a broker's heartbeat."""
        self._brokers.record_heartbeat(broker_key, self._now_ms())

    def version(self, broker_key: BrokerAddrInfo) -> DataVersion | None:
        """The version of the topics that a broker registered; None for an unknown broker."""
        return self._brokers.version(broker_key)

    # Brokers leave

    def expired(self) -> list[BrokerAddrInfo]:
        """Brokers without a heartbeat within their timeout (scanNotActiveBroker)."""
        now_ms = self._now_ms()
        return [broker_key for broker_key, live in self._brokers.live.items() if live.expired(now_ms)]

    def channel_of(self, broker_key: BrokerAddrInfo) -> object | None:
        """The connection of a broker's last registration."""
        live = self._brokers.live.get(broker_key)
        return live.channel if live is not None else None

    def of_channel(self, channel: object) -> list[BrokerAddrInfo]:
        """The brokers that registered on a connection."""
        return [broker_key for broker_key, live in self._brokers.live.items() if live.channel is channel]

    def leaving(self, brokers: Collection[BrokerAddrInfo]) -> list[Leaving]:
        """The arguments of :meth:`unregister` for brokers that did not unregister themselves."""
        known = self._brokers.find(brokers) if brokers else {}
        return [
            Leaving(broker_key, *known.get(broker_key, ("", -1)), self._brokers.live.get(broker_key))
            for broker_key in brokers
        ]

    def unregister(self, leaving: Iterable[Leaving]) -> list[MinBrokerIdNotice]:
        """Remove brokers and the topics that only they have. Returns the notices to send.

        Many brokers at once need only one pass over the topics.
        """
        broker_names, reduced, offline = set(), set(), {}
        for broker in leaving:
            if broker.live is not None and self._brokers.live.get(broker.broker_key) is not broker.live:
                continue
            was_lowest = self._remove(broker)
            data = self._brokers.by_name.get(broker.broker_name)
            if data is not None and data.broker_addrs:
                reduced.add(broker.broker_name)
                if was_lowest:
                    offline[broker.broker_name] = broker.broker_key.broker_addr
            elif data is not None:
                self._brokers.remove(broker.broker_key.cluster_name, broker.broker_name)
                broker_names.add(broker.broker_name)
        self._topics.drop_brokers(broker_names)
        for name in reduced - broker_names:
            self._without_master(self._brokers.by_name[name])
        if not self._config().notify_min_broker_id_changed:
            return []
        left = [(self._brokers.by_name[name], address) for name, address in offline.items() if name not in broker_names]
        return [notice for data, address in left if data.enable_acting_master for notice in _notices(data, address)]

    def _remove(self, broker: Leaving) -> bool:
        """Remove an address. Returns whether it had the lowest id of its name."""
        known = self._brokers.live.pop(broker.broker_key, None)
        self._brokers.filter_servers.pop(broker.broker_key, None)
        data = self._brokers.by_name.get(broker.broker_name)
        log.info(
            "a broker is gone",
            broker=broker.broker_name,
            address=broker.broker_key.broker_addr,
            was_known=known is not None,
        )
        if data is None or not data.broker_addrs:
            return False
        lowest = min(data.broker_addrs)
        self._forget_address(broker.broker_name, broker.broker_key)
        return broker.broker_id == lowest

    def _without_master(self, data: BrokerData) -> None:
        """If only slaves are left and one may act as master, remove the write permission of their queues."""
        if data.enable_acting_master and min(data.broker_addrs) > MASTER_ID:
            self._topics.wipe_write_perm(data.broker_name)

    # Topics

    def register_topic(self, topic: str, queues: list[QueueData]) -> bool:
        """Register queues of a topic at brokers. Returns False, and changes nothing, if a broker is unknown.

        Raises as :meth:`register` does.
        """
        if any(data.broker_name not in self._brokers.by_name for data in queues):
            return False
        check_names((topic,))
        self._check_new_topics((topic,), {data.broker_name for data in queues})
        self._topics.put(topic, queues)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, in one cluster if ``cluster`` is given."""
        if cluster:
            self._topics.delete_at(topic, self._brokers.names(cluster))
        else:
            self._topics.delete(topic)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Hide a broker's write permission. Returns the number of its topics, 0 if it is unknown."""
        count = len(self._topics.of_brokers({broker_name}))
        if count:
            self.wiped.add(broker_name)
        return count

    def add_write_perm(self, broker_name: str) -> int:
        """Undo a wipe. Returns the number of the broker's topics.

        The permissions that the broker registered apply again. Java makes all topics readable and writable, even those
        of a broker that was not wiped, so that read-only topics are offered to producers.
        """
        self.wiped.discard(broker_name)
        return self._topics.plain_perm(broker_name)

    # Queries

    def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic; None if no broker has it (pickupTopicRouteData). The caller may change it."""
        return pick_up(
            topic, self._topics, self._brokers, wiped=self.wiped, acting_master=self._config().support_acting_master
        )

    def cluster_info(self) -> ClusterInfo:
        """All brokers by name, and their names by cluster."""
        return ClusterInfo(broker_addr_table=dict(self._brokers.by_name), cluster_addr_table=self._brokers.clusters())

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The addresses of a broker's master and slaves; empty for an unknown broker."""
        data = self._brokers.by_name.get(broker_name)
        addresses = dict(data.broker_addrs) if data is not None else {}
        return BrokerMemberGroup(cluster=cluster, broker_name=broker_name, broker_addrs=addresses)

    def all_topics(self) -> TopicList:
        """The names of all registered topics."""
        return TopicList(topic_list=self._topics.topics())

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """The topics of a cluster's brokers."""
        return TopicList(topic_list=self._topics.of_brokers(set(self._brokers.names(cluster))))

    def system_topics(self) -> TopicList:
        """The topics named after clusters and brokers, and the address of a broker.

        The broker knows the other system topics.
        """
        named = [name for cluster, names in self._brokers.clusters().items() for name in (cluster, *names)]
        addresses = (data.address for data in self._brokers.by_name.values() if data.broker_addrs)
        return TopicList(topic_list=list(dict.fromkeys(named)), broker_addr=next(addresses, None))

    def unit_topics(self) -> TopicList:
        """The topics with the unit flag."""
        return TopicList(topic_list=self._topics.with_flags(FLAG_UNIT))

    def unit_sub_topics(self) -> TopicList:
        """The topics with the unit subscription flag."""
        return TopicList(topic_list=self._topics.with_flags(FLAG_UNIT_SUB))

    def unit_sub_ununit_topics(self) -> TopicList:
        """The topics with the unit subscription flag and without the unit flag."""
        return TopicList(topic_list=self._topics.with_flags(FLAG_UNIT_SUB, unwanted=FLAG_UNIT))


def _notices(data: BrokerData, offline: str | None, ha_address: str | None = None) -> tuple[MinBrokerIdNotice, ...]:
    """Notices to all remaining addresses, or, after a registration, to all but the new lowest id."""
    lowest = min(data.broker_addrs)
    is_new = offline is None and len(data.broker_addrs) > 1
    addresses = tuple(address for number, address in data.broker_addrs.items() if not (is_new and number == lowest))
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=lowest,
        min_broker_addr=data.broker_addrs[lowest],
        offline_broker_addr=offline,
        ha_broker_addr=ha_address,
    )
    return (MinBrokerIdNotice(addresses, header),)
