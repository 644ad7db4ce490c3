"""Bodies that a producer compressed: each type as Java reads it, and never more memory than the limit allows."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard

from gantrymq.format.packed_body import decompress, with_decompressed_body
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage

ZLIB, LZ4, ZSTD = flags.COMPRESSION_ZLIB, flags.COMPRESSION_LZ4, flags.COMPRESSION_ZSTD
MIB = 1 << 20
PACK = {ZLIB: zlib.compress, LZ4: lz4.frame.compress, ZSTD: zstandard.ZstdCompressor().compress}
KINDS = pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
FRAMES = pytest.mark.parametrize("kind", [LZ4, ZSTD])


def zstd_bomb(blocks: int, declared: int | None = None) -> bytes:
    """A frame of run-length blocks: 4 bytes each, of 128 KiB; ``declared`` is the size that its header claims."""
    head = b"\x28\xb5\x2f\xfd"
    head += b"\x00\x58" if declared is None else b"\xe0" + declared.to_bytes(8, "little")
    run = (128 << 10) << 3 | 1 << 1
    return head + b"".join((run | (n == blocks - 1)).to_bytes(3, "little") + b"\0" for n in range(blocks))


def deflate_bomb(size: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(size // MIB)), packer.flush()])


@KINDS
@pytest.mark.parametrize("body", [b"", b"a", b"abc" * 10_000, bytes(range(256)) * 1000], ids=len)
def test_compressed_body_round_trips(kind: int, body: bytes) -> None:
    assert decompress(PACK[kind](body), kind) == body
    assert decompress(PACK[kind](body), kind, len(body)) == body


def test_missing_compression_type_means_zlib() -> None:
    assert decompress(zlib.compress(b"body"), flags.COMPRESSED) == b"body"


@KINDS
def test_body_over_limit_cannot_be_decompressed(kind: int) -> None:
    packed = PACK[kind](bytes(100_001))
    with pytest.raises(ValueError, match=r"cannot be decompressed: it has more than 100000 bytes .maxDecompressedBody"):
        decompress(packed, kind, 100_000)


@KINDS
@pytest.mark.parametrize("cut", [1, 5])
def test_truncated_body_cannot_be_decompressed(kind: int, cut: int) -> None:
    packed = PACK[kind](b"abc" * 10_000)
    with pytest.raises(ValueError, match="cannot be decompressed"):
        decompress(packed[:-cut], kind)
    with pytest.raises(ValueError, match="cannot be decompressed"):
        decompress(b"no such stream", kind)


@FRAMES
def test_consecutive_frames_are_one_body(kind: int) -> None:
    assert decompress(PACK[kind](b"one") + PACK[kind](b"two"), kind) == b"onetwo"
    with pytest.raises(ValueError, match="cannot be decompressed"):
        decompress(PACK[kind](b"one") + b"junk", kind)


def test_bytes_after_zlib_stream_are_ignored() -> None:
    assert decompress(zlib.compress(b"one") + zlib.compress(b"two"), ZLIB) == b"one"


def test_unknown_compression_type_raises() -> None:
    with pytest.raises(ValueError, match="compression type 5 is not known"):
        decompress(b"", flags.COMPRESSED | 5 << 8)


# Made by the test: each worker imports this module to collect its tests.
BOMBS: dict[str, Callable[[], tuple[bytes, int]]] = {
    "zlib": lambda: (deflate_bomb(96 * MIB), ZLIB),
    "lz4": lambda: (lz4.frame.compress(bytes(96 * MIB)), LZ4),
    "lz4 frames": lambda: (lz4.frame.compress(bytes(MIB)) * 96, LZ4),
    "zstd": lambda: (zstd_bomb(24_000), ZSTD),
    "zstd that declares its size": lambda: (zstd_bomb(24_000, 24_000 << 17), ZSTD),
    "zstd that declares too little": lambda: (zstd_bomb(24_000, 1000), ZSTD),
    "zstd frames": lambda: (zstd_bomb(8) * 3_000, ZSTD),
    "zstd in itself": lambda: (zstandard.ZstdCompressor().compress(zstd_bomb(24_000)), ZSTD),
    "lz4 that declares 2^40": lambda: (
        lz4.frame.compress(b"a" * 100, store_size=True)[:6]
        + (1 << 40).to_bytes(8, "little")
        + lz4.frame.compress(b"a" * 100, store_size=True)[14:],
        LZ4,
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bomb_stops_at_limit(name: str) -> None:
    packed, kind = BOMBS[name]()
    limit = MIB
    tracemalloc.start()
    try:
        if name == "zstd in itself":  # one layer is one body: what is in it is nobody's concern
            assert decompress(packed, kind, limit) == zstd_bomb(24_000)
        else:
            with pytest.raises(ValueError, match="cannot be decompressed"):
                decompress(packed, kind, limit)
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()


def test_decompressed_message_has_no_compression_flag() -> None:
    host = Host("127.0.0.1", 1)
    body, sys_flag = zlib.compress(b"body"), flags.COMPRESSED | 4
    packed = StoredMessage("t", 0, 0, 0, 100, 0, sys_flag, 0, host, 0, host, 0, 0, 0, body, {})
    plain = with_decompressed_body(packed)
    assert (plain.body, plain.sys_flag) == (b"body", 4)
    assert with_decompressed_body(plain) is plain
