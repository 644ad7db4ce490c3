"""Requests and replies between the real client and ours, at the real broker and at ours."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gantrymq import (
    ConsumeFromWhere,
    EmbeddedBroker,
    Message,
    MQClientError,
    Producer,
    PullClient,
    PushConsumer,
    ReceivedMessage,
    RequestTimeoutError,
    TraceRecord,
    TraceType,
    decode_records,
    decode_traces,
)

from .java import java_words
from .java_cluster import JavaCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ENOUGH_MS = 60_000
_TRACES = 3 + 3 + 2 * 3  # requests of Java, its replies, and the calls of its listener


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
def test_each_client_replies_to_other(tmp_path: Path, broker: str) -> None:
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
            check_traces(namesrv)
        finally:
            java.close()


def traces(namesrv: str) -> list[TraceRecord]:
    """Every trace record that is stored."""
    with PullClient(namesrv) as client, suppress(MQClientError):  # the topic is made by the first
        found = [
            decode_traces(message.body.decode())
            for queue in client.queues("RMQ_SYS_TRACE_TOPIC")
            for pulled in client.read(queue, client.min_offset(queue), client.max_offset(queue))
            for message in decode_records(pulled.records)
        ]
        assert not any(unread for _, unread in found)
        return [record for records, _ in found for record in records]
    return []


def check_traces(namesrv: str) -> None:
    """What the real client's own traces say, which it sends every five seconds: ours reads them."""
    deadline = time.monotonic() + ENOUGH_MS / 1000
    while len(records := traces(namesrv)) < _TRACES:
        assert time.monotonic() < deadline, records
        time.sleep(0.2)
    assert {record.group for record in records} == {"j"}
    sent = [record for record in records if record.type is TraceType.PUB]
    assert [record.body_size_bytes for record in sent if record.topic == "OURS"] == [len("question 0")] * 3
    assert {(record.tags, record.keys, record.is_success) for record in sent} == {("", "", True)}
    before, after = (
        {record.request_id: record for record in records if record.type is kind}
        for kind in (TraceType.SUB_BEFORE, TraceType.SUB_AFTER)
    )
    assert before.keys() == after.keys()
    assert len(before) == 3
    assert all(record.is_success and record.context_code == 0 for record in after.values())
