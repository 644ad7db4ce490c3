"""Bodies that a producer compressed with zlib, as LZ4 frames or with Zstandard.

A body of 96 KB can decompress to 3 GB. So the size that a frame declares is not trusted, and decompression stops at a
limit: memory never exceeds the limit plus a few MiB. As in Java, LZ4 and Zstandard frames may follow each other in one
body, and bytes after a zlib stream are ignored. The libraries are imported on first use.

Source: Compressor, CompressionType, ZlibCompressor, Lz4Compressor and ZstdCompressor of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from gantrymq.model import flags
from gantrymq.model.message import StoredMessage
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE

M = TypeVar("M", bound=StoredMessage)

LIMIT_KEY = "maxDecompressedBodySize"
_CHUNK_BYTES = 128 << 10
_ZSTD_BLOCK_BYTES = 128 << 10  # the most that one block decompresses to
_ZSTD_LEAST_BLOCK_BYTES = 4  # of a block that decompresses to that much
_ZSTD_LEAST_STEP_BYTES = 128


def _zlib(body: bytes, limit: int) -> Iterator[bytes]:
    from isal import isal_zlib

    stream = isal_zlib.decompressobj()
    yield stream.decompress(body, limit + 1)  # the output buffer grows by doubling
    if not stream.eof:
        raise ValueError("the zlib stream is truncated")


def _lz4(body: bytes, limit: int) -> Iterator[bytes]:
    # Not lz4.frame.decompress(): it allocates the size that the frame's header declares.
    from lz4.frame import LZ4FrameDecompressor

    while body:
        stream = LZ4FrameDecompressor()
        yield stream.decompress(body, _CHUNK_BYTES)
        while not stream.eof:
            if stream.needs_input:
                raise ValueError("the LZ4 frame is truncated")
            yield stream.decompress(b"", _CHUNK_BYTES)
        body = stream.unused_data or b""


def _zstd(body: bytes, limit: int) -> Iterator[bytes]:
    # Not zstandard.decompress(): it allocates the size that the frame's header declares. A decompressobj() has no limit
    # for its output, so each step gives it only as many bytes as cannot decompress to much more than the rest allows.
    import zstandard

    room, position = limit, 0
    while position < len(body):
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            if position == len(body):
                raise ValueError("the Zstandard frame is truncated")
            step = max(room // _ZSTD_BLOCK_BYTES * _ZSTD_LEAST_BLOCK_BYTES, _ZSTD_LEAST_STEP_BYTES)
            piece = body[position : position + step]
            unpacked = frame.decompress(piece)
            position += len(piece)
            room = max(room - len(unpacked), 0)
            yield unpacked
        position -= len(frame.unused_data)


# By the compression bits of sysFlag. Each raises an error of its library for an invalid stream.
_STREAMS: dict[int, Callable[[bytes, int], Iterator[bytes]]] = {
    0: _zlib,
    flags.COMPRESSION_ZLIB: _zlib,
    flags.COMPRESSION_LZ4: _lz4,
    flags.COMPRESSION_ZSTD: _zstd,
}


def decompress(body: bytes, sys_flag: int, limit: int = MAX_DECOMPRESSED_BODY_SIZE) -> bytes:
    """Decompress a body by the compression bits of ``sys_flag``; no type means zlib.

    Raises ValueError with the reason, also if the decompressed body exceeds ``limit`` bytes.
    """
    kind = sys_flag & flags.COMPRESSION_MASK
    chunks = _STREAMS.get(kind)
    if chunks is None:
        raise ValueError(f"compression type {kind >> 8} is not known")
    parts: list[bytes] = []
    size = 0
    try:
        for chunk in chunks(body, limit):
            size += len(chunk)
            if size > limit:
                raise ValueError(f"it has more than {limit} bytes ({LIMIT_KEY})")
            parts.append(chunk)
    except Exception as error:  # each library has its own errors
        raise ValueError(f"its body cannot be decompressed: {error}") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def with_decompressed_body(message: M, limit: int = MAX_DECOMPRESSED_BODY_SIZE) -> M:
    """The message as its producer made it: a compressed body is decompressed, and its flag is cleared.

    Raises ValueError as :func:`decompress` does.
    """
    if not message.sys_flag & flags.COMPRESSED:
        return message
    body = decompress(message.body, message.sys_flag, limit)
    return replace(message, body=body, sys_flag=message.sys_flag & ~flags.COMPRESSED)
