"""``gantrymq store pending`` on a store of the real broker: its numbers are what that broker then delivers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gantrymq import Message, Producer, PullClient
from gantrymq.errors import MQClientError, RemotingError
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from gantrymq.remoting.transport.client import RemotingClient

from .java_cluster import JavaCluster
from .test_pull_client import everything
from .test_transactions import COMMIT, NEVER, QUICK, ROLLBACK, UNKNOW, JavaProducer

pytestmark = [pytest.mark.interop, pytest.mark.slow]
SETTINGS: dict[str, Any] = {
    "timerWheelEnable": True,
    "recallMessageEnable": True,
    "reviveQueueNum": 2,
    "flushDelayOffsetInterval": 500,
}
SECONDS = 120
INVISIBLE_MS = 50_000
DUE_MS = 60_000


def owed(store: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """By kind and topic: how many messages are pending, and when the last is due."""
    words = [sys.executable, "-m", "gantrymq", "store", "pending", str(store), "--json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    totals = [line for line in lines if line["kind"] == "total"]
    return {(one["pending"], one["topic"]): (one["messages"], one["lastDueTimestamp"]) for one in totals}


def send(cluster: JavaCluster, lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the real producer says to messages and recalls, some of which are in no queue of their topic yet."""
    from .test_timers import send

    return send(cluster.store.parent, cluster.namesrv, lines)  # type: ignore[union-attr]


def send_delayed(namesrv: str, levels: list[int]) -> None:
    with Producer(namesrv, send_msg_timeout_ms=20_000) as producer:
        for level in levels:
            producer.send(Message("D", b"%d" % level, delay_level=level))


async def pop(broker: str, queue_id: int, acknowledged: int) -> int:
    """Pop all messages of a queue of P and acknowledge the first ones; the number of those that are left."""
    client, left = RemotingClient(), 0
    try:
        header = PopMessageRequestHeader(
            consumer_group="G", topic="P", queue_id=queue_id, max_msg_nums=3, invisible_time=INVISIBLE_MS,
            poll_time=0, born_time=0,  # now: a pop that is half a second late is refused
        )  # fmt: skip
        while (found := await client.invoke(broker, RemotingCommand.request(header), 30_000)).code == 0:
            fields = found.ext_fields
            _, _, offsets = fields["msgOffsetInfo"].rpartition(" ")
            start = fields["startOffsetInfo"].rpartition(" ")[2]
            for offset in offsets.split(","):
                if acknowledged > 0:
                    words = (start, fields["popTime"], INVISIBLE_MS, fields["reviveQid"], 0, "broker-a", queue_id)
                    ack = AckMessageRequestHeader(
                        consumer_group="G", topic="P", queue_id=queue_id, offset=int(offset),
                        extra_info=" ".join(map(str, (*words, offset))),
                    )  # fmt: skip
                    assert (await client.invoke(broker, RemotingCommand.request(ack), 30_000)).code == 0
                    acknowledged -= 1
                else:
                    left += 1
    finally:
        await client.close()
    return left


def bodies(namesrv: str, topic: str) -> Counter[str]:
    with suppress(MQClientError, RemotingError), PullClient(namesrv) as client:
        return Counter(message.body.decode() for message in everything(client, topic))
    return Counter()


def await_messages(namesrv: str, topic: str, count: int) -> Counter[str]:
    deadline = time.monotonic() + SECONDS
    while (found := bodies(namesrv, topic)).total() < count and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def test_pending_messages_of_java_store_equal_later_deliveries(tmp_path: Path) -> None:
    store = tmp_path / "store"
    transactions = [
        ("T", f"{state} {number}", state, COMMIT) for state in (UNKNOW, COMMIT, ROLLBACK) for number in range(4)
    ]
    with JavaCluster(store, SETTINGS | NEVER) as cluster:
        with JavaProducer(tmp_path, cluster.namesrv, transactions):
            pass
        began_ms = int(time.time() * 1000)
        timed = [{"topic": "W", "queueId": 0, "body": str(number), "delayMs": DUE_MS} for number in range(7)]
        far = [{"topic": "W", "queueId": 0, "body": "far", "delayMs": 3_600_000}] * 2
        plain = [{"topic": "P", "queueId": number % 2, "body": f"p{number}"} for number in range(8)]
        sent = send(cluster, [*timed, *far, *plain])
        send_delayed(cluster.namesrv, [1, 1, 5, 18])
        send(cluster, [{"topic": "W", "recall": sent[0]["recallHandle"]}])
        left = asyncio.run(pop(cluster.broker, 0, acknowledged=2)) + asyncio.run(pop(cluster.broker, 1, acknowledged=1))
        assert left == 5
        assert await_messages(cluster.namesrv, "D", 2) == {"1": 2}
        time.sleep(
            11
        )  # the tables of the broker are written, the offsets of delays for the first time after ten seconds
        cluster.kill()
        found = owed(store)
        assert {name: number for name, (number, _) in found.items()} == {
            ("delay", "D"): 2, ("half", "T"): 4, ("pop", "P"): 5, ("timer", "W"): 8,
        }  # fmt: skip
        assert 0 <= found["pop", "P"][1] - began_ms - INVISIBLE_MS < 20_000
        assert 0 <= found["timer", "W"][1] - began_ms - 3_600_000 < 20_000
    with JavaCluster(store, SETTINGS | QUICK) as cluster:
        with JavaProducer(tmp_path, cluster.namesrv):
            assert await_messages(cluster.namesrv, "T", 8).total() == 8
        assert await_messages(cluster.namesrv, "W", 6) == {str(number): 1 for number in range(1, 7)}
        assert await_messages(cluster.namesrv, "%RETRY%G_P", 5).total() == 5
        assert await_messages(cluster.namesrv, "D", 3) == {"1": 2, "5": 1}
        time.sleep(3)
        cluster.kill()
        assert {name: number for name, (number, _) in owed(store).items()} == {("delay", "D"): 1, ("timer", "W"): 2}
