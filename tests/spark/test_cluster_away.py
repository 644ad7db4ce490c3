"""A cluster that goes away under a stream and comes back, as brokers that are started anew do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import pytest
from stream_cases import Stream, bodies

from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.errors import RemotingError
from gantrymq.spark import cluster_origin

AWAY_S = 2.0  # longer than the four attempts that one question has


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A name server and a broker."""
    with EmbeddedBroker() as running:
        yield running


def send(broker: EmbeddedBroker, *texts: str) -> None:
    with Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer:
        for text in texts:
            producer.send(Message("Away", text.encode()))


@contextmanager
def away(broker: EmbeddedBroker) -> Iterator[None]:
    """Killed, and started again while the stream asks."""
    broker.kill()
    again = Timer(AWAY_S, broker.start)
    again.start()
    yield
    again.join()


def test_a_stream_waits_for_a_cluster_that_is_started_again(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, "a")
    options = {"nameserver": broker.namesrv, "subscribe": "Away", "startingOffsets": "earliest"}
    with Stream("", "body", **options) as stream:
        assert bodies(stream.batch()) == [b"a"]
        send(broker, "b", "c")
        with away(broker):
            end = stream.latest()
        assert "the cluster is asked again" in caplog.text
        assert end != stream.checkpoint
        with away(broker):  # the driver has planned, the executors begin
            parts = stream.rows_between(stream.checkpoint, end)
        assert sorted(bodies([row for part in parts for row in part])) == [b"b", b"c"]


def test_who_has_never_answered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_origin, "_PAUSES_S", ("no", "pause"))
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1:1"):
        Stream("", "body", nameserver="127.0.0.1:1", subscribe="Away")
