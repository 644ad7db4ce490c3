"""The properties of a RocksDB table file (``*.sst``): the column family it belongs to and how many entries it has.

gantrymq reads no data of RocksDB. The properties say what kind of data a store keeps there.

============  ==========================================================================
part          layout
============  ==========================================================================
footer        53 bytes: checksum type, two handles in 40 bytes, version (4), magic (8), little-endian
handle        offset and size of a block, both varints; the first handle is that of the metaindex
block         entries, then the positions of the restarts (4 bytes each) and their count (4)
entry         shared length, new length, value length (varints), the new part of the key, the value
metaindex     names of further blocks, whose values are handles; one is ``rocksdb.properties``
============  ==========================================================================

Source: table_format.cc, block_builder.cc, meta_blocks.cc, table_properties.cc of RocksDB.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

_FOOTER_SIZE = 53
_MAGIC = 0x88E241B785F4CFF7
_KNOWN_VERSIONS = range(1, 6)  # from version 6 on the footer has other fields
_PROPERTIES = b"rocksdb.properties"
_FAMILY, _ENTRIES, _DELETIONS = b"rocksdb.column.family.name", b"rocksdb.num.entries", b"rocksdb.deleted.keys"
_MAX_BLOCK_BYTES = 1 << 20
_VARINT_BYTES = 10


class TableProperties(NamedTuple):
    """The column family of a table, how many entries it has, and how many of them delete a key."""

    column_family: str
    entries: int
    deletions: int


def read_properties(size_bytes: int, read_at: Callable[[int, int], bytes]) -> TableProperties | None:
    """Return the properties of a table of ``size_bytes``; ``read_at(position, length)`` reads it.

    Returns None for a file that is damaged, incomplete or of another version.
    """
    footer = read_at(max(size_bytes - _FOOTER_SIZE, 0), _FOOTER_SIZE)
    if len(footer) < _FOOTER_SIZE or int.from_bytes(footer[45:], "little") != _MAGIC:
        return None
    if int.from_bytes(footer[41:45], "little") not in _KNOWN_VERSIONS:
        return None
    try:
        metaindex = dict(_entries(_block(footer[1:], size_bytes, read_at)))
        values = dict(_entries(_block(metaindex[_PROPERTIES], size_bytes, read_at)))
        family = values[_FAMILY].decode("utf-8")
        return TableProperties(family, _varint(values[_ENTRIES], 0)[0], _varint(values.get(_DELETIONS, b"\0"), 0)[0])
    except (KeyError, ValueError):
        return None


def _block(handle: bytes, size_bytes: int, read_at: Callable[[int, int], bytes]) -> bytes:
    """Return the block at a handle. Raises ValueError. Blocks of properties are never compressed."""
    offset, at = _varint(handle, 0)
    length, _ = _varint(handle, at)
    if length > _MAX_BLOCK_BYTES or offset + length > size_bytes:
        raise ValueError("the block is outside of the file")
    return read_at(offset, length)


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each key of a block with its value. Raises ValueError."""
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key = len(block) - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        added, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + added + length > end:
            raise ValueError("an entry is outside of its block")
        key = key[:shared] + block[at : at + added]
        yield key, block[at + added : at + added + length]
        at += added + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it. Raises ValueError."""
    value = 0
    for shift in range(_VARINT_BYTES):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has no end")
