"""Timer messages between the real producer, the real broker and ours: each takes over the other's store."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gantrymq import Message, Producer, PullClient
from gantrymq.errors import MQClientError, RemotingError
from gantrymq.model.message import StoredMessage

from .java import Line, Setting, run_java
from .java_cluster import JavaCluster
from .our_broker import OurBroker
from .test_pull_client import everything

SECONDS = 90
SETTINGS: dict[str, Setting] = {"brokerName": "broker-a", "timerWheelEnable": True, "recallMessageEnable": True}
BROKERS = {"java": JavaCluster, "ours": OurBroker}


def send(folder: Path, namesrv: str, lines: Iterable[Line]) -> list[Line]:
    """What the real producer says to each message or recall."""
    file = folder / "messages.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run_java("send", None, file, namesrv=namesrv)


def timed(number: int, delay_ms: int) -> Line:
    return {"topic": "T", "queueId": 0, "body": str(number), "delayMs": delay_ms}


def received(namesrv: str, wanted: set[str]) -> list[StoredMessage]:
    """Every message of T, once all that are wanted are there."""
    deadline, missing = time.monotonic() + SECONDS, wanted
    with PullClient(namesrv) as client:
        while time.monotonic() < deadline:
            with suppress(MQClientError, RemotingError):  # the broker is being started
                found = everything(client, "T")
                missing = wanted - {message.body.decode() for message in found}
                if not missing:
                    return found
            time.sleep(0.2)
    raise AssertionError(f"never delivered: {sorted(missing)}")


def check_on_time(messages: Iterable[StoredMessage]) -> None:
    """None is early: the broker said, when it took the message, in which second it is due."""
    for message in messages:
        assert message.store_timestamp_ms >= int(message.properties["TIMER_OUT_MS"]) + 1000, "early"
        born_ms, delay_ms = message.born_timestamp_ms, int(message.properties["TIMER_DELAY_MS"])
        assert message.store_timestamp_ms >= born_ms + delay_ms, "early"


@pytest.mark.slow
def test_timer_messages_of_real_producer_are_delivered_and_recalled(tmp_path: Path) -> None:
    with (
        JavaCluster(None, broker=False) as cluster,
        OurBroker(tmp_path / "store", SETTINGS, namesrv=cluster.namesrv),
    ):
        sent = send(tmp_path, cluster.namesrv, [timed(0, 30_000), *(timed(n, 1000 + 150 * n) for n in range(1, 20))])
        assert all(one["status"] == "SEND_OK" and one["recallHandle"] for one in sent)
        recalled = send(tmp_path, cluster.namesrv, [{"topic": "T", "recall": sent[0]["recallHandle"]}])
        assert recalled[0]["msgId"] == sent[0]["msgId"]
        after = send(tmp_path, cluster.namesrv, [timed(20, 33_000)])
        assert after[0]["status"] == "SEND_OK"
        found = received(cluster.namesrv, {str(number) for number in range(1, 21)})
        assert "0" not in {message.body.decode() for message in found}
        assert len(found) == 20
        check_on_time(found)


@pytest.mark.slow
def test_our_timer_messages_at_real_broker_are_delivered_and_recalled(tmp_path: Path) -> None:
    with (
        JavaCluster(tmp_path / "store", SETTINGS) as cluster,
        Producer(cluster.namesrv, send_msg_timeout_ms=20_000) as producer,
    ):
        at = datetime.now(UTC) + timedelta(seconds=4)
        recalled = producer.send(Message("T", b"recalled", delay_ms=15_000))
        assert recalled.recall_handle is not None
        assert producer.recall("T", recalled.recall_handle) == recalled.msg_id
        sent = [
            producer.send(Message("T", b"delay", delay_ms=2_000)),
            producer.send(Message("T", b"datetime", deliver_at=at)),
            producer.send(Message("T", b"after", deliver_at=time.time_ns() // 1_000_000 + 17_000)),
        ]
        assert all(one.recall_handle for one in sent)
        found = {one.body: one for one in received(cluster.namesrv, {"delay", "datetime", "after"})}
        assert set(found) == {b"delay", b"datetime", b"after"}
        assert found[b"datetime"].store_timestamp_ms >= at.timestamp() * 1000
        assert found[b"delay"].store_timestamp_ms >= found[b"delay"].born_timestamp_ms + 2_000


@pytest.mark.parametrize(  # test_handover.py kills in every direction, with more time between the timers
    ("first", "second", "ends", "seconds"),
    [
        pytest.param("java", "ours", "kill", 9, marks=pytest.mark.slow),
        pytest.param("java", "ours", "stop", 20, marks=pytest.mark.slow),
        pytest.param("ours", "java", "stop", 20, marks=pytest.mark.slow),
    ],
)
def test_broker_delivers_waiting_timers_of_other_broker(
    tmp_path: Path, first: str, second: str, ends: str, seconds: int
) -> None:
    store, wanted = tmp_path / "store", {str(number) for number in range(60)}
    with JavaCluster(None, broker=False) as cluster:
        with BROKERS[first](store, SETTINGS, namesrv=cluster.namesrv) as broker:  # type: ignore[operator]
            sent = send(tmp_path, cluster.namesrv, [timed(n, 1000 + n % seconds * 1000) for n in range(60)])
            assert all(one["status"] == "SEND_OK" for one in sent)
            time.sleep(3)  # some are delivered, some are in the wheel
            getattr(broker, ends)()
        assert (store / "timerwheel").stat().st_size == 38_707_200
        with BROKERS[second](store, SETTINGS, namesrv=cluster.namesrv):  # type: ignore[operator]
            check_on_time(received(cluster.namesrv, wanted))
