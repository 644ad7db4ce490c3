"""Compressing bodies with zlib, as LZ4 frames or with Zstandard; :mod:`gantrymq.format.packed_body` is the inverse.

Source: CompressionType, ZlibCompressor, Lz4Compressor, ZstdCompressor.
"""

from enum import Enum

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
