"""CRC-32 of kernels against zlib."""

import random
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import seeds

from gantrymq.kernels import crc
from gantrymq.kernels.arrays import read_only


def test_crc_of_every_length_and_alignment_equals_zlib() -> None:
    raw = random.Random(7).randbytes(700)
    buf = read_only(raw)
    for length in range(600):
        for start in (0, 1, 7, 16, 33):
            assert crc.crc32(buf, start, start + length) == zlib.crc32(raw[start : start + length])


@seeds(5)
def test_crc_of_random_ranges_equals_zlib(rng: random.Random) -> None:
    raw = rng.choice([rng.randbytes(70_000), bytes(70_000), b"\xff" * 70_000])
    for _ in range(50):
        start, stop = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
        assert crc.crc32(read_only(raw), start, stop) == zlib.crc32(raw[start:stop])


@given(st.binary(max_size=200))
def test_crc_up_to_end_of_buffer_equals_zlib(raw: bytes) -> None:
    assert crc.crc32(read_only(raw), 0, len(raw)) == zlib.crc32(raw)


def test_crc_of_last_page_bytes_does_not_touch_next_page(tmp_path: Path) -> None:
    import mmap

    with (tmp_path / "page").open("wb+") as file:
        file.write(b"\x5a" * mmap.PAGESIZE)
        file.flush()
        with mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ) as page:
            buf = read_only(page)
            for length in range(100):
                expected = zlib.crc32(b"\x5a" * length)
                assert crc.crc32(buf, mmap.PAGESIZE - length, mmap.PAGESIZE) == expected
            del buf
