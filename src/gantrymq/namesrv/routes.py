"""The name server's memory: brokers come, say what topics they have, fall silent and go; clients ask where topics are.

Nothing here is written to a disk: a name server that starts knows nobody until the brokers say again that they are
there, which they do every thirty seconds. Thread rule: one thread (the event loop's).

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


class Notice(NamedTuple):
    """Brokers that are to be told, one-way, that another is now the one with the lowest id of their name."""

    addresses: tuple[str, ...]
    header: NotifyMinBrokerIdChangeRequestHeader


@dataclass(slots=True)
class Registration:
    """What a broker registers with, and the connection it came by; ``filter_servers`` None: it says nothing of them."""

    header: RegisterBrokerRequestHeader
    topics: TopicConfigAndMappingSerializeWrapper
    channel: object
    filter_servers: list[str] | None = None
    zone_name: str | None = None
    _queues: dict[str, QueueData] | None = None

    def queues(self) -> dict[str, QueueData]:
        """What the broker has of each topic; made once, on a thread where there are many."""
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
    def who(self) -> BrokerAddrInfo:
        """The broker's cluster and address."""
        return BrokerAddrInfo(self.header.cluster_name, self.header.broker_addr)


class RegisterBrokerResult(NamedTuple):
    """Where a slave finds its master, where that is known; and whom to tell of a new lowest id."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    notices: tuple[Notice, ...] = ()


class Leaving(NamedTuple):
    """A broker that goes. With ``live`` it goes only while that is still what is known of it.

    So a broker whose old connection broke stays, if it has registered by a new one in the meantime.
    """

    who: BrokerAddrInfo
    broker_name: str
    broker_id: int
    live: BrokerLiveInfo | None = None


class RouteInfoManager:
    """All that is known of brokers and topics. ``wiped`` are the names of brokers without write permission.

    A wipe hides the permission to write and changes nothing that a broker said: it stands until it is taken back,
    whatever the broker registers meanwhile. ``now_ms`` is a monotonic time, ``config`` the settings in force.
    """

    def __init__(self, now_ms: Callable[[], int], config: Callable[[], NamesrvConfig]) -> None:
        self._now_ms, self._config = now_ms, config
        self._brokers = BrokerTable()
        self._topics = TopicTable()
        self.wiped: set[str] = set()

    # Brokers come

    def register(self, one: Registration) -> RegisterBrokerResult | None:
        """Take a broker in, or hear it again.

        None where it says one topic only and was never registered: RocketMQ sends changes that way, which tell nothing
        of the rest. A broker that comes with another's id and an older state version is not taken in either; it is
        answered as if it were, as RocketMQ does. Who is refused leaves no trace.

        Raises RemotingCommandError where it is more than a name server keeps (maxTopics, maxBrokers).
        """
        header, who = one.header, one.who
        self._check_room(one)
        known = self._brokers.by_name.get(header.broker_name)
        addresses = known.broker_addrs if known is not None else {}
        if self._is_outdated(one, addresses.get(header.broker_id)):
            self._forget_address(header.broker_name, who)
            return RegisterBrokerResult()
        is_first = header.broker_id not in addresses
        if is_first and len(one.topics.topic_config_table) == 1:
            log.warning("a broker that is not registered says one topic only", broker=header.broker_name, address=who)
            return None
        lowest = min(addresses, default=MASTER_ID)
        data = self._put_broker(one)
        if header.broker_id == MASTER_ID or self._is_prime_slave(header, data):
            self._take_topics(one, data, is_first=is_first)
        self._hear(one)
        notices: tuple[Notice, ...] = ()
        if header.broker_id < lowest and self._config().notify_min_broker_id_changed:
            notices = _notices(data, None, header.ha_server_addr)
        return self._result(header, data, notices)

    def _check_room(self, one: Registration) -> None:
        """Raises RemotingCommandError for names that are too long, and where tables are full."""
        header, config, said = one.header, self._config(), one.topics
        servers = one.filter_servers or ()
        check_names((header.cluster_name, header.broker_name, header.broker_addr, header.ha_server_addr, *servers))
        check_names((one.zone_name or "",))
        if len(servers) > MAX_FILTER_SERVERS:
            raise RemotingCommandError(f"a broker may have {MAX_FILTER_SERVERS} filter servers")
        if one.who not in self._brokers.live and len(self._brokers.live) >= config.max_brokers:
            raise RemotingCommandError(
                f"{config.max_brokers} brokers are registered, and no more are taken (maxBrokers)"
            )
        self._check_new_topics(said.topic_config_table.keys(), (header.broker_name,))
        self._topics.check_mappings(said.topic_queue_mapping_info_map)

    def _check_new_topics(self, names: Collection[str], brokers: Collection[str]) -> None:
        self._topics.check_entries(names, brokers, self._config().max_topics_of_brokers)
        most = self._config().max_topics
        if len(self._topics) + len(names) > most:
            check_count(len(self._topics) + sum(not self._topics.queues(name) for name in names), most)

    def _is_outdated(self, one: Registration, holder: str | None) -> bool:
        """Whether another broker has the id, and a newer state version."""
        if holder is None or holder == one.header.broker_addr:
            return False
        version = self._brokers.version(BrokerAddrInfo(one.header.cluster_name, holder))
        outdated = version is not None and version.state_version > one.topics.data_version.state_version
        if outdated:
            log.warning("a broker is refused: another has its id", broker=one.header.broker_name, address=one.who)
        return outdated

    def _forget_address(self, broker_name: str, who: BrokerAddrInfo) -> None:
        self._brokers.live.pop(who, None)
        data = self._brokers.by_name.get(broker_name)
        if data is not None:
            data.broker_addrs = {number: one for number, one in data.broker_addrs.items() if one != who.broker_addr}

    def _put_broker(self, one: Registration) -> BrokerData:
        """The broker with this address under this id, and under no other."""
        header = one.header
        data = self._brokers.add(header.cluster_name, header.broker_name)
        data.enable_acting_master = bool(header.enable_acting_master)
        data.zone_name = one.zone_name
        others = {number: addr for number, addr in data.broker_addrs.items() if addr != header.broker_addr}
        data.broker_addrs = dict(sorted({**others, header.broker_id: header.broker_addr}.items()))
        return data

    @staticmethod
    def _is_prime_slave(header: RegisterBrokerRequestHeader, data: BrokerData) -> bool:
        """The slave that may act as a master; a broker that says nothing of acting masters is older than they are."""
        return header.enable_acting_master is not None and header.broker_id == min(data.broker_addrs)

    def _take_topics(self, one: Registration, data: BrokerData, *, is_first: bool) -> None:
        name, said = data.broker_name, one.topics
        is_changed = is_first or self._brokers.version(one.who) != said.data_version
        mappings = said.topic_queue_mapping_info_map
        if self._config().delete_topic_with_broker_registration and not mappings:
            for topic in set(self._topics.of_brokers({name})) - said.topic_config_table.keys():
                self._topics.delete_at(topic, [name])
        self._topics.put_broker(name, one.queues(), replace=is_changed)
        if is_changed:
            self._topics.put_mappings(mappings)

    def _hear(self, one: Registration) -> None:
        header, who = one.header, one.who
        if who not in self._brokers.live:
            log.info("a broker registered", broker=header.broker_name, id=header.broker_id, address=header.broker_addr)
        timeout_ms = header.heartbeat_timeout_millis
        self._brokers.live[who] = BrokerLiveInfo(
            last_update_timestamp_ms=self._now_ms(),
            heartbeat_timeout_ms=BROKER_CHANNEL_EXPIRED_TIME_MS if timeout_ms is None else timeout_ms,
            data_version=one.topics.data_version,
            channel=one.channel,
            ha_server_addr=header.ha_server_addr,
        )
        if one.filter_servers:
            self._brokers.filter_servers[who] = one.filter_servers
        elif one.filter_servers is not None:
            self._brokers.filter_servers.pop(who, None)

    def _result(
        self, header: RegisterBrokerRequestHeader, data: BrokerData, notices: tuple[Notice, ...]
    ) -> RegisterBrokerResult:
        master = data.broker_addrs.get(MASTER_ID)
        if header.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResult(notices=notices)
        live = self._brokers.live.get(BrokerAddrInfo(header.cluster_name, master))
        if live is None:
            return RegisterBrokerResult(notices=notices)
        return RegisterBrokerResult(live.ha_server_addr, master, notices)

    def heard(self, who: BrokerAddrInfo) -> None:
        """A broker said that it is still there."""
        self._brokers.heard(who, self._now_ms())

    def version(self, who: BrokerAddrInfo) -> DataVersion | None:
        """The version of the topics that a broker registered; None where nobody knows it."""
        return self._brokers.version(who)

    # Brokers go

    def expired(self) -> list[BrokerAddrInfo]:
        """Brokers that were silent for longer than they promised (scanNotActiveBroker)."""
        now_ms = self._now_ms()
        return [who for who, live in self._brokers.live.items() if live.expired(now_ms)]

    def channel_of(self, who: BrokerAddrInfo) -> object | None:
        """The connection a broker registered by last."""
        live = self._brokers.live.get(who)
        return live.channel if live is not None else None

    def of_channel(self, channel: object) -> list[BrokerAddrInfo]:
        """The brokers that registered by a connection."""
        return [who for who, live in self._brokers.live.items() if live.channel is channel]

    def leaving(self, brokers: Collection[BrokerAddrInfo]) -> list[Leaving]:
        """What it takes to unregister brokers that did not do so themselves."""
        found = self._brokers.find(brokers) if brokers else {}
        return [Leaving(who, *found.get(who, ("", -1)), self._brokers.live.get(who)) for who in brokers]

    def unregister(self, leaving: Iterable[Leaving]) -> list[Notice]:
        """Let brokers go, with the topics that nobody else has; whom to tell. Many at once cost one look at topics."""
        gone, reduced, offline = set(), set(), {}
        for one in leaving:
            if one.live is not None and self._brokers.live.get(one.who) is not one.live:
                continue
            was_lowest = self._remove(one)
            data = self._brokers.by_name.get(one.broker_name)
            if data is not None and data.broker_addrs:
                reduced.add(one.broker_name)
                if was_lowest:
                    offline[one.broker_name] = one.who.broker_addr
            elif data is not None:
                self._brokers.remove(one.who.cluster_name, one.broker_name)
                gone.add(one.broker_name)
        self._topics.drop_brokers(gone)
        for name in reduced - gone:
            self._without_master(self._brokers.by_name[name])
        if not self._config().notify_min_broker_id_changed:
            return []
        left = [(self._brokers.by_name[name], address) for name, address in offline.items() if name not in gone]
        return [notice for data, address in left if data.enable_acting_master for notice in _notices(data, address)]

    def _remove(self, one: Leaving) -> bool:
        """Forget an address; whether it had the lowest id of its name."""
        known = self._brokers.live.pop(one.who, None)
        self._brokers.filter_servers.pop(one.who, None)
        data = self._brokers.by_name.get(one.broker_name)
        log.info("a broker is gone", broker=one.broker_name, address=one.who.broker_addr, was_known=known is not None)
        if data is None or not data.broker_addrs:
            return False
        lowest = min(data.broker_addrs)
        self._forget_address(one.broker_name, one.who)
        return one.broker_id == lowest

    def _without_master(self, data: BrokerData) -> None:
        """Where slaves are left that may act as a master, nobody may send to them."""
        if data.enable_acting_master and min(data.broker_addrs) > MASTER_ID:
            self._topics.wipe_write_perm(data.broker_name)

    # Topics

    def register_topic(self, topic: str, queues: list[QueueData]) -> bool:
        """Give a topic queues at brokers; all or none, whether they are known. Raises as :meth:`register` does."""
        if any(data.broker_name not in self._brokers.by_name for data in queues):
            return False
        check_names((topic,))
        self._check_new_topics((topic,), {data.broker_name for data in queues})
        self._topics.put(topic, queues)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, in one cluster if told."""
        if cluster:
            self._topics.delete_at(topic, self._brokers.names(cluster))
        else:
            self._topics.delete(topic)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take a broker's write permission until it is given back; the number of its topics, 0 if unknown."""
        count = len(self._topics.of_brokers({broker_name}))
        if count:
            self.wiped.add(broker_name)
        return count

    def add_write_perm(self, broker_name: str) -> int:
        """Take a wipe back; the number of the broker's topics.

        Its topics may be read and written that the broker registers so. Java says so of all of them, also where the
        broker was not wiped: a topic that is read-only by another decision is then offered to producers.
        """
        self.wiped.discard(broker_name)
        return self._topics.plain_perm(broker_name)

    # What is asked

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic is; None where nobody has it (pickupTopicRouteData). It may be changed by who gets it."""
        return pick_up(
            topic, self._topics, self._brokers, wiped=self.wiped, acting_master=self._config().support_acting_master
        )

    def cluster_info(self) -> ClusterInfo:
        """All brokers, and which clusters they make."""
        return ClusterInfo(broker_addr_table=dict(self._brokers.by_name), cluster_addr_table=self._brokers.clusters())

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The addresses of a broker's master and slaves; none where nobody knows it."""
        data = self._brokers.by_name.get(broker_name)
        addresses = dict(data.broker_addrs) if data is not None else {}
        return BrokerMemberGroup(cluster=cluster, broker_name=broker_name, broker_addrs=addresses)

    def all_topics(self) -> TopicList:
        """Every topic."""
        return TopicList(topic_list=self._topics.topics())

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """The topics that a cluster's brokers have."""
        return TopicList(topic_list=self._topics.of_brokers(set(self._brokers.names(cluster))))

    def system_topics(self) -> TopicList:
        """The topics named after clusters and brokers, and the address of a broker to ask for the others."""
        named = [one for cluster, names in self._brokers.clusters().items() for one in (cluster, *names)]
        addresses = (data.address for data in self._brokers.by_name.values() if data.broker_addrs)
        return TopicList(topic_list=list(dict.fromkeys(named)), broker_addr=next(addresses, None))

    def unit_topics(self) -> TopicList:
        """The topics of a unit."""
        return TopicList(topic_list=self._topics.with_flags(FLAG_UNIT))

    def unit_sub_topics(self) -> TopicList:
        """The topics that a unit's consumers subscribe to."""
        return TopicList(topic_list=self._topics.with_flags(FLAG_UNIT_SUB))

    def unit_sub_ununit_topics(self) -> TopicList:
        """Those of them that are not of a unit themselves."""
        return TopicList(topic_list=self._topics.with_flags(FLAG_UNIT_SUB, unwanted=FLAG_UNIT))


def _notices(data: BrokerData, offline: str | None, ha_address: str | None = None) -> tuple[Notice, ...]:
    """Who is told: all that are left; where somebody came, the others."""
    lowest = min(data.broker_addrs)
    is_new = offline is None and len(data.broker_addrs) > 1
    told = tuple(address for number, address in data.broker_addrs.items() if not (is_new and number == lowest))
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=lowest,
        min_broker_addr=data.broker_addrs[lowest],
        offline_broker_addr=offline,
        ha_broker_addr=ha_address,
    )
    return (Notice(told, header),)
