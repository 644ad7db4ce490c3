"""The bits of ``sysFlag`` (RocketMQ's MessageSysFlag).

========  ==========================================================
bits      meaning
========  ==========================================================
0x001     the body is compressed
0x002     several tags
0x00C     transaction: 0x0 none, 0x4 prepared, 0x8 commit, 0xC rollback
0x010     the born host is an IPv6 address
0x020     the store host is an IPv6 address
0x040     NEED_UNWRAP
0x080     INNER_BATCH
0x700     compression type: 0 or 0x300 zlib, 0x100 LZ4 frame, 0x200 Zstandard
========  ==========================================================
"""

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300


def is_consumable(sys_flag: int) -> bool:
    """Whether a record enters a consume queue: prepared and rollback records do not."""
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


def is_indexable(sys_flag: int) -> bool:
    """Whether a record's keys enter the index: rollback records do not."""
    return sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
