"""Kills and restarts, at the real proxy and at ours: clients that die, servers that go away and come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ..java import Line
from .conftest import SDKS, SERVERS, require, server_of
from .scene import INVISIBLE_MS, LONG_MS, SECONDS, Consumer, Producer, Scene, eventually, keys_of
from .sdks import SdkClient, SdkError
from .servers import Server, await_broker

# After a restart the real proxy has no settings of a client that does not send them again for five minutes.
WITHOUT_SETTINGS = {("proxy", "python")}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CELLS = [(kind, sdk) for kind in SERVERS for sdk in SDKS]
EACH_CELL = pytest.mark.parametrize(("kind", "sdk"), CELLS, ids=["-".join(cell) for cell in CELLS])


@contextmanager
def scene_at(server: Server, case: str, sdk: str) -> Iterator[Scene]:
    with SdkClient(sdk, server.endpoints) as client, await_broker(server.namesrv) as admin:
        yield Scene(case, sdk, server, client, admin)


def sent(producer: Producer, topic: str, key: str) -> Line:
    """Send until the server is there again."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return producer.send(topic, key)
        except SdkError:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def received(consumer: Consumer, keys: set[str], invisible_ms: int = INVISIBLE_MS) -> dict[str, list[int]]:
    """The attempts of each message, by its key, once all keys came; a failed call is made again."""
    attempts: dict[str, list[int]] = {}
    deadline = time.monotonic() + SECONDS
    while not keys <= attempts.keys():
        assert time.monotonic() < deadline, f"{sorted(keys - attempts.keys())} did not come"
        try:
            for message in consumer.receive(invisible_ms=invisible_ms):
                attempts.setdefault(message["keys"][0], []).append(message["attempt"])
                consumer.ack(message)
        except SdkError:
            time.sleep(0.5)
    return attempts


@EACH_CELL
def test_messages_of_killed_client_are_delivered_to_another(
    kind: str, sdk: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A client receives three messages, acknowledges one and is killed."""
    require(sdk)
    with server_of(kind, tmp_path_factory) as server, scene_at(server, "dead-client", sdk) as scene:
        topic, group = scene.topic(), scene.group()
        producer = scene.producer(topic)
        for key in ("acked", "lost", "gone"):
            producer.send(topic, key)
        with SdkClient(sdk, server.endpoints) as dying:
            first = Scene("dying", sdk, server, dying, scene.admin).consumer(group, topic)
            got = first.gather(3, ack=False, invisible_ms=INVISIBLE_MS)
            first.ack(next(one for one in got if one["keys"] == ["acked"]))
            popped_ms = min(one["atMs"] for one in got)
            dying.kill()
        again = scene.consumer(group, topic).gather(2, invisible_ms=LONG_MS)
    assert sorted(keys_of(again)) == ["gone", "lost"]
    assert [one["attempt"] for one in again] == [2, 2]
    assert all(one["atMs"] - popped_ms >= INVISIBLE_MS - 500 for one in again)


@EACH_CELL
def test_clients_continue_after_restart_of_server(
    kind: str, sdk: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A producer, a simple and a push consumer stay while the server is stopped and started again."""
    require(sdk)
    with server_of(kind, tmp_path_factory) as server, scene_at(server, "restart", sdk) as scene:
        topic, group, pushed = scene.topic(), scene.group("-simple"), scene.group("-push")
        producer, consumer, push = scene.producer(topic), scene.consumer(group, topic), scene.push(pushed, topic)
        producer.send(topic, "before")
        assert received(consumer, {"before"}) == {"before": [1]}
        assert keys_of(push.inbox(1)) == ["before"]
        producer.send(topic, "between")
        server.stop()
        server.start()
        sent(producer, topic, "after")
        if (kind, sdk) in WITHOUT_SETTINGS:
            with pytest.raises(SdkError, match="settings"):
                consumer.receive()
            return
        assert received(consumer, {"between", "after"}).keys() == {"between", "after"}
        eventually(lambda: set(keys_of(push.inbox(3, timeout_ms=1000))), lambda keys: len(keys) == 3)


@EACH_CELL
def test_killed_server_keeps_acknowledged_messages(
    kind: str, sdk: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SIGKILL while four threads send: each message whose send returned is received afterwards."""
    require(sdk)
    with server_of(kind, tmp_path_factory) as server, scene_at(server, "killed", sdk) as scene:
        topic, group = scene.topic(), scene.group()
        producer = scene.producer(topic)
        acknowledged: set[str] = set()
        stop = threading.Event()

        def send(number: int) -> None:
            count = 0
            while not stop.is_set():
                key = f"{number}-{count}"
                count += 1
                try:
                    producer.send(topic, key)
                except SdkError:
                    continue
                acknowledged.add(key)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(acknowledged), lambda count: count >= 200)
        server.kill()
        before = len(acknowledged)
        server.start()
        eventually(lambda: len(acknowledged), lambda count: count >= before + 20)
        stop.set()
        for thread in threads:
            thread.join()
        consumer = scene.consumer(group, topic)
        assert received(consumer, acknowledged, LONG_MS).keys() >= acknowledged
