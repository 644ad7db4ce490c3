"""Checkpoints and acknowledgements of POP: the bytes of the real classes (fastjson2 2.0.59), and other bodies."""

from __future__ import annotations

import json

import pytest

from gantrymq.format.pop_check_point import (
    PopAck,
    PopCheckPoint,
    PopKey,
    decode_pop_record,
    encode_ack,
    encode_batch_ack,
    encode_check_point,
)

KEY = PopKey("Tö", "group", 2, 7, 1764111111111, "broker-a")
POINT = PopCheckPoint(KEY, 60_000, 3, 0xFFFFFFFE, (0, 1, 5))
JAVAS = [
    (
        "ck",
        '{"bm":-2,"bn":"broker-a","c":"group","d":[0,1,5],"it":60000,"n":3,"pt":1764111111111,"q":2,'
        '"reviveTime":1764111171111,"ro":0,"so":7,"sp":false,"t":"Tö"}',
        POINT,
    ),
    (
        "ck",
        '{"bm":-2,"bn":"broker-a","c":"group","d":[0,1,5],"it":60000,"n":3,"pt":1764111111111,"q":2,'
        '"reviveTime":1764111171111,"ro":0,"rp":"3","so":7,"sp":true,"t":"Tö"}',
        PopCheckPoint(KEY, 60_000, 3, 0xFFFFFFFE, (0, 1, 5), 3, is_suspended=True),
    ),
    (
        "ck",
        '{"bm":0,"c":"g","it":0,"n":0,"pt":0,"q":0,"reviveTime":0,"ro":0,"so":0,"sp":false,"t":"T"}',
        PopCheckPoint(PopKey("T", "g", 0, 0, 0), 0, 0),
    ),
    ("ack", '{"ao":8,"bn":"broker-a","c":"group","pt":1764111111111,"q":2,"so":7,"t":"Tö"}', PopAck(KEY, (8,))),
    (
        "bAck",
        '{"ao":0,"aol":[7,12],"c":"group","pt":1764111111111,"q":2,"so":7,"t":"T"}',
        PopAck(KEY._replace(topic="T", broker_name=""), (7, 12)),
    ),
]


@pytest.mark.parametrize(("tag", "text", "record"), JAVAS)
def test_the_records_of_the_real_classes(tag: str, text: str, record: PopCheckPoint | PopAck) -> None:
    assert decode_pop_record(tag, text.encode()) == record
    encode = {"ck": encode_check_point, "ack": encode_ack, "bAck": encode_batch_ack}[tag]
    assert encode(record).decode() == text  # type: ignore[operator]


def test_an_acknowledgement_with_long_names() -> None:
    names = {"ackOffset": 8, "startOffset": 7, "consumerGroup": "group", "topic": "Tö", "queueId": 2}
    body = json.dumps({**names, "popTime": 1764111111111, "brokerName": "broker-a"}).encode()
    assert decode_pop_record("ack", body) == PopAck(KEY, (8,))


def test_the_messages_of_a_checkpoint() -> None:
    assert [POINT.queue_offset(one) for one in range(3)] == [7, 8, 12]
    assert [POINT.number_of(one) for one in (6, 7, 8, 9, 12, 13)] == [None, 0, 1, None, 2, None]
    assert POINT.open_offsets() == [7]
    old = PopCheckPoint(KEY, 60_000, 2, 1)
    assert [old.number_of(one) for one in (6, 7, 8, 9)] == [None, 0, 1, None]
    assert old.open_offsets() == [8]
    assert old.revive_time_ms == 1764111171111


@pytest.mark.parametrize("tag", ["", "TagA", "CK"])
def test_another_tag_is_neither(tag: str) -> None:
    assert decode_pop_record(tag, JAVAS[0][1].encode()) is None


def test_a_record_without_topic_or_group_is_neither() -> None:
    assert decode_pop_record("ck", b'{"t":"T"}') is None
    assert decode_pop_record("ck", b'{"c":"g"}') is None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"3-17", b"{", b"[" * 100_000, b'{"t":1,"c":"g"}', b'{"t":"T","c":"g","n":128}',
        b'{"t":"T","c":"g","n":-1}', b'{"t":"T","c":"g","n":1.5}', b'{"t":"T","c":"g","n":true}',
        b'{"t":"T","c":"g","n":2,"d":[0]}', b'{"t":"T","c":"g","d":[-1]}', b'{"t":"T","c":"g","d":{"0":1}}',
        b'{"t":"T","c":"g","so":9223372036854775808}', b'{"t":"T","c":"g","q":2147483648}',
        b'{"t":"T","c":"g","bm":"x"}',
    ],
)  # fmt: skip
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_pop_record("ck", body)
