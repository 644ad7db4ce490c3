"""The answer to a send that was stored, as a frame: by far the most frequent one of a broker, so it is a template.

Source: SendMessageProcessor.handlePutMessageResult.
"""

from __future__ import annotations

from functools import lru_cache

from gantrymq.remoting.codes import VERSION_5_5_0, LanguageCode, ResponseCode, SerializeType
from gantrymq.remoting.command import FRAME_HEAD, RESPONSE_FLAG, RemotingCommand
from gantrymq.remoting.headers.send import SendMessageResponseHeader
from gantrymq.remoting.json_header import encode_json_header

Marks = tuple[tuple[str, str], ...]

_JSON = int(SerializeType.JSON)
_OPAQUE = 1_234_567_890


def encode_send_answer(request: RemotingCommand, header: SendMessageResponseHeader, marks: Marks) -> bytes | None:
    """SUCCESS with ``header`` and the fields ``marks``.

    None where the ordinary way must be taken: another form than JSON, a transaction id that is not letters and digits.
    """
    transaction_id = header.transaction_id
    if (
        request.serialize_type != _JSON
        or not transaction_id
        or not (transaction_id.isascii() and transaction_id.isalnum())
    ):
        return None
    values = (request.opaque, header.msg_id, header.queue_id, header.queue_offset, transaction_id)
    raw = (_template(marks) % values).encode()
    return FRAME_HEAD.pack(4 + len(raw), len(raw)) + raw


@lru_cache(maxsize=16)
def _template(marks: Marks) -> str:
    fields = {"msgId": "%s", "queueId": "%d", "queueOffset": "%d", "transactionId": "%s"}
    marked = {name: value.replace("%", "%%") for name, value in marks}
    raw = encode_json_header(
        ResponseCode.SUCCESS, LanguageCode.PYTHON, VERSION_5_5_0, _OPAQUE, RESPONSE_FLAG, None, {**fields, **marked}
    )
    before, _, after = raw.decode().partition(str(_OPAQUE))
    return f"{before}%d{after}"
