"""Files under ``config/``: ours loads what the real broker wrote, and writes it again with the same bytes; and back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.persistence import SUBSCRIPTION_GROUP, TOPICS
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import SystemClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.config_files import ConfigFile

from .client_cases import SETTINGS, play, recorded
from .java_cluster import JavaCluster
from .our_broker import OurBroker

# What these leave behind: topics with attributes, groups that were altered, offsets.
CASES = ["offset-reset-offline", "group-altered", "topic-attributes", "topic-altered", "offset-committed"]
NAMES = [TOPICS, SUBSCRIPTION_GROUP, CONSUMER_OFFSET]


SavedTable = TopicConfigManager | SubscriptionGroupManager | ConsumerOffsetManager


def table(name: str) -> SavedTable:
    # The shared cluster has timerWheelEnable=false, so its table has no timer topic.
    config, clock = LiveConfig(store=MessageStoreConfig(timer_wheel_enable=False)), SystemClock()
    if name == TOPICS:
        return TopicConfigManager(config, clock)
    if name == SUBSCRIPTION_GROUP:
        return SubscriptionGroupManager(config, clock)
    return ConsumerOffsetManager(config, clock)


@pytest.fixture(scope="module")
def written(cluster: JavaCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a real broker at work, each with its backup."""
    play_all(cluster, CASES)
    played_s = time.time()
    assert cluster.store is not None
    config, copy = cluster.store / "config", tmp_path_factory.mktemp("written")
    while not _is_newer(config / CONSUMER_OFFSET, played_s) or not (config / f"{CONSUMER_OFFSET}.bak").exists():
        assert time.time() < played_s + 60
        time.sleep(0.05)
    for name in [*NAMES, *(f"{name}.bak" for name in NAMES)]:
        (copy / name).write_bytes(_steady(config / name))
    return copy


def _is_newer(file: Path, than_s: float) -> bool:
    try:
        return file.stat().st_mtime > than_s
    except FileNotFoundError:
        return False


def _steady(file: Path) -> bytes:
    """A file that the broker writes again and again in place: not the half of it."""
    while True:
        first, second = file.read_bytes(), file.read_bytes()
        if first == second and first.rstrip().endswith(b"}"):
            return first


def play_all(cluster: JavaCluster, names: list[str]) -> None:
    lines = play(cluster.namesrv, names)
    assert {name: line["ok"] for name, line in lines.items()} == dict.fromkeys(names, True)


@pytest.mark.parametrize("name", NAMES)
def test_config_file_of_java_is_saved_with_same_bytes(written: Path, tmp_path: Path, name: str) -> None:
    theirs, ours = written / name, tmp_path / name
    kept = table(name)
    kept.load(ConfigFile(RealFileSystem(), theirs).load())
    ConfigFile(RealFileSystem(), ours).save(kept.to_json())
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.slow
def test_each_broker_starts_with_config_files_of_other(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with JavaCluster(store, SETTINGS) as cluster:
        play_all(cluster, [*CASES, "delay-level"])
        cluster.stop()
    before = {name: (store / "config" / name).read_bytes() for name in [*NAMES, "delayOffset.json"]}
    with JavaCluster(None, broker=False) as cluster:
        with OurBroker(store, SETTINGS, namesrv=cluster.namesrv) as ours:
            ours.stop()
            # Nothing was changed, so nothing is.
            assert {name: (store / "config" / name).read_bytes() for name in before} == before
            ours.start()
            lines = play(cluster.namesrv, ["group-altered", "topic-altered", "offset-reset-offline", "delay-level"])
            ours.stop()
        assert {name: line["facts"] for name, line in lines.items()} == {name: recorded()[name] for name in lines}
    ours_left = {name: table(name) for name in NAMES}
    for name, one in ours_left.items():
        one.load(ConfigFile(RealFileSystem(), store / "config" / name).load())
    with JavaCluster(store, SETTINGS) as cluster:
        lines = play(cluster.namesrv, ["topic-tables", "group-altered", "delay-level"])
        cluster.stop()
    assert {name: line["facts"] for name, line in lines.items()} == {name: recorded()[name] for name in lines}
    for name, one in ours_left.items():  # all of it is still there
        kept = ConfigFile(RealFileSystem(), store / "config" / name).load()
        field = {TOPICS: "topicConfigTable", SUBSCRIPTION_GROUP: "subscriptionGroupTable"}.get(name, "offsetTable")
        assert set(one.to_json()[field]) <= set(kept[field])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b'{"topicConfigTable":{'], ids=["empty", "zeros", "half"])
def test_damaged_config_file_is_replaced_by_backup(written: Path, tmp_path: Path, name: str, damage: bytes) -> None:
    file, backup = tmp_path / name, tmp_path / f"{name}.bak"
    backup.write_bytes((written / f"{name}.bak").read_bytes())
    file.write_bytes(damage)
    kept, wanted = table(name), table(name)
    kept.load(ConfigFile(RealFileSystem(), file).load())
    wanted.load(ConfigFile(RealFileSystem(), written / f"{name}.bak").load())
    assert kept.to_json() == wanted.to_json()
