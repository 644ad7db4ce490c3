"""A store changes hands after a SIGKILL while every kind of message waits in it.

The real client prepares delays, timers, transactions, retries and pops at one broker. The broker is killed, and the
other implementation takes the store after a preflight. Every delivery is compared with the time at which it was due,
and every repeated one with the time of a kill: only what was delivered since the last save of the progress may be
repeated.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gantrymq import PullClient
from gantrymq.config.guards import Level
from gantrymq.config.properties import read_settings
from gantrymq.errors import MQClientError, RemotingError
from gantrymq.model.message import StoredMessage
from gantrymq.model.receipt_handle import parse_receipt_handle
from gantrymq.tools.preflight import Direction, Preflight, preflight

from .java import Line, Setting, run_java, setting_text
from .java_cluster import FOR_TESTS, JavaCluster
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
# How often both implementations save the progress of a kind; a kill repeats the deliveries since the last save:
# - delays, and retries, which are delays: delayOffset.json, flushDelayOffsetInterval 10 s
# - timers: timercheck, timerFlushIntervalMs 1 s, with the read time of the last slot (1 s) whose deliveries are durable
#   (flushIntervalCommitLog 500 ms)
# - pops: the revive offset in consumerOffset.json, flushConsumerOffsetInterval 500 ms above, after a flush of the log
# The real broker checks a half message again until it has read its op message, and each check that is answered with
# COMMIT delivers the message. Ours delivers it once. What was decided before the kill has its op message.
SAVED_EVERY_MS = {"D": 10_000, "%RETRY%R-group": 10_000, "W": 2_500, "%RETRY%G_P": 1_000}
BUSY_MS = 4_000  # all of these work late on a machine with other work to do
PASSING_MS = 10_000  # the broker in the middle delivers what is due in this time


@dataclass
class Prepared:
    """When each kind that waits in the store is due, by the bodies. The timed messages were sent before ``sent_ms``."""

    sent_ms: int
    acked: set[str]
    pops_due_ms: dict[str, int]
    retries_due_ms: dict[str, int]

    def due_before(self, time_ms: int) -> dict[str, set[str]]:
        """The bodies by topic of what is due for sure before a time."""
        timed: dict[str, set[str]] = {"D": set(), "W": set()}
        for line in timed_messages():
            if self.sent_ms + delay_of(line) < time_ms:
                timed[line["topic"]].add(line["body"])
        return timed | {"%RETRY%R-group": {key for key, due_ms in self.retries_due_ms.items() if due_ms < time_ms}}


def transactions() -> list[tuple[str, str, str, str]]:
    """Of each of six bodies, two are committed, two rolled back, and two open until a check decides."""
    kinds = [(COMMIT, COMMIT), (ROLLBACK, ROLLBACK), (UNKNOW, COMMIT), (UNKNOW, ROLLBACK), (COMMIT, COMMIT)]
    kinds.append((ROLLBACK, ROLLBACK))
    return [("T", f"{number} {kinds[number % 6][1]}", *kinds[number % 6]) for number in range(2 * COUNT)]


def timed_messages() -> list[Line]:
    delays = [{"topic": "D", "body": str(n), "delayLevel": 2 + n % 4} for n in range(COUNT)]
    timers = [{"topic": "W", "body": str(n), "delayMs": 2_000 + n * 1_000} for n in range(COUNT)]
    return delays + timers


def delay_of(line: Line) -> int:
    return line["delayMs"] if "delayMs" in line else DELAY_LEVELS_MS[line["delayLevel"]]  # type: ignore[no-any-return]


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
    return Prepared(now_ms(), acked, pops_due_ms, fail_once(cluster))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


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


@dataclass
class Kill:
    """The times in milliseconds before and after a SIGKILL."""

    before_ms: int
    after_ms: int


def kill(broker: Any) -> Kill:
    before_ms = now_ms()
    broker.kill()
    return Kill(before_ms, now_ms())


def check_preflight(store: Path, taking: str) -> Preflight:
    """The way to the next broker is free, and the examination changes no file."""
    direction = Direction.BACK if taking == "java" else Direction.HERE
    settings = {key: setting_text(value) for key, value in (FOR_TESTS | SETTINGS).items()}
    before = files_of(store)
    found = preflight(store, read_settings(settings), direction)
    assert files_of(store) == before
    assert [reason.text for reason in found.reasons if reason.level is Level.REFUSED] == []
    assert found.moves
    assert not found.last_exit_ok
    return found


def files_of(store: Path) -> dict[Path, tuple[int, str]]:
    """The time of change and the hash of each file."""
    files = [path for path in sorted(store.rglob("*")) if path.is_file()]
    return {path: (path.stat().st_mtime_ns, sha256(path.read_bytes()).hexdigest()) for path in files}


def check_timed(found: list[StoredMessage]) -> None:
    due_in_ms = {(line["topic"], line["body"]): delay_of(line) for line in timed_messages()}
    for message in found:
        delay_ms = due_in_ms[message.topic, message.body.decode()]
        assert message.store_timestamp_ms >= message.born_timestamp_ms + delay_ms, f"{message.topic}: an early message"


def copies_of(found: list[StoredMessage]) -> dict[str, list[int]]:
    """When the copies of each body were stored, in the order of the log."""
    copies: dict[str, list[int]] = {}
    for message in sorted(found, key=lambda message: message.phy_offset):
        copies.setdefault(message.body.decode(), []).append(message.store_timestamp_ms)
    return copies


def check_repeated(topic: str, found: list[StoredMessage], kills: list[Kill]) -> int:
    """Two copies are of two brokers, and the first one was stored shortly before the kill. Returns how many are."""
    copies = copies_of(found)
    since_ms = SAVED_EVERY_MS[topic] + BUSY_MS
    for body, stored_ms in copies.items():
        for first_ms, second_ms in pairwise(stored_ms):
            between = [one for one in kills if first_ms <= one.after_ms and second_ms >= one.before_ms]
            assert between, f"{topic}: one broker delivered {body!r} twice, at {first_ms} and {second_ms}"
            late = min(one.before_ms for one in between) - first_ms
            assert late <= since_ms, f"{topic}: {body!r} was repeated {late} ms after its delivery"
    return len(found) - len(copies)


def check_passing(namesrv: str, prepared: Prepared, began_ms: int) -> None:
    """The broker in the middle delivers what becomes due, nothing early."""
    for topic, bodies in prepared.due_before(began_ms + PASSING_MS).items():
        found = delivered(namesrv, topic, bodies)
        if topic == "W":  # one is due each second
            assert [one for one in found if one.store_timestamp_ms >= began_ms], "the broker in the middle is idle"
        if topic in ("D", "W"):
            check_timed(found)


def check_transactions(namesrv: str, producer: JavaProducer, last: str) -> None:
    still_open = {body for _, body, state, _ in transactions() if state == UNKNOW}
    checks = Counter[str]()
    while checks.keys() != still_open:
        checks[producer.line()["checked"]] += 1
    wanted = {body for _, body, _, answer in transactions() if answer == COMMIT}
    copies = copies_of(delivered(namesrv, "T", wanted))
    assert copies.keys() == wanted, "rolled back"
    checks.update(line["checked"] for line in producer.rest())
    for body, stored_ms in copies.items():
        most = checks[body] if last == "java" and body in still_open else 1
        assert len(stored_ms) <= most, f"{body} is committed {len(stored_ms)} times, after {checks[body]} checks"


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
def test_killed_store_loses_nothing_at_handover(tmp_path: Path, hands: tuple[str, ...]) -> None:
    store, kills = tmp_path / "store", list[Kill]()
    with JavaCluster(None, broker=False) as cluster, JavaPops(cluster.namesrv) as client:
        with BROKERS[hands[0]](store, SETTINGS, namesrv=cluster.namesrv) as broker:
            client.broker = address_of(broker)
            prepared = prepare(tmp_path, cluster, client)
            time.sleep(2)  # the offsets of the pops are saved
            kills.append(kill(broker))
        pending = check_preflight(store, hands[1]).pending
        assert pending is not None
        assert min(pending.values()) > 0, pending
        for following, passing in enumerate(hands[1:-1], 2):
            began_ms = now_ms()
            with BROKERS[passing](store, SETTINGS, namesrv=cluster.namesrv) as broker:
                check_passing(cluster.namesrv, prepared, began_ms)
                kills.append(kill(broker))
            check_preflight(store, hands[following])
        with (
            BROKERS[hands[-1]](store, CHECKING, namesrv=cluster.namesrv) as broker,
            JavaProducer(tmp_path, cluster.namesrv) as producer,
            JavaConsumer(cluster, "R", "R-group") as consumer,
        ):
            client.broker = address_of(broker)
            again = client.pop_all(len(prepared.pops_due_ms), 600_000, topic="P")
            check_pops(again, prepared)
            check_retries(consumer, prepared.retries_due_ms)
            check_transactions(cluster.namesrv, producer, hands[-1])
            bodies = prepared.due_before(now_ms() + WAIT_S * 1_000) | {"%RETRY%G_P": set(prepared.pops_due_ms)}
            repeated = {}
            for topic, wanted in bodies.items():
                found = delivered(cluster.namesrv, topic, wanted)
                assert {message.body.decode() for message in found} == wanted, f"{topic}: acknowledged, and delivered"
                if topic in ("D", "W"):
                    check_timed(found)
                repeated[topic] = check_repeated(topic, found, kills)
            print("-".join(hands), "repeated", repeated)
