"""Compression of bodies with zlib, as LZ4 frames or with Zstandard. :mod:`gantrymq.format.packed_body` decompresses.

Source: CompressionType, ZlibCompressor, Lz4Compressor, ZstdCompressor.
"""

from collections.abc import Callable, Mapping
from enum import Enum

from gantrymq.model import flags


class CompressionType(Enum):
    """The compression of a producer. The values are bits of sysFlag."""

    ZLIB = flags.COMPRESSION_ZLIB
    LZ4 = flags.COMPRESSION_LZ4
    ZSTD = flags.COMPRESSION_ZSTD


def _zlib(body: bytes, level: int) -> bytes:
    import zlib

    return zlib.compress(body, level)


def _lz4(body: bytes, level: int) -> bytes:
    import lz4.frame

    packed: bytes = lz4.frame.compress(body)
    return packed


def _zstd(body: bytes, level: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(body)


_COMPRESS: Mapping[CompressionType, Callable[[bytes, int], bytes]] = {
    CompressionType.ZLIB: _zlib,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}


def compress(body: bytes, kind: CompressionType, level: int) -> bytes:
    """The compressed body. ``level`` is RocketMQ's (0 to 9, default 5); LZ4 ignores it."""
    return _COMPRESS[kind](body, level)
