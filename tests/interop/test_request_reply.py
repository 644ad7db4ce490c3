"""Requests and replies between the real client and ours, at the real broker and at ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantrymq import (
    ConsumeFromWhere,
    EmbeddedBroker,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestTimeoutError,
)

from .java import java_words
from .java_cluster import JavaCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ENOUGH_MS = 60_000


class JavaEnds:
    """The real client: it replies to requests of JAVA, and sends requests to OURS."""

    def __init__(self, namesrv: str) -> None:
        words = [*java_words("request-reply"), "--namesrv", namesrv, "--topic", "JAVA", "--ask", "OURS", "--group", "j"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._line() == {"ready": True}

    def ask(self, body: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{body}\n")
        self._process.stdin.flush()
        return self._line()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, "the real client ended"
        return json.loads(said)  # type: ignore[no-any-return]


@contextmanager
def name_server_of(broker: str, folder: Path) -> Iterator[str]:
    if broker == "ours":
        with EmbeddedBroker(folder / "store") as ours:
            yield ours.namesrv
    else:
        with JavaCluster(folder / "store") as java:
            yield java.namesrv


@pytest.mark.parametrize("broker", ["java", "ours"])
def test_each_client_replies_to_the_other(tmp_path: Path, broker: str) -> None:
    with (
        name_server_of(broker, tmp_path) as namesrv,
        Producer(namesrv, producer_group="p", send_msg_timeout_ms=20_000) as producer,
        PushConsumer(
            namesrv, consumer_group="c", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        ) as consumer,
    ):

        def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            for message in messages:
                if "CORRELATION_ID" in message.properties:
                    producer.reply(message, b"ours:" + message.body)

        for topic in ("JAVA", "OURS"):
            with pytest.raises(RequestTimeoutError):  # there is no consumer yet
                producer.request(Message(topic, b"early"), 500)
        consumer.subscribe("OURS")
        consumer.listen(listen)
        consumer.start()
        assert producer.request(Message("OURS", b"x" * 50_000), ENOUGH_MS).body == b"ours:" + b"x" * 50_000
        java = JavaEnds(namesrv)
        try:
            reply = producer.request(Message("JAVA", b"hello"), ENOUGH_MS)
            assert reply.body == b"java:hello"
            assert reply.topic == "DefaultCluster_REPLY_TOPIC"
            assert producer.request(Message("JAVA", b"y" * 50_000), ENOUGH_MS).body == b"java:" + b"y" * 50_000
            answers = [java.ask(f"question {number}") for number in range(3)]
            assert [one["reply"] for one in answers] == [f"ours:question {number}" for number in range(3)]
            assert {"PUSH_REPLY_TIME", "CORRELATION_ID", "TTL"} <= set(answers[0]["properties"])
        finally:
            java.close()
