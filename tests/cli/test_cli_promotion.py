"""``gantrymq admin ha promote``: refused with numbers, or done; and what a killed master owed, after it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_cases import Run
from test_cli_servers import serving

from gantrymq import (
    AdminClient,
    LocalTransactionState,
    Message,
    Producer,
    SimpleConsumer,
    StoreReader,
    TransactionProducer,
)
from gantrymq.cli.admin import promotion
from gantrymq.errors import GantrymqError
from gantrymq.grpc.protocol.codes import Code
from gantrymq.remoting.bodies.broker import HAClientRuntimeInfo
from grpc_client import GrpcClient, message

FILE = ("--set", f"mappedFileSizeCommitLog={1 << 20}", "--set", "maxHashSlotNum=1000", "--set", "maxIndexNum=4000")
QUICK = ("--set", "timerPrecisionMs=100", "--set", "transactionCheckInterval=1000", "--set", "transactionTimeOut=1000")
SLAVE = ("--set", "brokerRole=SLAVE", "--set", "brokerId=1")
SYNC = ("--set", "brokerRole=SYNC_MASTER", "--set", "inSyncReplicas=2", "--set", "slaveTimeout=2000")
WAIT_S = 90


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.05)


def ha(gantrymq: Run, namesrv: str, broker: str) -> dict[str, object]:
    shown = gantrymq("admin", "ha", "-n", namesrv, "-b", broker, "--json")
    return dict(json.loads(shown.out.splitlines()[0])) if shown.out else {}


def broker(namesrv: str, store: Path, *options: str) -> tuple[object, ...]:
    return ("broker", "-n", namesrv, "--store", store, "--listen-port", 0, *FILE, *QUICK, *options)


def test_promotion_is_refused_with_numbers_or_done(gantrymq: Run, tmp_path: Path) -> None:
    with serving("namesrv", "--listen-port", 0, env={**os.environ, "HOME": str(tmp_path)}) as (names, _):
        address = names["namesrv"]
        with (
            serving(*broker(address, tmp_path / "master")) as (old, master),
            serving(*broker(address, tmp_path / "slave", *SLAVE, "--set", "grpcServerPort=0")) as (ready, _),
            AdminClient(address) as admin,
        ):
            admin.create_topic("T")
            with Producer(address) as producer:
                for number in range(20):
                    producer.send(Message("T", b"%d" % number))
            where = ready["broker"]
            promote = ("admin", "ha", "promote", "-n", address, "-b", where, "--json")
            until(lambda: admin.ha_status(where).ha_client_runtime_info.tables_timestamp)
            until(lambda: admin.ha_status(where).ha_client_runtime_info.state == "in sync")
            refused = gantrymq(*promote)
            assert refused.code == 1
            assert json.loads(refused.out)["promoted"] is False
            assert f"still knows the master {old['broker']}" in refused.err
            assert "the copy is in sync, so its master is alive" in refused.err
            master.send_signal(signal.SIGKILL)
            master.wait()
            until(lambda: admin.ha_status(where).ha_client_runtime_info.state != "in sync")
            until(lambda: old["broker"] not in str(admin.cluster_info()))
            unsure = gantrymq(*promote[:4], f"{address};127.0.0.1:1", *promote[5:])
            assert unsure.code == 1
            assert "the name server 127.0.0.1:1 cannot say whether the master is gone" in unsure.err
            done = gantrymq(*promote)
            assert done.out, done.err
            row = json.loads(done.out)
            assert (done.code, row["promoted"], row["lagBytes"], row["brokerId"]) == (0, True, 0, 0)
            assert ha(gantrymq, address, where)["master"] is True
            with Producer(address) as producer:
                assert producer.send(Message("T", b"new")).status.value == "SEND_OK"
            with GrpcClient(ready["grpc"]) as over_grpc:
                assert over_grpc.send(message("T")).status.code == Code.OK
            late = gantrymq(*broker(address, tmp_path / "master"))
            assert late.code != 0
            assert late.err.count("\n") == 1
            assert "knows another master of broker-a" in late.err


def test_slave_that_cannot_start_as_master_ends_with_the_reason(gantrymq: Run, tmp_path: Path) -> None:
    store = tmp_path / "slave"
    with (
        serving("namesrv", "--listen-port", 0, env={**os.environ, "HOME": str(tmp_path)}) as (names, _),
        serving(*broker(names["namesrv"], store, *SLAVE)) as (ready, slave),
    ):
        (store / "checkpoint").rename(store / "aside")
        (store / "checkpoint").mkdir()
        with AdminClient(names["namesrv"]) as admin:
            admin.promote(ready["broker"], broker_id=1, force=True)
        _, err = slave.communicate(timeout=WAIT_S)
        assert slave.returncode == 3
        assert err.decode().rstrip().rpartition("\n")[2].startswith("gantrymq: ")
        (store / "checkpoint").rmdir()
        (store / "aside").rename(store / "checkpoint")
        with serving(*broker(names["namesrv"], store, *SLAVE)) as (again, _):
            assert ha(gantrymq, names["namesrv"], again["broker"])["master"] is True  # what was noted holds


def test_reasons_against_promotion_have_numbers() -> None:
    own = HAClientRuntimeInfo(
        state="disconnected",
        max_offset=1_000,
        master_max_offset=3_500,
        record_bytes=300,
        last_read_timestamp=100_000,
        tables_timestamp=40_000,
    )
    assert [*promotion._copy(own), *promotion._offsets(own)] == [
        "the slave lacks the last 2,500 bytes of the master's log, about 9 messages",
        "topics, groups and committed offsets are 60 s older than the log",
    ]
    diverged = HAClientRuntimeInfo(state="diverged", reason="it differs", max_offset=5, master_max_offset=5)
    assert [*promotion._copy(diverged), *promotion._offsets(diverged)] == [
        "the copy is diverged: it differs",
        "topics, groups and committed offsets have never followed the master's",
    ]


class Load:
    """Producers and a popping consumer, which note what the broker acknowledged."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.sent: list[bytes] = []
        self.is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(kind,)) for kind in ("plain", "delay", "timer")]
        self._threads.append(threading.Thread(target=self._transact))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *of: object) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join(WAIT_S)

    def _send(self, kind: str) -> None:
        number = 0
        with Producer(self.namesrv, producer_group=f"of-{kind}", retry_times_when_send_failed=0) as producer:
            while not self.is_over.is_set():
                number += 1
                body = f"{kind} {number}".encode()
                message = Message("T", body)
                if kind == "delay":
                    message.delay_level = 1 + number % 2
                elif kind == "timer":
                    message.delay_ms = 1_000 + number % 50 * 100
                try:
                    if producer.send(message).status.value == "SEND_OK":
                        self.sent.append(body)
                except GantrymqError:
                    time.sleep(0.1)
                time.sleep(0.002)

    def _transact(self) -> None:
        number = 0

        def end(message: object, transaction_id: object) -> LocalTransactionState:
            return LocalTransactionState.COMMIT_MESSAGE if number % 3 else LocalTransactionState.UNKNOW

        def check(message: object) -> LocalTransactionState:
            return LocalTransactionState.COMMIT_MESSAGE

        with TransactionProducer(
            self.namesrv, check, producer_group="of-transactions", retry_times_when_send_failed=0
        ) as producer:
            while not self.is_over.is_set():
                number += 1
                body = f"transaction {number}".encode()
                try:
                    if producer.send_in_transaction(Message("T", body), end).status.value == "SEND_OK":
                        self.sent.append(body)
                except GantrymqError:
                    time.sleep(0.1)
                time.sleep(0.01)
            time.sleep(8)  # the broker's checks


def stored(path: Path, topic: str) -> Counter[bytes]:
    with StoreReader.open(path) as reader:
        return Counter(bytes(message.body) for message in reader.messages(topic))


@contextmanager
def popped(namesrv: str) -> Iterator[tuple[set[bytes], set[bytes]]]:
    """Pop 60 messages, and acknowledge every second one. Yields the acknowledged and the others."""
    with Producer(namesrv) as producer:
        for number in range(60):
            producer.send(Message("P", b"%d" % number))
    acknowledged, left = set[bytes](), set[bytes]()
    with SimpleConsumer(namesrv, consumer_group="PG", invisible_duration_ms=10_000) as consumer:
        consumer.subscribe("P")
        while len(acknowledged) + len(left) < 60:
            for message in consumer.receive(16):
                if int(message.body) % 2:
                    consumer.ack(message)
                    acknowledged.add(bytes(message.body))
                else:
                    left.add(bytes(message.body))
    yield acknowledged, left


@pytest.mark.slow
def test_everything_acknowledged_and_owed_is_there_once_after_sigkill_and_promotion(
    gantrymq: Run, tmp_path: Path
) -> None:
    with serving("namesrv", "--listen-port", 0, env={**os.environ, "HOME": str(tmp_path)}) as (names, _):
        address = names["namesrv"]
        with (
            serving(*broker(address, tmp_path / "master", *SYNC)) as (old, master),
            serving(*broker(address, tmp_path / "slave", *SLAVE)) as (ready, slave),
            AdminClient(address) as admin,
        ):
            where = ready["broker"]
            for topic in ("T", "P"):
                admin.create_topic(topic)
            until(lambda: admin.ha_status(where).ha_client_runtime_info.tables_timestamp)
            time.sleep(3)
            with Load(address) as load:
                with popped(address) as (acknowledged, left):
                    time.sleep(8)
                    before = len(load.sent)
                    master.send_signal(signal.SIGKILL)
                    master.wait()
                until(lambda: old["broker"] not in str(admin.cluster_info()))
                promote = ("admin", "ha", "promote", "-n", address, "-b", where, "--json")
                until(lambda: gantrymq(*promote).code == 0 or ha(gantrymq, address, where).get("master"))
                until(lambda: len(load.sent) > before + 500)
                again = Counter[bytes]()
                with SimpleConsumer(address, consumer_group="PG", invisible_duration_ms=60_000) as consumer:
                    consumer.subscribe("P")
                    until_s = time.monotonic() + 25
                    while time.monotonic() < until_s:
                        for message in consumer.receive(16):
                            consumer.ack(message)
                            again[bytes(message.body)] += 1
            time.sleep(8)  # the last delays and timers
            slave.send_signal(signal.SIGTERM)
            slave.wait()
        there = stored(tmp_path / "slave", "T")
        assert [body for body in load.sent if there[body] != 1] == []
        assert [body for body, count in there.items() if count > 1] == []
        assert (set(again) & acknowledged, Counter(left) - again, again - Counter(left)) == (set(), {}, {})
