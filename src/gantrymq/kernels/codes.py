"""The numbers that kernels and their callers share: rows of the column matrix, checks and stop codes.

The column matrix is ``columns[N_COLUMNS, capacity]``, int64, C order: one row for each field, one column for each
record. ``*_AT`` and ``POS`` are absolute positions in the scanned buffer, ``*_LENGTH`` and ``SIZE`` bytes,
``*_TIMESTAMP`` milliseconds. All numbers are signed as in ``gantrymq.format.record``. Dispatch uses only the first
rows, and ``digest`` keeps only those, because its threads share the memory bandwidth.
"""

POS = 0
SIZE = 1
QUEUE_OFFSET = 2
PHY_OFFSET = 3
STORE_TIMESTAMP = 4
CRC_OK = 5  # 1, or 0 if a marking check found a wrong CRC
N_DISPATCH_COLUMNS = 6
VERSION = 6
BODY_CRC = 7
QUEUE_ID = 8
FLAG = 9
SYS_FLAG = 10
BORN_TIMESTAMP = 11
BORN_HOST_AT = 12
STORE_HOST_AT = 13
RECONSUME_TIMES = 14
PREPARED_OFFSET = 15
BODY_AT = 16
BODY_LENGTH = 17
TOPIC_AT = 18
TOPIC_LENGTH = 19
PROPERTIES_AT = 20
PROPERTIES_LENGTH = 21
N_COLUMNS = 22

# Rows of ``cut.cut_bodies``: where a body begins and ends in the records, where the record without it ends in the copy.
CUT_BODY_AT, CUT_BODY_END, CUT_END, CUT_QUEUE_OFFSET, CUT_CRC_OK, CUT_SYS_FLAG = range(6)
N_CUTS = 6

RECORDS_AHEAD = 16  # how many records ahead kernels prefetch the parts of a record

CHECK_OFF = 0
CHECK_BODY = 1  # stop at a body with a wrong CRC
CHECK_MARK = 2  # the same, but mark the record in CRC_OK and continue
CHECK_WHOLE_RECORD = 3  # stop at a record with a missing or wrong __CRC32# property
CHECK_MARK_WHOLE_RECORD = 4  # the same, but mark the record and continue

STOP_DONE = 0  # the whole request was done
STOP_RANGE = 1  # the given end was reached
STOP_FULL = 2  # an output array is full: use the result and call again from the stop position
STOP_BLANK = 3  # from here on, the reasons of format.stop_reason.StopReason
STOP_ZEROS = 4
STOP_HALF = 5
STOP_MAGIC = 6
STOP_SIZE = 7
STOP_CRC = 8
STOP_NO_BLANK = 9
STOP_TABLE_FULL = 10  # the queue table must grow
STOP_FULL_FILE = 11  # the next record does not fit into the file
STOP_LENGTH = 12  # a topic or properties too long for a record

CHAIN_LOOP = 1  # an entry's predecessor is the entry itself or a newer one
CHAIN_BROKEN = 2  # the predecessor is not the one that was newest in the slot before
CHAIN_SLOT = 3  # a slot does not point to its newest entry

ENTRY_STRAY = 1  # an index entry that points to none of the compared records
ENTRY_HASH = 2  # it points to a record without a key of that hash
ENTRY_TIME = 3  # it points to a record with another store time
SURELY_BEHIND = 8  # this many consecutive index entries that point further on are no accident

# The values of a JSON object's fields.
JSON_MISSING, JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_INTEGER, JSON_FRACTION, JSON_TEXT = range(7)
MAX_UNKNOWN_KEYS = 16

# The numbers of an index file's header, in their order.
BEGIN_TIMESTAMP, END_TIMESTAMP, BEGIN_PHY_OFFSET, END_PHY_OFFSET, SLOT_COUNT, INDEX_COUNT = range(6)
INDEX_PAGE_BYTES = 4096

MAX_HASHES_OF_RECORD = 16386  # UNIQ_KEY, the most keys that 32767 bytes can hold, and the tags
MAX_HOST_TEXT = 51  # eight groups of four digits, a sign and ten digits, and the colons

RESULT_WORDS = 8  # the most numbers that a kernel can return
