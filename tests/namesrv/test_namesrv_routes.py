"""RouteInfoManager: brokers that come, come again under another id, fall silent, go; and what routes say then."""

from dataclasses import replace

import pytest
from namesrv_cases import ADDRESS, registration, topics

from gantrymq.clock import ManualClock
from gantrymq.namesrv.brokers import BrokerAddrInfo
from gantrymq.namesrv.route_data import in_zone
from gantrymq.namesrv.routes import Leaving, RegisterBrokerResult, Registration, RouteInfoManager
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.remoting.bodies.route import QueueData, TopicQueueMappingInfo, TopicRouteData
from gantrymq.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader

SLAVE = "10.0.0.2:10911"


class Manager(RouteInfoManager):
    """One whose settings and time can be changed."""

    def __init__(self) -> None:
        self.clock, self.config = ManualClock(), NamesrvConfig()
        super().__init__(self.clock.now_ms, lambda: self.config)

    def come(
        self,
        header: RegisterBrokerRequestHeader,
        said: TopicConfigAndMappingSerializeWrapper,
        channel: object = None,
        **of: object,
    ) -> RegisterBrokerResult | None:
        return self.register(Registration(header, said, channel, **of))  # type: ignore[arg-type]

    def go(self, *addresses: str) -> None:
        self.unregister(self.leaving([BrokerAddrInfo("C", address) for address in addresses]))

    def found(self, topic: str) -> TopicRouteData:
        route = self.route(topic)
        assert route is not None
        return route


@pytest.fixture
def manager() -> Manager:
    return Manager()


def acting(address: str, broker_id: int) -> RegisterBrokerRequestHeader:
    """A broker of a group whose slaves may act as masters."""
    return registration(address, broker_id, enable_acting_master=True)


# They come


def test_route_has_brokers_of_topic(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"))
    manager.come(registration("10.0.0.9:10911", name="broker-b"), topics("T", "B"))
    route = manager.found("T")
    assert [data.broker_name for data in route.queue_datas] == ["broker-a", "broker-b"]
    assert [data.broker_addrs for data in route.broker_datas] == [{0: ADDRESS}, {0: "10.0.0.9:10911"}]
    assert manager.route("nowhere") is None
    assert manager.all_topics().topic_list == ["T", "A", "B"]
    assert manager.topics_of_cluster("C").topic_list == ["T", "A", "B"]
    assert manager.topics_of_cluster("other").topic_list == []
    assert manager.system_topics().topic_list == ["C", "broker-a", "broker-b"]
    assert manager.system_topics().broker_addr == ADDRESS


def test_changing_returned_route_leaves_tables_unchanged(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"))
    route = manager.found("T")
    route.queue_datas[0].perm = 0
    route.broker_datas[0].broker_addrs.clear()
    assert manager.found("T").queue_datas[0].perm == 6
    assert manager.found("T").broker_datas[0].broker_addrs == {0: ADDRESS}


def test_partial_registration_of_unknown_broker_leaves_nothing(manager: Manager) -> None:
    assert manager.come(registration(), topics("T")) is None
    assert manager.cluster_info().cluster_addr_table == {}
    assert manager.cluster_info().broker_addr_table == {}
    manager.come(registration(), topics("T", "A"))
    assert manager.come(registration(), topics("New", version=2)) is not None
    assert {"T", "A", "New"} == set(manager.all_topics().topic_list)


def test_broker_with_id_in_use_and_older_state_is_not_registered(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A", state=2))
    assert manager.come(registration(SLAVE), topics("X", "Y", state=1)) == RegisterBrokerResult()
    assert manager.route("X") is None
    assert manager.found("T").broker_datas[0].broker_addrs == {0: ADDRESS}
    assert manager.version(BrokerAddrInfo("C", SLAVE)) is None
    manager.come(registration(SLAVE), topics("X", "Y", state=3))
    assert manager.found("T").broker_datas[0].broker_addrs == {0: SLAVE}


def test_slave_registering_as_master_with_older_version_is_removed(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A", state=2))
    manager.come(registration(SLAVE, 1), topics("T", "A", state=1))
    manager.come(registration(SLAVE), topics("T", "A", state=1))
    assert manager.member_group("C", "broker-a").broker_addrs == {0: ADDRESS}
    manager.clock.advance(120_001)
    assert manager.expired() == [BrokerAddrInfo("C", ADDRESS)]


def test_address_registered_with_new_id_loses_old_id(manager: Manager) -> None:
    manager.come(registration(SLAVE, 1), topics("T", "A"))
    manager.come(registration(SLAVE, 0), topics("T", "A"))
    assert manager.member_group("C", "broker-a").broker_addrs == {0: SLAVE}
    assert manager.found("T").queue_datas[0].perm == 6


def test_slave_gets_master_address_and_its_topics_are_ignored(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"))
    result = manager.come(registration(SLAVE, 1), topics("S", "A", version=2))
    assert result == RegisterBrokerResult("10.0.0.1:10912", ADDRESS)
    assert manager.route("S") is None
    assert manager.found("A").broker_datas[0].broker_addrs == {0: ADDRESS, 1: SLAVE}


def test_topic_changes_with_data_version_of_broker(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A", perm=4))
    manager.come(registration(), topics("T", "A", "New"))
    assert manager.found("T").queue_datas[0].perm == 4  # as it stood: the version is the same
    assert manager.found("New").queue_datas[0].perm == 6
    manager.come(registration(), topics("T", "A", version=2))
    assert manager.found("T").queue_datas[0].perm == 6


def test_wiped_write_permission_stays_until_restored(manager: Manager) -> None:
    """Whatever its broker registers: the same again, other topics, less, or itself anew after a restart."""
    manager.come(registration(), topics("T", "A"))
    manager.come(registration("10.0.0.9:1", name="broker-b"), topics("T", "A"))
    assert manager.wipe_write_perm("broker-a") == 2
    assert manager.wipe_write_perm("nobody") == 0

    def perms(topic: str) -> dict[str, int]:
        return {data.broker_name: data.perm for data in manager.found(topic).queue_datas}

    manager.come(registration(), topics("T", "A"))
    assert perms("T") == {"broker-a": 4, "broker-b": 6}
    manager.come(registration(), topics("T", "A", "New", version=2))
    manager.come(registration(SLAVE, 1), topics("T", "A", version=3))
    assert (perms("T"), perms("New")) == ({"broker-a": 4, "broker-b": 6}, {"broker-a": 4})
    manager.unregister([Leaving(BrokerAddrInfo("C", ADDRESS), "broker-a", 0)])
    manager.unregister([Leaving(BrokerAddrInfo("C", SLAVE), "broker-a", 1)])
    manager.come(registration(), topics("T", "A", version=4))
    manager.come(registration("10.0.0.9:1", name="broker-b"), topics("T", "A", version=2))
    assert perms("T") == {"broker-b": 6, "broker-a": 4}
    assert manager.add_write_perm("broker-a") == 2
    assert perms("T") == {"broker-b": 6, "broker-a": 6}
    manager.come(registration(), topics("T", "A", version=5))
    assert perms("T") == {"broker-b": 6, "broker-a": 6}


def test_add_write_perm_after_wipe_restores_given_permission(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A", perm=4))
    manager.wipe_write_perm("broker-a")
    manager.add_write_perm("broker-a")
    assert manager.found("T").queue_datas[0].perm == 4


@pytest.mark.parametrize("delete", [False, True])
def test_topics_missing_in_registration_are_removed_if_configured(manager: Manager, delete: bool) -> None:
    manager.config = replace(manager.config, delete_topic_with_broker_registration=delete)
    manager.come(registration(), topics("T", "A"))
    manager.come(registration(), topics("T", "B", version=2))
    assert (manager.route("A") is None) is delete


def test_topics_are_registered_at_known_brokers_all_or_none(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"))
    here, nowhere = (QueueData(broker_name=name, perm=6, read_queue_nums=2) for name in ("broker-a", "broker-x"))
    assert not manager.register_topic("R", [here, nowhere])
    assert manager.route("R") is None
    assert manager.register_topic("R", [here])
    assert manager.found("R").queue_datas == [here]
    manager.delete_topic("R", "other")
    assert manager.route("R") is not None
    manager.delete_topic("R", "C")
    manager.delete_topic("T")
    assert manager.all_topics().topic_list == ["A"]


def test_deleted_static_topic_returns_with_mapping_at_next_registration(manager: Manager) -> None:
    """Its broker says it every thirty seconds, and of the mapping nothing new."""
    said = topics("static", "T")
    said.topic_queue_mapping_info_map = {"static": TopicQueueMappingInfo(topic="static", bname="broker-a")}
    manager.come(registration(), said)
    manager.delete_topic("static")
    assert manager.route("static") is None
    manager.come(registration(), said)
    assert list(manager.found("static").topic_queue_mapping_by_broker or ()) == ["broker-a"]


def test_filter_servers_stay_in_route_until_broker_has_none(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"), filter_servers=["10.0.0.1:30000"])
    assert manager.found("T").filter_server_table == {ADDRESS: ["10.0.0.1:30000"]}
    manager.come(registration(), topics("T", "A"))
    assert manager.found("T").filter_server_table != {}
    manager.come(registration(), topics("T", "A"), filter_servers=[])
    assert manager.found("T").filter_server_table == {}


# They go


def test_broker_expires_after_its_heartbeat_timeout(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"))
    manager.come(registration(SLAVE, 1, heartbeat_timeout_millis=10_000), topics("T", "A"))
    manager.clock.advance(10_001)
    assert manager.expired() == [BrokerAddrInfo("C", SLAVE)]
    manager.record_heartbeat(BrokerAddrInfo("C", SLAVE))
    assert manager.expired() == []
    manager.clock.advance(120_000)
    assert set(manager.expired()) == {BrokerAddrInfo("C", SLAVE), BrokerAddrInfo("C", ADDRESS)}


def test_last_broker_unregistered_removes_topics_name_and_cluster(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"), filter_servers=["f"])
    manager.come(registration(SLAVE, 1), topics("T", "A"))
    manager.go(ADDRESS)
    assert manager.found("T").broker_datas[0].broker_addrs == {1: SLAVE}
    assert manager.found("T").queue_datas[0].perm == 6  # nobody acts as a master here
    manager.go(SLAVE)
    assert manager.route("T") is None
    assert manager.all_topics().topic_list == []
    assert manager.cluster_info().cluster_addr_table == {}
    manager.go(SLAVE)  # and once more, which is harmless


def test_reregistered_broker_survives_close_of_old_connection(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"), channel="old")
    leaving = manager.leaving(manager.of_channel("old"))
    manager.come(registration(), topics("T", "A"), channel="new")
    manager.unregister(leaving)
    assert manager.route("T") is not None
    assert manager.of_channel("old") == []
    assert manager.channel_of(BrokerAddrInfo("C", ADDRESS)) == "new"


def test_brokers_of_connection_are_all_found(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"), channel="one")
    manager.come(registration(SLAVE, name="broker-b"), topics("T", "A"), channel="one")
    assert len(manager.of_channel("one")) == 2


# Slaves in their master's place


def test_slave_acting_as_master_is_readable(manager: Manager) -> None:
    manager.config = replace(manager.config, support_acting_master=True)
    manager.come(acting(ADDRESS, 0), topics("T", "A"))
    manager.come(acting(SLAVE, 1), topics("T", "A"))
    manager.go(ADDRESS)
    route = manager.found("T")
    assert route.broker_datas[0].broker_addrs == {0: SLAVE}
    assert route.queue_datas[0].perm == 4
    assert manager.member_group("C", "broker-a").broker_addrs == {1: SLAVE}
    manager.come(acting(ADDRESS, 0), topics("T", "A"))
    assert manager.found("T").queue_datas[0].perm == 6
    assert manager.found("T").broker_datas[0].broker_addrs == {0: ADDRESS, 1: SLAVE}


def test_slave_registering_first_has_its_topics_readable(manager: Manager) -> None:
    manager.come(acting(SLAVE, 1), topics("T", "A"))
    assert manager.found("T").queue_datas[0].perm == 4
    assert manager.found("T").broker_datas[0].broker_addrs == {1: SLAVE}  # supportActingMaster is off


@pytest.mark.parametrize("told", [False, True])
def test_new_lowest_broker_id_is_sent_to_brokers_if_configured(manager: Manager, told: bool) -> None:
    manager.config = replace(manager.config, notify_min_broker_id_changed=told)
    manager.come(acting(SLAVE, 1), topics("T", "A"))
    result = manager.come(acting(ADDRESS, 0), topics("T", "A"))
    assert result is not None
    came = [(one.addresses, one.header.min_broker_addr, one.header.ha_broker_addr) for one in result.notices]
    assert came == ([((SLAVE,), ADDRESS, "10.0.0.1:10912")] if told else [])
    notices = manager.unregister(manager.leaving([BrokerAddrInfo("C", ADDRESS)]))
    left = [(one.addresses, one.header.min_broker_id, one.header.offline_broker_addr) for one in notices]
    assert left == ([((SLAVE,), 1, ADDRESS)] if told else [])


# Zones


def test_zone_route_has_own_brokers_and_those_without_master(manager: Manager) -> None:
    manager.come(registration(), topics("T", "A"), zone_name="east", filter_servers=["f"])
    manager.come(registration("10.0.0.3:10911", name="broker-b"), topics("T", "A"), zone_name="west")
    manager.come(registration("10.0.0.4:10911", name="broker-c"), topics("T", "A"))
    manager.come(registration("10.0.0.5:10911", 1, name="broker-c"), topics("T", "A"))
    manager.go("10.0.0.4:10911")
    west = in_zone(manager.found("T"), "WEST")
    assert [data.broker_name for data in west.broker_datas] == ["broker-b", "broker-c"]
    assert [data.broker_name for data in west.queue_datas] == ["broker-b", "broker-c"]
    assert west.filter_server_table == {}
    assert in_zone(manager.found("T"), "east").filter_server_table == {ADDRESS: ["f"]}
