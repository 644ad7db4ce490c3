"""SIGKILL while the real producer sends with all its might: what it was told is stored is there afterwards."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from gantrymq.store.reader import StoreReader

from .java import run_java
from .java_cluster import JavaCluster
from .our_broker import OurBroker

KILLS = int(os.environ.get("GANTRYMQ_BROKER_KILLS", "1"))
SECONDS = 2 + 4 * KILLS
WAYS = ["sync", "async", "batch"]


def load_in_background(namesrv: str, way: str, acks: Path) -> threading.Thread:
    def load() -> None:
        run_java("load", None, namesrv=namesrv, topic="T", mode=way, threads=4, seconds=SECONDS, size=200, acks=acks)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread


def acknowledged(acks: Path) -> list[str]:
    return acks.read_text().splitlines() if acks.exists() else []


def stored(store: Path) -> list[str]:
    with StoreReader.open(store) as reader:
        return [message.keys[0] for message in reader.messages("T")]


@pytest.mark.parametrize(
    ("flush", "ways"),
    [
        ("ASYNC_FLUSH", ["async"]),
        pytest.param("ASYNC_FLUSH", WAYS, marks=pytest.mark.slow),
        pytest.param("SYNC_FLUSH", WAYS, marks=pytest.mark.slow),
    ],
)
def test_every_acknowledged_message_survives(tmp_path: Path, rng: random.Random, flush: str, ways: list[str]) -> None:
    settings = {"flushDiskType": flush, "waitTimeMillsInSendQueue": 5000}
    with JavaCluster(None, broker=False) as cluster:
        for way in ways:
            store, acks = tmp_path / way, tmp_path / f"{way}.acks"
            with OurBroker(store, settings, namesrv=cluster.namesrv) as broker:
                load = load_in_background(cluster.namesrv, way, acks)
                for _ in range(KILLS):
                    before = len(acknowledged(acks))
                    deadline = time.monotonic() + 60
                    while len(acknowledged(acks)) < before + 100 and time.monotonic() < deadline:
                        time.sleep(0.02)
                    time.sleep(rng.uniform(0, 0.5))
                    broker.kill()
                    broker.start()
                load.join(120)
                assert not load.is_alive()
                broker.stop()
            told, there = acknowledged(acks), stored(store)
            assert len(told) > 100
            missing = set(told) - set(there)
            assert not missing, f"{way}: {len(missing)} of {len(told)} are gone, {sorted(missing)[:5]}"
