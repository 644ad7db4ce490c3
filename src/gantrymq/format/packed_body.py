"""Bodies as their producer packed them: zlib, LZ4 frames or Zstandard; the libraries are imported on first use.

Source: Compressor and CompressionType of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.model import flags


def _zlib(body: bytes) -> bytes:
    from isal import isal_zlib

    return isal_zlib.decompress(body)


def _lz4(body: bytes) -> bytes:
    import lz4.frame

    unpacked: bytes = lz4.frame.decompress(body)
    return unpacked


def _zstd(body: bytes) -> bytes:
    import zstandard

    # Not zstandard.decompress(): that believes a size in the frame's header, and takes the memory at once.
    parts = []
    while body:
        frame = zstandard.ZstdDecompressor().decompressobj()
        parts.append(frame.decompress(body))
        if not frame.eof:
            raise ValueError("its Zstandard frame is cut short")
        body = frame.unused_data
    return b"".join(parts)


# By the compression bits of sysFlag. Each raises an error of its library where the body is no such stream.
UNPACKERS: dict[int, Callable[[bytes], bytes]] = {
    0: _zlib,
    flags.COMPRESSION_ZLIB: _zlib,
    flags.COMPRESSION_LZ4: _lz4,
    flags.COMPRESSION_ZSTD: _zstd,
}
