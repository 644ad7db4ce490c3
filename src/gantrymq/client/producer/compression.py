"""Compression of bodies with zlib, as LZ4 frames or with Zstandard. :mod:`gantrymq.format.packed_body` decompresses.

Source: CompressionType, ZlibCompressor, Lz4Compressor, ZstdCompressor.
"""

from enum import Enum

from gantrymq.model import flags


class CompressionType(Enum):
    """The compression of a producer. The values are bits of sysFlag."""

    ZLIB = flags.COMPRESSION_ZLIB
    LZ4 = flags.COMPRESSION_LZ4
    ZSTD = flags.COMPRESSION_ZSTD


def compress(body: bytes, kind: CompressionType, level: int) -> bytes:
    """The compressed body. ``level`` is RocketMQ's (0 to 9, default 5); LZ4 ignores it."""
    if kind is CompressionType.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body)
        return packed
    if kind is CompressionType.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(body)
    import zlib

    return zlib.compress(body, level)
