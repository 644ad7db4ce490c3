"""Our slave of a real master: the whole log byte for byte through SIGKILL of each side, tables, and a real consumer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantrymq import AdminClient, Message, Producer, PullClient
from gantrymq.errors import GantrymqError
from gantrymq.model import fastjson
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.broker import HARuntimeInfo

from .java import Setting
from .java_cluster import JavaCluster
from .our_broker import OurBroker
from .test_push_consumer import JavaConsumer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

FILE = 1 << 20
MASTER: dict[str, Setting] = {"brokerName": "broker-a", "mappedFileSizeCommitLog": FILE, "timerWheelEnable": True}
SYNC: dict[str, Setting] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "totalReplicas": 2}
SLAVE: dict[str, Setting] = {
    **MASTER,
    "brokerId": 1,
    "brokerRole": "SLAVE",
    "slaveReadEnable": True,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}
WAIT_S = 90


def until(is_so: Callable[[], object], seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.1)


def log_of(store: Path) -> dict[str, bytes]:
    """The files of a log that are written further than their first bytes."""
    files = {file.name: file.read_bytes() for file in sorted((store / "commitlog").iterdir())}
    return {name: raw for name, raw in files.items() if raw[:8] != bytes(8)}


def status_of(namesrv: str, broker: str) -> HARuntimeInfo:
    with AdminClient(namesrv) as admin:
        return admin.ha_status(broker)


def has_slave(cluster: JavaCluster) -> bool:
    slaves = status_of(cluster.namesrv, cluster.broker).ha_connection_info
    return any(slave.in_sync and not slave.diff for slave in slaves)


@contextmanager
def sending(namesrv: str) -> Iterator[list[str]]:
    """Send until the end; a send that fails is tried again. Yields the ids of what was acknowledged by both."""
    acknowledged: list[str] = []
    is_over = threading.Event()

    def send() -> None:
        with Producer(namesrv) as producer:
            while not is_over.is_set():
                try:
                    result = producer.send(Message("T", os.urandom(5_000)))
                except GantrymqError:
                    time.sleep(0.2)
                    continue
                if result.status.value == "SEND_OK":
                    acknowledged.append(result.msg_id)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join(WAIT_S)


def test_our_slave_of_java_has_its_log_byte_for_byte_after_sigkill_of_each_side(tmp_path: Path) -> None:
    with (
        JavaCluster(None, broker=False) as names,
        JavaCluster(tmp_path / "java", MASTER | SYNC, namesrv=names.namesrv) as master,
    ):
        with AdminClient(names.namesrv) as admin:
            admin.create_topic("T")
        with Producer(names.namesrv) as producer:
            for _ in range(100):
                producer.send(Message("T", os.urandom(30_000), wait_store_msg_ok=False))
        slave = OurBroker(tmp_path / "ours", SLAVE, namesrv=names.namesrv)
        with slave, sending(names.namesrv) as sent:
            sides: list[Any] = [slave, master, slave, master]
            for killed in sides:
                until(lambda: has_slave(master))
                before = len(sent)
                until(lambda before=before: len(sent) > before + 100)  # type: ignore[misc]
                killed.kill()
                time.sleep(1)
                killed.start()
            until(lambda: has_slave(master))
            before = len(sent)
            until(lambda: len(sent) > before + 50)
        with slave_again(slave):
            until(lambda: has_slave(master))
            until(lambda: log_of(tmp_path / "java") == log_of(tmp_path / "ours"))
            assert len(log_of(tmp_path / "java")) > 4
            assert min(log_of(tmp_path / "java")) == "0" * 20  # from the very first offset


@contextmanager
def slave_again(slave: OurBroker) -> Iterator[None]:
    slave.start()
    try:
        yield
    finally:
        slave.kill()


def test_tables_of_java_are_here_within_15_s_and_real_consumer_reads_from_our_slave(tmp_path: Path) -> None:
    with (
        JavaCluster(None, broker=False) as names,
        JavaCluster(tmp_path / "java", MASTER, namesrv=names.namesrv) as master,
        OurBroker(tmp_path / "ours", SLAVE, namesrv=names.namesrv) as slave,
        AdminClient(names.namesrv) as admin,
    ):
        until(lambda: status_of(names.namesrv, slave.address).ha_client_runtime_info.state in ("in sync", "connecting"))
        admin.create_topic("T", read_queue_nums=1, write_queue_nums=1)
        admin.create_topic("Gone")
        admin.create_subscription_group("CG")
        sent = master.send([{"topic": "T", "body": f"b{number}"} for number in range(20)])
        queue = MessageQueue("T", "broker-a", 0)
        with PullClient(names.namesrv, group="CG") as client:
            client.pull(queue, 0)  # from now on the answer to 43 has pullOffsetTable
        admin.update_consume_offset("CG", queue, 7)
        config = tmp_path / "ours" / "config"
        until(lambda: table(config / "topics.json", "topicConfigTable").keys() >= {"T", "Gone"}, 15)
        until(lambda: "CG" in table(config / "subscriptionGroup.json", "subscriptionGroupTable"), 15)
        until(lambda: table(config / "consumerOffset.json", "offsetTable").get("T@CG") == {"0": 7}, 15)
        admin.delete_topic("Gone")
        until(lambda: "Gone" not in table(config / "topics.json", "topicConfigTable"), 15)
        assert status_of(names.namesrv, slave.address).master is False
        until(lambda: log_of(tmp_path / "java") == log_of(tmp_path / "ours"))
        master.kill()
        with JavaConsumer(names, "T", "CG") as consumer:  # goes on at the offset that the slave has
            until(lambda: len(consumer.of("message")) >= len(sent) - 7)
            assert sorted(line["queueOffset"] for line in consumer.of("message")) == list(range(7, len(sent)))


def table(file: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = fastjson.loads(file.read_text()) if file.exists() else {}
    found: dict[str, Any] = content.get(name, {})
    return found
