"""Pulled records as messages, one object each: for people and small amounts. Large ones go through the kernels.

Source: MessageDecoder.decodes, PullAPIWrapper.processPullResult.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gantrymq.client.compression import decompress
from gantrymq.errors import RemotingCommandError
from gantrymq.format.record import Layout, decode_record, read_layout
from gantrymq.logs import get_logger
from gantrymq.model import flags
from gantrymq.model.message import StoredMessage

log = get_logger()


def decode_records(records: bytes, *, decompressed: bool = True) -> Iterator[StoredMessage]:
    """The messages of a pull, in order; their bodies decompressed unless told, and their sysFlag then says so.

    A body that is not what its sysFlag says comes as it is stored, its sysFlag unchanged: its queue goes on. Raises
    RemotingCommandError where the bytes are no records.
    """
    view = memoryview(records)
    position = 0
    while position < len(view):
        layout = read_layout(view, position, len(view))
        if not isinstance(layout, Layout):
            raise RemotingCommandError(f"pulled records: at byte {position} of {len(view)} is {layout.value}")
        message = decode_record(view, position, layout)
        yield _decompressed(message) if decompressed and message.sys_flag & flags.COMPRESSED else message
        position += layout.size


def _decompressed(message: StoredMessage) -> StoredMessage:
    try:
        body = decompress(message.body, message.sys_flag)
    except ValueError as error:
        log.warning("a body comes as it is stored", msg_id=message.msg_id, topic=message.topic, reason=str(error))
        return message
    return replace(message, body=body, sys_flag=message.sys_flag & ~flags.COMPRESSED)
