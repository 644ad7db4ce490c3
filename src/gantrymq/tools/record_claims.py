"""What records at given places of the log say of themselves: their queue, their offset in it, their time.

No CRC is looked at, so a record with a damaged body still says which message it was.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gantrymq.kernels import codes
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.tools.record_lookup import RecordLookup


class RecordClaim(NamedTuple):
    """The record at ``phy_offset`` says that it is this message."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    store_timestamp_ms: int


def claims_at(lookup: RecordLookup, places: Iterable[int]) -> dict[int, RecordClaim]:
    """By place, what the record there says; without the places where no record begins."""
    ordered = sorted(set(places))
    claims: dict[int, RecordClaim] = {}
    for numbers, batch in lookup.read(np.array(ordered, np.int64)):
        for row, number in enumerate(numbers.tolist()):
            if batch.columns[codes.SIZE, row]:
                claims[ordered[number]] = claim_of(batch, row, ordered[number])
    return claims


def claim_of(batch: RecordBatch, row: int, place: int) -> RecordClaim:
    """What the record of a row, which lies at ``place``, says."""
    column = batch.columns[:, row].tolist()
    topic_at, length = column[codes.TOPIC_AT], column[codes.TOPIC_LENGTH]
    return RecordClaim(
        decode_utf8(batch.buffer[topic_at : topic_at + length].tobytes()),
        column[codes.QUEUE_ID],
        column[codes.QUEUE_OFFSET],
        place,
        column[codes.SIZE],
        column[codes.STORE_TIMESTAMP],
    )
