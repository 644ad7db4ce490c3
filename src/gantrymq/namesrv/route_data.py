"""Makes a topic's route for clients: from the tables, with a slave in place of a missing master, by zone.

Source: RouteInfoManager.pickupTopicRouteData, ZoneRouteRPCHook.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from gantrymq.namesrv.brokers import BrokerAddrInfo, BrokerTable
from gantrymq.namesrv.topics import TopicTable
from gantrymq.remoting.bodies.route import MASTER_ID, PERM_WRITE, BrokerData, TopicRouteData

_SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


def pick_up(
    topic: str, topics: TopicTable, brokers: BrokerTable, *, wiped: Container[str], acting_master: bool
) -> TopicRouteData | None:
    """The route of a topic; None if no broker has it. It shares no object with the tables.

    The brokers in ``wiped`` are shown without write permission.
    """
    queues = topics.queues(topic)
    broker_datas = [_copy(brokers.by_name[name]) for name in queues if name in brokers.by_name]
    if not broker_datas:
        return None
    route = TopicRouteData(
        queue_datas=[
            msgspec.structs.replace(data, perm=data.perm & ~PERM_WRITE if data.broker_name in wiped else data.perm)
            for data in queues.values()
        ],
        broker_datas=broker_datas,
        filter_server_table=_filter_servers(broker_datas, brokers),
        topic_queue_mapping_by_broker=topics.mappings(topic),
    )
    if acting_master and not topic.startswith(_SYNC_BROKER_MEMBER_GROUP_PREFIX):
        for data in route.broker_datas:
            _act_as_master(data, is_writable=queues[data.broker_name].is_writable and data.broker_name not in wiped)
    return route


def in_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """A route without the brokers of other zones. A broker without a master is kept whatever its zone."""
    removed = [
        data
        for data in route.broker_datas
        if MASTER_ID in data.broker_addrs and (data.zone_name or "").lower() != zone_name.lower()
    ]
    names = {data.broker_name for data in removed}
    addresses = {address for data in removed for address in data.broker_addrs.values()}
    return msgspec.structs.replace(
        route,
        broker_datas=[data for data in route.broker_datas if data.broker_name not in names],
        queue_datas=[data for data in route.queue_datas if data.broker_name not in names],
        filter_server_table={
            address: of for address, of in route.filter_server_table.items() if address not in addresses
        },
    )


def _copy(data: BrokerData) -> BrokerData:
    return msgspec.structs.replace(data, broker_addrs=dict(data.broker_addrs))


def _filter_servers(broker_datas: list[BrokerData], brokers: BrokerTable) -> dict[str, list[str]]:
    table = {}
    for data in broker_datas:
        for address in data.broker_addrs.values():
            servers = brokers.filter_servers.get(BrokerAddrInfo(data.cluster, address))
            if servers:
                table[address] = list(servers)
    return table


def _act_as_master(data: BrokerData, *, is_writable: bool) -> None:
    """Let the slave with the lowest id act as master, if clients may not write to the broker."""
    addresses = data.broker_addrs
    if addresses and MASTER_ID not in addresses and data.enable_acting_master and not is_writable:
        data.broker_addrs = {MASTER_ID: addresses.pop(min(addresses)), **addresses}
