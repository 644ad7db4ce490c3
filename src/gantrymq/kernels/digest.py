"""Scanning and what dispatch wants to know, in one pass.

A record's topic and properties are in the processor's cache when its CRC is done; kernels that come behind a batch of
megabytes wait for that memory again, and needed three times as long.

``buf``, ``columns``, checks and stop codes are those of ``scan``.

Source: CommitLog.checkMessageAndReturnSize, DefaultMessageStore.doDispatch.
"""

from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import (
    PHY_OFFSET,
    SIZE,
    STOP_DONE,
    STOP_FULL,
    STOP_RANGE,
    STOP_TABLE_FULL,
    STORE_TIMESTAMP,
    SYS_FLAG,
)
from gantrymq.kernels.dispatch_properties import dispatch_properties
from gantrymq.kernels.index import hash_record, hashed_topic, no_topic
from gantrymq.kernels.jit import kernel
from gantrymq.kernels.queue_table import QueueTable
from gantrymq.kernels.queues import NO_ROOM, queue_of_record, tags_code_of
from gantrymq.kernels.scan import read_checked
from gantrymq.kernels.torn import is_torn
from gantrymq.model.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK


@kernel
def digest(
    buf: Bytes,
    base: int,
    start: int,
    stop: int,
    limit: int,
    check: int,
    columns: Int64s,
    table: QueueTable,
    ordinals: Int64s,
    delay_levels_ms: Int64s,
    tags: Int64s,
    entries: Int64s,
) -> tuple[int, int, int, int, int, int]:
    """``scan``, and for each record what its queue and the index take; returns (count, stop code, stop position,
    index entries, first torn record, first misplaced record).

    ``ordinals[:count]`` are the records' queues in ``table`` (``assign_queues``), ``tags[:count]`` their tags codes
    (``tags_codes``). PHY_OFFSET is where a record lies, ``base`` being the offset of ``buf``'s first byte; the first
    record that says something else is misplaced. The rows of ``entries`` take the index entries of all records in
    RocketMQ's order: key hashes (``index_hashes``, with tags), physical offsets and store timestamps. STOP_FULL also
    where ``entries`` is full (room for ``MAX_HASHES_OF_RECORD`` is always enough for one record), STOP_TABLE_FULL where
    the table must grow. Without a torn record (``first_torn``), or a misplaced one, its number is ``count``. ``buf``
    begins at a sector.
    """
    limit = min(limit, buf.size)
    capacity = min(columns.shape[1], tags.size, ordinals.size)
    hashes, offsets, timestamps = entries[0], entries[1], entries[2]
    position, count, found, torn, misplaced = start, 0, 0, -1, -1
    topic, code = no_topic(), STOP_RANGE
    while position < stop:
        if count == capacity:
            code = STOP_FULL
            break
        code = read_checked(buf, position, limit, check, columns, count)
        if code != STOP_DONE:
            break
        code, before = STOP_RANGE, found
        spans = dispatch_properties(buf, columns, count)
        if columns[SYS_FLAG, count] & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            topic = hashed_topic(buf, columns, count, topic)
            after = hash_record(buf, spans, topic.prefix, True, hashes, found)
            if after < 0:
                code = STOP_FULL
                break
            offsets[found:after] = base + position
            timestamps[found:after] = columns[STORE_TIMESTAMP, count]
            found = after
        ordinal = queue_of_record(buf, columns, count, table)
        if ordinal == NO_ROOM:
            found = before
            code = STOP_TABLE_FULL
            break
        ordinals[count] = ordinal
        tags[count] = tags_code_of(buf, columns, count, spans, delay_levels_ms)
        if misplaced < 0 and columns[PHY_OFFSET, count] != base + position:
            misplaced = count
        columns[PHY_OFFSET, count] = base + position
        if torn < 0 and is_torn(buf, columns, count):
            torn = count
        position += columns[SIZE, count]
        count += 1
    return count, code, position, found, count if torn < 0 else torn, count if misplaced < 0 else misplaced
