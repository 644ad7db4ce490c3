"""The templates of answers give the frames that the ordinary way gives."""

from __future__ import annotations

import random

import pytest

from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import MAX_FRAME_BYTES, RemotingCommand, encode_command, encode_head
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.headers.pull import PullMessageResponseHeader
from gantrymq.remoting.headers.send import SendMessageResponseHeader
from gantrymq.remoting.quick_answers import SendAnswers, encode_found_head

MARKS = (("MSG_REGION", 'Region "50 %s"'), ("TRACE_ON", "true"))


def quick(request: RemotingCommand, header: SendMessageResponseHeader) -> bytes | None:
    return SendAnswers(MARKS).encode(
        request, header.msg_id, header.queue_id, header.queue_offset, header.transaction_id
    )


def quick_batch(request: RemotingCommand, header: SendMessageResponseHeader) -> bytes | None:
    pieces = SendAnswers(MARKS).encode_batch(
        request, memoryview(header.msg_id.encode()), header.queue_id, header.queue_offset, header.transaction_id
    )
    return b"".join(pieces) if pieces is not None else None


def test_quick_answer_equals_encoded_answer(rng: random.Random) -> None:
    for _ in range(50):
        header = SendMessageResponseHeader(
            msg_id=rng.randbytes(16).hex().upper(),
            queue_id=rng.randrange(1 << 31),
            queue_offset=rng.randrange(1 << 63),
            transaction_id=rng.randbytes(16).hex(),
        )
        request = RemotingCommand(310, opaque=rng.randint(-(1 << 31), (1 << 31) - 1))
        ordinary = request.response(ResponseCode.SUCCESS, header=header)
        ordinary.ext_fields.update(MARKS)
        frame = quick(request, header)
        assert frame is not None
        assert Connection().receive(frame) == Connection().receive(encode_command(ordinary))


@pytest.mark.parametrize(
    ("transaction_id", "serialize_type"), [(None, 0), ("", 0), ('a"b', 0), ("a\\b", 0), ("ü", 0), ("plain", 1)]
)
def test_unusual_answers_use_ordinary_encoder(transaction_id: str | None, serialize_type: int) -> None:
    header = SendMessageResponseHeader(msg_id="00", queue_id=0, queue_offset=0, transaction_id=transaction_id)
    assert quick(RemotingCommand(310, serialize_type=serialize_type), header) is None


@pytest.mark.parametrize("transaction_id", [None, "7F000001"])
def test_answer_to_batch_equals_encoded_answer(rng: random.Random, transaction_id: str | None) -> None:
    for count in (2, 3, 50):
        msg_ids = ",".join(rng.randbytes(16).hex().upper() for _ in range(count))
        header = SendMessageResponseHeader(
            msg_id=msg_ids,
            queue_id=rng.randrange(1 << 31),
            queue_offset=rng.randrange(1 << 63),
            transaction_id=transaction_id,
        )
        request = RemotingCommand(320, opaque=rng.randint(-(1 << 31), (1 << 31) - 1))
        ordinary = request.response(ResponseCode.SUCCESS, header=header)
        ordinary.ext_fields.update(MARKS)
        frame = quick_batch(request, header)
        assert frame is not None
        assert Connection().receive(frame) == Connection().receive(encode_command(ordinary))


@pytest.mark.parametrize(
    ("transaction_id", "serialize_type", "msg_ids"),
    [("", 0, "00,01"), ('a"b', 0, "00,01"), ("plain", 1, "00,01"), ("plain", 0, "0" * MAX_FRAME_BYTES)],
)
def test_batch_with_special_properties_uses_ordinary_encoder(
    transaction_id: str, serialize_type: int, msg_ids: str
) -> None:
    header = SendMessageResponseHeader(msg_id=msg_ids, queue_id=0, queue_offset=0, transaction_id=transaction_id)
    assert quick_batch(RemotingCommand(320, serialize_type=serialize_type), header) is None


def found(**values: int | None) -> PullMessageResponseHeader:
    given = {"suggest_which_broker_id": 0, "next_begin_offset": 5, "min_offset": 1, "max_offset": 9}
    return PullMessageResponseHeader(**{**given, "topic_sys_flag": 0, "group_sys_flag": 1, **values})


def test_quick_pull_answer_has_head_of_plain_encoder(rng: random.Random) -> None:
    for _ in range(50):
        body = rng.randbytes(rng.randrange(50))
        header = found(next_begin_offset=rng.randrange(1 << 63), max_offset=rng.randrange(1 << 63))
        request = RemotingCommand(11, opaque=rng.randint(-(1 << 31), (1 << 31) - 1))
        head = encode_found_head(request, "FOUND", header, len(body))
        assert head is not None
        ordinary = encode_head(request.response(ResponseCode.SUCCESS, "FOUND", header=header), len(body))
        assert Connection().receive(head + body) == Connection().receive(ordinary + body)


def test_pull_answer_with_special_header_uses_ordinary_encoder() -> None:
    request = RemotingCommand(11)
    assert encode_found_head(RemotingCommand(11, serialize_type=1), "FOUND", found(), 0) is None
    assert encode_found_head(request, "FOUND", found(group_sys_flag=None), 0) is None
    assert encode_found_head(request, "FOUND", found(forbidden_type=1), 0) is None
    assert encode_found_head(request, "FOUND", found(), MAX_FRAME_BYTES) is None
