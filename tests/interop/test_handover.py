"""A store changes hands after a SIGKILL while every kind of message waits in it.

The real client prepares delays, timers, transactions, retries and pops at one broker. The broker is killed, and the
other implementation takes the store. Every delivery is compared with the time at which it was due.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gantrymq import PullClient
from gantrymq.errors import MQClientError, RemotingError
from gantrymq.model.message import StoredMessage
from gantrymq.model.receipt_handle import parse_receipt_handle

from .java import Line, Setting, run_java
from .java_cluster import JavaCluster
from .our_broker import OurBroker
from .test_pops import JavaPops, Popped, address_of
from .test_pull_client import everything
from .test_push_consumer import JavaConsumer
from .test_transactions import COMMIT, ROLLBACK, UNKNOW, JavaProducer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

BROKERS: dict[str, Callable[..., Any]] = {"java": JavaCluster, "ours": OurBroker}
COUNT = 60
WAIT_S = 240
DELAY_LEVELS_MS = {2: 5_000, 3: 10_000, 4: 30_000, 5: 60_000}
RETRY_MS = 10_000  # a first retry has level 3
INVISIBLE_MS, CHANGED_MS = 45_000, 60_000
# The first broker checks no transaction, so the open ones are still open when it is killed.
SETTINGS: dict[str, Setting] = {
    "brokerName": "broker-a",
    "timerWheelEnable": True,
    "flushConsumerOffsetInterval": 500,  # a popped message stays popped after a SIGKILL once its offset is saved
    "transactionTimeOut": 300,
    "transactionCheckInterval": 1_000_000,
    "transactionOpBatchInterval": 200,  # the real broker checks again what it has written no op message about
    "transactionCheckMax": 10_000,  # checks that come before the producer has started are not its last ones
}
CHECKING: dict[str, Setting] = SETTINGS | {"transactionCheckInterval": 1_000}


@dataclass
class Prepared:
    """What waits in the store: the pops by their bodies, and when the retries were asked for."""

    acked: set[str]
    pops_due_ms: dict[str, int]
    retries_due_ms: dict[str, int]


def transactions() -> list[tuple[str, str, str, str]]:
    """Of each of six bodies, two are committed, two rolled back, and two open until a check decides."""
    kinds = [(COMMIT, COMMIT), (ROLLBACK, ROLLBACK), (UNKNOW, COMMIT), (UNKNOW, ROLLBACK), (COMMIT, COMMIT)]
    kinds.append((ROLLBACK, ROLLBACK))
    return [("T", f"{number} {kinds[number % 6][1]}", *kinds[number % 6]) for number in range(2 * COUNT)]


def timed_messages() -> list[Line]:
    delays = [{"topic": "D", "body": str(n), "delayLevel": 2 + n % 4} for n in range(COUNT)]
    timers = [{"topic": "W", "body": str(n), "delayMs": 2_000 + n * 1_000} for n in range(COUNT)]
    return delays + timers


def messages() -> list[Line]:
    pops = [{"topic": "P", "queueId": n % 4, "body": str(n)} for n in range(COUNT)]
    retries = [{"topic": "R", "queueId": n % 4, "keys": str(n), "body": str(n)} for n in range(COUNT)]
    return pops + retries


def send(folder: Path, namesrv: str, lines: Iterable[Line]) -> None:
    file = folder / "messages.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert {one["status"] for one in run_java("send", None, str(file), namesrv=namesrv)} == {"SEND_OK"}


def pop_some(client: JavaPops) -> tuple[set[str], dict[str, int]]:
    """Pop all of P; acknowledge a third and let another third be invisible longer."""
    popped = client.pop_all(COUNT, INVISIBLE_MS, topic="P")
    acked, changed, kept = popped[:20], popped[20:40], popped[40:]
    answer = client.ask("batchAck", topic="P", handles=[one["handle"] for one in acked[:10]])
    assert answer["status"] == "OK", answer
    for one in acked[10:]:
        answer = client.ask("ack", topic="P", handle=one["handle"])
        assert answer["status"] == "OK", answer
    due_ms = {one["body"]: parse_receipt_handle(one["handle"]).visible_time_ms for one in kept}
    for one in changed:
        answer = client.ask("change", topic="P", handle=one["handle"], invisibleMs=CHANGED_MS)
        assert answer["status"] == "OK", answer
        due_ms[one["body"]] = parse_receipt_handle(answer["handle"]).visible_time_ms
    return {one["body"] for one in acked}, due_ms


def fail_once(cluster: JavaCluster) -> dict[str, int]:
    """When each message of R is due after the real push consumer failed once with it."""
    with JavaConsumer(cluster, "R", "R-group", "--fail-first") as consumer:
        due_ms = retries_of(consumer, 0, "failedAt")
    return {key: failed_ms + RETRY_MS for key, failed_ms in due_ms.items()}


def retries_of(consumer: JavaConsumer, times: int, field: str) -> dict[str, int]:
    """``field`` of the first delivery of each message that was consumed ``times`` times before; waits for all."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found: dict[str, int] = {}
        for one in list(consumer.of("message")):
            if one["reconsumeTimes"] == times:
                found.setdefault(one["properties"]["KEYS"], one[field])
        if len(found) >= COUNT:
            return found
        assert time.monotonic() < deadline, f"{len(found)} retries"
        time.sleep(0.2)


def prepare(folder: Path, cluster: JavaCluster, client: JavaPops) -> Prepared:
    send(folder, cluster.namesrv, messages())
    with JavaProducer(folder, cluster.namesrv, transactions()) as producer:
        assert {one["status"] for one in producer.sent} == {"SEND_OK"}
    acked, pops_due_ms = pop_some(client)
    send(folder, cluster.namesrv, timed_messages())  # late, so that most of them wait when the broker is killed
    return Prepared(acked, pops_due_ms, fail_once(cluster))


def delivered(namesrv: str, topic: str, wanted: set[str]) -> list[StoredMessage]:
    """Every message of a topic, once all that are wanted are there."""
    deadline, missing = time.monotonic() + WAIT_S, wanted
    with PullClient(namesrv) as client:
        while time.monotonic() < deadline:
            try:
                found = everything(client, topic)
            except (MQClientError, RemotingError):  # the new broker's route is not there yet
                found = []
            missing = wanted - {message.body.decode() for message in found}
            if not missing:
                return found
            time.sleep(0.5)
    raise AssertionError(f"{topic}: never delivered: {sorted(missing)}")


def check_delays(namesrv: str) -> None:
    for message in delivered(namesrv, "D", {str(n) for n in range(COUNT)}):
        delay_ms = DELAY_LEVELS_MS[2 + int(message.body) % 4]
        assert message.store_timestamp_ms >= message.born_timestamp_ms + delay_ms, "an early delay"


def check_timers(namesrv: str) -> None:
    for message in delivered(namesrv, "W", {str(n) for n in range(COUNT)}):
        delay_ms = 2_000 + int(message.body) * 1_000
        assert message.store_timestamp_ms >= message.born_timestamp_ms + delay_ms, "an early timer"


def check_transactions(namesrv: str, producer: JavaProducer) -> None:
    unanswered = {body for _, body, state, _ in transactions() if state == UNKNOW}
    while unanswered:
        unanswered.discard(producer.line()["checked"])
    wanted = {body for _, body, _, answer in transactions() if answer == COMMIT}
    found = {message.body.decode() for message in delivered(namesrv, "T", wanted)}
    assert found == wanted, "rolled back"


def check_retries(consumer: JavaConsumer, due_ms: dict[str, int]) -> None:
    stored_ms = retries_of(consumer, 1, "storeTimestamp")
    assert stored_ms.keys() == due_ms.keys()
    assert [key for key, due in due_ms.items() if stored_ms[key] < due] == [], "early retries"


def check_pops(again: list[Popped], prepared: Prepared) -> None:
    assert {one["body"] for one in again} == prepared.pops_due_ms.keys(), "acknowledged pops came again, or too few did"
    early = [one["body"] for one in again if one["storeTimestamp"] < prepared.pops_due_ms[one["body"]]]
    assert early == [], "early pops"
    assert {one["reconsumeTimes"] for one in again} == {1}


@pytest.mark.parametrize(
    "hands", [("java", "ours"), ("ours", "java"), ("ours", "ours"), ("java", "ours", "java")], ids="-".join
)
def test_a_killed_brokers_store_loses_nothing_in_other_hands(tmp_path: Path, hands: tuple[str, ...]) -> None:
    store = tmp_path / "store"
    with JavaCluster(None, broker=False) as cluster, JavaPops(cluster.namesrv) as client:
        with BROKERS[hands[0]](store, SETTINGS, namesrv=cluster.namesrv) as broker:
            client.broker = address_of(broker)
            prepared = prepare(tmp_path, cluster, client)
            time.sleep(2)  # the offsets of the pops are saved
            broker.kill()
        for passing in hands[1:-1]:
            with BROKERS[passing](store, SETTINGS, namesrv=cluster.namesrv) as broker:
                time.sleep(15)  # some deliveries are due
                broker.kill()
        with (
            BROKERS[hands[-1]](store, CHECKING, namesrv=cluster.namesrv) as broker,
            JavaProducer(tmp_path, cluster.namesrv) as producer,
            JavaConsumer(cluster, "R", "R-group") as consumer,
        ):
            client.broker = address_of(broker)
            again = client.pop_all(len(prepared.pops_due_ms), 600_000, topic="P")
            check_pops(again, prepared)
            check_retries(consumer, prepared.retries_due_ms)
            check_delays(cluster.namesrv)
            check_timers(cluster.namesrv)
            check_transactions(cluster.namesrv, producer)
