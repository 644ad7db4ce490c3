"""A real slave of our broker: it copies the log byte for byte, and its acknowledgements count for the real producer."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gantrymq import AdminClient, EmbeddedBroker, Message, Producer
from gantrymq.errors import GantrymqError
from gantrymq.remoting.bodies.broker import HARuntimeInfo

from .java import Line, Setting, run_java
from .java_cluster import JavaCluster
from .our_broker import OurBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FILE = 1 << 20
MASTER: dict[str, Setting] = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": FILE,
    "haEnable": True,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
    "slaveTimeout": 500,
}
SLAVE: dict[str, Setting] = {
    "brokerName": "broker-a",
    "brokerId": 1,
    "brokerRole": "SLAVE",
    "mappedFileSizeCommitLog": FILE,
    "slaveReadEnable": True,
}
WAIT_S = 90


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.1)


def log_of(store: Path) -> dict[str, bytes]:
    """The files of a log that are written to their end or further than their first bytes."""
    files = {file.name: file.read_bytes() for file in sorted((store / "commitlog").iterdir())}
    return {name: raw for name, raw in files.items() if raw[:8] != bytes(8)}


def java_send(namesrv: str, tmp_path: Path, count: int = 1) -> list[Line]:
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps({"topic": "T", "body": f"b{number}"}) + "\n" for number in range(count)))
    return run_java("send", None, str(file), namesrv=namesrv)


def status_of(namesrv: str, broker: str) -> HARuntimeInfo:
    with AdminClient(namesrv) as admin:
        return admin.ha_status(broker)


def has_voter(namesrv: str, broker: str) -> bool:
    slaves = status_of(namesrv, broker).ha_connection_info
    return any(slave.in_sync and slave.voter and not slave.diff for slave in slaves)


def test_java_slave_copies_whole_log_and_is_a_copy_of_real_producers_sends(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "ours", settings=MASTER) as broker:
        broker.create_topic("T")
        (alone,) = java_send(broker.namesrv, tmp_path)
        assert alone["status"] == "FLUSH_SLAVE_TIMEOUT"
        with Producer(broker.namesrv) as producer:
            for _ in range(150):
                producer.send(Message("T", os.urandom(30_000), wait_store_msg_ok=False))
        with JavaCluster(tmp_path / "java", SLAVE, namesrv=broker.namesrv):
            until(lambda: has_voter(broker.namesrv, broker.address))
            sent = java_send(broker.namesrv, tmp_path, 20)
            assert {one["status"] for one in sent} == {"SEND_OK"}
            until(lambda: log_of(tmp_path / "java") == log_of(tmp_path / "ours"))
            assert len(log_of(tmp_path / "java")) > 4
            assert min(log_of(tmp_path / "java")) == "0" * 20  # from the very first offset


@pytest.mark.slow
def test_java_slave_needs_its_address_where_slaves_log_in(tmp_path: Path) -> None:
    root = json.dumps({"accessKey": "root", "secretKey": "rootpw"})
    package = "org.apache.rocketmq.auth.authentication.provider"
    auth = {
        "authenticationEnabled": "true",
        "authenticationMetadataProvider": f"{package}.LocalAuthenticationMetadataProvider",
        "innerClientAuthenticationCredentials": root,
    }
    master = {**MASTER, "inSyncReplicas": 1, "haAuthenticationEnabled": True}
    keys = {"access_key": "root", "secret_key": "rootpw"}
    with (
        EmbeddedBroker(tmp_path / "ours", settings=master, users={"root": "rootpw"}) as broker,
        AdminClient(broker.namesrv, **keys) as admin,
        Producer(broker.namesrv, **keys) as producer,
    ):
        admin.create_topic("T")
        producer.send(Message("T", b"secret"))
        with JavaCluster(tmp_path / "java", SLAVE, namesrv=broker.namesrv, auth=auth):

            def closed() -> list[str | None]:
                return [slave.state for slave in admin.ha_status(broker.address).closed_connection_info or ()]

            until(lambda: "not logged in" in closed())
            assert log_of(tmp_path / "java") == {}
            admin.update_broker_config({"haAllowedSlaves": "127.0.0.0/8"}, broker=broker.address)
            until(lambda: log_of(tmp_path / "java") == log_of(tmp_path / "ours"))


@contextmanager
def sending(namesrv: str) -> Iterator[list[str]]:
    """Send until the end; a send that fails is tried again. Yields the ids of what was acknowledged by both."""
    acknowledged: list[str] = []
    is_over = threading.Event()

    def send() -> None:
        with Producer(namesrv) as producer:
            while not is_over.is_set():
                try:
                    result = producer.send(Message("T", b"x" * 5_000))
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


@pytest.mark.slow
def test_java_slave_catches_up_after_sigkill_of_each_side(tmp_path: Path) -> None:
    settings = {**MASTER, "slaveTimeout": 3_000}
    with (
        JavaCluster(None, broker=False) as cluster,
        OurBroker(tmp_path / "ours", settings, namesrv=cluster.namesrv) as master,
    ):
        with AdminClient(cluster.namesrv) as admin:
            admin.create_topic("T")
        with JavaCluster(tmp_path / "java", SLAVE, namesrv=cluster.namesrv) as slave, sending(cluster.namesrv) as sent:
            for killed in (slave, master, slave, master):
                until(lambda: has_voter(cluster.namesrv, master.address))
                before = len(sent)
                until(lambda before=before: len(sent) > before + 200)  # type: ignore[misc]
                killed.kill()
                time.sleep(1)
                killed.start()
            until(lambda: has_voter(cluster.namesrv, master.address))
            before = len(sent)
            until(lambda: len(sent) > before + 50)
        assert len(sent) > 800
        with JavaCluster(tmp_path / "java", SLAVE, namesrv=cluster.namesrv):
            until(lambda: has_voter(cluster.namesrv, master.address))
            until(lambda: log_of(tmp_path / "java") == log_of(tmp_path / "ours"))
            assert min(log_of(tmp_path / "java")) == "0" * 20
