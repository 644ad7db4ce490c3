"""Receipt handles and offset infos of POP: Java's texts, and the forged ones that are refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import ReceiptHandleError
from gantrymq.model.java import INT_MAX, LONG_MAX
from gantrymq.model.receipt_handle import (
    QueueOfPop,
    ReceiptHandle,
    message_offsets_entry,
    offset_order_count_entry,
    parse_message_offsets,
    parse_order_counts,
    parse_receipt_handle,
    parse_start_offsets,
    queue_order_count_entry,
    real_topic,
    retry_topic_v1,
    retry_topic_v2,
    start_offset_entry,
    topic_mark,
)

LONG, INT = st.integers(0, LONG_MAX // 2), st.integers(0, INT_MAX)
# What ExtraInfoUtil.buildExtraInfo of 5.5.0 makes of these fields.
JAVA_TEXT = "7 1700000000000 60000 3 2 broker-a 1 9"
JAVA_FIELDS = ReceiptHandle(7, 1_700_000_000_000, 60_000, 3, "2", "broker-a", 1, 9)


def test_receipt_handle_has_text_of_java() -> None:
    assert str(JAVA_FIELDS) == JAVA_TEXT
    assert parse_receipt_handle(JAVA_TEXT) == JAVA_FIELDS
    assert JAVA_FIELDS.visible_time_ms == 1_700_000_060_000
    assert JAVA_FIELDS.real_topic("T", "G") == "%RETRY%G+T"


@given(
    start=LONG, pop=LONG, invisible=LONG, revive=INT, mark=st.sampled_from("012"), queue=INT, offset=LONG | st.none()
)
def test_receipt_handle_round_trips(
    start: int, pop: int, invisible: int, revive: int, mark: str, queue: int, offset: int | None
) -> None:
    handle = ReceiptHandle(start, pop, invisible, revive, mark, "b", queue, offset)
    assert parse_receipt_handle(str(handle)) == handle


def test_only_revive_queue_999_means_ordered_pop() -> None:
    assert parse_receipt_handle("7 1 2 999 0 b 1").is_order
    assert not JAVA_FIELDS.is_order


@pytest.mark.parametrize("text", ["7 1 2 3 0 b 1 9 10 11", "7 1 2 3 0 b 1 9 ", "+7 01 2 3 0 b 1 9"])
def test_receipt_handle_forms_accepted_by_java_are_read(text: str) -> None:
    assert parse_receipt_handle(text) == ReceiptHandle(7, 1, 2, 3, "0", "b", 1, 9)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1 fields, fewer than 7"),
        ("7 1 2 3 0 b", "6 fields, fewer than 7"),
        ("-1 1 2 3 0 b 1 9", "start offset is negative"),
        ("7 -1 2 3 0 b 1 9", "pop time is negative"),
        ("7 1 -2 3 0 b 1 9", "invisible time is negative"),
        ("7 1 2 -3 0 b 1 9", "revive queue is negative"),
        ("7 1 2 2147483648 0 b 1 9", "revive queue is no number"),
        ("7 1 2 3 0 b 4294967296 9", "queue is no number"),
        ("7 1 2 3 0 b 1 -9", "queue offset is negative"),
        ("7 1 2 3 0 b 1 9223372036854775808", "queue offset is no number"),
        ("7 1 2 3 3 b 1 9", "mark of the topic is '3'"),
        ("7 1 2 3  b 1 9", "mark of the topic is ''"),
        ("7 1 2 3 0  1 9", "without the name of a broker"),
        ("x 1 2 3 0 b 1 9", 'For input string: "x"'),
        (f"7 {LONG_MAX} 1 3 0 b 1 9", "after the largest timestamp"),
        ("9" * 5000, "5000 characters, more than 2048"),
    ],
)
def test_forged_handle_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ReceiptHandleError, match=reason):
        parse_receipt_handle(text)


@given(st.text(st.sampled_from("01289-+ ;,%@qob"), max_size=60))
def test_no_text_raises_another_error(text: str) -> None:
    for parse in (parse_receipt_handle, parse_start_offsets, parse_message_offsets, parse_order_counts):
        with contextlib.suppress(ReceiptHandleError):
            parse(text)


def test_retry_topics_have_their_marks() -> None:
    v1, v2 = retry_topic_v1("T", "G"), retry_topic_v2("T", "G")
    assert (v1, v2) == ("%RETRY%G_T", "%RETRY%G+T")
    assert [topic_mark(topic) for topic in ("T", v1, v2, "%RETRY%G")] == ["0", "1", "2", "1"]
    assert [real_topic(mark, "T", "G") for mark in "012"] == ["T", v1, v2]
    with pytest.raises(ReceiptHandleError):
        real_topic("x", "T", "G")


# The texts are those of ExtraInfoUtil.build…Info of 5.5.0 for the same arguments.
def test_offset_infos_have_text_of_java() -> None:
    starts = ";".join([start_offset_entry("T", 0, 5), start_offset_entry("%RETRY%G+T", 0, 2)])
    assert starts == "0 0 5;2 0 2"
    assert parse_start_offsets(starts) == {QueueOfPop("0", 0): 5, QueueOfPop("2", 0): 2}
    offsets = ";".join([message_offsets_entry("T", 0, [5, 6, 9]), message_offsets_entry("%RETRY%G_T", 3, [2])])
    assert offsets == "0 0 5,6,9;1 3 2"
    assert parse_message_offsets(offsets) == {QueueOfPop("0", 0): [5, 6, 9], QueueOfPop("1", 3): [2]}
    counts = ";".join([offset_order_count_entry("T", 1, 5, 2), queue_order_count_entry("T", 1, 0)])
    assert counts == "0 qo1%5 2;0 1 0"
    assert parse_order_counts(counts) == {(QueueOfPop("0", 1), 5): 2, (QueueOfPop("0", 1), None): 0}


@pytest.mark.parametrize("parse", [parse_start_offsets, parse_message_offsets, parse_order_counts])
def test_missing_offset_info_is_empty(parse: object) -> None:
    assert callable(parse)
    assert parse(None) == parse("") == {}


@pytest.mark.parametrize("text", ["0 0", "0 0 1 2", "0 0 1;", "0 0 1;0 0 2", "0 x 1", "0 0 -1", "0 0 1,"])
def test_wrong_offset_info_is_refused(text: str) -> None:
    with pytest.raises(ReceiptHandleError):
        parse_start_offsets(text)
