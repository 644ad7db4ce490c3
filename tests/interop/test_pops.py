"""POP between the real client, the real broker and ours: each revives what was popped from the other's store.

The calls are those of the real client (MQClientAPIExt), at either broker.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import pytest

from gantrymq.model.receipt_handle import parse_receipt_handle

from .java import java_words
from .java_cluster import JavaCluster
from .our_broker import OurBroker

pytestmark = [pytest.mark.interop, pytest.mark.slow]

BROKERS = {"java": JavaCluster, "ours": OurBroker}
SETTINGS: dict[str, Any] = {"brokerName": "broker-a", "timerWheelEnable": True}
SECONDS = 120

Popped = dict[str, Any]


class JavaPops:
    """The POP calls of the real client for the group G and the topic T."""

    def __init__(self, namesrv: str) -> None:
        words = [*java_words("pop"), "--namesrv", namesrv]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.broker = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._process.stdout.close()

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """What the client says to a call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = {"do": do, "broker": self.broker, "brokerName": "broker-a", "topic": "T", "group": "G", **more}
        print(json.dumps(line), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())  # type: ignore[no-any-return]

    def pop(self, invisible_ms: int, **more: Any) -> list[Popped]:
        answer = self.ask("pop", invisibleMs=invisible_ms, **more)
        assert "error" not in answer, answer
        return answer["messages"]  # type: ignore[no-any-return]

    def pop_all(self, count: int, invisible_ms: int, **more: Any) -> list[Popped]:
        """At least ``count`` different messages."""
        found: dict[str, Popped] = {}
        deadline = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for one in self.pop(invisible_ms, pollMs=2_000, **more):
                found.setdefault(one["body"], one | {"at": time.time() * 1000})
        assert len(found) >= count, f"{len(found)} of {count}"
        return list(found.values())

    def ack(self, *handles: str) -> None:
        for handle in handles:
            answer = self.ask("ack", handle=handle)
            assert answer["status"] == "OK", answer


def address_of(broker: JavaCluster | OurBroker) -> str:
    return broker.broker if isinstance(broker, JavaCluster) else broker.address


def send(cluster: JavaCluster, count: int) -> None:
    cluster.send([{"topic": "T", "queueId": n % 4, "body": str(n)} for n in range(count)])


def test_real_client_pops_acknowledges_and_changes_invisible_time(tmp_path: Path) -> None:
    with (
        JavaCluster(None, broker=False) as cluster,
        OurBroker(tmp_path / "store", SETTINGS, namesrv=cluster.namesrv) as broker,
        JavaPops(cluster.namesrv) as client,
    ):
        client.broker = address_of(broker)
        send(cluster, 20)
        assert client.ask("notification")["hasMessage"] is True
        first = client.pop_all(20, 4_000)
        assert client.ask("notification")["hasMessage"] is False
        client.ack(*(one["handle"] for one in first[:5]))
        assert client.ask("batchAck", handles=[one["handle"] for one in first[5:10]])["status"] == "OK"
        changed = client.ask("change", handle=first[10]["handle"], invisibleMs=60_000)
        assert changed["status"] == "OK"
        again = client.pop_all(9, 4_000)
        assert {one["body"] for one in again} == {one["body"] for one in first[11:]}
        assert {one["reconsumeTimes"] for one in again} == {1}
        client.ack(*(one["handle"] for one in again), changed["handle"])
        time.sleep(10)
        assert client.pop(4_000) == []
        assert client.pop(4_000, order=True, queueId=0) == []
        send(cluster, 4)
        ordered = client.pop(4_000, order=True, queueId=1)
        assert [parse_receipt_handle(one["handle"]).is_order for one in ordered] == [True]
        assert client.pop(4_000, order=True, queueId=1) == []
        client.ack(ordered[0]["handle"])


@pytest.mark.parametrize(("first", "second"), [("java", "ours"), ("ours", "java"), ("ours", "ours")])
def test_either_broker_revives_messages_popped_at_other(tmp_path: Path, first: str, second: str) -> None:
    """60 messages are popped and not acknowledged, 20 are; the broker is killed, and the other one takes the store."""
    store, invisible_ms = tmp_path / "store", 30_000
    with JavaCluster(None, broker=False) as cluster, JavaPops(cluster.namesrv) as client:
        with BROKERS[first](store, SETTINGS, namesrv=cluster.namesrv) as broker:  # type: ignore[operator]
            client.broker = address_of(broker)
            send(cluster, 80)
            popped = client.pop_all(80, invisible_ms)
            client.ack(*(one["handle"] for one in popped[:20]))
            if second == "java":
                time.sleep(7)  # the real broker knows no offsets but those that are saved, every five seconds
            broker.kill()
        with BROKERS[second](store, SETTINGS, namesrv=cluster.namesrv) as broker:  # type: ignore[operator]
            client.broker = address_of(broker)
            again = client.pop_all(60, 60_000)
        due_ms = {one["body"]: parse_receipt_handle(one["handle"]).visible_time_ms for one in popped}
        early = [one["body"] for one in again if one["at"] < due_ms[one["body"]]]
        assert early == []
        acked = {one["body"] for one in popped[:20]}
        assert {one["body"] for one in again} == {one["body"] for one in popped} - acked
        assert {one["reconsumeTimes"] for one in again} == {1}
