"""A body entry by entry is what it is as a whole."""

from __future__ import annotations

import inspect
import random
from typing import Any

import msgspec
import pytest

from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies import broker, client, group, registration, route, topic
from gantrymq.remoting.bodies.group import ConsumeStats, ConsumeStatsList, OffsetWrapper, ResetOffsetBody
from gantrymq.remoting.bodies.topic import TopicConfig, TopicList, TopicOffset, TopicStatsTable
from gantrymq.remoting.body import Body, queue_key

KEY = queue_key(MessageQueue("T", "b", 1))
TEXTS = ["", "a", "null", "{", '{"a":1}', "ü", 'quote"', "\\", "7", "\ud800"]


def drawn(rng: random.Random, kind: Any) -> Any:
    """A value of a type, drawn at random."""
    if isinstance(kind, msgspec.inspect.StructType):
        return kind.cls(**{field.name: drawn(rng, field.type) for field in kind.fields})
    if isinstance(kind, msgspec.inspect.UnionType):
        return drawn(rng, rng.choice(kind.types))
    if isinstance(kind, msgspec.inspect.ListType):
        return [drawn(rng, kind.item_type) for _ in range(rng.randrange(3))]
    if isinstance(kind, msgspec.inspect.DictType):
        return {drawn(rng, kind.key_type): drawn(rng, kind.value_type) for _ in range(rng.randrange(3))}
    if isinstance(kind, msgspec.inspect.StrType):
        return rng.choice(TEXTS[:-1])
    simple: dict[type, Any] = {
        msgspec.inspect.IntType: rng.randrange(-5, 1 << 40),
        msgspec.inspect.FloatType: rng.random(),
        msgspec.inspect.BoolType: rng.random() < 0.5,
        msgspec.inspect.NoneType: None,
    }
    return simple[type(kind)]


BODIES: list[type[Body]] = sorted(
    {
        kind
        for module in (broker, client, group, route, topic, registration)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Body) and not kind.__name__.startswith("_")
    },
    key=lambda one: one.__name__,
)


@pytest.mark.parametrize("kind", BODIES, ids=[one.__name__ for one in BODIES])
def test_joined_body_pieces_equal_body(rng: random.Random, kind: type[Body]) -> None:
    if kind.has_queue_keys:
        return  # whose texts that look like a key are not drawn, but given below
    described = msgspec.inspect.type_info(kind)
    for _ in range(30):
        body = drawn(rng, described)
        assert b"".join(body.pieces()) == body.encode()


@pytest.mark.parametrize(
    "body",
    [
        TopicStatsTable(
            offset_table={queue_key(MessageQueue("T", "b", number)): TopicOffset() for number in range(3)},
            topic_put_tps=1.5,
        ),
        ConsumeStats(offset_table={queue_key(MessageQueue('"', "b", 0)): OffsetWrapper(pull_offset=3)}),
        ConsumeStatsList(
            consume_stats_list=[{"G": [ConsumeStats(offset_table={KEY: OffsetWrapper()})]}],
            broker_addr=None,
        ),
        ResetOffsetBody(offset_table={queue_key(MessageQueue("T", "b", 1)): 4}),
        TopicList(topic_list=["\ud800", "b"]),
        TopicConfig(topic_name=None, attributes={"\ud800": "null"}),
    ],
)  # fmt: skip
def test_joined_pieces_of_body_with_queue_keys_equal_body(body: Body) -> None:
    assert b"".join(body.pieces()) == body.encode()
