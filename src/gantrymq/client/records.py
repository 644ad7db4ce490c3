"""Pulled records as messages, one object each: for people and small amounts. Large ones go through the kernels.

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
    """The messages of a pull, in order; their bodies decompressed unless told, and their sysFlag then says so.

    A body that is not what its sysFlag says, or larger than the limit when decompressed, comes as it is stored, its
    sysFlag unchanged: its queue goes on. Raises RemotingCommandError where the bytes are no records.
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
    """The message with its body decompressed; where that cannot be done, as it is stored, and a warning says why."""
    try:
        return with_decompressed_body(message, max_decompressed_body_size)
    except ValueError as error:
        log.warning("a body comes as it is stored", msg_id=message.msg_id, topic=message.topic, reason=str(error))
        return message
