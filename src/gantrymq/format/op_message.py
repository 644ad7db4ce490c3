"""Op messages: which half messages of a transaction queue are decided.

An op message of RMQ_SYS_TRANS_OP_HALF_TOPIC has the tag ``d``. Its body names queue offsets in the half queue of the
same number, each followed by a comma; one of 4.9.8 names a single offset without a comma.

Pure: no I/O, no clock.

Source: TransactionalMessageUtil, TransactionalMessageServiceImpl.fillOpRemoveMap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gantrymq.model.java import LONG_MAX, parse_number

REMOVE_TAG = "d"
OFFSET_SEPARATOR = ","
_NO_NUMBER = -1


def op_body(offsets: Sequence[int]) -> bytes:
    """The body of an op message."""
    return "".join(f"{offset}{OFFSET_SEPARATOR}" for offset in offsets).encode()


def decided_offsets(tags: str, body: bytes) -> Iterator[int]:
    """The queue offsets that an op message names. Empty if the tag is not ``d``. Parts that are not numbers are
    skipped.
    """
    if tags != REMOVE_TAG:
        return
    for text in body.decode("ascii", "replace").split(OFFSET_SEPARATOR):
        if (offset := number(text)) >= 0:
            yield offset


def number(text: str | None) -> int:
    """A number that is not negative, of a property or of an op message; -1 for any other text."""
    try:
        return max(parse_number(text or "", LONG_MAX), _NO_NUMBER)
    except ValueError:
        return _NO_NUMBER
