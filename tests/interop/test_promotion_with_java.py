"""Our slave is promoted in place of a killed Java master, and acts for one; a Java slave acts for our master."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gantrymq import AdminClient, Message, Producer, StoreReader
from gantrymq.errors import GantrymqError
from gantrymq.model.message_queue import MessageQueue

from .java import Setting
from .java_cluster import JavaCluster
from .our_broker import OurBroker
from .test_push_consumer import JavaConsumer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

MASTER: dict[str, Setting] = {"brokerName": "broker-a", "mappedFileSizeCommitLog": 1 << 20, "timerWheelEnable": True}
SLAVE: dict[str, Setting] = {
    **MASTER,
    "brokerId": 1,
    "brokerRole": "SLAVE",
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}
ACTING: dict[str, Setting] = {"enableSlaveActingMaster": True, "slaveReadEnable": True}
WAIT_S = 90


def until(is_so: Callable[[], object], seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.1)


def state(admin: AdminClient, broker: str) -> tuple[str | None, int]:
    own = admin.ha_status(broker).ha_client_runtime_info
    return own.state, own.tables_timestamp or 0


def is_sent(producer: Producer) -> bool:
    try:
        return producer.send(Message("T", b"new")).status.value == "SEND_OK"
    except GantrymqError:
        return False


def has_topic(store: Path) -> bool:
    file = store / "config" / "topics.json"
    return file.exists() and '"T"' in file.read_text()


def of_master(admin: AdminClient) -> dict[int, str]:
    try:
        return admin.topic_route("T").broker_datas[0].broker_addrs
    except GantrymqError:
        return {}


def test_promoted_slave_of_java_delivers_once_what_java_owed_and_real_consumer_goes_on(tmp_path: Path) -> None:
    with (
        JavaCluster(None, broker=False) as names,
        JavaCluster(tmp_path / "java", MASTER, namesrv=names.namesrv) as master,
        OurBroker(tmp_path / "ours", SLAVE, namesrv=names.namesrv) as slave,
        AdminClient(names.namesrv) as admin,
    ):
        admin.create_topic("T", read_queue_nums=1, write_queue_nums=1)
        until(lambda: state(admin, slave.address)[0] == "in sync" and state(admin, slave.address)[1])
        sent: list[str] = []
        queue = MessageQueue("T", "broker-a", 0)
        with JavaConsumer(names, "T", "CG") as consumer, Producer(names.namesrv) as producer:
            until_s = time.monotonic() + 20
            while time.monotonic() < until_s:
                number = len(sent)
                message = Message("T", f"b{number}".encode())
                if number % 3 == 1:
                    message.delay_level = 1 + number % 2
                elif number % 3 == 2:
                    message.delay_ms = 2_000 + number % 7 * 500
                producer.send(message)
                sent.append(f"b{number}")
                time.sleep(0.01)
            log_end = int(admin.broker_runtime_info(master.broker)["commitLogMaxOffset"])
            until(lambda: admin.ha_status(slave.address).ha_client_runtime_info.max_offset >= log_end)
            master.kill()
            until(lambda: 0 not in admin.registered_brokers()[names.namesrv].broker_addr_table["broker-a"].broker_addrs)
            until(lambda: state(admin, slave.address)[0] != "in sync")
            admin.promote(slave.address, broker_id=1)
            until(lambda: of_master(admin).get(0) == slave.address)
            until(lambda: is_sent(producer))  # once it has the new route
            until(lambda: admin.topic_stats("T")[queue].max_offset >= len(sent) + 1)
            time.sleep(8)
            end = admin.topic_stats("T")[queue].max_offset
            until(lambda: {line["queueOffset"] for line in consumer.of("message")} == set(range(end)))
        slave.stop()
        with StoreReader.open(tmp_path / "ours") as reader:
            stored = Counter(bytes(message.body).decode() for message in reader.messages("T"))
    assert stored == Counter([*sent, "new"])


def test_our_slave_acts_for_java_master_at_javas_name_server(tmp_path: Path) -> None:
    with (
        JavaCluster(None, broker=False) as names,
        AdminClient(names.namesrv) as admin,
    ):
        admin.update_name_server_config({"supportActingMaster": "true"})
        with (
            JavaCluster(tmp_path / "java", MASTER | ACTING, namesrv=names.namesrv) as master,
            OurBroker(tmp_path / "ours", SLAVE | ACTING, namesrv=names.namesrv) as slave,
        ):
            admin.create_topic("T", read_queue_nums=1, write_queue_nums=1)
            until(lambda: state(admin, slave.address)[0] == "in sync" and state(admin, slave.address)[1])
            master.send([{"topic": "T", "body": f"b{number}"} for number in range(20)])
            with JavaConsumer(names, "T", "CG") as consumer:
                until(lambda: len(consumer.of("message")) == 20)
            until(lambda: state(admin, slave.address)[0] == "in sync")
            time.sleep(4)
            master.kill()
            until(lambda: of_master(admin) == {0: slave.address})
            assert not admin.topic_route("T").queue_datas[0].is_writable
            with Producer(names.namesrv, send_msg_timeout_ms=2_000) as producer, pytest.raises(GantrymqError):
                producer.send(Message("T", b"refused"))
            with JavaConsumer(names, "T", "CG2") as consumer:
                until(lambda: len(consumer.of("message")) == 20)


def test_java_slave_acts_for_our_master_which_takes_its_offsets_back(tmp_path: Path) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    with (
        JavaCluster(None, broker=False) as names,
        AdminClient(names.namesrv) as admin,
    ):
        admin.update_name_server_config({"supportActingMaster": "true"})
        with (
            OurBroker(tmp_path / "ours", MASTER | ACTING, namesrv=names.namesrv) as master,
            JavaCluster(tmp_path / "java", SLAVE | ACTING, namesrv=names.namesrv) as slave,
        ):
            admin.create_topic("T", read_queue_nums=1, write_queue_nums=1)
            admin.create_subscription_group("CG")
            slave.send([{"topic": "T", "body": f"b{number}"} for number in range(20)])
            admin.update_consume_offset("CG", queue, 3)
            until(
                lambda: any(one.in_sync and not one.diff for one in admin.ha_status(master.address).ha_connection_info)
            )
            until(lambda: has_topic(tmp_path / "java"), 120)
            master.kill()
            until(lambda: of_master(admin) == {0: slave.broker})
            with Producer(names.namesrv, send_msg_timeout_ms=2_000) as producer, pytest.raises(GantrymqError):
                producer.send(Message("T", b"refused"))
            with JavaConsumer(names, "T", "CG") as consumer:
                until(lambda: len({line["queueOffset"] for line in consumer.of("message")}) >= 17)
                time.sleep(6)  # it commits
            master.start()
            until(lambda: of_master(admin).get(0) == master.address)
            assert admin.consume_stats("CG")[queue].consumer_offset == 20
