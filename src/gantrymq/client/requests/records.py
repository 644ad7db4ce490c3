"""Decodes pulled records to message objects. For large amounts use the kernels, which make no object a message.

Source: MessageDecoder.decodes, PullAPIWrapper.processPullResult.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TypeVar

from gantrymq.errors import RemotingCommandError
from gantrymq.format.lazy_record import READERS, lazy_messages
from gantrymq.format.packed_body import with_decompressed_body
from gantrymq.logs import get_logger
from gantrymq.model import flags
from gantrymq.model.message import Readers, StoredMessage
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE

M = TypeVar("M", bound=StoredMessage)

log = get_logger("gantrymq.client")


def decode_records(
    records: bytes, *, decompressed: bool = True, max_decompressed_body_size: int = MAX_DECOMPRESSED_BODY_SIZE
) -> Iterator[StoredMessage]:
    """The messages of a pull, in order. With ``decompressed`` the bodies are decompressed and sysFlag says so.

    A message has its own copy of the body and the rest of its record, of which a field is decoded at its first use.

    A body that cannot be decompressed, or that is larger than the limit when decompressed, is returned as it is stored,
    with its sysFlag unchanged. One bad body so does not stop the queue. Nor does a body with a wrong CRC: a warning is
    logged.

    Raises RemotingCommandError if the bytes are not records.
    """
    limit = max_decompressed_body_size if decompressed else None
    return chain.from_iterable(decode_lists(records, StoredMessage, READERS, limit))


def decode_lists(
    records: bytes, kind: type[M], readers: Readers, max_decompressed_body_size: int | None
) -> Iterator[list[M]]:
    """The messages of a pull in lists, as :func:`decode_records`; without a limit no body is decompressed."""
    from gantrymq.kernels.cuts import cut_bodies  # a client that reads nothing loads no kernels

    for group in lazy_messages(bytes(records), kind, readers, cut_bodies):
        messages = group.messages
        if 0 in group.are_whole:
            first = messages[group.are_whole.index(0)]
            log.warning(
                "a body has a wrong CRC",
                msg_id=first.msg_id,
                topic=first.topic,
                queue_offset=first.queue_offset,
                messages=group.are_whole.count(0),
            )
        # Few different flags, and no call for each message.
        if max_decompressed_body_size is not None and any(flag & flags.COMPRESSED for flag in set(group.sys_flags)):
            messages = [or_as_stored(message, max_decompressed_body_size) for message in messages]
        yield messages
        if group.stop_reason:
            at = f"at byte {group.stop_position} of {len(records)}"
            raise RemotingCommandError(f"pulled records: {at} is {group.stop_reason.value}")


def or_as_stored(message: M, max_decompressed_body_size: int) -> M:
    """The message with its body decompressed. If that fails, the message as it is stored, and a warning is logged."""
    try:
        return with_decompressed_body(message, max_decompressed_body_size)
    except ValueError as error:
        log.warning("a body comes as it is stored", msg_id=message.msg_id, topic=message.topic, reason=str(error))
        return message
