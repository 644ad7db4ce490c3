"""Bodies compressed as sysFlag says: zlib, LZ4 frames or Zstandard.

Source: CompressionType, ZlibCompressor, Lz4Compressor, ZstdCompressor.
"""

from enum import Enum

from gantrymq.format.packed_body import UNPACKERS
from gantrymq.model import flags


class CompressionType(Enum):
    """How a producer compresses; the values are the bits of sysFlag."""

    ZLIB = flags.COMPRESSION_ZLIB
    LZ4 = flags.COMPRESSION_LZ4
    ZSTD = flags.COMPRESSION_ZSTD


def compress(body: bytes, kind: CompressionType, level: int) -> bytes:
    """A body, compressed at RocketMQ's ``level`` (0 to 9, 5 unless set); LZ4 takes no notice of it."""
    if kind is CompressionType.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body)
        return packed
    if kind is CompressionType.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(body)
    import zlib

    return zlib.compress(body, level)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """A body, decompressed; no type in ``sys_flag`` means zlib. Raises ValueError saying what is wrong."""
    kind = sys_flag & flags.COMPRESSION_MASK
    unpack = UNPACKERS.get(kind)
    if unpack is None:
        raise ValueError(f"compression type {kind >> 8} is not known")
    try:
        return unpack(body)
    except Exception as error:  # each library has errors of its own
        raise ValueError(f"its body cannot be decompressed: {error}") from error
