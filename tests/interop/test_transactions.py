"""Transactions between the real RocketMQ and ours: its producer at our broker, ours at its, and one store for both.

A half message says by its property ``check`` what a producer answers about it, so any producer of the group can.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import pytest

from gantrymq import (
    EmbeddedBroker,
    LocalTransactionState,
    Message,
    PullClient,
    ReceivedMessage,
    TransactionProducer,
    decode_records,
)

from .java import java_words
from .java_cluster import JavaCluster

pytestmark = pytest.mark.interop

COMMIT, ROLLBACK, UNKNOW = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
GROUP = "transactions"
WAIT_S = 90
# The real broker checks twice a second, and writes the files of its tables as often.
QUICK: dict[str, Any] = {"transactionTimeOut": 300, "transactionCheckInterval": 500, "transactionOpBatchInterval": 200}
NEVER: dict[str, Any] = {"transactionTimeOut": 300, "transactionCheckInterval": 1_000_000}


class JavaProducer:
    """The real TransactionMQProducer; ``sends`` are (topic, body, state, what a check finds)."""

    def __init__(self, folder: Path, namesrv: str, sends: Iterable[tuple[str, str, str, str]] = ()) -> None:
        names = ("topic", "body", "state", "check")
        file = folder / "transactions.jsonl"
        file.write_text("".join(json.dumps(dict(zip(names, one, strict=True))) + "\n" for one in sends))
        words = [*java_words("transact"), str(file), "--namesrv", namesrv, "--group", GROUP, "--topic", "T"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.sent: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        while "ready" not in (line := self.line()):
            self.sent.append(line)
        return self

    def __exit__(self, *unused: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._process.stdout.close()

    def rest(self) -> list[dict[str, Any]]:
        """End it, and return what it has said since the last line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        return [json.loads(said) for said in self._process.stdout]

    def line(self) -> dict[str, Any]:
        """The next thing that it says."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, "the real producer ended"
        return json.loads(said)  # type: ignore[no-any-return]


def check(message: ReceivedMessage) -> LocalTransactionState:
    return LocalTransactionState(message.properties["check"])


def our_producer(namesrv: str) -> TransactionProducer:
    return TransactionProducer(namesrv, check, producer_group=GROUP, send_msg_timeout_ms=20_000)


def send(producer: TransactionProducer, topic: str, body: str, state: str, answer: str) -> None:
    message = Message(topic, body.encode(), properties={"check": answer})
    producer.send_in_transaction(message, lambda message, key: LocalTransactionState(state))


def send_all(producer: TransactionProducer, topic: str) -> None:
    """One of each kind: decided at once, and open."""
    for number, (state, answer) in enumerate(
        [(COMMIT, COMMIT), (ROLLBACK, ROLLBACK), (UNKNOW, COMMIT), (UNKNOW, ROLLBACK)]
    ):
        send(producer, topic, f"{number} {answer}", state, answer)


def bodies(namesrv: str, topic: str) -> list[str]:
    """What a consumer finds in a topic."""
    with PullClient(namesrv) as client:
        found = []
        for queue in client.queues(topic):
            begin, end = client.min_offset(queue), client.max_offset(queue)
            while begin < end:
                pulled = client.pull(queue, begin, 32)
                found += [message.body.decode() for message in decode_records(pulled.records)]
                begin = pulled.next_begin_offset
        return sorted(found)


def wait_for(namesrv: str, topic: str, wanted: set[str]) -> list[str]:
    """Wait until all ``wanted`` are there; a message may come twice."""
    deadline = time.monotonic() + WAIT_S
    while not wanted <= set(found := bodies(namesrv, topic)):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def test_transactions_of_real_producer_end_at_our_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "store") as broker:
        sends = [
            ("T", "commit", COMMIT, COMMIT),
            ("T", "rollback", ROLLBACK, ROLLBACK),
            ("T", "later" * 2_000, UNKNOW, COMMIT),  # compressed
            ("T", "never", UNKNOW, ROLLBACK),
        ]
        with JavaProducer(tmp_path, broker.namesrv, sends) as producer:
            assert [(one["status"], one["state"]) for one in producer.sent] == [("SEND_OK", one[2]) for one in sends]
            assert all(one["transactionId"] == one["msgId"] for one in producer.sent)
            broker.clock.advance(60_000)
            checked = [producer.line() for _ in range(2)]  # in any order: the Java client answers checks in threads
            ids = {one["checked"]: one["transactionId"] for one in checked}
            assert ids == {
                body: one["transactionId"]
                for body, one in zip(("later" * 2_000, "never"), producer.sent[2:], strict=True)
            }
            assert {one["topic"] for one in checked} == {"T"}
            broker.wait_for_messages("T", 2, timeout_s=WAIT_S)
        assert sorted(broker.bodies("T")) == [b"commit", b"later" * 2_000]
        with TransactionProducer(broker.namesrv, check, producer_group=GROUP) as ours:
            send(ours, "T", "another life", UNKNOW, COMMIT)
        broker.kill()
        broker.start()
        with JavaProducer(tmp_path, broker.namesrv) as producer:  # one that has sent nothing answers
            deadline = time.monotonic() + WAIT_S
            while GROUP not in broker._life.pair.broker.sessions.producers.groups:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            broker.clock.advance(60_000)
            while producer.line()["checked"] != "another life":  # the kill took op messages, so others are asked, too
                pass
            while b"another life" not in broker.bodies("T"):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert set(broker.bodies("T")) == {b"commit", b"later" * 2_000, b"another life"}


@pytest.mark.slow  # the first check of the real broker comes after a minute
def test_transactions_of_our_producer_end_at_real_broker_and_after_handover(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        JavaCluster(store, QUICK) as cluster,
        TransactionProducer(cluster.namesrv, check, producer_group=GROUP) as ours,
    ):
        send_all(ours, "A")
        wait_for(cluster.namesrv, "A", {"0 COMMIT_MESSAGE", "2 COMMIT_MESSAGE"})
        cluster.stop()
    with (
        JavaCluster(store, NEVER) as cluster,
        TransactionProducer(cluster.namesrv, check, producer_group=GROUP) as ours,
    ):
        send_all(ours, "B")
        wait_for(cluster.namesrv, "B", {"0 COMMIT_MESSAGE"})
        cluster.kill()
    with EmbeddedBroker(store) as broker:
        with TransactionProducer(broker.namesrv, check, producer_group=GROUP, topics=["B"]) as ours:
            send_all(ours, "C")
            broker.clock.advance(60_000)
            wait_for(broker.namesrv, "B", {"0 COMMIT_MESSAGE", "2 COMMIT_MESSAGE"})
            wait_for(broker.namesrv, "C", {"0 COMMIT_MESSAGE", "2 COMMIT_MESSAGE"})
            send_all(ours, "D")
        broker.kill()
    with (
        JavaCluster(store, QUICK) as cluster,
        TransactionProducer(cluster.namesrv, check, producer_group=GROUP, topics=["D"]),
    ):
        wait_for(cluster.namesrv, "D", {"0 COMMIT_MESSAGE", "2 COMMIT_MESSAGE"})
        for topic in ("A", "B", "C", "D"):
            assert not any("ROLLBACK" in body for body in bodies(cluster.namesrv, topic))
