"""The rules that decide what is pending, for stores and for clusters."""

from __future__ import annotations

import pytest

from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, PopKey
from gantrymq.model.message import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQ_KEY,
    REVIVE_GROUP,
    REVIVE_TOPIC_PREFIX,
    TRANS_GROUP,
)
from gantrymq.tools.pending.rules import (
    TRANSACTION_TIMEOUT_MS,
    PopRules,
    TimerRules,
    destination,
    first_undecided,
    half_message,
)

NOW_MS = 1_700_000_000_000
TO = {PROPERTY_REAL_TOPIC: "orders", PROPERTY_REAL_QUEUE_ID: "3"}


def timer(key: str, due_ms: int = NOW_MS + 5_000, **properties: str) -> dict[str, str]:
    return {**TO, PROPERTY_UNIQ_KEY: key, PROPERTY_TIMER_OUT_MS: str(due_ms), **properties}


def recall(key: str, due_ms: int = NOW_MS + 5_000) -> dict[str, str]:
    return timer("recall", due_ms, **{PROPERTY_TIMER_DEL_UNIQKEY: key})


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ("orders", 3)),
        ({PROPERTY_REAL_TOPIC: ""}, None),
        ({PROPERTY_REAL_TOPIC: "a/b"}, None),
        ({PROPERTY_REAL_QUEUE_ID: "x"}, None),
        ({PROPERTY_REAL_QUEUE_ID: "-1"}, None),
    ],
)
def test_destination_of_pending_message_is_read_from_properties(
    changed: dict[str, str], expected: tuple[str, int] | None
) -> None:
    assert destination({**TO, **changed}) == expected


def test_timer_message_is_delivered_when_next_slot_begins() -> None:
    rules = TimerRules(500, with_topic=False)
    assert rules.delivery_ms(timer("A")) == NOW_MS + 5_500
    assert rules.delivery_ms(recall("A")) is None
    assert rules.delivery_ms(timer("A", **{PROPERTY_REAL_TOPIC: f"{REVIVE_TOPIC_PREFIX}c_0"})) is None


@pytest.mark.parametrize(
    ("key", "recalled", "with_topic", "is_recalled"),
    [
        ("A", "A", False, True),
        ("A", "AB", False, False),  # a part of another key
        ("A", "orders+A", False, False),
        ("A", "orders+A", True, True),
        ("A", "bills+A", True, False),
    ],
)
def test_recall_takes_effect_on_its_key_alone(key: str, recalled: str, *, with_topic: bool, is_recalled: bool) -> None:
    rules = TimerRules(1_000, with_topic=with_topic)
    rules.add(recall(recalled), NOW_MS)
    assert (rules.delivery_ms(timer(key)) is None) is is_recalled


def test_recall_takes_effect_in_its_slot_alone() -> None:
    rules = TimerRules(1_000, with_topic=False)
    rules.add(recall("A", NOW_MS + 9_000), NOW_MS)
    rules.add(recall("B", NOW_MS - 9_000), NOW_MS)  # read after its slot was due
    assert rules.delivery_ms(timer("A")) is not None
    assert rules.delivery_ms(timer("B", NOW_MS - 9_000)) is not None
    rules.add(recall("B", NOW_MS - 9_000), NOW_MS, is_in_wheel=True)
    assert rules.delivery_ms(timer("B", NOW_MS - 9_000)) is None


def test_popped_message_is_open_until_acknowledged_and_counts_once() -> None:
    key = PopKey("orders", "group", 0, 10, NOW_MS, "broker-a")
    point = PopCheckpoint(key, 60_000, [0, 1, 2])
    rules = PopRules()
    rules.add(point, is_revived=False)
    assert list(rules.open_offsets(point, is_revived=False)) == [10, 11, 12]
    rules.add(PopAck(key._replace(broker_name=""), (11,)), is_revived=False)
    assert list(rules.open_offsets(point, is_revived=False)) == [10, 12]
    rules.add(point, is_revived=True)
    assert list(rules.open_offsets(point, is_revived=False)) == []
    assert list(rules.open_offsets(point, is_revived=True)) == [10, 12]


@pytest.mark.parametrize(
    ("group", "committed", "expected"), [(REVIVE_GROUP, 7, 8), (REVIVE_GROUP, -1, 0), (TRANS_GROUP, 7, 7)]
)
def test_first_undecided_record_is_offset_committed_by_group(group: str, committed: int, expected: int) -> None:
    assert first_undecided(group, committed) == expected


def test_half_message_is_due_after_its_immunity() -> None:
    def half(immunity: str | None = None, first: str = "") -> tuple[int, str | None] | None:
        properties = {**TO, PROPERTY_PRODUCER_GROUP: "checkout", PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: first}
        if immunity is not None:
            properties[PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = immunity
        message = half_message(properties, NOW_MS, NOW_MS + 10_000, {4}.__contains__)
        return None if message is None else (message.due_ms - NOW_MS, message.group)

    assert half() == half("x") == (TRANSACTION_TIMEOUT_MS, "checkout")
    assert half("60") == half("60", "5") == (60_000, "checkout")
    assert half("60", "4") is None  # its first record is decided
    assert half("5", "4") == (5_000, "checkout")  # the immunity has ended
