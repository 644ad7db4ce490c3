"""Checkpoints and acknowledgements of POP: the bytes of the real classes (fastjson2 2.0.59), and other bodies."""

from __future__ import annotations

import json

import pytest

from gantrymq.format.pop_checkpoint import (
    PopAck,
    PopCheckpoint,
    PopKey,
    decode_pop_checkpoint,
    decode_pop_record,
    encode_pop_ack,
    encode_pop_checkpoint,
)

KEY = PopKey("Tö", "group", 2, 7, 1764111111111, "broker-a")
POINT = PopCheckpoint(KEY, 60_000, [0, 1, 5], 0xFFFFFFFE)
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
        PopCheckpoint(KEY, 60_000, [0, 1, 5], 0xFFFFFFFE, 3, is_suspended=True),
    ),
    (
        "ck",
        '{"bm":0,"c":"g","it":0,"n":0,"pt":0,"q":0,"reviveTime":0,"ro":0,"so":0,"sp":false,"t":"T"}',
        PopCheckpoint(PopKey("T", "g", 0, 0, 0), 0, []),
    ),
    ("ack", '{"ao":8,"bn":"broker-a","c":"group","pt":1764111111111,"q":2,"so":7,"t":"Tö"}', PopAck(KEY, (8,))),
    (
        "bAck",
        '{"ao":-1,"aol":[7,12],"c":"group","pt":1764111111111,"q":2,"so":7,"t":"T"}',
        PopAck(KEY._replace(topic="T", broker_name=""), (7, 12), is_batch=True),
    ),
]


@pytest.mark.parametrize(("tag", "text", "record"), JAVAS)
def test_pop_records_equal_those_of_java(tag: str, text: str, record: PopCheckpoint | PopAck) -> None:
    assert decode_pop_record(tag, text.encode()) == record
    if isinstance(record, PopCheckpoint):
        assert encode_pop_checkpoint(record).decode() == text
    else:
        assert (record.tag, encode_pop_ack(record).decode()) == (tag, text)


def test_batch_acknowledgement_of_rocketmq_is_read() -> None:
    body = b'{"ao":0,"aol":[7,12],"bn":"broker-a","c":"group","pt":1764111111111,"q":2,"so":7,"t":"T"}'
    assert decode_pop_record("bAck", body) == PopAck(KEY._replace(topic="T"), (7, 12), is_batch=True)


def test_acknowledgement_with_long_names_is_decoded() -> None:
    names = {"ackOffset": 8, "startOffset": 7, "consumerGroup": "group", "topic": "Tö", "queueId": 2}
    body = json.dumps({**names, "popTime": 1764111111111, "brokerName": "broker-a"}).encode()
    assert decode_pop_record("ack", body) == PopAck(KEY, (8,))


def test_checkpoint_lists_its_messages() -> None:
    assert [POINT.bit_of(one) for one in (6, 7, 8, 9, 12, 13)] == [None, 0, 1, None, 2, None]
    assert POINT.open_offsets() == [7]
    old = decode_pop_checkpoint(b'{"t":"T","c":"g","so":7,"n":2,"bm":1,"pt":1764111111111,"it":60000}')
    assert [old.bit_of(one) for one in (6, 7, 8, 9)] == [None, 0, 1, None]
    assert old.open_offsets() == [8]
    assert old.revive_time_ms == 1764111171111


@pytest.mark.parametrize("tag", ["", "TagA", "CK"])
def test_record_with_other_tag_is_ignored(tag: str) -> None:
    assert decode_pop_record(tag, JAVAS[0][1].encode()) is None


@pytest.mark.parametrize("tag", ["ck", "ack", "bAck"])
def test_record_without_topic_or_group_is_refused(tag: str) -> None:
    for body in (b'{"t":"T"}', b'{"c":"g"}', b'{"t":"","c":"g"}', b'{"t":null,"c":"g"}'):
        with pytest.raises(ValueError, match="no topic or no group"):
            decode_pop_record(tag, body)


def test_lenient_forms_of_fastjson_are_read() -> None:
    """A missing field as null, a number as text, more offsets than messages, an invisible time below 0, 32 messages."""
    key = PopKey("T", "g", 0, 7, 9)
    body = b'{"t":"T","c":"g","so":"7","pt":9,"it":-2,"n":1,"d":[0,1],"bm":null,"bn":null,"rp":null,"zz":{"a":[]}}'
    assert decode_pop_checkpoint(body) == PopCheckpoint(key, -2, [0])
    assert decode_pop_checkpoint(b'{"t":"T","c":"g","so":7,"pt":9,"n":32}').diffs == list(range(32))
    assert decode_pop_record("ack", b'{"ao":null,"ackOffset":8,"t":"T","c":"g","so":7,"pt":9}') == PopAck(key, (8,))
    assert decode_pop_checkpoint(b'{"t":"\xff","c":"g"}').key.topic == "\ufffd"


@pytest.mark.parametrize(("text", "times"), [("3", 3), ("17", 17), ("x", 127), ("-1", 127), ("99999", 127), ("", 127)])
def test_checkpoint_keeps_its_retry_count(text: str, times: int) -> None:
    body = json.dumps({"t": "T", "c": "g", "rp": text}).encode()
    assert decode_pop_checkpoint(body).re_puts == times


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"3-17", b"{", b"[" * 100_000, b'{"t":1,"c":"g"}', b'{"t":"T","c":"g","n":33}',
        b'{"t":"T","c":"g","n":-1}', b'{"t":"T","c":"g","n":1.5}', b'{"t":"T","c":"g","n":true}',
        b'{"t":"T","c":"g","n":2,"d":[0]}', b'{"t":"T","c":"g","d":[-1]}', b'{"t":"T","c":"g","d":{"0":1}}',
        b'{"t":"T","c":"g","so":9223372036854775808}', b'{"t":"T","c":"g","q":2147483648}',
        b'{"t":"T","c":"g","bm":"x"}', b'{"t":"T","c":"g","pt":9223372036854775807,"it":1}',
        b'{"t":"T","c":"g","pt":1,"it":-2}', b'{"t":"T","c":"g","q":-1}', b'{"t":"T","c":"g","so":1e30}',
    ],
)  # fmt: skip
def test_malformed_body_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_pop_record("ck", body)
