"""Decodes pulled records to message objects. For large amounts use the kernels, which make no object a message.

Source: MessageDecoder.decodes, PullAPIWrapper.processPullResult.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantrymq.errors import RemotingCommandError
from gantrymq.format.packed_body import with_decompressed_body
from gantrymq.format.record import Layout, decode_record, read_layout
from gantrymq.logs import get_logger
from gantrymq.model.message import StoredMessage
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE

log = get_logger("gantrymq.client")


def decode_records(
    records: bytes, *, decompressed: bool = True, max_decompressed_body_size: int = MAX_DECOMPRESSED_BODY_SIZE
) -> Iterator[StoredMessage]:
    """The messages of a pull, in order. With ``decompressed`` the bodies are decompressed and sysFlag says so.

    A body that cannot be decompressed, or that is larger than the limit when decompressed, is returned as it is stored,
    with its sysFlag unchanged. One bad body so does not stop the queue.

    Raises RemotingCommandError if the bytes are not records.
    """
    view = memoryview(records)
    position = 0
    while position < len(view):
        layout = read_layout(view, position, len(view))
        if not isinstance(layout, Layout):
            raise RemotingCommandError(f"pulled records: at byte {position} of {len(view)} is {layout.value}")
        message = decode_record(view, position, layout)
        yield or_as_stored(message, max_decompressed_body_size) if decompressed else message
        position += layout.size


def or_as_stored(message: StoredMessage, max_decompressed_body_size: int) -> StoredMessage:
    """The message with its body decompressed. If that fails, the message as it is stored, and a warning is logged."""
    try:
        return with_decompressed_body(message, max_decompressed_body_size)
    except ValueError as error:
        log.warning("a body comes as it is stored", msg_id=message.msg_id, topic=message.topic, reason=str(error))
        return message
