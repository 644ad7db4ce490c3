"""Scans records and computes the data that dispatch needs, in one pass.

A record's topic and properties are in the processor's cache after its CRC. Separate kernels that run after a batch of
megabytes wait for that memory again, and needed three times as long.

Only the rows that dispatch needs are kept, because all threads share the memory bandwidth.

``buf``, checks and stop codes are those of ``scan``.

Source: CommitLog.checkMessageAndReturnSize, DefaultMessageStore.doDispatch.
"""

from gantrymq.kernels.arrays import Bytes, Int32s, Int64s
from gantrymq.kernels.codes import (
    CHECK_MARK,
    CHECK_MARK_WHOLE_RECORD,
    CRC_OK,
    PHY_OFFSET,
    POS,
    QUEUE_OFFSET,
    SIZE,
    STOP_DONE,
    STOP_FULL,
    STOP_RANGE,
    STOP_TABLE_FULL,
    STORE_TIMESTAMP,
    SYS_FLAG,
)
from gantrymq.kernels.entries import dispatch_properties
from gantrymq.kernels.index import hash_record, hashed_topic, no_topic
from gantrymq.kernels.jit import helper, kernel
from gantrymq.kernels.queue_table import QueueTable
from gantrymq.kernels.queues import NO_QUEUE, NO_ROOM, queue_of_record, tags_code_of
from gantrymq.kernels.scan import read_checked
from gantrymq.kernels.torn import is_torn
from gantrymq.model.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK


@helper
def _keep(record: Int64s, phy_offset: int, columns: Int64s, i: int) -> None:
    columns[POS, i] = record[POS, 0]
    columns[SIZE, i] = record[SIZE, 0]
    columns[QUEUE_OFFSET, i] = record[QUEUE_OFFSET, 0]
    columns[PHY_OFFSET, i] = phy_offset
    columns[STORE_TIMESTAMP, i] = record[STORE_TIMESTAMP, 0]
    columns[CRC_OK, i] = record[CRC_OK, 0]


@kernel
def digest(
    buf: Bytes,
    base: int,
    start: int,
    stop: int,
    limit: int,
    check: int,
    record: Int64s,
    columns: Int64s,
    table: QueueTable,
    ordinals: Int64s,
    delay_levels_ms: Int64s,
    tags: Int64s,
    hashes: Int32s,
    hashed: Int32s,
) -> tuple[int, int, int, int, int, int]:
    """Scan records, and compute the queue, tags code and index entries of each.

    Returns (count, stop code, stop position, index entries, first torn record, first misplaced record).

    ``columns`` has the first ``N_DISPATCH_COLUMNS`` rows; ``record`` is a full matrix for one record, as working
    memory. ``ordinals[:count]`` are the records' queues in ``table`` (``assign_queues``), ``tags[:count]`` their tags
    codes (``tags_codes``). PHY_OFFSET is a record's real offset; ``base`` is that of ``buf``'s first byte. A record
    that has another offset in itself is misplaced. ``hashes`` gets the key hashes of all records and ``hashed`` the
    record of each (``index_hashes``, with tags). A marking check marks a torn record too (``first_torn``), and a marked
    record enters neither a queue nor the index.

    STOP_FULL is also returned if ``hashes`` is full (room for ``MAX_HASHES_OF_RECORD`` is always enough for one
    record), and STOP_TABLE_FULL if the table must grow. Without a torn or a misplaced record, its index is ``count``.
    ``buf`` begins at a sector.
    """
    limit = min(limit, buf.size)
    capacity = min(columns.shape[1], tags.size, ordinals.size)
    position, count, hash_count, torn, misplaced = start, 0, 0, -1, -1
    topic, code = no_topic(), STOP_RANGE
    while position < stop:
        if count == capacity:
            code = STOP_FULL
            break
        code = read_checked(buf, position, limit, check, record, 0)
        if code != STOP_DONE:
            break
        code, phy_offset = STOP_RANGE, base + position
        if is_torn(buf, record, 0):
            torn = count if torn < 0 else torn
            if check in (CHECK_MARK, CHECK_MARK_WHOLE_RECORD):
                record[CRC_OK, 0] = 0
        ordinals[count], tags[count] = NO_QUEUE, 0
        if record[CRC_OK, 0] == 1:
            spans, before = dispatch_properties(buf, record, 0), hash_count
            if record[SYS_FLAG, 0] & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                topic = hashed_topic(buf, record, 0, topic)
                after = hash_record(buf, spans, topic.prefix, True, hashes, hash_count)
                if after < 0:
                    code = STOP_FULL
                    break
                hashed[hash_count:after] = count
                hash_count = after
            ordinal = queue_of_record(buf, record, 0, table)
            if ordinal == NO_ROOM:
                code, hash_count = STOP_TABLE_FULL, before
                break
            ordinals[count] = ordinal
            tags[count] = tags_code_of(buf, record, 0, spans, delay_levels_ms)
        if misplaced < 0 and record[PHY_OFFSET, 0] != phy_offset:
            misplaced = count
        _keep(record, phy_offset, columns, count)
        position += record[SIZE, 0]
        count += 1
    return count, code, position, hash_count, count if torn < 0 else torn, count if misplaced < 0 else misplaced
