"""A cluster that stops under a stream and comes back, as when its brokers restart."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest
from stream_cases import Stream, bodies

from gantrymq import AdminClient, EmbeddedBroker, Message, Producer
from gantrymq.client.pull import pull_client
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.embedded.standalone import Standalone
from gantrymq.errors import ConfigError, NoRouteError, RemotingError
from gantrymq.spark.data_loss import DataLossError
from gantrymq.spark.plan import cluster_origin
from gantrymq.spark.read import pull as pull_reader
from interop.fixed_ports import fixed_port

ASKED_AGAIN = "the cluster is asked again"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A name server and a broker."""
    with EmbeddedBroker() as running:
        yield running


class SecondBroker:
    """At the name server of the first, so that it may go away alone."""

    def __init__(self, store: Path, namesrv: str) -> None:
        self.loop, self.store, self.namesrv = LoopThread("second broker"), store, namesrv
        self.running: Standalone | None = None
        self.port = fixed_port()

    def start(self) -> None:
        config = LiveConfig()
        config.update({"mappedFileSizeCommitLog": "1048576", "brokerName": "broker-b"})
        config.broker = replace(config.broker, listen_port=self.port, namesrv_addr=self.namesrv)
        self.running = Standalone(self.store, config, None)
        self.loop.run(self.running.start())

    def stop(self) -> None:
        assert self.running is not None
        self.loop.run(self.running.shutdown())


@pytest.fixture
def second(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[SecondBroker]:
    made = SecondBroker(tmp_path / "store", broker.namesrv)
    made.start()
    yield made
    assert made.running is not None
    made.loop.close(made.running.shutdown())


def send(broker: EmbeddedBroker, *texts: str, topic: str = "Away", at: str = "broker-a") -> None:
    with Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer:
        for text in texts:
            producer.send(
                Message(topic, text.encode()), lambda queues: next(one for one in queues if one.broker_name == at)
            )


@pytest.fixture
def asked_often(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set when a question was asked more often than most are; the pauses up to there, and the next ones, are short."""
    often, pause_ms = Event(), pull_client.pause_ms

    def short(failures: int) -> int:
        if failures < pull_client.ATTEMPTS:
            return 20
        often.set()
        return pause_ms(failures - pull_client.ATTEMPTS + 1)

    monkeypatch.setattr(pull_client, "pause_ms", short)
    return often


@contextmanager
def away(stop: Callable[[], None], start: Callable[[], None], is_missed: Callable[[], bool]) -> Iterator[None]:
    """Ended, and started again while the stream asks, once it ``is_missed``."""
    stop()
    has_ended = Event()

    def start_again() -> None:
        while not is_missed() and not has_ended.is_set():
            time.sleep(0.01)
        start()

    again = Thread(target=start_again)
    again.start()
    try:
        yield
    finally:
        has_ended.set()
        again.join()


def later_than(stream: Stream, end: str) -> str:
    """The next end that is not the checkpoint: a queue that the name server does not have yet keeps its offset."""
    deadline = time.monotonic() + 60
    while end == stream.checkpoint:
        assert time.monotonic() < deadline, "what was acknowledged before the kill does not come back"
        time.sleep(0.05)
        end = stream.latest()
    return end


def test_stream_waits_for_cluster_that_is_started_again(
    broker: EmbeddedBroker, asked_often: Event, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, "a")
    options = {"nameserver": broker.namesrv, "subscribe": "Away", "startingOffsets": "earliest"}
    with Stream("", "body", **options) as stream:
        assert bodies(stream.batch()) == [b"a"]
        send(broker, "b", "c")
        with away(broker.kill, broker.start, lambda: ASKED_AGAIN in caplog.text):
            end = stream.latest()
        assert ASKED_AGAIN in caplog.text
        assert not asked_often.is_set()
        end = later_than(stream, end)
        with away(broker.kill, broker.start, asked_often.is_set):  # the driver has planned, the executors begin
            parts = stream.rows_between(stream.checkpoint, end)
        assert asked_often.is_set()
        assert sorted(bodies([row for part in parts for row in part])) == [b"b", b"c"]


@pytest.mark.parametrize("topic", ["Alone", "Both"])
def test_stream_waits_for_broker_that_is_started_again(
    broker: EmbeddedBroker, second: SecondBroker, topic: str, asked_often: Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The name server answers all the while: that there is no such topic, or no such broker."""
    assert second.running is not None
    with AdminClient(broker.namesrv) as admin:
        for address in [second.running.broker_address, *([broker.address] if topic == "Both" else [])]:
            admin.create_topic(topic, broker=address, read_queue_nums=1, write_queue_nums=1)
    send(broker, "a", topic=topic, at="broker-b")
    options = {"nameserver": broker.namesrv, "assign": json.dumps({topic: {"broker-b": [0]}})}
    with Stream("", "body", startingOffsets="earliest", **options) as stream:
        assert bodies(stream.batch()) == [b"a"]
        send(broker, "b", "c", topic=topic, at="broker-b")
        with away(second.stop, second.start, lambda: ASKED_AGAIN in caplog.text):
            end = stream.latest()
        with away(second.stop, second.start, asked_often.is_set):
            parts = stream.rows_between(stream.checkpoint, end)
        assert asked_often.is_set()
        assert bodies([row for part in parts for row in part]) == [b"b", b"c"]


def test_broker_that_stays_away_raises_error_with_its_name(
    broker: EmbeddedBroker, second: SecondBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_origin, "_PAUSES_S", (0.01,) * 3)
    monkeypatch.setattr(pull_reader, "ATTEMPTS", 2)
    assert second.running is not None
    with AdminClient(broker.namesrv) as admin:
        admin.create_topic("Gone", broker=second.running.broker_address, read_queue_nums=1, write_queue_nums=1)
    send(broker, "a", topic="Gone", at="broker-b")
    options = {"nameserver": broker.namesrv, "assign": '{"Gone": [0]}', "startingOffsets": "earliest"}
    with Stream("", "body", **options) as stream:
        end = stream.latest()
        second.stop()
        with pytest.raises(NoRouteError, match="topic Gone, broker broker-b, queue 0, offsets 0 to 0"):
            stream.rows_between(stream.checkpoint, end)
        with pytest.raises(ConfigError, match="Gone"):
            stream.latest()


@pytest.mark.parametrize("tags", [{}, {"tags": "paid"}], ids=str)
@pytest.mark.parametrize("queues", [0, 1], ids=["gone", "made again with one queue"])
def test_planned_batch_of_deleted_topic_is_loss(
    broker: EmbeddedBroker,
    queues: int,
    tags: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = f"Went{queues}{len(tags)}"
    broker.create_topic(topic, 2)
    with Producer(broker.namesrv) as producer:
        for number in range(8):
            producer.send(Message(topic, b"gone", tags="paid"), lambda all_of, at=number % 2: all_of[at])
        producer.send(Message("Stays", topic.encode(), tags="paid"))
    options = {"nameserver": broker.namesrv, "subscribe": f"{topic},Stays", "startingOffsets": "earliest", **tags}
    with Stream("", "body", **options) as stream:
        start, end = stream.checkpoint, stream.latest()
    with AdminClient(broker.namesrv) as admin:
        admin.delete_topic(topic)
    if queues:
        broker.create_topic(topic, queues)
    monkeypatch.setattr(pull_client, "RETRY_PAUSE_MS", "no pause")
    says = rf"topic {topic}, broker broker-a, queue \d: .*the messages at offsets 0 to 3 are missing"
    with Stream("", "body", checkpoint=start, **options) as strict, pytest.raises(DataLossError, match=says):
        strict.rows_between(start, end)
    with Stream("", "body", checkpoint=start, failOnDataLoss=False, **options) as lenient:
        rows = [row for part in lenient.rows_between(start, end) for row in part]
    assert topic.encode() in bodies(rows)
    assert b"gone" not in bodies(rows)
    assert len(re.findall(says, caplog.text)) == 2


def test_broker_that_never_answered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_origin, "_PAUSES_S", ("no", "pause"))
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1:1"):
        Stream("", "body", nameserver="127.0.0.1:1", subscribe="Away")
