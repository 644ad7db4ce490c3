"""The real broker writes what gantrymq does not honour: each is refused, and the remedies that are named work."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gantrymq import AdminClient, Message, SimpleConsumer, StoreReader
from gantrymq.config.guards import Level
from gantrymq.config.properties import read_settings
from gantrymq.errors import NotHonouredError
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message_queue import MessageQueue
from gantrymq.store.contents import content_reasons
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gantrymq.tools.preflight import Direction, preflight
from gantrymq.tools.rebuild import rebuild_store

from .java import run_java
from .java_cluster import JavaCluster
from .our_broker import OurBroker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

GROUP, COMMITTED, QUEUE = "G", 2, MessageQueue("T", "broker-a", 0)
IN_ROCKSDB = {
    "storeType": "defaultRocksDB",
    "popConsumerKVServiceInit": True,
    "popConsumerKVServiceEnable": True,
    "transRocksDBEnable": True,
    "timerRocksDBEnable": True,
    "timerWheelEnable": True,
}
TABLES = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
    "consumerOffsets": "consumerOffset.json",
}
WAIT_S = 60


def refused(store: Path) -> list[str]:
    found = content_reasons(RealFileSystem(), StorePaths(store))
    return [reason.name for reason in found if reason.level is Level.REFUSED]


def mqadmin(namesrv: str, *lines: str) -> str:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        return "".join(one["printed"] for one in run_java("mqadmin", None, file.name, namesrv=namesrv))


def committed(store: Path) -> int:
    """The offset that our broker answers for the group, with the store it has taken over."""
    with (
        JavaCluster(None, broker=False) as names,
        OurBroker(store, {"brokerName": "broker-a"}, namesrv=names.namesrv),
        AdminClient(names.namesrv) as admin,
    ):
        assert "T" in admin.topics()
        return admin.consume_stats(GROUP, "T")[QUEUE].consumer_offset


def commit(namesrv: str) -> None:
    with AdminClient(namesrv) as admin:
        admin.create_subscription_group(GROUP)
        admin.update_consume_offset(GROUP, QUEUE, COMMITTED)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def move_away(store: Path, *names: str) -> None:
    for name in names:
        (store.parent / "away" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(store / name, store.parent / "away" / name)


def bodies(store: Path, topic: str) -> list[bytes]:
    with StoreReader.open(store) as reader:
        return [message.body for message in reader.messages(topic)]


def test_contents_in_rocksdb_are_refused_and_move_after_remedies(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with JavaCluster(store, IN_ROCKSDB) as cluster:
        with AdminClient(cluster.namesrv) as admin:
            admin.create_topic("T", read_queue_nums=1, write_queue_nums=1)
            admin.create_topic("P", read_queue_nums=1, write_queue_nums=1)
        cluster.send([{"topic": "T", "body": str(number)} for number in range(3)])
        cluster.send([{"topic": "P", "body": "popped"}])
        with SimpleConsumer(cluster.namesrv, consumer_group="POP") as consumer:
            consumer.subscribe("P")
            wait_until(lambda: bool(consumer.receive(1, invisible_ms=3_600_000)))
        cluster.kill()
        # Entries in RocksDB's log count, too. Its queues have none: after a kill RocketMQ dispatches the commit log.
        assert {"kvStore", "config/subscriptionGroups"} <= {*refused(store)}
        cluster.start()
        commit(cluster.namesrv)  # after the kill, which RocksDB's offsets need not survive
        moved = mqadmin(cluster.namesrv, f"exportPopRecord -b {cluster.broker}")
        assert "dryRun=false" in moved
        cluster.stop()
        found = refused(store)
        assert {"consumequeue", *(f"config/{name}" for name in TABLES)} <= {*found}
        with pytest.raises(NotHonouredError):
            MessageStore.open(store)
        for name, file in TABLES.items():
            mqadmin(cluster.namesrv, f"rocksDBConfigToJson -p {store}/config -t {name} -e {store}/config/{file}")
            assert (store / "config" / file).exists()
    move_away(store, *found)
    assert refused(store) == []
    report = rebuild_store(store)
    assert report.account.is_empty
    assert bodies(store, "T") == [b"0", b"1", b"2"]
    assert committed(store) == COMMITTED


def test_topics_and_light_queues_are_refused_and_move_after_remedies(tmp_path: Path) -> None:
    store = tmp_path / "store"
    marked = {"BT": "queue.type=BatchCQ", "CT": "cleanup.policy=COMPACTION", "LT": "message.type=LITE"}
    with JavaCluster(store, {"enableLmq": True, "enableMultiDispatch": True, "timerWheelEnable": True}) as cluster:
        with AdminClient(cluster.namesrv) as admin:
            admin.create_topic("T", read_queue_nums=1, write_queue_nums=1)
            for topic, attribute in marked.items():
                name, value = attribute.split("=")
                admin.create_topic(topic, read_queue_nums=1, write_queue_nums=1, attributes={f"+{name}": value})
        cluster.send([{"topic": "T", "body": str(number)} for number in range(3)])
        cluster.send([{"topic": "CT", "body": "c", "keys": ["k"]}])
        cluster.send([{"topic": "T", "body": "light", "properties": {"INNER_MULTI_DISPATCH": "%LMQ%q1"}}])
        commit(cluster.namesrv)
        cluster.stop()
        assert refused(store) == [*sorted(marked), "%LMQ%", "config/lmqConsumerOffset.json"]
        assert not (store / "config/consumerOffset.json").exists()
        cluster.start()
        with AdminClient(cluster.namesrv) as admin:
            for topic in marked:
                admin.delete_topic(topic)
        cluster.stop()
    assert refused(store) == ["%LMQ%", "config/lmqConsumerOffset.json"]
    move_away(store, "consumequeue/%LMQ%q1")
    (store / "config/lmqConsumerOffset.json").rename(store / "config/consumerOffset.json")
    (store / "config/lmqConsumerOffset.json.bak").unlink(missing_ok=True)
    assert refused(store) == []
    assert committed(store) == COMMITTED


def test_default_store_passes_preflight_to_gantrymq_and_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    reading = read_settings({"brokerName": "broker-a", "brokerIP1": "192.0.2.1"})
    with JavaCluster(store, {"timerWheelEnable": True}) as cluster:
        cluster.send([{"topic": "T", "body": "java"}])
        assert preflight(store, reading).lock_holder is not None
        cluster.stop()
        found = preflight(store, reading)
        assert (found.moves, found.reasons) == (True, [])
        with MessageStore.open(store) as ours:
            ours.put(Message("T", b"ours"))
        (store / "config/deletedTopics.json").write_text(json.dumps({"deletedTopics": {}}))
        back = preflight(store, reading, Direction.BACK)
        assert back.moves
        assert [reason.name for reason in back.reasons] == ["config/deletedTopics.json"]
        cluster.start()
        assert len(cluster.pull("T")) == 2
        cluster.stop()
    assert sorted(bodies(store, "T")) == [b"java", b"ours"]
