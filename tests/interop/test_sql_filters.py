"""SQL92 filters against the real RocketMQ: the same results, and both clients at both brokers."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from gantrymq import ConsumeFromWhere, LitePullConsumer, Message, Producer, PullClient, PushConsumer, decode_records
from gantrymq.broker.tables.consumer_filters import bloom_bits
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.errors import FilterSyntaxError
from gantrymq.filter.sql_filter import SqlFilterCache
from gantrymq.filter.values import EvaluationError

from .java import run_java
from .java_cluster import JavaCluster
from .sql_expressions import expression, properties
from .test_push_consumer import Inbox, JavaConsumer, eventually

EXPRESSIONS, MESSAGES = 6_000, 12
TEXTS = [
    "",
    " ",
    "a = 1 -- c",
    "a = 1 --\n",
    "a = 1 /* open",
    "/* c */a is null",
    "a='x",
    "a = 'x''",
    "/**/TRUE",
    "a=''''",
]
TEXTS += ["(" * 100 + "a = '1'" + ")" * 100, "a AND 5", "5 = TRUE", "TRUE = 5", "(a = '1') = (b = '1')", "a = b = '5'"]
TEXTS += ["a - b > 5", "a BETWEEN 5 AND 5.0", "a between 5.5 and 5", "TRUE = a", "a = TRUE", "-(a = '1') is null"]
TEXTS += ["a IN ('x',)", "a IN ()", "(a) IN ('x')", "+a IN ('5')", "'x' in ('x')", "a IN (5)", "a contains b", "K = 1"]


def test_expressions_evaluate_as_in_rocketmq(java: None, tmp_path: Path) -> None:
    seeded = random.Random(29)
    texts = TEXTS + [expression(seeded) for _ in range(EXPRESSIONS)]
    cases = [(text, [properties(seeded) for _ in range(MESSAGES)]) for text in texts]
    file = tmp_path / "cases"
    file.write_text("".join(json.dumps({"expression": text, "messages": all_}) + "\n" for text, all_ in cases))
    answers = run_java("evaluate-sql", None, str(file))
    filters, kinds, different = SqlFilterCache(), set(), []
    for (text, messages), answer in zip(cases, answers, strict=True):
        expected = answer.get("results", ["syntax"] * MESSAGES)
        ours = [result(filters, text, message) for message in messages]
        different += [
            case for case in zip([text] * MESSAGES, messages, ours, expected, strict=True) if case[2] != case[3]
        ]
        kinds.update(ours)
    assert different == []
    assert kinds == {"syntax", "true", "false", "null", "error"}


def result(filters: SqlFilterCache, text: str, message: dict[str, str]) -> str:
    """Our result of an expression for a message."""
    try:
        found = filters.compile(text)
        value = found.evaluate(message)
    except FilterSyntaxError:
        return "syntax"
    except EvaluationError:
        assert not found.matches(message)
        return "error"
    assert found.matches(message) is (value is True)
    return str(value).lower().replace("none", "null")


SQL = "a BETWEEN 5 AND 9 AND NOT (b IN ('no'))"
SETTINGS = {"enablePropertyFilter": True}


def fill(namesrv: str, topic: str) -> None:
    """Sends 40 messages, of which SQL matches those with the bodies 5, 7 and 9, each twice."""
    with Producer(namesrv) as producer:
        for number in range(40):
            properties = {"a": str(number % 20), "b": "no" if number % 2 == 0 else "yes"}
            producer.send(Message(topic, b"%d" % (number % 20), properties=properties))


@pytest.mark.slow
def test_our_consumer_filters_by_sql_at_real_broker(java: None, tmp_path: Path) -> None:
    with JavaCluster(tmp_path / "store", SETTINGS) as cluster:
        ours_filter_by_sql(cluster.namesrv)
        cluster.stop()
        table = json.loads((tmp_path / "store/config/consumerFilter.json").read_bytes())["filterDataByTopic"]
    data = table["SqlTopic"]["groupFilterData"]["sql-push"]
    bits = bloom_bits(20, 32, "sql-push#SqlTopic")
    assert data["bloomFilterData"] == {"bitNum": bits.bit_num, "bitPos": bits.bit_pos}
    assert data["expression"] == SQL


def test_our_consumers_filter_by_sql_at_our_broker() -> None:
    with EmbeddedBroker(settings=SETTINGS) as broker:
        ours_filter_by_sql(broker.namesrv)


def ours_filter_by_sql(namesrv: str) -> None:
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    fill(namesrv, "SqlTopic")
    inbox = Inbox()
    polled: list[bytes] = []
    with (
        PushConsumer(namesrv, consumer_group="sql-push", consume_from_where=first) as push,
        LitePullConsumer(namesrv, consumer_group="sql-lite", consume_from_where=first) as lite,
    ):
        push.subscribe("SqlTopic", SQL, "SQL92")
        push.listen(inbox)
        push.start()
        lite.subscribe("SqlTopic", SQL, "SQL92")
        lite.start()
        eventually(lambda: len(inbox.messages) >= 6, "pushed messages")
        eventually(
            lambda: polled.extend(one.body for one in lite.poll(timeout_ms=100)) or len(polled) >= 6, "polled messages"
        )
    assert sorted(message.body for message in inbox.messages) == sorted(polled) == sorted([b"5", b"7", b"9"] * 2)
    with PullClient(namesrv) as client:
        found = [
            message.body
            for queue in client.queues("SqlTopic")
            for message in decode_records(client.pull(queue, 0, expression=SQL, expression_type="SQL92").records)
        ]
        read = [
            message.body
            for queue in client.queues("SqlTopic")
            for pulled in client.read(queue, 0, client.max_offset(queue), expression=SQL, expression_type="SQL92")
            for message in decode_records(pulled.records)
        ]
    assert sorted(found) == sorted(read) == sorted(polled)
    assigned: list[bytes] = []
    with LitePullConsumer(namesrv, consumer_group="sql-assigned", consume_from_where=first) as lite:
        lite.set_sub_expression_for_assign("SqlTopic", SQL, "SQL92")
        lite.assign(lite.fetch_message_queues("SqlTopic"))
        for queue in lite.assignment():
            lite.seek_to_begin(queue)
        eventually(
            lambda: assigned.extend(one.body for one in lite.poll(timeout_ms=100)) or len(assigned) >= 6, "messages"
        )
    assert sorted(assigned) == sorted(polled)


@pytest.mark.slow
def test_real_consumer_filters_by_sql_at_our_broker(java: None) -> None:
    with EmbeddedBroker(settings=SETTINGS) as broker:
        fill(broker.namesrv, "SqlTopic")
        with JavaConsumer(broker, "SqlTopic", "java-sql", "--sql", SQL) as consumer:
            eventually(lambda: len(consumer.of("message")) >= 6, "messages that match")
            fill(broker.namesrv, "SqlTopic")  # these wake held pulls
            eventually(lambda: len(consumer.of("message")) >= 12, "more messages that match")
        numbers = sorted(line["properties"]["a"] for line in consumer.of("message"))
    assert numbers == sorted(["5", "7", "9"] * 4)
