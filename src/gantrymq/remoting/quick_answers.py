"""Templates for a broker's most frequent answers: to a stored send, to a pull that found messages, and to a run.

A function returns None if the ordinary encoder must be used: for a header that is not JSON, and for values that JSON
would escape.

Source: SendMessageProcessor.handlePutMessageResult, PullMessageProcessor.composeResponseHeader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import cast

from gantrymq.remoting.codes import VERSION_5_5_0, LanguageCode, ResponseCode, SerializeType
from gantrymq.remoting.command import FRAME_HEAD, MAX_FRAME_BYTES, RESPONSE_FLAG, RemotingCommand
from gantrymq.remoting.frame_header import encode_json_header
from gantrymq.remoting.headers.pull import PullMessageResponseHeader

Marks = tuple[tuple[str, str], ...]

_JSON = int(SerializeType.JSON)
_OPAQUE = 1_234_567_890
_MARK = "\0"  # JSON contains it only escaped
_SEND_HOLES = (("msgId", "%s"), ("queueId", "%d"), ("queueOffset", "%d"), ("transactionId", "%s"))
_PULL_HOLES = (
    *(("suggestWhichBrokerId", "%d"), ("nextBeginOffset", "%d"), ("minOffset", "%d"), ("maxOffset", "%d")),
    *(("topicSysFlag", "%d"), ("groupSysFlag", "%d")),
)


class SendAnswers:
    """Frames of a SUCCESS to a send. The fields ``marks`` follow those of a SendMessageResponseHeader."""

    def __init__(self, marks: Marks) -> None:
        self._text = _template(None, _SEND_HOLES + marks)
        self._text_of_batch = _template(None, _SEND_HOLES[:-1] + marks)  # batches seldom have a transactionId

    def pieces(self, msg_id_begin: str) -> list[bytes]:
        """The constant parts of the header between its holes: opaque, msgId, queueId, queueOffset, transactionId.

        ``msg_id_begin`` is the part of msgId that is the same in all answers.
        """
        pieces = [""]
        for part in re.split("(%[%ds])", self._text):
            if part in ("%d", "%s"):
                pieces.append("")
            else:
                pieces[-1] += "%" if part == "%%" else part
        pieces[1] += msg_id_begin
        return [piece.encode() for piece in pieces]

    def encode(
        self, request: RemotingCommand, msg_id: str, queue_id: int, queue_offset: int, transaction_id: str | None
    ) -> bytes | None:
        """Encode one answer."""
        if request.serialize_type != _JSON or not transaction_id:
            return None
        if not (transaction_id.isascii() and transaction_id.isalnum()):
            return None
        return _head(self._text % (request.opaque, msg_id, queue_id, queue_offset, transaction_id), 0)

    def encode_batch(
        self,
        request: RemotingCommand,
        msg_ids: memoryview,
        queue_id: int,
        queue_offset: int,
        transaction_id: str | None,
    ) -> Sequence[bytes] | None:
        """Encode the answer to a batch, in pieces: ``msg_ids`` may be 6 MB of text, which is not copied."""
        if request.serialize_type != _JSON:
            return None
        if transaction_id is None:
            text = self._text_of_batch % (request.opaque, _MARK, queue_id, queue_offset)
        elif transaction_id.isascii() and transaction_id.isalnum():
            text = self._text % (request.opaque, _MARK, queue_id, queue_offset, transaction_id)
        else:
            return None
        before, _, behind = text.encode().partition(_MARK.encode())
        size = len(before) + len(msg_ids) + len(behind)
        if size + FRAME_HEAD.size > MAX_FRAME_BYTES:
            return None
        return FRAME_HEAD.pack(4 + size, size) + before, cast(bytes, msg_ids), behind


def encode_successes(opaques: Iterable[int]) -> bytes:
    """The frames of a SUCCESS without fields to requests in JSON with these numbers."""
    text = _template(None, ())
    frames: list[bytes] = []
    for opaque in opaques:
        header = (text % opaque).encode()
        frames += (FRAME_HEAD.pack(4 + len(header), len(header)), header)
    return b"".join(frames)


def encode_found_head(
    request: RemotingCommand, remark: str, header: PullMessageResponseHeader, body_bytes: int
) -> bytes | None:
    """The frame of a SUCCESS with ``header``, up to its body of ``body_bytes`` bytes."""
    if request.serialize_type != _JSON or header.topic_sys_flag is None or header.group_sys_flag is None:
        return None
    if header.offset_delta is not None or header.forbidden_type is not None:
        return None
    values = (
        *(request.opaque, header.suggest_which_broker_id, header.next_begin_offset, header.min_offset),
        *(header.max_offset, header.topic_sys_flag, header.group_sys_flag),
    )
    return _head(_template(remark, _PULL_HOLES) % values, body_bytes)


def _head(text: str, body_bytes: int) -> bytes | None:
    header = text.encode()
    size = len(header)
    length = 4 + size + body_bytes
    return FRAME_HEAD.pack(length, size) + header if length + 4 <= MAX_FRAME_BYTES else None


@lru_cache(maxsize=16)
def _template(remark: str | None, fields: Marks) -> str:
    """The text of a header as the ordinary encoder makes it, with ``%`` holes for the opaque and the fields."""
    marked = {name: value if value in ("%s", "%d") else value.replace("%", "%%") for name, value in fields}
    raw = encode_json_header(
        ResponseCode.SUCCESS, LanguageCode.PYTHON, VERSION_5_5_0, _OPAQUE, RESPONSE_FLAG, remark, marked
    )
    before, _, after = raw.decode().partition(str(_OPAQUE))
    return f"{before}%d{after}"
