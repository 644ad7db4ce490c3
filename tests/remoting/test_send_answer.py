"""The template of an answer to a send gives the frame that the ordinary way gives."""

from __future__ import annotations

import random

import pytest

from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.headers.send import SendMessageResponseHeader
from gantrymq.remoting.send_answer import encode_send_answer

MARKS = (("MSG_REGION", 'Region "50 %s"'), ("TRACE_ON", "true"))


def answers(request: RemotingCommand, header: SendMessageResponseHeader) -> tuple[bytes | None, bytes]:
    ordinary = request.response(ResponseCode.SUCCESS, header=header)
    ordinary.ext_fields.update(MARKS)
    return encode_send_answer(request, header, MARKS), encode_command(ordinary)


def test_it_is_the_ordinary_answer(rng: random.Random) -> None:
    for _ in range(50):
        header = SendMessageResponseHeader(
            msg_id=rng.randbytes(16).hex().upper(),
            queue_id=rng.randrange(1 << 31),
            queue_offset=rng.randrange(1 << 63),
            transaction_id=rng.randbytes(16).hex(),
        )
        quick, ordinary = answers(RemotingCommand(310, opaque=rng.randint(-(1 << 31), (1 << 31) - 1)), header)
        assert quick is not None
        assert Connection().receive(quick) == Connection().receive(ordinary)


@pytest.mark.parametrize(
    ("transaction_id", "serialize_type"), [(None, 0), ("", 0), ('a"b', 0), ("a\\b", 0), ("ü", 0), ("plain", 1)]
)
def test_what_is_not_plain_goes_the_ordinary_way(transaction_id: str | None, serialize_type: int) -> None:
    header = SendMessageResponseHeader(msg_id="00", queue_id=0, queue_offset=0, transaction_id=transaction_id)
    assert encode_send_answer(RemotingCommand(310, serialize_type=serialize_type), header, MARKS) is None
